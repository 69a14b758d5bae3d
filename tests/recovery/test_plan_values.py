"""A plan as a value: what it says of itself, in every field of its JSON, and that it is applied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.errors import RefusedError
from binlogtool.format_api.format import ResultPiece
from binlogtool.repair.file_io import SystemCalls
from binlogtool.repair.plan import FilePlan, RepairPlan, RepairPolicy, pieces_from_json, pieces_to_json

PIECES = (ResultPiece(3, 10), ResultPiece(zeros=6), ResultPiece(data=b"\x00\xff"))
PIECES_VALUE = [{"start": 3, "end": 10}, {"zeros": 6}, {"bytes": "00ff"}]


def file(action: str = "none", **more: Any) -> FilePlan:
    given: dict[str, Any] = {"durable_end": 10, "cut_bytes": 2, "cut_valid_records": 1, "proof": {"records": 7}}
    given |= {"sha256_kept": "a", "sha256_cut": "b", **more}
    return FilePlan(path="/x", size=15, action=action, **given)


PLAIN = {
    "path": "/x", "size": 15, "action": "none", "durable_end": 10, "cut_bytes": 2, "cut_valid_records": 1,
    "proof": {"records": 7}, "sha256_kept": "a", "sha256_cut": "b",
}  # fmt: skip


@pytest.mark.parametrize(
    ("plan", "beyond"),
    [
        (file(), {}),
        (file(inode=0, mtime_ns=5), {"inode": 0, "mtime_ns": 5}),
        (file(made_like="/y"), {"made_like": "/y"}),
        (file("rewrite", pieces=PIECES), {"action": "rewrite", "result": PIECES_VALUE}),
        (file("zero-fill", pieces=PIECES), {"action": "zero-fill", "result": PIECES_VALUE}),
        (file("truncate", pieces=PIECES), {"action": "truncate"}),
        (
            file("rewrite", pieces=(*PIECES, ResultPiece(zeros=1))),
            {"action": "rewrite", "result": [*PIECES_VALUE, {"zeros": 1}], "grows_to": 16},
        ),
    ],
)
def test_a_file_says_in_json_what_becomes_of_it(plan: FilePlan, beyond: dict[str, Any]) -> None:
    assert plan.as_value() == {**PLAIN, **beyond}


def test_pieces_are_read_back_from_json_as_they_were() -> None:
    assert pieces_to_json(PIECES) == PIECES_VALUE
    assert pieces_from_json(PIECES_VALUE) == PIECES


def test_the_size_and_the_records_of_the_result_are_counted() -> None:
    assert (file().result_size, file().kept_records) == (15, 7)
    assert file("rewrite", pieces=PIECES).result_size == 15
    assert file(proof={"records": 7, "records_kept": 3}).kept_records == 3
    assert file(proof={"records": 7, "records_kept": 0}).kept_records == 0
    assert file(proof={}).kept_records == 0
    gone = file("remove", pieces=PIECES)
    assert (gone.result_size, gone.kept_records) == (0, 0)
    assert file(proof={"corrected": []}).corrects_bits and not file().corrects_bits


def test_of_what_was_asked_only_what_is_no_default_is_told() -> None:
    assert RepairPolicy().as_value() == {}
    assert RepairPolicy(max_loss=0, max_loss_records=2).as_value() == {"max_loss": 0, "max_loss_records": 2}
    assert RepairPolicy(salvage=True, copy=True).as_value() == {"salvage": True, "copy": True}


def test_a_plan_says_only_what_there_is() -> None:
    least = {"schema": "binlogtool/plan/1", "format": "drizzle", "refused": False, "reasons": [], "files": [PLAIN]}
    assert RepairPlan("drizzle", False, (), (file(),)).as_value() == least
    full = RepairPlan("drizzle", True, ("why",), (file(),), "/x", RepairPolicy(copy=True), ("note",))
    more = {"refused": True, "reasons": ["why"], "target": "/x", "asked": {"copy": True}, "notes": ["note"]}
    assert full.as_value() == {**least, **more}
    assert json.loads(binlogtool.plan_as_json(full)) == full.as_value()


def test_a_plan_knows_which_files_change_and_whether_one_could_not_be_read() -> None:
    kept, cut, locked = file(), file("truncate"), file(proof={"encrypted": True})
    assert RepairPlan("x", False, (), (kept, cut)).changes == (cut,)
    assert (
        RepairPlan("x", False, (), (kept, cut)).has_encrypted_file,
        RepairPlan("x", False, (), (kept, locked)).has_encrypted_file,
    ) == (False, True)


def test_a_plan_is_applied_with_its_undo_file_in_the_directory_given(samples: Path, tmp_path: Path) -> None:
    data = (samples / "drizzle/basic-checksum.log").read_bytes()[:22481]
    path, home = tmp_path / "transaction.log", tmp_path / "undo"
    path.write_bytes(data)
    home.mkdir()
    plan = binlogtool.plan_truncate(path)
    done = binlogtool.apply_plan(plan, undo_dir=str(home))
    assert path.read_bytes() == data[:22457]
    (written,) = done.files
    assert (written.path, written.size_before, written.size_after) == (str(path), 22481, 22457)
    assert done.undo is not None and Path(done.undo).parent == home
    binlogtool.undo(done.undo)
    assert path.read_bytes() == data


def test_a_plan_for_a_file_that_was_changed_since_is_not_applied(samples: Path, tmp_path: Path) -> None:
    data = (samples / "drizzle/basic-checksum.log").read_bytes()[:22481]
    path = tmp_path / "transaction.log"
    path.write_bytes(data)
    plan = binlogtool.plan_truncate(path)
    path.write_bytes(data + b"x")
    with pytest.raises(RefusedError):
        binlogtool.apply_plan(plan)
    assert path.read_bytes() == data + b"x"


def test_a_plan_is_applied_on_a_network_file_system_only_if_that_is_allowed(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = (samples / "drizzle/basic-checksum.log").read_bytes()[:22481]
    path = tmp_path / "transaction.log"
    path.write_bytes(data)
    plan = binlogtool.plan_truncate(path)
    table = f"36 35 0:42 / {tmp_path.resolve()} rw shared:1 - nfs server:/logs rw\n"
    monkeypatch.setattr(SystemCalls, "read_mount_table", lambda _: table)
    with pytest.raises(RefusedError, match="--allow-network-file-system"):
        binlogtool.apply_plan(plan)
    assert path.read_bytes() == data
    binlogtool.apply_plan(plan, network=True)
    assert path.read_bytes() == data[:22457]
