"""Owner, group, mode and extended attributes of files that a repair replaces, makes, removes, or brings back.

Only root may give files away, so most of these tests need it; another user is played by a child that gives root up.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.errors import RefusedError, RepairFailedError
from binlogtool.limits import Limits
from binlogtool.repair import execute_plan as transaction
from binlogtool.repair.apply_plan_or_salvage import apply_plan
from binlogtool.repair.plan_types import RepairPolicy
from binlogtool.repair.system_calls import SystemCalls
from binlogtool.repair.undo_file import read_undo_file, restore_file_if_changed
from binlogtool.repair.undo_repair import apply_undo
from tests.formats.manticore.make import add_index, add_txn, killed, log, meta
from tests.formats.mariadb_innodb_binlog.ibb_repairs import case_of, repaired

UID, GID, OTHER = 4321, 8765, 4322
NOBODY = 0xFFFFFFFF
ENTRIES = ((1, 6, NOBODY), (2, 4, 1234), (4, 4, NOBODY), (16, 4, NOBODY), (32, 0, NOBODY))
ACL = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, rights, who) for tag, rights, who in ENTRIES)
"""user::rw-,user:1234:r--,group::r--,mask::r--,other::---, as the kernel has it."""

ATTRIBUTES = {"user.note": b"kept", "system.posix_acl_access": ACL}
FORMAT = "manticore"
DATA = log(add_index(0, b"t"), add_txn(0, 1, killed(1)), add_txn(0, 2, killed(2)))
Look = dict[str, tuple[int, int, int, dict[str, bytes], bytes]]

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")


def look(folder: Path) -> Look:
    """Owner, group, mode, attributes and bytes of the log's files."""
    out = {}
    for path in sorted(folder.glob("binlog.*")):
        if "binlogtool" not in path.name:
            status = path.stat()
            has = {name: os.getxattr(path, name) for name in os.listxattr(path)}
            out[path.name] = (status.st_uid, status.st_gid, status.st_mode & 0o7777, has, path.read_bytes())
    return out


def made(folder: Path, *, listed: bool = True) -> Path:
    """A torn log and its list, which names a file that is not there (or no list at all), of another user."""
    folder.mkdir(exist_ok=True)
    (folder / "binlog.0000").write_bytes(DATA[:-3])
    if listed:
        (folder / "binlog.meta").write_bytes(meta([0, 1]))
    for number, path in enumerate(sorted(folder.iterdir())):
        os.chown(path, UID, GID + number)
        path.chmod(0o640)
        try:
            for name, value in ATTRIBUTES.items():
                os.setxattr(path, name, value)
        except OSError:
            pytest.skip("no extended attributes here")
    return folder


def planned(folder: Path) -> Any:
    return binlogtool.plan_truncate(folder, policy=RepairPolicy(fix_meta=True), format=FORMAT, backend="python")


def applied(folder: Path, system: SystemCalls | None = None) -> str:
    done = apply_plan(
        planned(folder), format=FORMAT, limits=Limits(), backend="python", **({"system": system} if system else {})
    )
    assert done.undo is not None and not done.notes, done
    return done.undo


