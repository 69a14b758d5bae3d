"""What docs/scale.md shows is what the commands print."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import scale, scale_report
from tests.contract.test_readme import Example, examples, matches

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "scale.md"
EXAMPLES = examples(DOCUMENT.read_text("utf-8"), ("binlogtool", "python docs/"))


def run(example: Example, place: Path) -> list[str]:
    environment = {**os.environ, "PATH": f"{place / 'shims'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environment |= {"COLUMNS": "80", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["bash", "-c", example.command], cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=180, check=False,
    )  # fmt: skip
    return done.stdout.decode().splitlines()


@pytest.mark.spark
def test_the_examples_print_what_the_document_says(tmp_path: Path) -> None:
    for name in ("tests", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "shims").mkdir()
    for name, words in (("binlogtool", f"{sys.executable} -m binlogtool"), ("python", sys.executable)):
        shim = tmp_path / "shims" / name
        shim.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        shim.chmod(0o755)
    assert len(EXAMPLES) == 3
    for example in EXAMPLES:
        shown = run(example, tmp_path)
        assert matches(example.output, shown), "\n".join(shown)
    assert (tmp_path / "stats.svg").read_bytes() == (ROOT / "docs" / "examples" / "stats.svg").read_bytes()


def test_the_tables_of_the_cost_model_follow_from_the_points_beside_them() -> None:
    made = scale_report.sections(scale.read_points(ROOT / "docs" / "examples" / "scale-points.jsonl"))
    shown = DOCUMENT.read_text("utf-8")
    assert all(f"<!-- scale:{name} -->" in shown and f"<!-- /scale:{name} -->" in shown for name in made)
    assert scale.put(shown, made) == shown
