"""Salvage of real damaged logs: every provable record, and nothing else, with an exact account."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import binlogtool
from binlogtool.errors import RefusedError, UnknownFormatError
from binlogtool.recovery.plan import Asked, Plan
from tests.harness.oracle import MARK
from tests.harness.samples import WALKERS, is_log

pytestmark = pytest.mark.corpus

SALVAGE = Asked(salvage=True, copy=True)


def damaged(corpus: Path, format: str) -> list[Path]:
    """Files with records behind a damage."""
    skip = (".json", ".gz", ".md", ".txt", ".jsonl")
    files = [p for p in sorted((corpus / format / "generated").rglob("*")) if "damaged" in str(p) and p.is_file()]
    found = []
    for path in files:
        if path.suffix in skip or path.stat().st_size > 300_000:
            continue
        try:
            (report,) = binlogtool.verify([path]).files or (None,)
        except (UnknownFormatError, ValueError):
            continue
        if report is not None and any(f.id == "valid-after-damage" for f in report.findings):
            found.append(path)
    return found


def left_in(path: Path, plan: Plan) -> bytes:
    """The file without what the account says is left out."""
    data = bytearray(path.read_bytes())
    for one in reversed(plan.files[0].proof["left_out"]):
        del data[one["offset"] : one["offset"] + one["length"]]
    return bytes(data)


@pytest.mark.parametrize(("format", "least"), [("drizzle", 11), ("tarantool", 15), ("manticore", 14), ("eblob", 8)])
def test_a_salvaged_log_is_the_log_without_the_damage(corpus: Path, tmp_path: Path, format: str, least: int) -> None:
    outcomes: Counter[str] = Counter()
    for number, path in enumerate(damaged(corpus, format)):
        before = path.read_bytes()
        plan = binlogtool.plan_truncate(path, asked=SALVAGE)
        if plan.refused:
            assert "was not declared" in plan.reasons[0] or "head" in plan.reasons[0], plan.reasons
            outcomes["refused: records without their table, or a damaged head"] += 1
            continue
        new = tmp_path / f"{number}{path.suffix}"
        binlogtool.write_repaired(plan, new)
        assert new.read_bytes() == left_in(path, plan), path
        assert path.read_bytes() == before
        (report,) = binlogtool.verify([path]).files
        assert plan.files[0].proof["records"] == report.records
        assert plan.files[0].proof.get("records_kept", report.records) == report.records, path
        if format in WALKERS and is_log(format, path):
            assert independent(format, new) == report.records, path
        outcomes["salvaged" + (", marked" if plan.notes else "")] += 1
    print(f"\nsalvage {format}: {dict(outcomes)}")
    assert outcomes["salvaged"] + outcomes["salvaged, marked"] >= least


def independent(format: str, path: Path) -> int:
    """The records that the harness' own reader finds in the copy; it must find no damage."""
    walk = WALKERS[format](path.read_bytes())
    assert sum(frame.end - frame.start for frame in walk.frames) + (walk.head or 0) in (
        path.stat().st_size,
        path.stat().st_size - len(MARK),
    ), path
    return sum(frame.records for frame in walk.frames)


def test_mysql_logs_are_not_salvaged_and_it_is_said_why(corpus: Path) -> None:
    path = corpus / "mysql-binlog/generated/damaged/mysql-9.7/crc-bitflip-row-body.bin"
    plan = binlogtool.plan_truncate(path, asked=SALVAGE)
    assert plan.refused
    assert any("positions inside events" in reason for reason in plan.reasons)
    with pytest.raises(RefusedError):
        binlogtool.write_repaired(plan, "never")


def test_missing_rows_of_a_salvaged_tarantool_log_are_told(corpus: Path) -> None:
    path = corpus / "tarantool/generated/damaged/flip_plain_block/00000000000000000227.xlog"
    plan = binlogtool.plan_truncate(path, asked=SALVAGE)
    assert not plan.refused
    assert "force_recovery" in plan.notes[0]
    assert any("LSN 262 of replica 1 is missing" in note for note in plan.notes)
