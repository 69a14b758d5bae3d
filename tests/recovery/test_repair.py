"""Repairs on real files: what is kept, what is refused, what is put back."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

import binlogtool
from binlogtool.errors import InputOutputError, RefusedError, UnknownFormatError
from binlogtool.repair.plan_types import RepairPolicy
from binlogtool.repair.undo_file import FIXED_HEADER, MAGIC
from tests.cli.samples import damaged_log, plain_log

WHOLE = plain_log()
TORN = WHOLE[:-10]
END = 190
TIME = 1_234_567_890_123_456_789


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """Two records and the beginning of a third."""
    path = tmp_path / "torn.log"
    path.write_bytes(TORN)
    path.chmod(0o640)
    os.utime(path, ns=(TIME, TIME + 1))
    return path


def everything(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Names, contents, modes and times of what is in a folder."""
    return {p.name: (p.read_bytes(), p.stat().st_mode, p.stat().st_mtime_ns) for p in folder.iterdir() if p.is_file()}


def test_the_cut_keeps_the_durable_bytes_and_undo_brings_everything_back(torn: Path) -> None:
    before = everything(torn.parent)
    inode = torn.stat().st_ino
    done = binlogtool.apply_plan(binlogtool.plan_truncate(torn))
    assert torn.read_bytes() == TORN[:END]
    assert (torn.stat().st_ino, torn.stat().st_mode & 0o777) == (inode, 0o640)
    assert done.undo is not None
    assert [(f.size_before, f.size_after) for f in done.files] == [(len(TORN), END)]
    assert binlogtool.plan_undo(done.undo).state == "applied"
    binlogtool.undo(done.undo)
    os.unlink(done.undo)
    assert everything(torn.parent) == before


def test_a_repaired_log_needs_no_repair(torn: Path) -> None:
    binlogtool.apply_plan(binlogtool.plan_truncate(torn))
    again = binlogtool.plan_truncate(torn)
    assert (again.refused, again.changes) == (False, ())
    names = sorted(p.name for p in torn.parent.iterdir())
    done = binlogtool.apply_plan(again)
    assert (done.files, done.undo) == ((), None)
    assert sorted(p.name for p in torn.parent.iterdir()) == names


@pytest.mark.parametrize("backup", ["tail", "full"])
def test_the_undo_file_keeps_what_was_asked_where_it_was_asked(torn: Path, tmp_path: Path, backup: str) -> None:
    folder = tmp_path / "undo"
    folder.mkdir()
    done = binlogtool.apply_plan(binlogtool.plan_truncate(torn), undo_dir=str(folder), backup=backup)
    assert done.undo is not None and Path(done.undo).parent == folder
    kept = Path(done.undo).read_bytes()
    assert kept.endswith(TORN if backup == "full" else TORN[END:])
    assert (TORN[:END] in kept) == (backup == "full")
    assert Path(done.undo).stat().st_mode & 0o777 == 0o600
    binlogtool.undo(done.undo)
    assert torn.read_bytes() == TORN


def test_a_copy_leaves_the_source_alone(torn: Path, tmp_path: Path) -> None:
    before = everything(torn.parent)
    new = tmp_path / "new.log"
    done = binlogtool.write_repaired_copy(binlogtool.plan_truncate(torn), new)
    assert (new.read_bytes(), done.undo) == (TORN[:END], None)
    assert new.stat().st_mode & 0o777 == 0o640
    new.unlink()
    assert everything(torn.parent) == before


