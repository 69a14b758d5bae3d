"""Apply a plan: lock and verify the target files, keep an undo file, change the files atomically, and remove what
aborted runs left.

Undo files of aborted runs are only reported: they may be the last copy of data. A temporary file is removed before the
next repair if its name is one that this program gives, it belongs to this user, it has no other name, and no process
holds its lock.

Order of the steps: lock and check again; write the undo file, make it durable and read it back; one atomic change per
file (shorten in place, remove, create, or rename a new file over the old one); verify; mark the undo file as applied.
If several files change, an intent file is written first, so that the next run can finish an interrupted repair.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shlex
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import NoReturn

import msgspec

from binlogtool import formats
from binlogtool.errors import BinlogtoolError, InputOutputError, RefusedError, RepairFailedError
from binlogtool.format_api.format import EngineLock, ResultPiece
from binlogtool.limits import MIB
from binlogtool.repair.plan_types import FilePlan, RepairPlan, RepairResult, WrittenFile
from binlogtool.repair.system_calls import (
    CHANGE,
    READ,
    SYSTEM,
    DeferredSignals,
    SystemCalls,
    TemporaryFile,
    find_uncovered_ranges,
    get_directory,
    hash_kept_other_and_whole,
    iter_piece_bytes,
    path_exists,
    refuse_network,
    split_zero_runs,
    try_remove_file,
)
from binlogtool.repair.undo_file import (
    APPLIED,
    FIXED_HEADER,
    MAGIC,
    ORIGINAL,
    OTHER,
    PREPARED,
    RESULT,
    STATE_OFFSET,
    UndoEntry,
    UndoFile,
    copy_owner_and_mode,
    find_file_state,
    make_recorded_status,
    parse_log_name_of_undo_file,
    plan_restore,
    read_undo_file,
    read_undo_file_of_intent,
    refuse_unsettable_owner,
    refuse_without_space,
    restore_file_if_changed,
    write_state,
    write_undo_file,
)

# --- Logs in use ---


def take_engine_locks(system: SystemCalls, directory: str, locks: tuple[EngineLock, ...], held: ExitStack) -> None:
    """Take the locks that a running server would hold, until `held` is closed.

    Raises:
        RefusedError: the server holds one. OSError.
    """
    for lock in locks:
        path = os.path.join(directory, lock.name) if lock.name else directory
        flags = READ if lock.kind == "flock" else CHANGE
        try:
            fd = system.open(path, flags)
        except FileNotFoundError:
            continue  # no server ever started here; do not create a lock file
        except PermissionError as error:
            raise RefusedError(f"{path}: the server's lock cannot be opened: {error.strerror}") from error
        held.callback(system.close, fd)
        if not (system.flock(fd) if lock.kind == "flock" else system.lock_record(fd)):
            raise RefusedError(f"{path}: locked: the server is running; stop it first; nothing was changed")


def take_undo_locks(system: SystemCalls, undo: UndoFile, held: ExitStack) -> None:
    """Take the engine locks for the files of an undo file. Raises RefusedError: the server holds one. OSError."""
    locks = formats.load_format(undo.format).repair.locks if undo.format in formats.list_names() else ()
    for directory in dict.fromkeys(os.path.dirname(entry.path) for entry in undo.entries):
        take_engine_locks(system, directory, locks, held)


def lock_file_or_refuse(system: SystemCalls, path: str, fd: int) -> None:
    """Take both kinds of lock of a file that is open for writing, and check that no other process has it open.

    Raises:
        RefusedError: the file is in use. OSError.
    """
    if not (system.flock(fd) and system.lock_record(fd)):
        raise RefusedError(f"{path}: locked by another process, perhaps another repair; nothing was changed")
    holders = system.list_holders(system.fstat(fd))
    if holders:
        raise RefusedError(f"{path}: in use: open in {', '.join(holders[:5])}; stop it first; nothing was changed")


# --- Locked and verified target files ---

_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ETXTBSY)


class RepairTarget(msgspec.Struct, frozen=True):
    """File that is open, locked and proven to be the file of the plan.

    For a file to be created, descriptor and status are those of the file whose mode and owner it gets.
    """

    plan: FilePlan
    path: str
    fd: int
    status: os.stat_result
    sha256: str

    @property
    def is_only_shortened(self) -> bool:
        """True if the file is only shortened."""
        pieces = self.plan.pieces
        return len(pieces) == 1 and pieces[0].is_original and pieces[0].start == 0

    @property
    def is_removed(self) -> bool:
        """True if the file is removed."""
        return self.plan.action == "remove"

    @property
    def is_new(self) -> bool:
        """True if the file does not exist yet."""
        return self.plan.made_like is not None

    @property
    def is_replaced(self) -> bool:
        """True if a new file replaces it."""
        return not self.is_only_shortened and not self.is_removed


def open_target(system: SystemCalls, file: FilePlan, held: ExitStack) -> RepairTarget:
    """Open and lock one file, and prove that it is the file for which the plan was made.

    Raises:
        RefusedError: it is another file, is in use, or must not be written. OSError.
    """
    path = os.path.join(os.path.realpath(get_directory(file.path)), os.path.basename(file.path))
    if file.made_like is not None:
        return _open_model_of_new_file(system, file, path, os.path.realpath(file.made_like), held)
    refuse_special_file(system, path)
    fd = open_for_change(system, path, held)
    lock_file_or_refuse(system, path, fd)
    status = system.fstat(fd)
    named = system.lstat(path)
    actual = (status.st_size, status.st_ino, status.st_mtime_ns)
    planned = (file.size, file.inode or status.st_ino, file.mtime_ns or status.st_mtime_ns)
    if (named.st_dev, named.st_ino) != (status.st_dev, status.st_ino) or actual != planned:
        _refuse_changed(path)
    digest = _verify_hashes_and_hash_whole_file(system, fd, file)
    return RepairTarget(file, path, fd, status, digest)


def _open_model_of_new_file(
    system: SystemCalls, file: FilePlan, path: str, model_path: str, held: ExitStack
) -> RepairTarget:
    """Open the existing file whose mode and owner a new file gets."""
    if path_exists(system, path):
        _refuse_changed(path)
    fd = system.open(model_path, READ)
    held.callback(system.close, fd)
    _verify_hashes_and_hash_whole_file(system, fd, file)
    return RepairTarget(file, path, fd, system.fstat(fd), "")


def refuse_special_file(system: SystemCalls, path: str) -> None:
    """Refuse links, special files and files with several names.

    Raises:
        RefusedError, OSError.
    """
    status = system.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        raise RefusedError(f"{path}: is a symbolic link; name the file itself; nothing was changed")
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError(f"{path}: is not a regular file; nothing was changed")
    if status.st_nlink > 1:
        names = f"has {status.st_nlink} names (hard links); --to-file writes a copy"
        raise RefusedError(f"{path}: {names}; nothing was changed")


def open_for_change(system: SystemCalls, path: str, held: ExitStack) -> int:
    """Open a file for reading and writing; it is closed with `held`.

    Raises:
        RefusedError: the file must not be written. OSError.
    """
    try:
        fd = system.open(path, CHANGE)
    except OSError as error:
        if error.errno in _READ_ONLY:
            text = f"{path}: cannot be written: {error.strerror} (--to-file writes a copy); nothing was changed"
            raise RefusedError(text) from error
        raise
    held.callback(system.close, fd)
    return fd


def _verify_hashes_and_hash_whole_file(system: SystemCalls, fd: int, file: FilePlan) -> str:
    """Compare the hashes of the kept and the cut part with the plan; return the hash of the whole file."""
    kept = [p for p in file.pieces if p.is_original]
    hashes = hash_kept_other_and_whole(system, fd, kept, file.size)
    if hashes[:2] != (file.sha256_kept, file.sha256_cut):
        _refuse_changed(file.path)
    return hashes[2]


def _refuse_changed(path: str) -> NoReturn:
    raise RefusedError(f"{path}: changed since the plan was made; plan again; nothing was changed")


def refuse_changed_target(system: SystemCalls, target: RepairTarget) -> None:
    """Check that the file did not change while its undo file was written.

    Raises:
        RefusedError: the file changed. OSError.
    """
    if target.is_new:
        if path_exists(system, target.path):
            _refuse_changed(target.path)
        return
    status, named = system.fstat(target.fd), system.lstat(target.path)
    old_status = target.status
    if (status.st_size, status.st_mtime_ns) != (
        old_status.st_size,
        old_status.st_mtime_ns,
    ) or named.st_ino != old_status.st_ino:
        _refuse_changed(target.path)


# --- The intent file ---

INTENT_NAME = ".binlogtool-intent"
MAX_INTENT_SIZE = 1 << 16


def find_intent_path(*logs: str) -> str:
    """Return the path of the intent file of a repair: in the directory that contains all of its files."""
    return os.path.join(os.path.commonpath([get_directory(log) for log in logs]), INTENT_NAME)


def write_intent(system: SystemCalls, path: str, undo_path: str, direction: str, *, replace: bool = False) -> None:
    """Write an intent file, durably.

    Args:
        direction: apply or undo.
        replace: Overwrite an existing intent.

    Raises:
        OSError: in particular FileExistsError, if there is an intent that may not be replaced.
    """
    with TemporaryFile(system, path) as file:
        file.append_and_hash([json.dumps({"undo": undo_path, "direction": direction}).encode()])
        file.publish(replace=replace)


def read_intent(system: SystemCalls, path: str) -> tuple[str, str] | None:
    """Return the path of the undo file and the direction of an intent; None if there is no intent.

    Raises:
        RefusedError: the intent is damaged. OSError.
    """
    try:
        fd = system.open(path, READ)
    except FileNotFoundError:
        return None
    try:
        value = json.loads(system.pread(fd, MAX_INTENT_SIZE, 0))
        undo_path, direction = value["undo"], value["direction"]
        os.fsencode(undo_path)
        if direction not in ("apply", "undo") or not os.path.isabs(undo_path) or "\0" in undo_path:
            raise ValueError("not an intent")
        return undo_path, direction
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RefusedError(
            f"{path}: is damaged; see the undo file beside it, then remove it; nothing was changed"
        ) from error
    finally:
        with suppress(OSError):
            system.close(fd)


def remove_intent(system: SystemCalls, path: str) -> None:
    """Remove an intent after all files were changed.

    Raises:
        OSError.
    """
    system.unlink(path)
    system.fsync_directory(get_directory(path))


# --- Remains of aborted runs ---

_OWN_NAME_PART = ".binlogtool-"
_TEMPORARY = re.compile(r"\.(.+)\.binlogtool-tmp-[0-9a-f]{12}", re.DOTALL)
_MAX_NAME_LENGTH = 150
"""Maximum number of characters of a file's name that the name of its temporary file repeats."""


