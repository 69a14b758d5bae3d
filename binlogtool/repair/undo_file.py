"""Undo file of a repair: write, read and check it, and restore the original from it.

Layout: magic, state (8 bytes each), size of the header, offset and size of the body (u64 LE each), SHA-256 of header
and body; then the header (JSON), and at a multiple of 4,096 the body: the bytes that the repair removed.

The SHA-256 proves that an undo file is complete, not who made it. So only regular log files in the expected directory
are written, and no file is given set-user-ID bits or capabilities.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import msgspec

from binlogtool import formats
from binlogtool.errors import InputOutputError, RefusedError, UnknownFormatError
from binlogtool.format_api.format import ResultPiece
from binlogtool.limits import MIB
from binlogtool.repair.plan_types import pieces_from_json, pieces_to_json
from binlogtool.repair.system_calls import (
    CHANGE,
    READ,
    SystemCalls,
    TemporaryFile,
    get_directory,
    hash_chunks,
    path_exists,
    read_chunks,
    write_all,
    zero_chunks,
)

# --- Undo files ---

MAGIC = b"BLTUNDO1"
FIXED_HEADER = struct.Struct("<8s8sQQQ32s")
STATE_OFFSET = 8
BODY_ALIGNMENT = 4096
MAX_HEADER = 64 * MIB
RestoreSteps = tuple[tuple[str, int, int], ...]

_UNDO_NAME = re.compile(r"(.+)\.binlogtool-undo-\d{8}T\d{6}Z-[0-9a-f]{8}", re.DOTALL)
_OPTIONAL_MEMBERS = ("removed", "created", "attributes")
"""Members of an entry that undo files of older versions lack."""

PREPARED, APPLIED, UNDONE = "prepared", "applied", "undone"


class UndoEntry(msgspec.Struct, frozen=True):
    """One changed file in an undo file; it is serialised with these member names.

    Attributes:
        cut, removed, created: What the repair did: cut off its end in place, remove it, create it; none = replace it.
        pieces: The pieces of the original that make up the result.
        restore: The steps that make the original, in order: ("result", start, end) are bytes of the result, ("undo",
            start, end) bytes of the undo file's body, ("zero", 0, size) zeros.
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

    def to_json_value(self) -> dict[str, Any]:
        """Return the entry as a JSON value."""
        plain = {name: getattr(self, name) for name in self.__struct_fields__}
        return plain | {"pieces": pieces_to_json(self.pieces), "restore": [list(one) for one in self.restore]}

    @classmethod
    def from_json_value(cls, value: dict[str, Any]) -> UndoEntry:
        """Parse an entry from JSON.

        Raises:
            ValueError, KeyError, TypeError: the value is no entry, or its numbers contradict each other.
        """
        plain = {name: value[name] for name in cls.__struct_fields__ if name in value or name not in _OPTIONAL_MEMBERS}
        restore = tuple((source, start, end) for source, start, end in value["restore"])
        entry = cls(**plain | {"pieces": pieces_from_json(value["pieces"]), "restore": restore})
        msgspec.convert(msgspec.structs.asdict(entry), cls, strict=True)
        _require_consistent_entry(entry)
        return entry


class UndoFile(msgspec.Struct, frozen=True):
    """Undo file that was read and found complete.

    Attributes:
        state: PREPARED, APPLIED or UNDONE.
        made: Time when the undo file was made.
        format: Name of the log's format.
        body_offset: Offset in the undo file where the removed bytes start.
    """

    path: str
    state: str
    made: str
    format: str
    entries: tuple[UndoEntry, ...]
    body_offset: int


def parse_log_name_of_undo_file(path: str) -> str | None:
    """Return the name of the log to which an undo file with this path belongs; None if it is no undo file's name."""
    match = _UNDO_NAME.fullmatch(os.path.basename(path))
    return None if match is None else match[1]


def _require_consistent_entry(entry: UndoEntry) -> None:
    """Check that path, sizes and ranges of an entry agree with each other. Raises ValueError: they disagree."""
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
        raise ValueError("the ranges do not add up to the size of the result")


