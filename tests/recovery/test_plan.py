"""Plans: what would be cut, why it is refused. Expectations come from the corpus manifests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

import binlogtool
from binlogtool.errors import InputOutputError, UnknownFormatError, UsageError
from binlogtool.repair.plan_types import RepairPolicy


def drizzle_cases(corpus: Path) -> dict[str, dict[str, object]]:
    manifest = json.loads((corpus / "drizzle/generated/manifest.json").read_text())
    return {name: case["expected"] for name, case in manifest["damaged"].items()}


def test_drizzle_plans_cut_exactly_where_the_manifest_says(corpus: Path) -> None:
    compared = 0
    for name, expected in drizzle_cases(corpus).items():
        path = corpus / "drizzle/generated" / name
        plan = binlogtool.plan_truncate(path, format="drizzle")
        (file,) = plan.files
        cut_at = file.durable_end if file.cut_bytes and not plan.refused else None
        assert cut_at == expected["truncate_to"], name
        compared += 1
    assert compared == 25


def test_a_plan_with_valid_records_behind_the_damage_is_refused(corpus: Path) -> None:
    plan = binlogtool.plan_truncate(corpus / "drizzle/generated/damaged/bitflip-payload.log")
    assert plan.refused
    assert plan.files[0].cut_valid_records == 33
    assert any("valid-after-damage" in reason for reason in plan.reasons)


def test_the_hashes_are_those_of_the_kept_and_the_cut_bytes(samples: Path, tmp_path: Path) -> None:
    data = (samples / "drizzle/basic-checksum.log").read_bytes()[:22481]
    path = tmp_path / "transaction.log"
    path.write_bytes(data)
    (file,) = binlogtool.plan_truncate(path).files
    assert (file.action, file.durable_end, file.cut_bytes) == ("truncate", 22457, 24)
    assert file.sha256_kept == hashlib.sha256(data[:22457]).hexdigest()
    assert file.sha256_cut == hashlib.sha256(data[22457:]).hexdigest()
    assert path.read_bytes() == data


def test_an_intact_file_needs_no_action(samples: Path) -> None:
    plan = binlogtool.plan_truncate(samples / "drizzle/basic-checksum.log")
    assert (plan.refused, plan.files[0].action, plan.files[0].cut_bytes) == (False, "none", 0)


def test_what_cannot_be_planned_is_refused_with_the_right_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        binlogtool.plan_truncate("-")
    with pytest.raises(InputOutputError):
        binlogtool.plan_truncate(tmp_path / "nothing")
    unknown = tmp_path / "x"
    unknown.write_bytes(b"\x7fELF" * 100)
    with pytest.raises(UnknownFormatError):
        binlogtool.plan_truncate(unknown)


def test_a_corrected_bit_is_not_counted_as_cut(samples: Path, tmp_path: Path) -> None:
    """A copy with one corrected bit in the header has all bytes; a torn end after it is cut and counted."""
    source = next(path for path in sorted((samples / "tarantool/chain").glob("*.xlog")) if path.stat().st_size > 300)
    data = bytearray(source.read_bytes())
    data[1] ^= 1
    path = tmp_path / source.name
    path.write_bytes(data)
    policy = RepairPolicy(salvage=True, copy=True)
    plan = binlogtool.plan_truncate(path, policy=policy, format="tarantool")
    (file,) = plan.files
    assert (file.action, file.cut_bytes, file.cut_valid_records) == ("rewrite", 0, 0)
    binlogtool.write_repaired_copy(plan, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    path.write_bytes(data + b"torn")
    (file,) = binlogtool.plan_truncate(path, policy=policy, format="tarantool").files
    assert (file.action, file.cut_bytes, file.cut_valid_records) == ("rewrite", 4, 0)