def describe_leftovers(system: SystemCalls, folder: str, names: Sequence[str]) -> list[str]:
    """Describe what aborted runs left in a directory for these files. Raises OSError: the directory cannot be read."""
    own_names = [name for name in system.list_directory(folder) if _OWN_NAME_PART in name]
    if not own_names:
        return []
    log_names = set(names)
    text = "a temporary file of an aborted run; --apply removes it"
    lines = [f"{path}: {text}" for path in _find_temporaries(system, folder, log_names)]
    for name in sorted(own_names):
        path = os.path.join(folder, name)
        if parse_log_name_of_undo_file(name) in log_names and _is_unapplied_undo_file(system, path):
            lines.append(f"{path}: {_describe_undo_file(system, path)}")
    return lines


def remove_temporaries(system: SystemCalls, folder: str, names: Sequence[str]) -> list[str]:
    """Remove temporary files that are no longer needed; return a line for each.

    Raises:
        OSError: the directory cannot be read.
    """
    paths = list(_find_temporaries(system, folder, set(names)))
    return [f"{path}: removed: a temporary file of an aborted run" for path in paths if try_remove_file(system, path)]


def _find_temporaries(system: SystemCalls, folder: str, names: set[str]) -> Iterator[str]:
    for name in sorted(name for name in system.list_directory(folder) if _OWN_NAME_PART in name):
        match = _TEMPORARY.fullmatch(name)
        path = os.path.join(folder, name)
        if match and _is_name_of_log_or_undo_file(match[1], names) and _is_unused(system, path):
            yield path


