"""A plan as a value: what it says of itself, in every field of its JSON, and that it is applied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import binlogtool
from binlogtool.errors import RefusedError
from binlogtool.findings import Finding, Severity
from binlogtool.format_api.format import SERVER_TRUNCATES, ResultPiece
from binlogtool.repair.plan_types import (
    FilePlan,
    RepairPlan,
    RepairPolicy,
    collect_refusals,
    list_empty_result_reasons,
    list_exceeded_loss_limits,
    pieces_from_json,
    pieces_to_json,
)
from binlogtool.repair.system_calls import SystemCalls
from binlogtool.verification.verify_report import FileReport

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
    assert plan.to_json_value() == {**PLAIN, **beyond}


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
    corrected = replace(file(proof={"corrected": []}), cut_bytes=0)
    assert (corrected.corrects_bits, file().corrects_bits) == (True, False)
    assert not replace(corrected, cut_bytes=2).corrects_bits  # other damage was left out


def test_of_what_was_asked_only_what_is_no_default_is_told() -> None:
    assert RepairPolicy().get_non_default_settings() == {}
    assert RepairPolicy(max_loss=0, max_loss_records=2).get_non_default_settings() == {
        "max_loss": 0,
        "max_loss_records": 2,
    }
    assert RepairPolicy(salvage=True, copy=True).get_non_default_settings() == {"salvage": True, "copy": True}


def test_a_plan_says_only_what_there_is() -> None:
    least = {"schema": "binlogtool/plan/1", "format": "drizzle", "refused": False, "reasons": [], "files": [PLAIN]}
    assert RepairPlan("drizzle", False, (), (file(),)).to_json_value() == least
    full = RepairPlan("drizzle", True, ("why",), (file(),), "/x", RepairPolicy(copy=True), ("note",))
    more = {"refused": True, "reasons": ["why"], "target": "/x", "asked": {"copy": True}, "notes": ["note"]}
    assert full.to_json_value() == {**least, **more}
    assert json.loads(binlogtool.plan_as_json(full)) == full.to_json_value()


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


# -- reasons against a plan --------------------------------------------------------------------------------------------


def report(*findings: Finding, size: int = 15, **classes: int) -> FileReport:
    return FileReport("/x", "drizzle", "", size, 7, {}, 0, 10, None, classes, findings)


def error(id_: str, offset: int | None = 12, severity: Severity = Severity.ERROR, **facts: Any) -> Finding:
    return Finding(id_, severity, offset, 3, "why", facts=facts)


CUT = file("truncate", cut_bytes=5, pieces=(ResultPiece(0, 10),))
"""Cuts 15 bytes to 10."""


@pytest.mark.parametrize(("header", "size", "is_refused"), [
    (0, 15, False), (10, 15, False), (11, 15, True), (15, 15, True), (16, 15, False),
])  # fmt: skip
def test_a_cut_inside_of_a_header_that_is_there_is_refused(header: int, size: int, is_refused: bool) -> None:
    found = collect_refusals(report(size=size, header=header), CUT, RepairPolicy())
    text = "/x: the durable end is inside the file's header; truncation cannot repair it"
    assert found == ([text] if is_refused else [])
    assert collect_refusals(report(size=size), CUT, RepairPolicy()) == []
    nothing = file("truncate", cut_bytes=15, pieces=(ResultPiece(0, 0),))
    assert collect_refusals(report(size=size), nothing, RepairPolicy()) == []


def test_a_log_without_a_durable_end_says_why() -> None:
    unknown = file(durable_end=None)
    headless = "/x: the header cannot be read; no durable end can be given"
    assert collect_refusals(report(), unknown, RepairPolicy()) == [headless]
    locked = "/x: the log is encrypted; its durable end is only known with --keyfile FILE"
    assert collect_refusals(report(error("encrypted")), unknown, RepairPolicy()) == [locked]
    (sized,) = collect_refusals(report(error("encrypted"), record=1200, size=1500), unknown, RepairPolicy())
    assert sized == locked.replace("; its", "; the sizes of its events account for 1,200 of 1,500 bytes; its")


def test_more_than_the_limits_allow_is_not_cut() -> None:
    cut = file("truncate", cut_bytes=2000, cut_valid_records=3)
    assert list_exceeded_loss_limits(cut, RepairPolicy()) == []
    assert list_exceeded_loss_limits(cut, RepairPolicy(max_loss=2000, max_loss_records=3)) == []
    assert list_exceeded_loss_limits(cut, RepairPolicy(max_loss=1999, max_loss_records=2)) == [
        "/x: 2,000 bytes would be removed, --max-loss allows 1,999",
        "/x: 3 complete records would be removed, --max-loss-records allows 2",
    ]
    assert collect_refusals(report(), cut, RepairPolicy(max_loss=0))[-1].startswith("/x: 2,000 bytes would be removed")


REFUSED = {
    "valid-after-damage": "/x: valid-after-damage: why; truncating would discard them",
    "gap-in-sequence": "/x: gap-in-sequence: why; truncating would hide that",
    "changed-while-read": "/x: changed-while-read: why; plan again when nobody writes to it",
    "checksum-mismatch": "/x: checksum-mismatch at 0xc: why",
}


@pytest.mark.parametrize("id_", [*REFUSED, "torn-tail", "zero-tail", "garbage-tail", "damaged-range"])
def test_findings_that_a_cut_would_hide_refuse_it(id_: str) -> None:
    expected = [REFUSED[id_]] if id_ in REFUSED else []
    assert collect_refusals(report(error(id_)), CUT, RepairPolicy()) == expected
    harmless = report(error(id_, severity=Severity.WARNING))
    always = ["/x: changed-while-read: why; plan again when nobody writes to it"]
    assert collect_refusals(harmless, CUT, RepairPolicy()) == (always if id_ == "changed-while-read" else [])


@pytest.mark.parametrize(("offset", "is_refused"), [(None, True), (9, True), (10, False), (12, False)])
@pytest.mark.parametrize("policy", [RepairPolicy(allow_discard_valid=True), RepairPolicy(salvage=True)])
def test_consent_concerns_what_is_after_the_durable_end(
    policy: RepairPolicy, offset: int | None, is_refused: bool
) -> None:
    found = collect_refusals(report(error("checksum-mismatch", offset)), CUT, policy)
    assert found == ([f"/x: checksum-mismatch at {offset or 0:#x}: why"] if is_refused else [])
    assert collect_refusals(report(error("gap-in-sequence", offset)), CUT, policy) == [REFUSED["gap-in-sequence"]]


def test_a_server_that_cuts_itself_is_consent_unless_complete_records_follow() -> None:
    def reasons(*findings: Finding) -> list[str]:
        one = report(*findings)
        cuts = FileReport(**{name: getattr(one, name) for name in FileReport.__struct_fields__}
                          | {"details": {SERVER_TRUNCATES: True}})  # fmt: skip
        return collect_refusals(cuts, CUT, RepairPolicy())

    assert reasons(error("checksum-mismatch")) == []
    lost = reasons(error("checksum-mismatch"), error("valid-after-damage"))
    assert lost == [REFUSED["valid-after-damage"], REFUSED["checksum-mismatch"]]


def test_the_correction_of_a_bit_in_a_header_needs_salvage() -> None:
    one = report(error("bad-header", 0, flipped_byte=3, proof="crc"))
    assert collect_refusals(one, CUT, RepairPolicy()) == ["/x: bad-header at 0x0: why"]
    assert collect_refusals(one, CUT, RepairPolicy(salvage=True)) == []


def test_what_the_result_would_still_have_is_a_reason_if_there_is_no_other() -> None:
    cut = file("truncate", cut_bytes=5, proof={"records": 7, "not_clean": ["gap"]})
    assert collect_refusals(report(), cut, RepairPolicy()) == ["/x: the result would not be clean: gap"]
    other = collect_refusals(report(error("checksum-mismatch")), cut, RepairPolicy())
    assert other == [REFUSED["checksum-mismatch"]]


def test_a_cut_that_keeps_nothing_needs_consent() -> None:
    nothing = file("truncate", cut_bytes=15, proof={}, pieces=(ResultPiece(0, 0),))
    text = "/x: no record would be kept: this is not a log, or truncation would keep nothing of it"
    assert list_empty_result_reasons([nothing], allow_empty=False) == [text]
    assert list_empty_result_reasons([nothing], allow_empty=True) == []
    assert (
        list_empty_result_reasons([file()], allow_empty=False)
        == list_empty_result_reasons([CUT], allow_empty=False)
        == []
    )
    assert list_empty_result_reasons([file(cut_bytes=0, proof={})], allow_empty=False) == []
    emptied = list_empty_result_reasons([nothing, CUT], allow_empty=False)
    assert emptied == ["/x: no byte of the file would be left"]
    assert list_empty_result_reasons([file("remove", cut_bytes=15, proof={}), CUT], allow_empty=False) == []
    assert (
        list_empty_result_reasons([file("truncate", cut_bytes=15, proof={}, made_like="/y")], allow_empty=False) == []
    )