def plan_restore(
    pieces: tuple[ResultPiece, ...],
    size: int,
    body_offset: int,
    split_zero_runs: Callable[[ResultPiece], Iterable[tuple[ResultPiece, bool]]],
) -> tuple[RestoreSteps, list[ResultPiece]]:
    """Plan how to restore the original from the result and the undo file.

    Args:
        pieces: The pieces of the original that make up the result.
        size: Bytes of the original.
        body_offset: Offset of the removed bytes in the undo file's body.
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
    """Write an undo file in the state `prepared`, give it its name, and read it back.

    Args:
        bodies: For each changed file, its descriptor and the ranges of it to keep.

    Raises:
        OSError. InputOutputError: the bytes that were read back differ from those written.
    """
    header = json.dumps(
        {
            "schema": "binlogtool/undo-file/1",
            "made": timestamp,
            "plan": plan,
            "files": [one.to_json_value() for one in entries],
        },
        default=str,
    ).encode()
    body_offset = -(-(FIXED_HEADER.size + len(header)) // BODY_ALIGNMENT) * BODY_ALIGNMENT
    digest = hashlib.sha256(header)
    with TemporaryFile(system, path) as file:
        file.append_and_hash([bytes(FIXED_HEADER.size), header, bytes(body_offset - FIXED_HEADER.size - len(header))])
        size = 0
        for source, part in ((source, part) for source, parts in bodies for part in parts):
            for data in file.append_range_of_file(source, part):
                digest.update(data)
            size += part.size
        fixed_header = FIXED_HEADER.pack(MAGIC, PREPARED.encode(), len(header), body_offset, size, digest.digest())
        write_all(system, file.fd, fixed_header, 0)
        file.publish(replace=True)  # the name is unused: it contains random digits
    if read_undo_file(system, path).entries != tuple(entries):
        raise InputOutputError(f"{path}: the undo file does not read back as it was written")


def read_undo_file(system: SystemCalls, path: str) -> UndoFile:
    """Read an undo file and check all of its bytes.

    Raises:
        UnknownFormatError: the file is no undo file. RefusedError: it is damaged, or was changed. OSError.
    """
    fd = system.open(path, READ)
    try:
        return _parse_undo_file(system, fd, path)
    except (ValueError, KeyError, TypeError, struct.error, RecursionError) as error:
        raise RefusedError(
            f"{path}: the undo file is incomplete or damaged ({type(error).__name__}); nothing was changed"
        ) from error
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
        raise RefusedError(f"{path}: the undo file is damaged or was changed: its sizes do not match")
    header = b"".join(read_chunks(system, fd, FIXED_HEADER.size, FIXED_HEADER.size + header_size))
    computed = hashlib.sha256(header)
    for part in read_chunks(system, fd, body_offset, size):
        computed.update(part)
    name = state.rstrip(b"\0").decode("ascii")
    if computed.digest() != digest or name not in (PREPARED, APPLIED, UNDONE):
        raise RefusedError(f"{path}: the undo file is damaged or was changed: its SHA-256 does not match")
    value = json.loads(header)
    entries = tuple(UndoEntry.from_json_value(one) for one in value["files"])
    if len({entry.path for entry in entries}) != len(entries):
        raise ValueError("a file is named twice")
    return UndoFile(path, name, str(value["made"]), str(value["plan"]["format"]), entries, body_offset)


def refuse_foreign_owner(system: SystemCalls, path: str) -> None:
    """Refuse an undo file or intent of another user: it determines names, owner and mode of files, so its maker must be
    trusted.

    Raises:
        RefusedError: it belongs to a user other than this one and root. OSError.
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


# --- Restoration of the original file ---

ORIGINAL, RESULT, OTHER = "original", "result", "other"


def find_file_state(system: SystemCalls, entry: UndoEntry) -> str:
    """Return the state of the file: ORIGINAL, RESULT (of the repair), or OTHER.

    A missing file counts as the result of a removal, and as the original of a created file.

    Raises:
        OSError.
    """
    if (entry.removed or entry.created) and not path_exists(system, entry.path):
        return RESULT if entry.removed else ORIGINAL
    states = {} if entry.removed else {(entry.result_size, entry.result_sha256): RESULT}
    if not entry.created:
        states[entry.size, entry.sha256] = ORIGINAL
    fd = system.open(entry.path, READ)
    try:
        size = system.fstat(fd).st_size
        if all(size != wanted for wanted, _ in states):
            return OTHER
        digest = hash_chunks(read_chunks(system, fd, 0, size))
    finally:
        system.close(fd)
    return states.get((size, digest), OTHER)