def as_user(work: Callable[[], None], *groups: int) -> None:
    """Runs work as a user without rights; what it raises fails here."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = b"ok"
        try:
            os.setgroups(list(groups))
            os.setgid(OTHER)
            os.setuid(OTHER)
            work()
        except BaseException as error:
            said = repr(error).encode()[:4000]
        finally:
            os.write(write, said)
            os._exit(0)
    os.close(write)
    said = os.read(read, 4096)
    os.close(read)
    os.waitpid(child, 0)
    assert said == b"ok", said.decode()


def shared(tmp_path: Path) -> None:
    """Lets everybody in, as far as the directories of this test go."""
    tmp_path.chmod(0o777)
    for path in takewhile(lambda path: path.name.startswith(("pytest-", "popen-")), tmp_path.parents):
        path.chmod(0o755)


@needs_root
def test_replaced_files_keep_owner_group_mode_and_attributes_and_so_does_undo(tmp_path: Path) -> None:
    folder = made(tmp_path / "log")
    before = look(folder)
    undo = applied(folder)
    now = look(folder)
    assert now["binlog.meta"][4] != before["binlog.meta"][4] and now["binlog.0000"][4] != before["binlog.0000"][4]
    assert {name: one[:4] for name, one in now.items()} == {name: one[:4] for name, one in before.items()}
    for path in folder.glob("binlog.[0m]*"):  # what somebody did to them since is no part of the original
        if "binlogtool" not in path.name:
            os.removexattr(path, "user.note")
            os.setxattr(path, "user.other", b"later")
            path.chmod(0o600)
    binlogtool.undo(undo)
    assert look(folder) == before
    assert Path(undo).stat().st_mode & 0o777 == 0o600


@needs_root
def test_a_file_that_is_made_looks_like_its_model_and_goes_again(tmp_path: Path) -> None:
    folder = made(tmp_path / "log", listed=False)
    before = look(folder)
    undo = applied(folder)
    now = look(folder)
    assert now["binlog.meta"][4] == meta([0])
    assert now["binlog.meta"][:4] == before["binlog.0000"][:4]
    binlogtool.undo(undo)
    assert look(folder) == before


@needs_root
def test_a_removed_file_comes_back_with_owner_and_attributes(corpus: Path, tmp_path: Path) -> None:
    _, folder, redo = case_of(corpus, tmp_path, 0)
    gone = folder / "binlog-000001.ibb"
    os.chown(gone, UID, GID)
    os.setxattr(gone, "user.note", b"kept")
    before = (gone.read_bytes(), gone.stat().st_uid, gone.stat().st_gid, gone.stat().st_mode)
    done = repaired(folder, redo)
    assert not gone.exists() and done.undo is not None
    binlogtool.undo(done.undo)
    assert (gone.read_bytes(), gone.stat().st_uid, gone.stat().st_gid, gone.stat().st_mode) == before
    assert os.getxattr(gone, "user.note") == b"kept"


@needs_root
def test_who_cannot_keep_the_owner_is_refused_before_anything_changes(tmp_path: Path) -> None:
    shared(tmp_path)
    folder = made(tmp_path / "log")
    folder.chmod(0o777)
    for path in folder.iterdir():
        os.removexattr(path, "system.posix_acl_access")
        path.chmod(0o666)
    before, names = look(folder), sorted(os.listdir(folder))

    def repair() -> None:
        with pytest.raises(RefusedError, match=r"belongs to user 4321, group \d+, .* as root; nothing was changed$"):
            applied(folder)

    as_user(repair)
    assert look(folder) == before and sorted(os.listdir(folder)) == names


@needs_root
def test_who_cannot_bring_back_the_owner_is_refused_before_anything_changes(tmp_path: Path) -> None:
    """A cut in place keeps the owner; its undoing is a new file."""
    shared(tmp_path)
    path = tmp_path / "binlog.0000"
    path.write_bytes(DATA[:-3])
    os.chown(path, UID, GID)
    path.chmod(0o666)

    def repair_and_undo() -> None:
        plan = binlogtool.plan_truncate(path, format=FORMAT, backend="python")
        done = apply_plan(plan, format=FORMAT, limits=Limits(), backend="python")
        assert done.undo is not None
        with pytest.raises(RefusedError, match=r"belongs to user 4321, group 8765, .* as root; nothing was changed$"):
            binlogtool.undo(done.undo)

    as_user(repair_and_undo)
    after = path.read_bytes()
    assert DATA.startswith(after) and len(after) < len(DATA) - 3
    assert [p.name for p in tmp_path.iterdir() if "tmp" in p.name] == []
    (undo,) = tmp_path.glob("*.binlogtool-undo-*")
    os.chown(undo, 0, 0)
    binlogtool.undo(undo)
    assert (path.read_bytes(), path.stat().st_uid, path.stat().st_gid) == (DATA[:-3], UID, GID)


@needs_root
def test_root_does_not_do_what_an_undo_file_of_another_user_says(tmp_path: Path) -> None:
    """It can name any file, owner and mode."""
    folder = made(tmp_path / "log")
    undo = Path(applied(folder))
    before = look(folder)
    os.chown(undo, UID, GID)
    with pytest.raises(RefusedError, match="belongs to user 4321; run this as that user; nothing was changed"):
        binlogtool.undo(undo)
    os.chown(undo, 0, 0)
    guard = folder / transaction.INTENT_NAME
    guard.write_text(json.dumps({"undo": str(undo), "direction": "undo"}))
    os.chown(guard, UID, GID)
    with pytest.raises(RefusedError, match="belongs to user 4321"):
        binlogtool.finish_repair(folder)
    assert look(folder) == before


@pytest.mark.parametrize("text", ["", "[]", "7", "{}", '{"undo": 1}', "[" * 60_000, "\xff"])
def test_a_damaged_mark_of_a_repair_is_told_in_a_line(tmp_path: Path, text: str) -> None:
    (tmp_path / transaction.INTENT_NAME).write_text(text, "latin-1")
    with pytest.raises(RefusedError, match="is damaged"):
        binlogtool.finish_repair(tmp_path)


class Unlucky(SystemCalls):
    """Attributes cannot be given to new files."""

    def set_attributes(self, fd: int, attributes: dict[str, bytes]) -> None:
        pass


@needs_root
def test_attributes_that_cannot_be_kept_are_named(tmp_path: Path) -> None:
    folder = made(tmp_path / "log")
    done = apply_plan(planned(folder), format=FORMAT, limits=Limits(), backend="python", system=Unlucky())
    lost = [text for text in done.notes if "extended attribute" in text]
    assert [text.split()[-1] for text in lost] == sorted(ATTRIBUTES)
    assert all(str(folder / "binlog.meta") in text for text in lost)


class Interrupted(SystemCalls):
    """Ends when the mark of an undoing that broke off would be away for a moment."""

    def unlink(self, path: str) -> None:
        if path.endswith(transaction.INTENT_NAME):
            raise RepairFailedError("the mark was removed")
        super().unlink(path)


def test_the_mark_of_an_undoing_stays_until_all_is_done(tmp_path: Path) -> None:
    """Some files may be back already: without the mark nobody would know."""
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "binlog.0000").write_bytes(DATA[:-3])
    (folder / "binlog.meta").write_bytes(meta([0, 1]))
    undo, before = applied(folder), DATA[:-3]
    whole = read_undo_file(SystemCalls(), undo)
    transaction.write_intent(SystemCalls(), str(folder / transaction.INTENT_NAME), undo, "undo")
    assert restore_file_if_changed(SystemCalls(), whole, whole.entries[0])
    with pytest.raises(RepairFailedError):
        apply_undo(undo, system=Interrupted())
    assert transaction.read_intent(SystemCalls(), str(folder / transaction.INTENT_NAME)) == (undo, "undo")
    assert ((folder / "binlog.0000").read_bytes(), (folder / "binlog.meta").read_bytes()) == (before, meta([0, 1]))
    binlogtool.finish_repair(folder)
    assert not (folder / transaction.INTENT_NAME).exists()
