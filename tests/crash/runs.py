"""Repairs on the model disk: the plans, and what must hold whenever they are cut short."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from binlogtool.errors import RefusedError
from binlogtool.findings import Severity
from binlogtool.format_api.format import ResultPiece
from binlogtool.repair import atomic_file_changes as transaction
from binlogtool.repair.atomic_file_changes import execute_plan
from binlogtool.repair.plan import CUTTABLE, FilePlan, RepairPlan
from binlogtool.repair.undo_file import UndoFile, read_undo_file
from binlogtool.repair.undo_repair import finish_interrupted
from tests.cli.samples import plain_log
from tests.crash.disk import Disk
from tests.verify_bytes import verify_bytes

LOG, META, NEXT, LAST = "/disk/transaction.log", "/disk/transaction.log.1", "/disk/next.log", "/disk/reserve.log"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file_plan(disk: Disk, path: str, pieces: tuple[ResultPiece, ...]) -> FilePlan:
    data = disk.content(path)
    if data is None:  # it is to be made
        return FilePlan(path, 0, "rewrite", None, 0, 0, {}, sha(b""), sha(b""), pieces=pieces, made_like=LOG)
    kept = [p for p in pieces if p.is_original]
    gone = bytearray(data)
    for piece in sorted(kept, reverse=True):
        del gone[piece.start : piece.end]
    inode = disk.inode(path)
    stays = b"".join(data[p.start : p.end] for p in kept)
    cut = len(pieces) == 1 and pieces[0].is_original and pieces[0].start == 0
    action = "remove" if not pieces else "truncate" if cut else "rewrite"
    return FilePlan(
        path, len(data), action, pieces[0].end if pieces else None, len(gone), 0, {}, sha(stays),
        sha(bytes(gone)), inode.number, inode.mtime_ns, pieces,
    )  # fmt: skip


class Case:
    """One repair: the disk before it, and the contents of its files before and after."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.disk = Disk()
        torn = plain_log()[:-10]
        self.before: dict[str, bytes | None] = {LOG: torn}
        self.disk.add(LOG, torn)
        pieces: dict[str, tuple[ResultPiece, ...]] = {LOG: (ResultPiece(0, 190),)}
        if name == "rewrite":  # bytes in the middle and at the end get another value, as with a close mark
            pieces = {LOG: (ResultPiece(0, 190), ResultPiece(data=plain_log()[190:]))}
        if name == "several":
            self.before[META] = b"old list of files"
            self.disk.add(META, self.before[META])
            pieces[META] = (ResultPiece(data=b"new list"),)
        if name == "removal":  # a file is filled with zeros, and those behind it go, one of them empty
            contents = {NEXT: b"next" * 150, META: b"reserve" * 3, LAST: bytes(700)}
            self.before |= contents
            for path, content in contents.items():
                self.disk.add(path, content)
                pieces[path] = ()
            pieces[NEXT] = (ResultPiece(0, 4), ResultPiece(zeros=592), ResultPiece(data=b"last"))
        if name == "creation":  # the list of files is made anew
            pieces[META] = (ResultPiece(data=b"new list"),)
        self.plan = RepairPlan("drizzle", False, (), tuple(file_plan(self.disk, p, q) for p, q in pieces.items()), LOG)
        self.after = {p: self._made(p, q) for p, q in pieces.items()}

    def _made(self, path: str, pieces: tuple[ResultPiece, ...]) -> bytes | None:
        data = self.before.setdefault(path, None) or b""
        made = [data[p.start : p.end] if p.is_original else p.data or bytes(p.zeros) for p in pieces]
        return b"".join(made) if pieces else None

    def apply(self, disk: Disk, **options: Any) -> str:
        done = execute_plan(self.plan, check=lambda: check(disk), system=disk, **options)  # type: ignore[arg-type]
        assert done.undo is not None
        return done.undo

    def states(self, disk: Disk) -> list[str]:
        """Per file: before, after, or mixed."""
        out = []
        for path in self.before:
            now = disk.content(path)
            out.append("before" if now == self.before[path] else "after" if now == self.after[path] else "mixed")
        return out

    def hold(self, disk: Disk) -> str:
        """The promise: old or new, never a mix, and with the new one a whole undo file. Finishes what broke off."""
        states = self.states(disk)
        assert "mixed" not in states, f"{self.name}: a mix of old and new"
        undo = whole_undo(disk)
        if "after" in states:
            assert undo is not None, f"{self.name}: changed, and no whole undo file"
        known = transaction.read_intent(disk, transaction.find_intent_path(LOG))  # type: ignore[arg-type]
        if len(set(states)) > 1:
            assert known is not None, f"{self.name}: half of the files, and nothing says so"
        if known is not None:
            finish_interrupted(LOG, system=disk)  # type: ignore[arg-type]
            states = self.states(disk)
            assert len(set(states)) == 1, f"{self.name}: not finished"
            assert transaction.read_intent(disk, transaction.find_intent_path(LOG)) is None  # type: ignore[arg-type]
        return states[0]


def check(disk: Disk) -> list[str]:
    data = disk.content(LOG)
    assert data is not None
    report = verify_bytes("transaction.log", data, format="drizzle")
    return [f.message for f in report.findings if f.severity is Severity.ERROR or f.id in CUTTABLE]


def whole_undo(disk: Disk) -> UndoFile | None:
    for name in disk.list_directory("/disk"):
        if name.startswith("transaction.log.binlogtool-undo-"):
            try:
                return read_undo_file(disk, os.path.join("/disk", name))  # type: ignore[arg-type]
            except RefusedError as error:
                raise AssertionError(f"an undo file that is not whole has its name: {error}") from error
    return None