def _is_name_of_log_or_undo_file(name: str, log_names: set[str]) -> bool:
    """Return True for the name of one of the files, of one of their undo files, or of the intent file."""
    cut_short = len(name) == _MAX_NAME_LENGTH
    logs = {parse_log_name_of_undo_file(name) or name}
    return (
        name == INTENT_NAME
        or bool(logs & log_names)
        or (cut_short and any(_has_undo_prefix(name, one) for one in log_names))
    )


def _has_undo_prefix(name: str, log_file_name: str) -> bool:
    """Return True if the name is a prefix of the log's undo file names, or begins with their common prefix."""
    return f"{log_file_name}.binlogtool-undo-".startswith(name) or name.startswith(f"{log_file_name}.binlogtool-undo-")


def _is_unused(system: SystemCalls, path: str) -> bool:
    """Return True for a regular file of this user that no process has locked or open; a running writer holds a lock."""
    try:
        status = system.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_uid != system.get_user():
            return False
        fd = system.open(path, READ)
        try:
            return system.flock(fd) and not system.list_holders(status)
        finally:
            system.close(fd)
    except OSError:
        return False


def _is_unapplied_undo_file(system: SystemCalls, path: str) -> bool:
    """Return True for an undo file whose repair was never marked as applied; False for any other file."""
    try:
        fd = system.open(path, READ)
        try:
            head = system.pread(fd, FIXED_HEADER.size, 0)
        finally:
            system.close(fd)
    except OSError:
        return False
    return head.startswith(MAGIC) and head[STATE_OFFSET:].startswith(PREPARED.encode())


