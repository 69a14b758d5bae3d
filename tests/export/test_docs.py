"""What docs/scale.md shows is what the commands print."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import scale, scale_report
from tests.docs.pages import ROOT, examples, make_place, matches, run

DOCUMENT = ROOT / "docs" / "scale.md"
EXAMPLES = examples(DOCUMENT.read_text("utf-8"), ("binlogtool", "python docs/"))


@pytest.mark.full
@pytest.mark.spark(alone=True)
def test_the_examples_print_what_the_document_says(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    assert len(EXAMPLES) == 3
    for example in EXAMPLES:
        _, shown = run(example.command, place)
        assert matches(example.output, shown), "\n".join(shown)
    assert (tmp_path / "stats.svg").read_bytes() == (ROOT / "docs" / "examples" / "stats.svg").read_bytes()


def test_the_tables_of_the_cost_model_follow_from_the_points_beside_them() -> None:
    made = scale_report.sections(scale.read_points(ROOT / "docs" / "examples" / "scale-points.jsonl"))
    shown = DOCUMENT.read_text("utf-8")
    assert all(f"<!-- scale:{name} -->" in shown and f"<!-- /scale:{name} -->" in shown for name in made)
    assert scale.put(shown, made) == shown
