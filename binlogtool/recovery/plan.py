"""A repair as a value: immutable, serialisable, bound to exact bytes (JSON shape binlogtool/plan/1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from binlogtool import repairs, results
from binlogtool.formats.repair_rules import Piece
from binlogtool.recovery import packing
from binlogtool.recovery.report import LeftOut

__all__ = [
    "Applied", "Asked", "FilePlan", "FilePlans", "FinishPlan", "Piece", "Plan", "UndoPlan", "Written", "pieces_from",
    "pieces_value",
]  # fmt: skip


class Asked(msgspec.Struct, frozen=True):
    """What the user allows and wants of a repair (cli.md 6.6). max_loss in bytes; None = the default bound.

    salvage: keep what is provable behind a damage, too. copy: the result goes to a new file; the source stays.
    transactions: cut behind the last whole transaction, not behind the last whole record. allow_empty_result: also
    where no record is kept, of a file given by itself whose format was named.
    """

    max_loss: int | None = None
    max_loss_records: int | None = None
    allow_discard_valid: bool = False
    fix_meta: bool = False
    write_close_marker: bool = False
    salvage: bool = False
    copy: bool = False
    transactions: bool = False
    allow_empty_result: bool = False

    def as_value(self) -> dict[str, Any]:
        """What was asked beyond the defaults."""
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in given.items() if value is not None and value is not False}


class FilePlan(msgspec.Struct, frozen=True):
    """What would be done to one file. action: none, truncate, zero-fill, rewrite or remove.

    pieces: the bytes of the result, in order; for `none` and `remove` there are none. sha256_kept: of what stays of the
    file as it is; sha256_cut: of the rest. inode, mtime_ns: which file was looked at, and when it was last written.
    made_like: of a file that does not exist yet: the one whose mode and owner it gets.
    """

    path: str
    size: int
    action: str
    durable_end: int | None
    cut_bytes: int
    cut_valid_records: int
    proof: Mapping[str, Any]
    sha256_kept: str | None
    sha256_cut: str | None
    inode: int | None = None
    mtime_ns: int | None = None
    pieces: tuple[Piece, ...] = ()
    made_like: str | None = None

    @property
    def kept_records(self) -> int:
        """Complete records in the result."""
        if self.action == "remove":
            return 0
        return int(self.proof.get("records_kept", self.proof.get("records")) or 0)

    @property
    def result_size(self) -> int:
        """The size of the file afterwards; 0 where it is removed."""
        if self.action == "remove":
            return 0
        return sum(p.size for p in self.pieces) if self.pieces else self.size

    @property
    def corrects(self) -> bool:
        """Are flipped bits put right, and nothing cut?"""
        return "corrected" in self.proof

    def as_value(self) -> dict[str, Any]:
        """One member of `files` (cli.md 6.19)."""
        return {
            "path": self.path,
            "size": self.size,
            "action": self.action,
            "durable_end": self.durable_end,
            "cut_bytes": self.cut_bytes,
            "cut_valid_records": self.cut_valid_records,
            "proof": dict(self.proof),
            "sha256_kept": self.sha256_kept,
            "sha256_cut": self.sha256_cut,
            **({"inode": self.inode, "mtime_ns": self.mtime_ns} if self.inode is not None else {}),
            **({"made_like": self.made_like} if self.made_like is not None else {}),
            **({"result": pieces_value(self.pieces)} if self.action in ("rewrite", "zero-fill") else {}),
            **({"grows_to": self.result_size} if self.result_size > self.size else {}),
        }


_PIECES = FilePlan.__struct_fields__.index("pieces")
KeptPlan = FilePlan | bytes
"""A plan for one file, as it is or packed."""


def packed(plan: KeptPlan) -> KeptPlan:
    """What is kept of the plan for one of very many files: a quarter of its memory, if the file stays as it is."""
    if isinstance(plan, bytes) or plan.action != "none" or plan.pieces:
        return plan
    return packing.packed(plan) or plan


def unpacked(kept: KeptPlan) -> FilePlan:
    """The plan itself."""
    if not isinstance(kept, bytes):
        return kept
    values = msgspec.msgpack.decode(kept)
    values[_PIECES] = ()
    return FilePlan(*values)


class FilePlans(packing.Many[FilePlan]):
    """Plans for files, in their order."""

    __slots__ = ()
    pack = staticmethod(packed)
    unpack = staticmethod(unpacked)


def pieces_value(pieces: tuple[Piece, ...]) -> list[dict[str, Any]]:
    """How a result is made, as JSON: ranges of the file, zeros, and new bytes in hexadecimal digits."""
    return [_piece_value(one) for one in pieces]


def _piece_value(piece: Piece) -> dict[str, Any]:
    if piece.data is not None:
        return {"bytes": piece.data.hex()}
    return {"zeros": piece.zeros} if piece.zeros else {"start": piece.start, "end": piece.end}


def pieces_from(value: list[dict[str, Any]]) -> tuple[Piece, ...]:
    """The reverse of `pieces_value`."""
    return tuple(_piece_from(one) for one in value)


def _piece_from(value: dict[str, Any]) -> Piece:
    if "bytes" in value:
        return Piece(data=bytes.fromhex(value["bytes"]))
    return Piece(zeros=int(value["zeros"])) if "zeros" in value else Piece(int(value["start"]), int(value["end"]))


class Plan(msgspec.Struct, frozen=True):
    """All files of one repair. refused: a safety rule forbids it; reasons say why (also the harmless ones).

    target: the path that the plan was made for. asked: with which allowances. notes: what the user should know.
    left: the files of the directory that are no logs; they are not touched. copyable: of a refused plan: the file of
    which a copy can be made that keeps everything provable.
    """

    format: str
    refused: bool
    reasons: tuple[str, ...]
    files: Sequence[FilePlan]
    target: str = ""
    asked: Asked = msgspec.field(default_factory=Asked)
    notes: tuple[str, ...] = ()
    left: tuple[LeftOut, ...] = ()
    copyable: str | None = None

    @property
    def about(self) -> FilePlan | None:
        """The file that the first reason is about."""
        return next((one for one in self.files if self.reasons and self.reasons[0].startswith(f"{one.path}: ")), None)

    @property
    def unread(self) -> bool:
        """Is a file encrypted without its key?"""
        return any(file.proof.get("encrypted") for file in self.files)

    @property
    def changes(self) -> tuple[FilePlan, ...]:
        """The files that would change."""
        return tuple(f for f in self.files if f.action != "none")

    def as_value(self) -> dict[str, Any]:
        """`truncate-to-durable -O json` (cli.md 6.19)."""
        asked = self.asked.as_value()
        return {
            "schema": "binlogtool/plan/1",
            "format": self.format,
            "refused": self.refused,
            "reasons": list(self.reasons),
            "files": [f.as_value() for f in self.files],
            **({"target": self.target} if self.target else {}),
            **({"asked": asked} if asked else {}),
            **({"notes": list(self.notes)} if self.notes else {}),
        }

    def to_json(self) -> bytes:
        """`truncate-to-durable -O json` (binlogtool/plan/1). Saved in a file, `binlogtool.saved_plan` reads it."""
        return results.plan_as_json(self)

    def apply(
        self, *, undo_dir: str | None = None, backup: str = "tail", network: bool = False, **reading: Any
    ) -> Applied:
        """Carries it out; the same as `binlogtool.apply_plan`.

        Raises:
            RefusedError, InputOutputError: nothing was changed. RestoredError: the original was restored.
        """
        return repairs.apply_plan(self, undo_dir=undo_dir, backup=backup, network=network, **reading)


class Written(NamedTuple):
    """One file that was changed (or made): sizes in bytes and SHA-256, before and after; "" where there is no file."""

    path: str
    size_before: int
    sha256_before: str
    size_after: int
    sha256_after: str


class Applied(msgspec.Struct, frozen=True):
    """What was done. undo: the file that takes it back; None where no existing file was changed. notes: what else."""

    files: tuple[Written, ...]
    undo: str | None
    notes: tuple[str, ...] = ()


class UndoPlan(msgspec.Struct, frozen=True):
    """What `undo` would do. state: of the undo file (prepared, applied, undone). reasons: why it cannot be done.

    files: path, and what would happen to it: `restore`, or `none` when it is the original already.
    """

    undo: str
    state: str
    made: str
    files: tuple[tuple[str, str, Written], ...]
    reasons: tuple[str, ...]


class FinishPlan(msgspec.Struct, frozen=True):
    """What finishing an interrupted repair would do. intent: the file that says so. undo: its undo file; None = it is
    gone, as nothing was changed yet. direction: apply or undo. files: path, and what happens to it.
    """

    intent: str
    undo: str | None
    direction: str
    files: tuple[tuple[str, str], ...]