def _describe_undo_file(system: SystemCalls, path: str) -> str:
    try:
        states = _collect_states(system, read_undo_file(system, path))
    except (BinlogtoolError, OSError):
        return "an incomplete undo file; it cannot undo anything"
    if states == {ORIGINAL}:
        return "an undo file of a repair that was aborted before it changed anything; it is not needed"
    if states == {RESULT}:
        return "an undo file of a repair that was aborted after all files were changed; it undoes the repair"
    return "an undo file of an aborted repair; the files changed since, or not all of them are repaired"


def _collect_states(system: SystemCalls, undo: UndoFile) -> set[str]:
    return {find_file_state(system, entry) for entry in undo.entries}


# --- Execution of a plan ---

Check = Callable[[], list[str]]
"""Function that verifies the result; it returns a text for each problem."""


class ApplyOptions(msgspec.Struct, frozen=True):
    """Options for applying a plan.

    Attributes:
        locks: The locks that a running server would hold.
        undo_dir: Directory of the undo file; None = beside the first file.
        full_backup: The undo file keeps the whole file, not only the removed bytes.
        allow_network: Allow changes on network file systems.
    """

    locks: tuple[EngineLock, ...] = ()
    undo_dir: str | None = None
    full_backup: bool = False
    allow_network: bool = False


def execute_plan(
    plan: RepairPlan,
    *,
    check_result: Check,
    locks: tuple[EngineLock, ...] = (),
    undo_dir: str | None = None,
    backup: str = "tail",
    allow_network: bool = False,
    system: SystemCalls = SYSTEM,
) -> RepairResult:
    """Apply a plan that is not refused.

    Raises:
        RefusedError: a safety rule forbids it; nothing was changed. InputOutputError: nothing was changed.
        RepairFailedError: the result did not verify; the message says whether the original was restored.
    """
    if plan.refused:
        raise RefusedError(f"{plan.reasons[0]}; nothing was changed")
    if not plan.changes:
        return RepairResult((), None)
    with ExitStack() as held:
        try:
            return _change_files_with_undo(
                system, plan, ApplyOptions(locks, undo_dir, backup == "full", allow_network), check_result, held
            )
        except MemoryError as error:
            raise InputOutputError(f"{plan.target}: out of memory; nothing was changed") from error
        except OSError as error:
            path = error.filename or plan.target
            raise InputOutputError(f"{path}: {error.strerror or error}; nothing was changed") from error


