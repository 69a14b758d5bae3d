"""Undo files: what a repair removed, how to restore the original, and hashes of everything.

Layout: magic, state (8 bytes each), size of the header, offset and size of the body (u64 LE each), SHA-256 of header
and body; then the header (JSON), and at a multiple of 4,096 the body: the bytes that the repair removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from binlogtool.errors import InputOutputError, RefusedError, UnknownFormatError
from binlogtool.limits import MIB
from binlogtool.recovery.fileio import TemporaryFile, read_chunks, write_all
from binlogtool.recovery.plan import ResultPiece, pieces_from_json, pieces_to_json
from binlogtool.recovery.system import CHANGE, READ, SystemCalls

MAGIC = b"BLTUNDO1"
FIXED_HEADER = struct.Struct("<8s8sQQQ32s")
STATE_OFFSET = 8
BODY_ALIGNMENT = 4096
MAX_HEADER = 64 * MIB
RestoreSteps = tuple[tuple[str, int, int], ...]

_UNDO_NAME = re.compile(r"(.+)\.binlogtool-undo-\d{8}T\d{6}Z-[0-9a-f]{8}", re.DOTALL)
_OPTIONAL_MEMBERS = ("removed", "created", "attributes")
"""Members of an entry that older undo files do not have."""

PREPARED, APPLIED, UNDONE = "prepared", "applied", "undone"


class UndoEntry(msgspec.Struct, frozen=True):
    """One changed file of an undo file. Serialised under these names.

    Attributes:
        cut: Its end was cut off in place. removed: it was removed. created: it did not exist before. Else it was
            replaced.
        pieces: How the result is made of the original.
        restore: How the original is made, in order: ("result", start, end) are bytes of the result, ("undo", start,
            end)
            bytes of the undo file's body, ("zero", 0, size) zeros.
        attributes: Extended attributes (access lists, security labels, ...), by name, in hexadecimal digits.
    """

    path: str
    size: int
    sha256: str
    result_size: int
    result_sha256: str
    mode: int
    uid: int
    gid: int
    atime_ns: int
    mtime_ns: int
    cut: bool
    pieces: tuple[ResultPiece, ...]
    restore: RestoreSteps
    removed: bool = False
    created: bool = False
    attributes: dict[str, str] = msgspec.field(default_factory=dict)

    def as_value(self) -> dict[str, Any]:
        """Return the entry as JSON."""
        plain = {name: getattr(self, name) for name in self.__struct_fields__}
        return plain | {"pieces": pieces_to_json(self.pieces), "restore": [list(one) for one in self.restore]}

    @classmethod
    def from_value(cls, value: dict[str, Any]) -> UndoEntry:
        """Parse an entry from JSON.

        Raises:
            ValueError, KeyError, TypeError: it is not an entry, or its numbers contradict each other.
        """
        plain = {name: value[name] for name in cls.__struct_fields__ if name in value or name not in _OPTIONAL_MEMBERS}
        restore = tuple((source, start, end) for source, start, end in value["restore"])
        entry = cls(**plain | {"pieces": pieces_from_json(value["pieces"]), "restore": restore})
        msgspec.convert(msgspec.structs.asdict(entry), cls, strict=True)
        _check_entry(entry)
        return entry


class UndoFile(msgspec.Struct, frozen=True):
    """An undo file that was read and found complete.

    Attributes:
        state: PREPARED, APPLIED or UNDONE.
        made: Time when it was made.
        format: Name of the log's format.
        body_offset: Where the removed bytes start in it.
    """

    path: str
    state: str
    made: str
    format: str
    entries: tuple[UndoEntry, ...]
    body_offset: int


def parse_log_name(path: str) -> str | None:
    """Return the name of the log that an undo file with this path belongs to; None if it is not named like one."""
    match = _UNDO_NAME.fullmatch(os.path.basename(path))
    return None if match is None else match[1]


def _check_entry(entry: UndoEntry) -> None:
    """Check that path, sizes and ranges of an entry agree with each other.

    Raises:
        ValueError: they do not.
    """
    if not os.path.isabs(entry.path) or os.path.normpath(entry.path) != entry.path or "\0" in entry.path:
        raise ValueError("a path is not absolute and plain")
    os.fsencode(entry.path)
    numbers = (entry.size, entry.result_size, entry.mode, entry.uid, entry.gid)
    if any(not 0 <= number < 1 << 62 for number in numbers):
        raise ValueError("a number is out of range")
    for source, start, end in entry.restore:
        max_end = {"result": entry.result_size, "undo": 1 << 62, "zero": entry.size}[source]
        if not 0 <= start <= end <= max_end:
            raise ValueError("a range is out of bounds")
    if not all(0 <= piece.start <= piece.end <= entry.size and piece.zeros >= 0 for piece in entry.pieces):
        raise ValueError("a range is out of bounds")
    for value in entry.attributes.values():
        bytes.fromhex(value)
    if sum(end - start for _, start, end in entry.restore) != entry.size:
        raise ValueError("the ranges do not give the original's size")
    if not entry.removed and sum(piece.size for piece in entry.pieces) != entry.result_size:
        raise ValueError("the ranges do not give the result's size")


def plan_restore(
    pieces: tuple[ResultPiece, ...],
    size: int,
    body_offset: int,
    split_zero_runs: Callable[[ResultPiece], Iterable[tuple[ResultPiece, bool]]],
) -> tuple[RestoreSteps, list[ResultPiece]]:
    """Plan how to restore the original from the result and the undo file.

    Args:
        pieces: How the result is made of the original.
        size: Bytes of the original.
        body_offset: Where the removed bytes will lie in the undo file's body.
        split_zero_runs: Range of the original -> its parts, each with True if it is all zeros.

    Returns:
        The steps ("result", start, end), ("undo", start, end) and ("zero", 0, size) in order, and the ranges of the
        original that the undo file must keep.
    """
    kept_ranges: list[tuple[int, int, int]] = []  # start and end in the original, start in the result
    result_offset = 0
    for piece in pieces:
        if piece.is_original and piece.size:
            kept_ranges.append((piece.start, piece.end, result_offset))
        result_offset += piece.size
    steps: list[tuple[str, int, int]] = []
    removed: list[ResultPiece] = []
    position = 0
    for start, end, result_start in [*sorted(kept_ranges), (size, size, result_offset)]:
        for part, is_zero in split_zero_runs(ResultPiece(position, start)) if start > position else ():
            if is_zero:
                steps.append(("zero", 0, part.size))
                continue
            steps.append(("undo", body_offset, body_offset + part.size))
            removed.append(part)
            body_offset += part.size
        if end > start:
            steps.append(("result", result_start, result_start + end - start))
        position = end
    return tuple(steps), removed


def write_undo_file(
    system: SystemCalls,
    path: str,
    timestamp: str,
    plan: dict[str, Any],
    entries: list[UndoEntry],
    bodies: list[tuple[int, list[ResultPiece]]],
) -> None:
    """Write, publish and read back an undo file in the state `prepared`.

    Args:
        bodies: Per changed file, its descriptor and the ranges to keep of it.

    Raises:
        OSError. InputOutputError: what was read back is not what was written.
    """
    header = json.dumps(
        {
            "schema": "binlogtool/undo-file/1",
            "made": timestamp,
            "plan": plan,
            "files": [one.as_value() for one in entries],
        },
        default=str,
    ).encode()
    body_offset = -(-(FIXED_HEADER.size + len(header)) // BODY_ALIGNMENT) * BODY_ALIGNMENT
    digest = hashlib.sha256(header)
    with TemporaryFile(system, path) as file:
        file.append([bytes(FIXED_HEADER.size), header, bytes(body_offset - FIXED_HEADER.size - len(header))])
        size = 0
        for source, part in ((source, part) for source, parts in bodies for part in parts):
            for data in file.append_from(source, part):
                digest.update(data)
            size += part.size
        fixed_header = FIXED_HEADER.pack(MAGIC, PREPARED.encode(), len(header), body_offset, size, digest.digest())
        write_all(system, file.fd, fixed_header, 0)
        file.publish(replace=True)  # nothing has this name: it is made of random digits
    if read_undo_file(system, path).entries != tuple(entries):
        raise InputOutputError(f"{path}: the undo file does not read back as it was written")


def read_undo_file(system: SystemCalls, path: str) -> UndoFile:
    """Read an undo file and check all of its bytes.

    Raises:
        UnknownFormatError: it is not an undo file. RefusedError: it is damaged, or was changed. OSError.
    """
    fd = system.open(path, READ)
    try:
        return _parse_undo_file(system, fd, path)
    except (ValueError, KeyError, TypeError, struct.error, RecursionError) as error:
        raise RefusedError(f"{path}: is not a whole undo file ({type(error).__name__}); nothing was changed") from error
    finally:
        system.close(fd)


def _parse_undo_file(system: SystemCalls, fd: int, path: str) -> UndoFile:
    size = system.fstat(fd).st_size
    fixed_header = system.pread(fd, FIXED_HEADER.size, 0)
    if len(fixed_header) < FIXED_HEADER.size or not fixed_header.startswith(MAGIC):
        raise UnknownFormatError(f"{path}: is not an undo file of binlogtool; nothing was changed")
    _, state, header_size, body_offset, body_size, digest = FIXED_HEADER.unpack(fixed_header)
    if (
        header_size > min(MAX_HEADER, size)
        or body_offset < FIXED_HEADER.size + header_size
        or body_offset + body_size != size
    ):
        raise RefusedError(f"{path}: the undo file is damaged or was changed: its sizes do not fit")
    header = b"".join(read_chunks(system, fd, FIXED_HEADER.size, FIXED_HEADER.size + header_size))
    computed = hashlib.sha256(header)
    for part in read_chunks(system, fd, body_offset, size):
        computed.update(part)
    name = state.rstrip(b"\0").decode("ascii")
    if computed.digest() != digest or name not in (PREPARED, APPLIED, UNDONE):
        raise RefusedError(f"{path}: the undo file is damaged or was changed: its SHA-256 does not fit")
    value = json.loads(header)
    entries = tuple(UndoEntry.from_value(one) for one in value["files"])
    if len({entry.path for entry in entries}) != len(entries):
        raise ValueError("a file is named twice")
    return UndoFile(path, name, str(value["made"]), str(value["plan"]["format"]), entries, body_offset)


def refuse_foreign_owner(system: SystemCalls, path: str) -> None:
    """Refuse an undo file or intent of another user: it decides about names, owner and mode of files, so its maker
    must be trusted.

    Raises:
        RefusedError: it belongs to another user, who is not root. OSError.
    """
    owner = system.lstat(path).st_uid
    if owner not in (0, system.get_user()):
        raise RefusedError(f"{path}: belongs to user {owner}; run this as that user; nothing was changed")


def write_state(system: SystemCalls, path: str, state: str) -> None:
    """Change the state of an undo file, durably."""
    fd = system.open(path, CHANGE)
    try:
        write_all(system, fd, state.encode().ljust(8, b"\0"), STATE_OFFSET)
        system.fsync(fd)
    finally:
        system.close(fd)
