"""Test that undo files with wrong offsets are refused, and that their state survives a power cut."""

from __future__ import annotations

import errno
import hashlib
import json
from copy import deepcopy
from pathlib import Path

import pytest

from binlogtool.errors import InputOutputError, RefusedError, UnknownFormatError
from binlogtool.repair import undo_repair
from binlogtool.repair.execute_plan import find_intent_path, read_intent
from binlogtool.repair.system_calls import SystemCalls
from binlogtool.repair.undo_file import (
    APPLIED,
    FIXED_HEADER,
    MAGIC,
    PREPARED,
    UNDONE,
    UndoEntry,
    read_undo_file,
    refuse_without_space,
    write_state,
)
from binlogtool.repair.undo_repair import (
    UNFINISHED_ADVICE,
    FinishPlan,
    _compute_needed_space,
    apply_undo,
    explain_interrupted_repair,
    finish_interrupted,
    plan_finish,
)
from tests.crash.disk import Disk
from tests.crash.runs import LOG, META, Case

HEADER = json.dumps({"files": [], "made": "2026-01-02", "plan": {"format": "drizzle"}}).encode()


def write_undo_file(path: Path, *, gap: int, body: bytes = b"", state: str = PREPARED, more: int = 0) -> None:
    """Write an undo file whose body begins `gap` bytes after the end of its header; the digest is right."""
    offset = FIXED_HEADER.size + len(HEADER) + gap
    rest = (HEADER + bytes(max(0, gap)))[: len(HEADER) + gap] + (body or HEADER[gap:] if gap < 0 else body)
    digest = hashlib.sha256(HEADER + rest[len(HEADER) + gap :]).digest()
    size = FIXED_HEADER.size + len(rest) - offset + more
    path.write_bytes(FIXED_HEADER.pack(MAGIC, state.encode(), len(HEADER), offset, size, digest) + rest)


def test_the_body_begins_at_the_end_of_the_header_or_after_it(tmp_path: Path) -> None:
    path = tmp_path / "undo"
    for gap in (0, 1, 100):
        write_undo_file(path, gap=gap, body=b"body")
        found = read_undo_file(SystemCalls(), str(path))
        assert (found.state, found.made, found.format, found.entries) == (PREPARED, "2026-01-02", "drizzle", ())
        assert found.body_offset == FIXED_HEADER.size + len(HEADER) + gap
    for gap in (-1, -len(HEADER)):
        write_undo_file(path, gap=gap)
        with pytest.raises(RefusedError, match="its sizes do not match"):
            read_undo_file(SystemCalls(), str(path))


@pytest.mark.parametrize("more", [-1, 1])
def test_a_body_of_another_size_than_the_header_says_is_refused(tmp_path: Path, more: int) -> None:
    write_undo_file(tmp_path / "undo", gap=0, body=b"body", more=more)
    with pytest.raises(RefusedError, match="its sizes do not match"):
        read_undo_file(SystemCalls(), str(tmp_path / "undo"))


def test_a_file_without_the_magic_or_shorter_than_the_header_is_no_undo_file(tmp_path: Path) -> None:
    path = tmp_path / "undo"
    write_undo_file(path, gap=0)
    whole = path.read_bytes()
    for data in (b"", whole[: FIXED_HEADER.size - 1], b"x" + whole[1:]):
        path.write_bytes(data)
        with pytest.raises(UnknownFormatError, match="is not an undo file"):
            read_undo_file(SystemCalls(), str(path))


def test_an_unknown_state_is_refused(tmp_path: Path) -> None:
    write_undo_file(tmp_path / "undo", gap=0, state="WHAT")
    with pytest.raises(RefusedError, match="its SHA-256 does not match"):
        read_undo_file(SystemCalls(), str(tmp_path / "undo"))


