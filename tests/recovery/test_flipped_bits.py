"""`--correct-bits`: a flipped bit is corrected where a stored checksum is then right, other damage is left out."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

import binlogtool
from binlogtool.repair.plan_types import RepairPlan, RepairPolicy
from tests.cli.invoke import invoke

CORRECT = RepairPolicy(salvage=True, correct_bits=True, copy=True)
LOGS = [
    "drizzle/basic-checksum.log",
    "guides/mariadb/mariadb-bin.000001",
    "guides/tarantool-torn/00000000000000000003.snap",
    "manticore/sphinx-mixed/binlog.001",
    "manticore/v16-mixed/binlog.0000",
]


def damage(intact: Path, folder: Path, *bits: tuple[int, int]) -> Path:
    """Write a copy of a log with some bits flipped: offset of the byte, and number of the bit."""
    data = bytearray(intact.read_bytes())
    for offset, bit in bits:
        data[offset] ^= 1 << bit
    path = folder / intact.name
    path.write_bytes(data)
    return path


def salvage(path: Path, folder: Path) -> tuple[RepairPlan, bytes]:
    plan = binlogtool.plan_truncate(path, policy=CORRECT)
    assert not plan.refused, plan.reasons
    copy = folder / "copy"
    copy.unlink(missing_ok=True)
    binlogtool.write_repaired_copy(plan, copy)
    return plan, copy.read_bytes()


def body_bytes(log: Path, count: int) -> list[int]:
    """Offsets of a byte near the end of some records, with records after them."""
    with binlogtool.open(log) as opened:
        records = [one for one in opened.records() if one.size > 24][1:-1]
    return [one.offset + one.size - 6 for one in records[:: max(1, len(records) // count)]][:count]


@pytest.mark.parametrize("log", LOGS)
def test_the_copy_of_a_log_with_a_flipped_bit_is_the_intact_log(samples: Path, tmp_path: Path, log: str) -> None:
    intact = samples / log
    offsets = body_bytes(intact, 5)
    assert len(offsets) == 5
    for number, offset in enumerate(offsets):
        plan, copy = salvage(damage(intact, tmp_path, (offset, number % 8)), tmp_path)
        assert copy == intact.read_bytes(), offset
        (correction,) = plan.files[0].proof["corrected"]
        assert correction["offset"] == offset
        assert plan.files[0].cut_bytes == 0


@pytest.mark.parametrize("log", ["drizzle/basic-checksum.log", "manticore/sphinx-mixed/binlog.001"])
def test_two_flipped_bits_of_a_record_are_not_corrected(samples: Path, tmp_path: Path, log: str) -> None:
    intact = samples / log
    offset = body_bytes(intact, 5)[2]
    plan, copy = salvage(damage(intact, tmp_path, (offset, 1), (offset - 1, 6)), tmp_path)
    assert "corrected" not in plan.files[0].proof
    (left_out,) = plan.files[0].proof["left_out"]
    start, end = left_out["offset"], left_out["offset"] + left_out["length"]
    assert start <= offset - 1 and offset < end
    assert copy == intact.read_bytes()[:start] + intact.read_bytes()[end:]


def test_a_flipped_bit_in_the_last_byte_is_corrected(samples: Path, tmp_path: Path) -> None:
    intact = samples / "guides/mariadb/mariadb-bin.000001"
    last = intact.stat().st_size - 1
    plan, copy = salvage(damage(intact, tmp_path, (last, 3)), tmp_path)
    assert copy == intact.read_bytes()
    assert plan.files[0].cut_bytes == 0


def test_flipped_bits_of_several_records_are_corrected_together(samples: Path, tmp_path: Path) -> None:
    intact = samples / "guides/mariadb/mariadb-bin.000001"
    first, *_, last = body_bytes(intact, 5)
    plan, copy = salvage(damage(intact, tmp_path, (first, 0), (last, 7)), tmp_path)
    assert copy == intact.read_bytes()
    assert [one["offset"] for one in plan.files[0].proof["corrected"]] == [first, last]


def test_a_flipped_bit_in_the_length_of_an_event_is_corrected(samples: Path, tmp_path: Path) -> None:
    intact = samples / "guides/mariadb/mariadb-bin.000001"
    event = 0x1E1  # GTID 0-1-2; its length is in the bytes 9 to 12 (docs/spec/mysql_binlog.md)
    _, copy = salvage(damage(intact, tmp_path, (event + 9, 5)), tmp_path)
    assert copy == intact.read_bytes()


def test_without_the_option_the_record_is_left_out(samples: Path, tmp_path: Path) -> None:
    intact = samples / "drizzle/basic-checksum.log"
    offset = body_bytes(intact, 5)[2]
    policy = RepairPolicy(salvage=True, copy=True)
    plan = binlogtool.plan_truncate(damage(intact, tmp_path, (offset, 1)), policy=policy)
    (left_out,) = plan.files[0].proof["left_out"]
    assert left_out["offset"] < offset < left_out["offset"] + left_out["length"]
    assert "corrected" not in plan.files[0].proof


def test_flipped_bits_of_vinyl_files_are_corrected(corpus: Path, tmp_path: Path) -> None:
    generated = corpus / "tarantool/generated"
    for case in ("run_flip_page", "index_flip", "vylog_flip"):
        (path,) = [path for path in (generated / "damaged_vinyl" / case).rglob("0*") if path.is_file()]
        binlogtool.write_repaired_copy(binlogtool.plan_truncate(path, policy=CORRECT), tmp_path / case)
        twin = generated / "single" / path.relative_to(generated / "damaged_vinyl" / case)
        assert (tmp_path / case).read_bytes() == twin.read_bytes()


def test_diagnose_recommends_the_corrected_copy(samples: Path, tmp_path: Path) -> None:
    damaged = samples / "guides/tarantool-flipped"
    (log,) = json.loads(invoke("diagnose", "-O", "json", str(damaged)).out)["logs"]
    (step,) = [one for one in log["steps"] if "--keep-after-damage --correct-bits" in (one["command"] or "")]
    assert step["what"] == "write a copy of the log with 1 flipped bit corrected; its checksums prove the result"
    words = shlex.split(step["command"])
    words[words.index("--to-file") + 1] = str(tmp_path / "new.xlog")
    result = invoke(*words[1:])
    assert result.code == 0, result.text
    intact = bytearray((damaged / "00000000000000000003.xlog").read_bytes())
    intact[0x542] ^= 1 << 2  # tests/corpus/guides/README.md: "customer 20" became "customer 60"
    assert (tmp_path / "new.xlog").read_bytes() == intact