def test_a_copy_replaces_nothing(torn: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.log"
    new.write_bytes(b"mine")
    with pytest.raises(RefusedError, match="exists"):
        binlogtool.write_repaired_copy(binlogtool.plan_truncate(torn), new)
    assert new.read_bytes() == b"mine"


@pytest.mark.parametrize(
    "more", [RepairPolicy(), RepairPolicy(write_close_marker=True), RepairPolicy(fix_meta=True)], ids=repr
)
def test_a_log_without_a_whole_head_stays_if_empty_and_else_its_salvage_is_refused(
    tmp_path: Path, more: RepairPolicy
) -> None:
    path = tmp_path / "binlog.001"
    for data in (b"", b"SPBL\5\0"):
        path.write_bytes(data)
        plan = binlogtool.plan_truncate(path, format="manticore", policy=replace(more, salvage=True, copy=True))
        assert (plan.refused, len(plan.changes)) == ((True, 1) if data else (False, 0))
        assert ["no record would be kept" in reason for reason in plan.reasons] == [True] * bool(data)


def test_salvage_leaves_out_only_the_damage(tmp_path: Path) -> None:
    data = damaged_log(5)
    path, new = tmp_path / "damaged.log", tmp_path / "new.log"
    path.write_bytes(data)
    plan = binlogtool.plan_truncate(path, policy=RepairPolicy(salvage=True, copy=True))
    assert not plan.refused
    (left,) = plan.files[0].proof["left_out"]
    binlogtool.write_repaired_copy(plan, new)
    assert new.read_bytes() == data[: left["offset"]] + data[left["offset"] + left["length"] :]
    assert plan.files[0].cut_bytes == left["length"] == len(data) // 5
    report = binlogtool.verify([new]).files[0]
    assert (report.records, report.bytes["damaged"]) == (4, 0)


def test_complete_records_behind_damage_are_cut_only_with_consent(tmp_path: Path) -> None:
    data = damaged_log(5)
    path = tmp_path / "damaged.log"
    path.write_bytes(data)
    with pytest.raises(RefusedError, match="valid-after-damage"):
        binlogtool.apply_plan(binlogtool.plan_truncate(path))
    assert path.read_bytes() == data
    plan = binlogtool.plan_truncate(path, policy=RepairPolicy(allow_discard_valid=True))
    assert (plan.refused, plan.files[0].cut_valid_records) == (False, 3)
    binlogtool.apply_plan(plan)
    assert path.read_bytes() == data[: len(data) // 5]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (RepairPolicy(max_loss=84), ["85 bytes would be removed, --max-loss allows 84"]),
        (RepairPolicy(max_loss=85), []),
        (RepairPolicy(max_loss_records=0), []),
    ],
)
def test_the_loss_can_be_bounded(torn: Path, asked: RepairPolicy, words: list[str]) -> None:
    plan = binlogtool.plan_truncate(torn, policy=asked)
    assert plan.refused == bool(words)
    assert [reason.partition(": ")[2] for reason in plan.reasons] == words


def test_the_loss_of_records_can_be_bounded(tmp_path: Path) -> None:
    path = tmp_path / "damaged.log"
    path.write_bytes(damaged_log(5))
    for bound, refused in ((2, True), (3, False)):
        plan = binlogtool.plan_truncate(path, policy=RepairPolicy(allow_discard_valid=True, max_loss_records=bound))
        assert plan.refused == refused


# -- a plan is about exactly one state of a file (W9)


def replaced(path: Path) -> None:
    new = path.with_name("other")
    new.write_bytes(path.read_bytes())
    os.utime(new, ns=(TIME, TIME + 1))
    new.rename(path)