def test_a_state_that_was_written_survives_a_power_cut() -> None:
    case = Case("cut")
    disk = deepcopy(case.disk)
    undo = case.apply(disk)
    for state in (UNDONE, APPLIED):
        write_state(disk, undo, state)  # type: ignore[arg-type]
        states = {read_undo_file(found, undo).state for found in disk.after_power_cut()}  # type: ignore[arg-type]
        assert states == {state}
    assert disk.open_files == {}


ENTRY = {
    "path": "/logs/a", "size": 10, "sha256": "", "result_size": 6, "result_sha256": "", "mode": 0o640, "uid": 0,
    "gid": 0, "atime_ns": 0, "mtime_ns": 0, "cut": True, "pieces": [{"start": 0, "end": 6}],
    "restore": [["result", 0, 6], ["undo", 100, 104]],
}  # fmt: skip


def test_an_entry_whose_numbers_agree_is_read() -> None:
    entry = UndoEntry.from_json_value(ENTRY)
    assert (entry.size, entry.result_size, entry.removed, entry.created) == (10, 6, False, False)
    assert UndoEntry.from_json_value(ENTRY | {"restore": [["result", 0, 6], ["zero", 0, 4]]}).restore[1] == (
        "zero",
        0,
        4,
    )
    assert UndoEntry.from_json_value(ENTRY | {"mode": 0, "uid": (1 << 62) - 1}).uid == (1 << 62) - 1


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"restore": [["result", 0, 7], ["undo", 0, 3]]}, "a range is out of bounds"),
        ({"restore": [["result", -1, 5], ["undo", 0, 4]]}, "a range is out of bounds"),
        ({"restore": [["result", 0, 6], ["undo", 4, 0], ["undo", 0, 8]]}, "a range is out of bounds"),
        ({"restore": [["zero", 0, 11], ["undo", 1, 0]]}, "a range is out of bounds"),
        ({"restore": [["undo", 0, (1 << 62) + 1]]}, "a range is out of bounds"),
        ({"pieces": [{"start": 0, "end": 11}]}, "a range is out of bounds"),
        ({"pieces": [{"start": 3, "end": 2}, {"start": 0, "end": 7}]}, "a range is out of bounds"),
        ({"pieces": [{"start": -1, "end": 5}]}, "a range is out of bounds"),
        ({"restore": [["result", 0, 6], ["undo", 0, 3]]}, "do not give the original's size"),
        ({"pieces": [{"start": 0, "end": 5}]}, "do not add up to the size of the result"),
        ({"size": -1}, "a number is out of range"),
        ({"uid": 1 << 62}, "a number is out of range"),
        ({"path": "logs/a"}, "not absolute and plain"),
        ({"path": "/logs/../a"}, "not absolute and plain"),
        ({"path": "/logs/a\0"}, "not absolute and plain"),
    ],
)
def test_an_entry_whose_numbers_contradict_each_other_is_refused(members: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        UndoEntry.from_json_value(ENTRY | members)


def test_a_repair_that_ended_between_two_files_can_be_undone_directly() -> None:
    case = Case("several")
    disk = deepcopy(case.disk)
    disk.snapshots = []
    undo = case.apply(disk)
    halves = [found for found in disk.snapshots if len(set(case.states(found))) == 2]
    assert halves
    for found in halves:
        intent_path = find_intent_path(LOG)
        assert read_intent(found, intent_path) == (undo, "apply")  # type: ignore[arg-type]
        apply_undo(undo, system=found)  # type: ignore[arg-type]
        assert set(case.states(found)) == {"before"}
        assert read_intent(found, intent_path) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("named", "shown"), [("/disk/other", "/disk/other"), (None, find_intent_path(LOG))])
def test_an_error_while_an_interrupted_repair_is_looked_for_names_the_file(named: str | None, shown: str) -> None:
    class Failing(Disk):
        def open(self, path: str, flags: int, mode: int = 0o600) -> int:
            raise OSError(errno.EIO, "Input/output error", named)

    case = Case("several")
    whole = deepcopy(case.disk)
    whole.snapshots = []
    case.apply(whole)
    half = next(found for found in whole.snapshots if len(set(case.states(found))) == 2)
    disk = Failing(inodes=half.inodes, folders=half.folders)
    for call in (plan_finish, finish_interrupted):
        with pytest.raises(InputOutputError) as raised:
            call(LOG, system=disk)  # type: ignore[arg-type]
        assert str(raised.value).startswith(f"{shown}: Input/output error")