def restore_file_if_changed(system: SystemCalls, undo: UndoFile, entry: UndoEntry) -> bool:
    """Restore content, mode, owner and times of a file, or remove it if it did not exist before the repair.

    Return False if nothing had to change.

    Raises:
        RefusedError: the file is neither the original nor the result. OSError.
    """
    state = find_file_state(system, entry)
    if state == ORIGINAL:
        return False
    if state == OTHER:
        raise RefusedError(f"{entry.path}: changed since the repair; nothing was changed")
    if entry.created:
        system.unlink(entry.path)
        system.fsync_directory(get_directory(entry.path))
        return True
    with ExitStack() as held:
        undo_fd = _open_file(system, undo.path, held)
        source = None if entry.removed else _open_file(system, entry.path, held)
        with TemporaryFile(system, entry.path) as file:
            if file.append_and_hash(_read_original(system, undo, entry, source, undo_fd)) != entry.sha256:
                raise RefusedError(f"{undo.path}: does not restore the original of {entry.path}; nothing was changed")
            system.set_attributes(file.fd, {name: bytes.fromhex(value) for name, value in entry.attributes.items()})
            restore_owner_and_mode(system, file.fd, entry)
            system.set_times(file.fd, entry.atime_ns, entry.mtime_ns)
            file.publish(replace=True)
    return True


def check_undo_reproduces_original(system: SystemCalls, undo: UndoFile, entry: UndoEntry) -> None:
    """Check, without writing, that the undo file reproduces the original of a file.

    Raises:
        RefusedError: it does not reproduce the original; nothing was changed. OSError.
    """
    if entry.created:
        return
    with ExitStack() as held:
        undo_fd = _open_file(system, undo.path, held)
        source = None if entry.removed else _open_file(system, entry.path, held)
        if hash_chunks(_read_original(system, undo, entry, source, undo_fd)) != entry.sha256:
            raise RefusedError(f"{undo.path}: does not restore the original of {entry.path}; nothing was changed")


def _open_file(system: SystemCalls, path: str, held: ExitStack) -> int:
    fd = system.open(path, READ)
    held.callback(system.close, fd)
    return fd


def copy_owner_and_mode(system: SystemCalls, fd: int, path: str, like: os.stat_result) -> None:
    """Give the new file for a path the owner and mode of another file.

    Raises:
        RefusedError: this user is not allowed to do that. OSError.
    """
    try:
        system.copy_owner_and_mode(fd, like)
    except PermissionError as error:
        whose = f"belongs to user {like.st_uid}, group {like.st_gid}"
        text = f"{path}: {whose}, and this user cannot give a new file that owner: run this as that user or as root"
        raise RefusedError(f"{text}; nothing was changed") from error


def make_recorded_status(entry: UndoEntry) -> os.stat_result:
    """Return the owner and mode that the undo file records."""
    return SimpleNamespace(st_uid=entry.uid, st_gid=entry.gid, st_mode=entry.mode)  # type: ignore[return-value]


def refuse_unsettable_owner(system: SystemCalls, entries: Iterable[UndoEntry]) -> None:
    """Check, with temporary files, that new files can get the owners that the undo file records.

    Raises:
        RefusedError: an owner cannot be set; nothing was changed. OSError.
    """
    for entry in entries:
        with TemporaryFile(system, entry.path) as trial:
            copy_owner_and_mode(system, trial.fd, entry.path, make_recorded_status(entry))


def restore_owner_and_mode(system: SystemCalls, fd: int, entry: UndoEntry) -> None:
    """Give a file the recorded owner and mode; if the owner cannot be set, this user remains the owner."""
    like = make_recorded_status(entry)
    try:
        system.copy_owner_and_mode(fd, like)
    except PermissionError:
        own = system.fstat(fd)
        system.copy_owner_and_mode(fd, SimpleNamespace(st_uid=own.st_uid, st_gid=own.st_gid, st_mode=like.st_mode))  # type: ignore[arg-type]


def _read_original(
    system: SystemCalls, undo: UndoFile, entry: UndoEntry, source: int | None, undo_fd: int
) -> Iterator[bytes]:
    for source_name, start, end in entry.restore:
        if source_name == "zero":
            yield from zero_chunks(end - start)
        elif source_name == "result" and source is not None:
            yield from read_chunks(system, source, start, end)
        else:
            yield from read_chunks(system, undo_fd, undo.body_offset + start, undo.body_offset + end)


