"""A condition on columns by compiled code chooses exactly what the general way chooses, from logs of real servers."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import binlogtool
from binlogtool.log.records import Block
from binlogtool.log.select import Selection
from binlogtool.log.where_lines import RowLines

WORKLOADS = Path(__file__).parents[1] / "corpus" / "mysql_binlog" / "workloads"
LOGS = sorted(WORKLOADS.glob("*/types*.full.000001.gz")) + sorted(WORKLOADS.glob("*/partial-json.full.000001.gz"))
TESTS = ["> 0", "= '1'", "!= 0.5", "like '%1%'", "is null", "= x'00'", "< time '2024-01-01'", "in (1, true, 'b', null)"]


def columns_of(path: Path) -> list[str]:
    with binlogtool.open([str(path)]) as log:
        rows = [row for one in log.records() if isinstance(one.body, dict) for row in one.body.get("rows", ())]
    return sorted({name for row in rows for image in row.values() for name in image})


def chosen(path: Path, condition: str, backend: str) -> list[tuple[int, ...]]:
    with binlogtool.open([str(path)], backend=backend) as log:
        blocks = log.blocks(Selection(where=condition), decode="frame")
        return [tuple(map(int, block.offset)) for block in blocks if isinstance(block, Block)]


@pytest.mark.parametrize("packed", LOGS, ids=lambda path: f"{path.parent.name}-{path.name.split('.')[0]}")
def test_both_ways_choose_the_same(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.000001"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    answers = 0
    true = RowLines.true

    def counted(*given: object) -> tuple[list[bool], bool]:
        nonlocal answers
        found = true(*given)  # type: ignore[arg-type]
        answers += len(found[0])
        return found

    monkeypatch.setattr(RowLines, "true", counted)
    names = [name for name in columns_of(path) if "`" not in name]
    assert names
    for i, name in enumerate(names):
        test = TESTS[i % len(TESTS)]
        condition = f"after.`{name}` {test} or not before.`{name}` {test} and before.`{name}` = after.`{names[i - 1]}`"
        general = [offset for run in chosen(path, condition, "python") for offset in run]
        assert [offset for run in chosen(path, condition, "native") for offset in run] == general, condition
    for condition in ("body.flags = 1", "body.table_id > 18 and body.table like 'd%'", "body.database is null"):
        assert chosen(path, condition, "native") == chosen(path, condition, "python")
    assert answers > len(names)