def test_each_directory_needs_room_for_its_largest_original() -> None:
    """Each file is replaced before the next one is written; a file that the repair created is only removed."""
    empty = {"size": 0, "result_size": 0, "pieces": [], "restore": []}
    large, small = (
        UndoEntry.from_json_value(ENTRY | {"path": f"/logs/{size}", "size": size, "restore": [["undo", 0, size]]})
        for size in (70, 20)
    )
    created = UndoEntry.from_json_value(ENTRY | {"path": "/logs/new", "created": True})
    other = UndoEntry.from_json_value(ENTRY | {**empty, "path": "/other/empty"})
    assert _compute_needed_space((small, large, created, other)) == {"/logs": 70, "/other": 0}


def test_the_files_of_an_interrupted_repair_are_those_that_are_not_written_yet() -> None:
    """The log is cut from 275 to 190 bytes; the list of files, 17 bytes, is replaced by 8."""
    case = Case("several")
    repaired = deepcopy(case.disk)
    repaired.snapshots = []
    undo = case.apply(repaired)
    undone = deepcopy(repaired)
    undone.snapshots = []
    apply_undo(undo, system=undone)  # type: ignore[arg-type]
    for snapshots, state, texts in (
        (repaired.snapshots, "before", {LOG: "cut, 275 to 190 bytes", META: "rewrite, 17 to 8 bytes"}),
        (undone.snapshots, "after", {LOG: "restore, 190 to 275 bytes", META: "restore, 8 to 17 bytes"}),
    ):
        halves = [disk for disk in snapshots if len(set(case.states(disk))) == 2]
        assert halves
        for disk in halves:
            plan = plan_finish(LOG, system=disk)  # type: ignore[arg-type]
            waiting = [path for path, now in zip(case.before, case.states(disk), strict=True) if now == state]
            assert plan is not None and plan.files == tuple((path, texts[path]) for path in waiting)


def test_an_interrupted_repair_is_explained_with_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, text = tmp_path / "log", f"{tmp_path}: a repair of several files was interrupted here"
    assert explain_interrupted_repair(str(log)) == []
    intent = tmp_path / ".binlogtool-intent"
    intent.write_text(json.dumps({"undo": f"{tmp_path}/undo", "direction": "apply"}))
    assert (
        explain_interrupted_repair(str(log))
        == explain_interrupted_repair(str(tmp_path))
        == [f"{text}; {UNFINISHED_ADVICE}"]
    )
    plan = FinishPlan(
        str(intent), f"{tmp_path}/undo", "apply", (("/a", "cut, 9 to 6 bytes"), ("/b", "remove, 5 bytes"))
    )
    with monkeypatch.context() as patched:
        patched.setattr(undo_repair, "plan_finish", lambda path: plan)
        files = "/a: cut, 9 to 6 bytes; /b: remove, 5 bytes"
        assert explain_interrupted_repair(str(log)) == [f"{text}; {UNFINISHED_ADVICE} ({files})"]
    intent.write_text("{}")
    (message,) = explain_interrupted_repair(str(log))
    assert message.startswith(f"{text}, and cannot be finished: {intent}: is damaged")


def test_an_undo_needs_a_mebibyte_more_than_it_writes() -> None:
    disk = deepcopy(Case("cut").disk)
    disk.free_bytes = 100 + (1 << 20)
    refuse_without_space(disk, {"/disk": 100})  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match=r"^/disk: 1,048,677 bytes are needed, 1,048,676 are free; "):
        refuse_without_space(disk, {"/disk": 101})  # type: ignore[arg-type]
