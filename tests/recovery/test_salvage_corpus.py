"""Salvage of real damaged logs: every provable record, and nothing else, with an exact account."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import binlogtool
from binlogtool.errors import RefusedError, UnknownFormatError
from binlogtool.repair.plan_types import RepairPlan, RepairPolicy
from tests.formats.tarantool.make import block, dml, header
from tests.harness.oracle import MARK
from tests.harness.samples import WALKERS, is_log

SALVAGE = RepairPolicy(salvage=True, copy=True)


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


def left_in(path: Path, plan: RepairPlan) -> bytes:
    """The file without what the account says is left out, and with the new heads of blocks as they are."""
    data = bytearray(path.read_bytes())
    pieces = plan.files[0].pieces
    for one in plan.files[0].proof.get("mended", ()):
        (head,) = [p.data for p, after in pairwise(pieces) if p.data and after.start == one["offset"] + len(p.data)]
        data[one["offset"] : one["offset"] + len(head)] = head
    for one in reversed(plan.files[0].proof.get("left_out", ())):
        del data[one["offset"] : one["offset"] + one["length"]]
    return bytes(data)


@pytest.mark.full
@pytest.mark.parametrize(("format", "least"), [("drizzle", 11), ("tarantool", 15), ("manticore", 14), ("eblob", 8)])
def test_a_salvaged_log_is_the_log_without_the_damage(corpus: Path, tmp_path: Path, format: str, least: int) -> None:
    outcomes: Counter[str] = Counter()
    for number, path in enumerate(damaged(corpus, format)):
        before = path.read_bytes()
        plan = binlogtool.plan_truncate(path, policy=SALVAGE)
        if plan.refused:
            known = ("was not declared", "head", "cannot be salvaged")
            assert any(words in plan.reasons[0] for words in known), plan.reasons
            outcomes["refused: records without their table, a damaged head, or no log that may lack records"] += 1
            continue
        new = tmp_path / f"{number}{path.suffix}"
        binlogtool.write_repaired_copy(plan, new)
        assert new.read_bytes() == left_in(path, plan), path
        assert path.read_bytes() == before
        (report,) = binlogtool.verify([path]).files
        proof = plan.files[0].proof
        assert proof["records"] == report.records
        assert proof.get("records_kept", report.records) == (report.records or 0) + len(proof.get("mended", ())), path
        if format in WALKERS and is_log(format, path):
            assert independent(format, new) == proof.get("records_kept", report.records), path
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
    plan = binlogtool.plan_truncate(path, policy=SALVAGE)
    assert plan.refused
    assert any("positions inside events" in reason for reason in plan.reasons)
    with pytest.raises(RefusedError):
        binlogtool.write_repaired_copy(plan, "never")


def test_missing_rows_of_a_salvaged_tarantool_log_are_told(corpus: Path) -> None:
    path = corpus / "tarantool/generated/damaged/flip_plain_block/00000000000000000227.xlog"
    plan = binlogtool.plan_truncate(path, policy=SALVAGE)
    assert not plan.refused
    assert "force_recovery" in plan.notes[0]
    assert any("LSN 262 of replica 1 is missing" in note for note in plan.notes)


def tarantool_cases(corpus: Path, *names: str) -> Iterator[tuple[Path, bytes]]:
    """Damaged logs by their case, and their intact twins."""
    generated = corpus / "tarantool/generated"
    for one in json.loads((generated / "damaged/manifest.json").read_text())["cases"]:
        if one["case"].startswith(names):
            name = one["expected"]["file"]
            yield generated / "damaged" / one["case"] / name, (generated / one["base"] / name).read_bytes()


def test_blocks_with_a_damaged_head_are_given_back_whole(corpus: Path, tmp_path: Path) -> None:
    """Length, filler or magic damaged, the payload proven by its stored crc: the result is the intact twin itself."""
    count = 0
    for path, twin in tarantool_cases(corpus, "fixheader_", "magic_"):
        plan = binlogtool.plan_truncate(path, policy=SALVAGE)
        assert not plan.refused and not plan.notes
        assert "left_out" not in plan.files[0].proof and plan.files[0].cut_bytes == 0
        new = tmp_path / f"{count}.xlog"
        binlogtool.write_repaired_copy(plan, new)
        assert new.read_bytes() == twin, path
        count += 1
    assert count == 6


def test_several_damaged_heads_in_a_row_are_mended_and_the_garbage_before_them_is_left_out(tmp_path: Path) -> None:
    one, two, three, four, five = blocks = [block(dml(number)) for number in range(1, 6)]
    filler = two[:11] + b"\x00" + two[12:]
    magic = b"XXXX" + three[4:]
    length = four[:4] + b"\x05" + four[5:]
    path = tmp_path / "00000000000000000000.xlog"
    path.write_bytes(header() + one + b"garbage" * 3 + filler + magic + length + five + MARK)
    plan = binlogtool.plan_truncate(path, policy=SALVAGE)
    left = [(part["offset"], part["length"]) for part in plan.files[0].proof["left_out"]]
    assert left == [(len(header() + one), 21)]
    assert len(plan.files[0].proof["mended"]) == 3 and not plan.refused
    binlogtool.write_repaired_copy(plan, tmp_path / "new")
    assert (tmp_path / "new").read_bytes() == header() + b"".join(blocks) + MARK


def test_a_damaged_head_in_front_of_a_damaged_payload_is_left_out(corpus: Path, tmp_path: Path) -> None:
    """Nothing is made anew over bytes that no checksum proves."""
    for number, (source, _) in enumerate(tarantool_cases(corpus, "fixheader_", "magic_")):
        data = bytearray(source.read_bytes())
        data[4508 + 60] ^= 1
        path = tmp_path / str(number) / source.name
        path.parent.mkdir()
        path.write_bytes(data)
        plan = binlogtool.plan_truncate(path, policy=SALVAGE)
        assert [(one["offset"], one["length"]) for one in plan.files[0].proof["left_out"]] == [(4508, 93)]
        assert "mended" not in plan.files[0].proof
        assert any("LSN 260 of replica 1 is missing" in note for note in plan.notes)


def test_garbage_between_blocks_is_no_missing_row(corpus: Path) -> None:
    for path, _ in tarantool_cases(corpus, "garbage_", "false_magic_"):
        plan = binlogtool.plan_truncate(path, policy=SALVAGE)
        assert plan.files[0].proof["left_out"] and not plan.notes, path


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("run_flip_page", "holds the offset of each page"),
        ("index_flip", "does not match its run"),
        ("vylog_flip", "refer to each"),
    ],
)
def test_files_that_may_not_lack_anything_are_not_salvaged(corpus: Path, name: str, why: str) -> None:
    folder = corpus / "tarantool/generated/damaged_vinyl" / name
    (path,) = [path for path in folder.rglob("0*") if path.is_file()]
    plan = binlogtool.plan_truncate(path, policy=SALVAGE)
    assert plan.refused and any(why in reason for reason in plan.reasons)