# --- Checks of undo files and intents ---

_UNCHANGED = "nothing was changed"
_PRIVILEGES = "security.capability"


def read_undo_file_of_intent(system: SystemCalls, undo_path: str, intent_path: str) -> UndoFile:
    """Read the undo file that an intent names; refuse it if it names anything but log files in or below its directory.

    Args:
        intent_path: The path of the intent.

    Raises:
        RefusedError: nothing was changed. OSError.
    """
    directory = os.path.realpath(get_directory(intent_path))
    advice = f"if it came with a copied directory, remove {intent_path}; {_UNCHANGED}"
    owner = parse_log_name_of_undo_file(undo_path)
    if owner is None:
        raise RefusedError(f"{intent_path}: {undo_path} is not named like an undo file; {advice}")
    refuse_foreign_owner(system, undo_path)
    try:
        undo = read_undo_file(system, undo_path)
    except UnknownFormatError as error:
        raise RefusedError(f"{intent_path}: {undo_path} is not an undo file; {advice}") from error
    if owner not in {os.path.basename(entry.path) for entry in undo.entries}:
        raise RefusedError(f"{intent_path}: {undo_path} is not named like an undo file of its files; {advice}")
    for entry in undo.entries:
        folder = get_directory(entry.path)
        if not (os.path.commonpath((folder, directory)) == directory) or os.path.realpath(folder) != folder:
            raise RefusedError(f"{intent_path}: names a file outside of its directory, {entry.path}; {advice}")
        if not _is_log_name(entry.path):
            raise RefusedError(f"{intent_path}: names a file that is not a log, {entry.path}; {advice}")
    _refuse_unsafe_entries(system, undo)
    return undo


def refuse_unsafe_undo_file(system: SystemCalls, undo: UndoFile) -> None:
    """Refuse an undo file that would write anything but the log beside it, or log files in another directory.

    Raises:
        RefusedError: nothing was changed. OSError.
    """
    undo_directory, owner = os.path.realpath(get_directory(undo.path)), parse_log_name_of_undo_file(undo.path)
    for entry in undo.entries:
        folder, name = os.path.split(entry.path)
        if os.path.realpath(folder) not in (folder, undo_directory):
            raise RefusedError(f"{undo.path}: {folder} is reached by a symbolic link; {_UNCHANGED}")
        if not _is_log_name(entry.path) and (folder, name) != (undo_directory, owner):
            advice = f"move the undo file into {folder} if that is right"
            raise RefusedError(f"{undo.path}: {entry.path} is not named like a log; {advice}; {_UNCHANGED}")
    _refuse_unsafe_entries(system, undo)


def refuse_without_space(system: SystemCalls, sizes: dict[str, int]) -> None:
    """Refuse to start if a file system lacks the space. sizes: directory -> bytes to be written in it.

    Raises:
        RefusedError: nothing was changed. OSError.
    """
    for folder, size in sizes.items():
        free = system.get_free_space(folder)
        if free < size + MIB:
            raise RefusedError(f"{folder}: {size + MIB:,} bytes are needed, {free:,} are free; {_UNCHANGED}")


def _is_log_name(path: str) -> bool:
    name = os.path.basename(path)
    return not name.startswith(".") and next(formats.find_by_file_name(name), None) is not None


def _refuse_unsafe_entries(system: SystemCalls, undo: UndoFile) -> None:
    for entry in undo.entries:
        if entry.mode & ~0o777 and not _has_mode_and_owner(system, entry):
            text = f"{entry.path} would get mode {entry.mode:o}, which it does not have now"
            raise RefusedError(f"{undo.path}: {text}; {_UNCHANGED}")
        if _PRIVILEGES in entry.attributes:
            raise RefusedError(f"{undo.path}: {entry.path} would get file capabilities; {_UNCHANGED}")


def _has_mode_and_owner(system: SystemCalls, entry: UndoEntry) -> bool:
    """Return True if the file already has the recorded mode and owner, so that setting them changes nothing."""
    try:
        status = system.lstat(entry.path)
    except OSError:
        return False
    return (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (entry.mode, entry.uid, entry.gid)