def swapped(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def one_byte(place: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[place] ^= 1
        path.write_bytes(data)
        os.utime(path, ns=(TIME, TIME + 1))

    return change


CHANGES: dict[str, Callable[[Path], None]] = {
    "longer": lambda path: path.write_bytes(TORN + b"x"),
    "shorter": lambda path: os.truncate(path, len(TORN) - 1),
    "newer": lambda path: os.utime(path, ns=(TIME, TIME + 2)),
    "replaced": replaced,
    "swapped for a link": swapped,
    "gone": lambda path: path.unlink(),
    **{f"byte {place}": one_byte(place) for place in range(0, len(TORN), 5)},
}


@pytest.mark.parametrize("saved", [False, True], ids=["plan", "saved plan"])
@pytest.mark.parametrize("change", CHANGES)
def test_w9_any_change_between_plan_and_apply_is_refused(torn: Path, change: str, saved: bool) -> None:
    import json

    from binlogtool.format_api.encode_json import encode_document
    from binlogtool.report.verify_and_plan_text import plan_to_json

    plan = binlogtool.plan_truncate(torn)
    file = torn.parent / "plan.json"
    file.write_bytes(encode_document(plan_to_json(plan)))
    assert json.loads(file.read_bytes())["files"][0]["inode"] == torn.stat().st_ino
    CHANGES[change](torn)
    before = everything(torn.parent)
    with pytest.raises((RefusedError, InputOutputError)) as raised:
        binlogtool.apply_plan(binlogtool.load_plan(file) if saved else plan)
    if change != "gone":
        assert raised.type is RefusedError
    assert everything(torn.parent) == before


def test_a_saved_plan_is_carried_out(torn: Path) -> None:
    from binlogtool.format_api.encode_json import encode_document
    from binlogtool.report.verify_and_plan_text import plan_to_json

    file = torn.parent / "plan.json"
    file.write_bytes(encode_document(plan_to_json(binlogtool.plan_truncate(torn, policy=RepairPolicy(max_loss=1000)))))
    done = binlogtool.apply_plan(binlogtool.load_plan(file, [torn]))
    assert torn.read_bytes() == TORN[:END] and len(done.files) == 1


def test_a_plan_of_another_file_is_refused(torn: Path) -> None:
    from binlogtool.format_api.encode_json import encode_document
    from binlogtool.report.verify_and_plan_text import plan_to_json

    file, other = torn.parent / "plan.json", torn.parent / "other.log"
    file.write_bytes(encode_document(plan_to_json(binlogtool.plan_truncate(torn))))
    other.write_bytes(TORN)
    with pytest.raises(RefusedError, match="another file"):
        binlogtool.load_plan(file, [other])


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema":"binlogtool/plan/1"}', '{"schema":"x","target":"/"}', "[" * 100_000]
)
def test_what_is_no_plan_is_refused(torn: Path, text: str) -> None:
    file = torn.parent / "plan.json"
    file.write_text(text)
    with pytest.raises(RefusedError, match="not a saved plan"):
        binlogtool.load_plan(file)


@pytest.mark.parametrize(
    ("old", "new"),
    [('"durable_end": 190', '"durable_end": 95'), ('"cut_bytes": 85', '"cut_bytes": 180'), ('"refused": false,', ""),
     ('"asked"', '"told"'), ('"max_loss": 1000', '"max_loss": 1001, "x": 1')],
)  # fmt: skip
def test_a_plan_that_was_edited_is_refused(torn: Path, old: str, new: str) -> None:
    from binlogtool.format_api.encode_json import encode_document
    from binlogtool.report.verify_and_plan_text import plan_to_json

    file = torn.parent / "plan.json"
    text = encode_document(plan_to_json(binlogtool.plan_truncate(torn, policy=RepairPolicy(max_loss=1000)))).decode()
    assert text.count(old) >= 1
    file.write_text(text.replace(old, new))
    with pytest.raises(RefusedError):
        binlogtool.apply_plan(binlogtool.load_plan(file))
    assert torn.read_bytes() == TORN


# -- files that are not touched


def test_odd_files_are_refused(torn: Path, tmp_path: Path) -> None:
    link, second = tmp_path / "link.log", tmp_path / "second.log"
    link.symlink_to(torn)
    os.link(torn, second)
    with pytest.raises(RefusedError, match="symbolic link"):
        binlogtool.apply_plan(binlogtool.plan_truncate(link))
    with pytest.raises(RefusedError, match="2 names"):
        binlogtool.apply_plan(binlogtool.plan_truncate(torn))
    new = tmp_path / "new.log"
    for path in (link, second):
        binlogtool.write_repaired_copy(binlogtool.plan_truncate(path), new)
        assert new.read_bytes() == TORN[:END]
        new.unlink()
    assert torn.read_bytes() == TORN


def test_devices_and_pipes_are_refused(torn: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    plan = binlogtool.plan_truncate(torn)
    for odd in (str(pipe), "/dev/null"):
        file = replace(plan.files[0], path=odd)
        with pytest.raises(RefusedError, match="not a regular file"):
            binlogtool.apply_plan(replace(plan, files=(file,)))


def test_a_compressed_log_is_refused(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "torn.log.gz"
    path.write_bytes(gzip.compress(TORN))
    with pytest.raises(RefusedError, match="compressed"):
        binlogtool.plan_truncate(path)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everything")
def test_a_log_that_must_not_be_written_is_refused(torn: Path) -> None:
    torn.chmod(0o440)
    with pytest.raises(RefusedError, match="cannot be written"):
        binlogtool.apply_plan(binlogtool.plan_truncate(torn))


def other_process(code: str, path: Path) -> subprocess.Popen[bytes]:
    """Another program that says when it has done what it is there for."""
    program = f"import fcntl, os, sys, time\npath = sys.argv[1]\n{code}\nprint('ready', flush=True)\ntime.sleep(60)\n"
    process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("f = open(path, 'rb')", "in use: open in"),
        ("f = open(path, 'ab')", "in use: open in"),
        ("f = open(path, 'r+b'); fcntl.flock(f, fcntl.LOCK_EX)", "locked by another process"),
        ("f = open(path, 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX)", "locked by another process"),
        ("import mmap; f = open(path, 'rb'); m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ); f.close()",
         "in use: open in"),
    ],
)  # fmt: skip
def test_a_log_in_use_is_refused(torn: Path, code: str, words: str) -> None:
    plan = binlogtool.plan_truncate(torn)
    process = other_process(code, torn)
    try:
        with pytest.raises(RefusedError, match=words):
            binlogtool.apply_plan(plan)
        assert torn.read_bytes() == TORN and len(list(torn.parent.iterdir())) == 1
    finally:
        process.kill()
        process.wait()
        process.communicate()
    binlogtool.apply_plan(plan)
    assert torn.read_bytes() == TORN[:END]


def test_the_lock_of_a_running_tarantool_is_respected(samples: Path, tmp_path: Path) -> None:
    """The server has an exclusive lock of its directory of logs."""
    source = sorted((samples / "readme/torn-tail").glob("*.xlog"))[-1]
    path = tmp_path / source.name
    path.write_bytes(source.read_bytes())
    plan = binlogtool.plan_truncate(path)
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(RefusedError, match="the server is running"):
            binlogtool.apply_plan(plan)
    finally:
        os.close(held)
    done = binlogtool.apply_plan(plan)
    assert path.stat().st_size < source.stat().st_size and done.undo is not None
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(RefusedError, match="the server is running"):
            binlogtool.undo(done.undo)
    finally:
        os.close(held)
    binlogtool.undo(done.undo)
    assert path.read_bytes() == source.read_bytes()


def manticore(samples: Path, folder: Path) -> Path:
    """A directory whose only log ends in the middle of a transaction."""
    folder.mkdir()
    for path in (samples / "manticore/v16-mixed").iterdir():
        if path.name.startswith("binlog."):
            (folder / path.name).write_bytes(path.read_bytes())
    log = folder / "binlog.0000"
    os.truncate(log, log.stat().st_size - 3)
    return log


def test_the_lock_of_a_running_manticore_is_respected(samples: Path, tmp_path: Path) -> None:
    log = manticore(samples, tmp_path / "log")
    lock = log.parent / "binlog.lock"
    lock.touch()
    plan = binlogtool.plan_truncate(log.parent)
    process = other_process("f = open(path, 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX)", lock)
    try:
        with pytest.raises(RefusedError, match="the server is running"):
            binlogtool.apply_plan(plan)
    finally:
        process.kill()
        process.communicate()
    binlogtool.apply_plan(plan)


def test_no_lock_file_is_left_behind(samples: Path, tmp_path: Path) -> None:
    log = manticore(samples, tmp_path / "log")
    (log.parent / "binlog.lock").unlink(missing_ok=True)
    binlogtool.apply_plan(binlogtool.plan_truncate(log.parent))
    assert not (log.parent / "binlog.lock").exists()


# -- undo files


def test_a_file_that_changed_since_the_repair_is_not_overwritten(torn: Path) -> None:
    done = binlogtool.apply_plan(binlogtool.plan_truncate(torn))
    assert done.undo is not None
    with torn.open("ab") as file:
        file.write(b"new rows")
    before = everything(torn.parent)
    with pytest.raises(RefusedError, match="changed since the repair"):
        binlogtool.undo(done.undo)
    assert everything(torn.parent) == before


def test_undoing_twice_changes_nothing(torn: Path) -> None:
    done = binlogtool.apply_plan(binlogtool.plan_truncate(torn))
    assert done.undo is not None
    binlogtool.undo(done.undo)
    before = everything(torn.parent)
    assert binlogtool.plan_undo(done.undo).state == "undone"
    assert binlogtool.undo(done.undo).files == ()
    assert everything(torn.parent)[torn.name] == before[torn.name]


def test_an_undo_file_with_any_changed_byte_is_refused(torn: Path) -> None:
    done = binlogtool.apply_plan(binlogtool.plan_truncate(torn))
    assert done.undo is not None
    undo = Path(done.undo)
    whole = undo.read_bytes()
    header = int.from_bytes(whole[16:24], "little")
    places = [*range(0, 72 + header, 7), *range(4096, len(whole), 7)]
    for place in places:
        undo.write_bytes(whole[:place] + bytes([whole[place] ^ 0x20]) + whole[place + 1 :])
        with pytest.raises(UnknownFormatError if place < len(MAGIC) else RefusedError):
            binlogtool.undo(undo)
    for size in (0, 10, 71, 72, 100, len(whole) - 1):
        undo.write_bytes(whole[:size])
        with pytest.raises(UnknownFormatError if size < FIXED_HEADER.size else RefusedError):
            binlogtool.undo(undo)
    assert torn.read_bytes() == TORN[:END]


def test_an_undo_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputOutputError):
        binlogtool.plan_undo(tmp_path / "nothing")


def test_a_saved_plan_of_a_directory_is_carried_out_from_anywhere(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from binlogtool.format_api.encode_json import encode_document
    from binlogtool.report.verify_and_plan_text import plan_to_json

    log = manticore(samples, tmp_path / "log")
    size = log.stat().st_size
    monkeypatch.chdir(log.parent)
    file = tmp_path / "plan.json"
    file.write_bytes(encode_document(plan_to_json(binlogtool.plan_truncate("."))))
    monkeypatch.chdir("/")
    binlogtool.apply_plan(binlogtool.load_plan(file))
    assert log.stat().st_size < size


@pytest.mark.parametrize("asked", ["x", [1], {"max_loss": "x"}, {"fix_meta": 1}, {"y": True}, {"max_loss": None}])
def test_a_plan_with_odd_allowances_is_refused(torn: Path, asked: object) -> None:
    import json

    from binlogtool.format_api.encode_json import encode_document
    from binlogtool.report.verify_and_plan_text import plan_to_json

    file = torn.parent / "plan.json"
    value = json.loads(encode_document(plan_to_json(binlogtool.plan_truncate(torn))))
    file.write_text(json.dumps({**value, "asked": asked}))
    with pytest.raises(RefusedError, match="does not know"):
        binlogtool.load_plan(file)
    assert torn.read_bytes() == TORN