def _change_files_with_undo(
    system: SystemCalls, plan: RepairPlan, options: ApplyOptions, check_result: Check, held: ExitStack
) -> RepairResult:
    """Lock and prove the target files, write the undo file, change the files and verify; return what was written."""
    directories = [os.path.realpath(get_directory(file.path)) for file in plan.changes]
    undo_directory = os.path.realpath(options.undo_dir) if options.undo_dir is not None else directories[0]
    refuse_network(system, [*directories, undo_directory], options.allow_network)
    targets = [open_target(system, file, held) for file in plan.changes]
    for directory in dict.fromkeys(directories):
        take_engine_locks(system, directory, options.locks, held)
    folders = {*directories, undo_directory}
    names = [os.path.basename(target.path) for target in targets]
    notes = tuple(text for folder in sorted(folders) for text in remove_temporaries(system, folder, names))
    full_backup = options.full_backup
    _refuse_missing_space(system, targets, undo_directory, full_backup)
    new_files = [held.enter_context(_ReplacementFile(system, t)) if t.is_replaced else None for t in targets]
    notes += _describe_lost_attributes(system, targets, new_files)
    entries, removed = _make_undo_entries(system, targets, new_files, full_backup)
    timestamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    first_target = os.path.join(undo_directory, os.path.basename(targets[0].path))
    undo_path = f"{first_target}.binlogtool-undo-{timestamp}-{secrets.token_hex(4)}"
    intent_path = find_intent_path(*(target.path for target in targets)) if len(targets) > 1 else None
    try:
        bodies = [(target.fd, pieces) for target, pieces in zip(targets, removed, strict=True)]
        write_undo_file(system, undo_path, timestamp, plan.to_json_value(), entries, bodies)
        for target in targets:
            refuse_changed_target(system, target)
    except BaseException:
        try_remove_file(system, undo_path)  # nothing was changed yet
        raise
    with DeferredSignals():
        if intent_path is not None:
            _publish_intent(system, intent_path, undo_path)
        _change_files_or_roll_back(
            system, targets, [None if f is None else f[0] for f in new_files], undo_path, intent_path, check_result
        )
    return RepairResult(tuple(_make_written_file(entry) for entry in entries), undo_path, notes)


def _describe_lost_attributes(
    system: SystemCalls, targets: list[RepairTarget], new_files: list[tuple[TemporaryFile, str] | None]
) -> tuple[str, ...]:
    notes = []
    for target, new_file in zip(targets, new_files, strict=True):
        if new_file is not None:
            present = system.read_attributes(new_file[0].fd)
            lost = sorted(
                name for name, value in system.read_attributes(target.fd).items() if present.get(name) != value
            )
            notes += [f"{target.path}: the new file could not be given the extended attribute {name}" for name in lost]
    return tuple(notes)


def _publish_intent(system: SystemCalls, intent_path: str, undo_path: str) -> None:
    try:
        write_intent(system, intent_path, undo_path, "apply")
    except BaseException:
        if try_remove_file(system, intent_path):  # otherwise the intent still names it
            try_remove_file(system, undo_path)
        raise


def _refuse_missing_space(
    system: SystemCalls, targets: list[RepairTarget], undo_directory: str, full_backup: bool
) -> None:
    """Raise RefusedError if a file system lacks the space for the undo file and the replaced files."""
    needed_space: dict[str, int] = {undo_directory: MIB}
    for target in targets:
        needed_space[undo_directory] += target.plan.size if full_backup else _count_undo_bytes(system, target)
        if target.is_replaced:
            folder = get_directory(target.path)
            needed_space[folder] = needed_space.get(folder, MIB) + target.plan.result_size
    for folder, needed in needed_space.items():
        free = system.get_free_space(folder)
        if free < needed:
            raise RefusedError(f"{folder}: {needed:,} bytes are needed, {free:,} are free; nothing was changed")


def _count_undo_bytes(system: SystemCalls, target: RepairTarget) -> int:
    """Return the number of bytes of a file that the undo file keeps."""
    removed = find_uncovered_ranges([p for p in target.plan.pieces if p.is_original], target.plan.size)
    return sum(part.size for one in removed for part, blank in split_zero_runs(system, target.fd, one) if not blank)


