"""Define repairs on the model disk, and check what must hold whenever they are interrupted."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from binlogtool.errors import RefusedError
from binlogtool.findings import Severity
from binlogtool.format_api.format import ResultPiece
from binlogtool.repair import execute_plan as transaction
from binlogtool.repair.execute_plan import execute_plan
from binlogtool.repair.plan_types import CUTTABLE, FilePlan, RepairPlan
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
    if data is None:  # a new file
        return FilePlan(path, 0, "rewrite", None, 0, 0, {}, sha(b""), sha(b""), pieces=pieces, made_like=LOG)
    original = [p for p in pieces if p.is_original]
    removed = bytearray(data)
    for piece in sorted(original, reverse=True):
        del removed[piece.start : piece.end]
    inode = disk.inode(path)
    stays = b"".join(data[p.start : p.end] for p in original)
    cut = len(pieces) == 1 and pieces[0].is_original and pieces[0].start == 0
    action = "remove" if not pieces else "truncate" if cut else "rewrite"
    return FilePlan(
        path, len(data), action, pieces[0].end if pieces else None, len(removed), 0, {}, sha(stays),
        sha(bytes(removed)), inode.number, inode.mtime_ns, pieces,
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
        if name == "removal":  # a file is filled with zeros, and those after it are removed, one of them empty
            contents = {NEXT: b"next" * 150, META: b"reserve" * 3, LAST: bytes(700)}
            self.before |= contents
            for path, content in contents.items():
                self.disk.add(path, content)
                pieces[path] = ()
            pieces[NEXT] = (ResultPiece(0, 4), ResultPiece(zeros=592), ResultPiece(data=b"last"))
        if name == "creation":  # the list of files is created
            pieces[META] = (ResultPiece(data=b"new list"),)
        self.plan = RepairPlan("drizzle", False, (), tuple(file_plan(self.disk, p, q) for p, q in pieces.items()), LOG)
        self.after = {p: self._build(p, q) for p, q in pieces.items()}

    def _build(self, path: str, pieces: tuple[ResultPiece, ...]) -> bytes | None:
        data = self.before.setdefault(path, None) or b""
        parts = [data[p.start : p.end] if p.is_original else p.data or bytes(p.zeros) for p in pieces]
        return b"".join(parts) if pieces else None

    def apply(self, disk: Disk, **options: Any) -> str:
        result = execute_plan(self.plan, check_result=lambda: check(disk), system=disk, **options)  # type: ignore[arg-type]
        assert result.undo is not None
        return result.undo

    def states(self, disk: Disk) -> list[str]:
        """Return the state of each file: before, after, or mixed."""
        out = []
        for path in self.before:
            now = disk.content(path)
            out.append("before" if now == self.before[path] else "after" if now == self.after[path] else "mixed")
        return out

    def hold(self, disk: Disk) -> str:
        """Check that the files are old, or new with a whole undo file; finish an interrupted repair."""
        states = self.states(disk)
        assert "mixed" not in states, f"{self.name}: a mix of old and new"
        undo = whole_undo(disk)
        if "after" in states:
            assert undo is not None, f"{self.name}: changed, and no whole undo file"
        intent = transaction.read_intent(disk, transaction.find_intent_path(LOG))  # type: ignore[arg-type]
        if len(set(states)) > 1:
            assert intent is not None, f"{self.name}: half of the files, and nothing says so"
        if intent is not None:
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