class _ReplacementFile:
    """Context manager for the complete new content of a replaced file, still unnamed; yields it with its SHA-256."""

    def __init__(self, system: SystemCalls, target: RepairTarget) -> None:
        self._file = TemporaryFile(system, target.path)
        self._system, self._target = system, target

    def __enter__(self) -> tuple[TemporaryFile, str]:
        system, target = self._system, self._target
        try:
            digest = self._file.append_and_hash(iter_piece_bytes(system, target.fd, target.plan.pieces))
            system.set_attributes(self._file.fd, system.read_attributes(target.fd))
            copy_owner_and_mode(system, self._file.fd, target.path, target.status)
            system.fsync(self._file.fd)
        except BaseException:
            self._file.__exit__()
            raise
        return self._file, digest

    def __exit__(self, *_: object) -> None:
        self._file.__exit__()


def _make_undo_entries(
    system: SystemCalls,
    targets: list[RepairTarget],
    new_files: list[tuple[TemporaryFile, str] | None],
    full_backup: bool,
) -> tuple[list[UndoEntry], list[list[ResultPiece]]]:
    entries, removed, body_size = [], [], 0
    for target, new_file in zip(targets, new_files, strict=True):
        file, before = target.plan, target.status
        split = _keep_whole if full_backup else partial(split_zero_runs, system, target.fd)
        restore_steps, removed_ranges = plan_restore(() if full_backup else file.pieces, file.size, body_size, split)
        body_size += sum(p.size for p in removed_ranges)
        removed.append(removed_ranges)
        entries.append(
            UndoEntry(
                path=target.path,
                size=file.size,
                sha256=target.sha256,
                result_size=file.result_size,
                result_sha256=_result_hash(target) if new_file is None else new_file[1],
                mode=stat.S_IMODE(before.st_mode),
                uid=before.st_uid,
                gid=before.st_gid,
                atime_ns=before.st_atime_ns,
                mtime_ns=before.st_mtime_ns,
                cut=target.is_only_shortened,
                pieces=file.pieces,
                restore=restore_steps,
                removed=target.is_removed,
                created=target.is_new,
                attributes={name: value.hex() for name, value in system.read_attributes(target.fd).items()},
            )
        )
    return entries, removed


def _result_hash(target: RepairTarget) -> str:
    """Return the hash of the result of a file that is shortened; empty if the file is removed."""
    return "" if target.is_removed else str(target.plan.sha256_kept)


def _keep_whole(part: ResultPiece) -> list[tuple[ResultPiece, bool]]:
    return [(part, False)]


def _change_files_or_roll_back(
    system: SystemCalls,
    targets: list[RepairTarget],
    new_files: list[TemporaryFile | None],
    undo_path: str,
    intent_path: str | None,
    check_result: Check,
) -> None:
    """Change the files, verify, and mark the undo file as applied; roll back if anything fails."""
    try:
        for target, new_file in zip(targets, new_files, strict=True):
            if new_file is not None:
                new_file.publish(replace=True)
            else:
                _shorten_or_remove(
                    system, target.path, target.fd, None if target.is_removed else target.plan.result_size
                )
        problems = check_result()
        if not problems:
            write_state(system, undo_path, APPLIED)
            if intent_path is not None:
                remove_intent(system, intent_path)
            return
    except Exception as error:
        problems = [str(error)]
    _roll_back(system, undo_path, intent_path, problems)


def _shorten_or_remove(system: SystemCalls, path: str, fd: int, size: int | None) -> None:
    """Set a file to its new size, durably. size: bytes; None = remove the file."""
    if size is None:
        system.unlink(path)
        system.fsync_directory(get_directory(path))
    else:
        system.ftruncate(fd, size)
        system.fsync(fd)


def _roll_back(system: SystemCalls, undo_path: str, intent_path: str | None, problems: list[str]) -> NoReturn:
    why = "; ".join(problems[:3])
    try:
        undo_file = read_undo_file(system, undo_path)
        for entry in undo_file.entries:
            restore_file_if_changed(system, undo_file, entry)
    except Exception as error:
        text = f"the repaired files did not verify ({why}), and the original could not be restored ({error})"
        raise RepairFailedError(
            f"{text}; its bytes are in {undo_path}: binlogtool undo --apply {shlex.quote(undo_path)}"
        ) from error
    if intent_path is None or try_remove_file(system, intent_path):
        try_remove_file(system, undo_path)
    raise RepairFailedError(f"the repaired files did not verify ({why}); the original was restored")


def list_finishable_entry_states(
    undo_path: str, intent_path: str, *, system: SystemCalls = SYSTEM
) -> list[tuple[UndoEntry, str]]:
    """Check that an interrupted repair of several files can be finished; return its entries and their states.

    Raises:
        RefusedError: it is about other files than those in this directory, or they changed; nothing was written.
        OSError.
    """
    undo = read_undo_file_of_intent(system, undo_path, intent_path)
    if undo.state != PREPARED:
        return []
    files = [(entry, find_file_state(system, entry)) for entry in undo.entries]
    for entry, state in files:
        if state == OTHER:
            raise RefusedError(f"{entry.path}: changed since the repair was interrupted; see {undo_path}")
    return files


def finish_repair(undo_path: str, intent_path: str, *, system: SystemCalls = SYSTEM) -> RepairResult:
    """Finish a repair of several files that was interrupted after its intent was written.

    Raises:
        RefusedError: a file is neither the original nor the result; nothing was changed. OSError.
    """
    files = list_finishable_entry_states(undo_path, intent_path, system=system)
    undo = read_undo_file(system, undo_path)
    with ExitStack() as held:
        take_undo_locks(system, undo, held)
        opened = [(entry, _open_locked(system, entry, held)) for entry, state in files if state == ORIGINAL]
        replaced = [(entry, fd) for entry, fd in opened if not (fd is not None and (entry.cut or entry.removed))]
        refuse_unsettable_owner(system, [entry for entry, _ in replaced])
        needed = dict[str, int]()
        for entry, _ in replaced:
            folder = get_directory(entry.path)
            needed[folder] = needed.get(folder, 0) + entry.result_size
        refuse_without_space(system, needed)
        new_files = [
            (held.enter_context(_write_result(system, entry, fd)), not entry.created) for entry, fd in replaced
        ]
        with DeferredSignals():
            for entry, fd in opened:
                if fd is not None and (entry.cut or entry.removed):
                    _shorten_or_remove(system, entry.path, fd, None if entry.removed else entry.result_size)
            for file, replace in new_files:
                file.publish(replace=replace)
            if undo.state == PREPARED:
                write_state(system, undo_path, APPLIED)
            remove_intent(system, intent_path)
    return RepairResult(tuple(_make_written_file(entry) for entry in undo.entries), undo_path)


def _open_locked(system: SystemCalls, entry: UndoEntry, held: ExitStack) -> int | None:
    """Open and lock a file; return None if it does not exist yet."""
    if entry.created:
        return None
    refuse_special_file(system, entry.path)
    fd = open_for_change(system, entry.path, held)
    lock_file_or_refuse(system, entry.path, fd)
    return fd


@contextmanager
def _write_result(system: SystemCalls, entry: UndoEntry, fd: int | None) -> Iterator[TemporaryFile]:
    """Write the planned result of a replaced or created file, before it gets its name.

    Raises:
        RefusedError: the bytes are not the planned result; nothing was changed. OSError.
    """
    with TemporaryFile(system, entry.path) as file:
        source = -1 if fd is None else fd  # nothing is kept of a file that does not exist
        if file.append_and_hash(iter_piece_bytes(system, source, entry.pieces)) != entry.result_sha256:
            raise RefusedError(f"{entry.path}: does not give the planned result; nothing was changed")
        system.set_attributes(file.fd, {name: bytes.fromhex(value) for name, value in entry.attributes.items()})
        copy_owner_and_mode(system, file.fd, entry.path, make_recorded_status(entry))
        yield file


def _make_written_file(entry: UndoEntry) -> WrittenFile:
    return WrittenFile(entry.path, entry.size, entry.sha256, entry.result_size, entry.result_sha256)
