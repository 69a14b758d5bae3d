"""Carry out a plan: after any crash there is the old file or the new one, and an undo file keeps everything removed.

Order of the steps: lock and check again; write the undo file, make it durable and read it back; one atomic change per
file (shorten in place, remove, create, or rename a new file over the old one); verify; mark the undo file as applied.
Several files change under an intent that the next run finishes.
"""

from __future__ import annotations

import os
import secrets
import shlex
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NoReturn

import msgspec

from binlogtool.errors import InputOutputError, RefusedError, RepairFailedError
from binlogtool.formats.repair_rules import EngineLock
from binlogtool.limits import MIB
from binlogtool.recovery import intent
from binlogtool.recovery.fileio import (
    TemporaryFile,
    find_gaps,
    get_directory,
    read_pieces,
    remove_file,
    split_zero_runs,
)
from binlogtool.recovery.leftovers import remove_temporaries
from binlogtool.recovery.live import take_engine_locks, take_file_locks, take_undo_locks
from binlogtool.recovery.mounts import refuse_network
from binlogtool.recovery.plan import RepairPlan, RepairResult, ResultPiece, WrittenFile
from binlogtool.recovery.restore import (
    ORIGINAL,
    OTHER,
    copy_owner_and_mode,
    find_file_state,
    make_recorded_status,
    refuse_unsettable_owner,
    restore_file,
)
from binlogtool.recovery.signals import DeferredSignals
from binlogtool.recovery.system import SYSTEM, SystemCalls
from binlogtool.recovery.targets import RepairTarget, check_unchanged, open_for_change, open_target, refuse_special_file
from binlogtool.recovery.undo_checks import read_intended_undo, refuse_without_space
from binlogtool.recovery.undofile import (
    APPLIED,
    PREPARED,
    UndoEntry,
    plan_restore,
    read_undo_file,
    write_state,
    write_undo_file,
)

Check = Callable[[], list[str]]
"""Looks at the result; says what is wrong with it."""


class ApplyOptions(msgspec.Struct, frozen=True):
    """Options for carrying out a plan.

    Attributes:
        locks: The locks of the engine.
        undo_dir: Directory of the undo file; None = beside the first file.
        full_backup: The undo file keeps the whole file.
        allow_network: Also on network file systems.
    """

    locks: tuple[EngineLock, ...] = ()
    undo_dir: str | None = None
    full_backup: bool = False
    allow_network: bool = False


def execute_plan(
    plan: RepairPlan,
    *,
    check: Check,
    locks: tuple[EngineLock, ...] = (),
    undo_dir: str | None = None,
    backup: str = "tail",
    network: bool = False,
    system: SystemCalls = SYSTEM,
) -> RepairResult:
    """Carry out a plan that is not refused.

    Raises:
        RefusedError: a safety rule forbids it; nothing was changed. InputOutputError: nothing was changed.
        RestoredError: the result did not verify; the original was restored.
    """
    if plan.refused:
        raise RefusedError(f"{plan.reasons[0]}; nothing was changed")
    if not plan.changes:
        return RepairResult((), None)
    with ExitStack() as held:
        try:
            return _execute(system, plan, ApplyOptions(locks, undo_dir, backup == "full", network), check, held)
        except MemoryError as error:
            raise InputOutputError(f"{plan.target}: out of memory; nothing was changed") from error
        except OSError as error:
            path = error.filename or plan.target
            raise InputOutputError(f"{path}: {error.strerror or error}; nothing was changed") from error


def _execute(
    system: SystemCalls, plan: RepairPlan, options: ApplyOptions, check: Check, held: ExitStack
) -> RepairResult:
    directories = [os.path.realpath(get_directory(file.path)) for file in plan.changes]
    undo_directory = os.path.realpath(options.undo_dir) if options.undo_dir is not None else directories[0]
    refuse_network(system, [*directories, undo_directory], options.allow_network)
    targets = [open_target(system, file, held) for file in plan.changes]
    for directory in dict.fromkeys(directories):
        take_engine_locks(system, directory, options.locks, held)
    notes = _clear_temporaries(system, {*directories, undo_directory}, targets)
    full_backup = options.full_backup
    _check_space(system, targets, undo_directory, full_backup)
    new_files = [held.enter_context(_ReplacementFile(system, t)) if t.is_replaced else None for t in targets]
    notes += _list_lost_attributes(system, targets, new_files)
    entries, removed = _make_undo_entries(system, targets, new_files, full_backup)
    timestamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    first_target = os.path.join(undo_directory, os.path.basename(targets[0].path))
    undo_path = f"{first_target}.binlogtool-undo-{timestamp}-{secrets.token_hex(4)}"
    intent_path = intent.find_intent_path(*(target.path for target in targets)) if len(targets) > 1 else None
    try:
        bodies = [(target.fd, pieces) for target, pieces in zip(targets, removed, strict=True)]
        write_undo_file(system, undo_path, timestamp, plan.as_value(), entries, bodies)
        for target in targets:
            check_unchanged(system, target)
    except BaseException:
        remove_file(system, undo_path)  # nothing was changed yet
        raise
    with DeferredSignals():
        if intent_path is not None:
            _publish_intent(system, intent_path, undo_path)
        _change_files(system, targets, [None if f is None else f[0] for f in new_files], undo_path, intent_path, check)
    return RepairResult(tuple(_make_written_file(entry) for entry in entries), undo_path, notes)


def _clear_temporaries(system: SystemCalls, folders: set[str], targets: list[RepairTarget]) -> tuple[str, ...]:
    names = [os.path.basename(target.path) for target in targets]
    return tuple(text for folder in sorted(folders) for text in remove_temporaries(system, folder, names))


def _list_lost_attributes(
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
        intent.write_intent(system, intent_path, undo_path, "apply")
    except BaseException:
        if remove_file(system, intent_path):  # else the intent still names it
            remove_file(system, undo_path)
        raise


def _check_space(system: SystemCalls, targets: list[RepairTarget], undo_directory: str, full_backup: bool) -> None:
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
    """Return how many bytes of a file the undo file keeps."""
    removed = find_gaps([p for p in target.plan.pieces if p.is_original], target.plan.size)
    return sum(part.size for one in removed for part, blank in split_zero_runs(system, target.fd, one) if not blank)


class _ReplacementFile:
    """Context manager for the complete new content of a file that is replaced, not yet named; yields it with its
    SHA-256.
    """

    def __init__(self, system: SystemCalls, target: RepairTarget) -> None:
        self._file = TemporaryFile(system, target.path)
        self._system, self._target = system, target

    def __enter__(self) -> tuple[TemporaryFile, str]:
        system, target = self._system, self._target
        try:
            digest = self._file.append(read_pieces(system, target.fd, target.plan.pieces))
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
                cut=target.is_cut,
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


def _change_files(
    system: SystemCalls,
    targets: list[RepairTarget],
    new_files: list[TemporaryFile | None],
    undo_path: str,
    intent_path: str | None,
    check: Check,
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
        problems = check()
        if not problems:
            write_state(system, undo_path, APPLIED)
            if intent_path is not None:
                intent.remove_intent(system, intent_path)
            return
    except Exception as error:
        problems = [str(error)]
    _roll_back(system, undo_path, intent_path, problems)


def _shorten_or_remove(system: SystemCalls, path: str, fd: int, size: int | None) -> None:
    """Set a file to its new size, durably.

    Args:
        size: Bytes; None = remove the file.
    """
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
            restore_file(system, undo_file, entry)
    except Exception as error:
        text = f"the repair did not hold ({why}), and the original could not be restored ({error})"
        raise RepairFailedError(
            f"{text}; its bytes are in {undo_path}: binlogtool undo --apply {shlex.quote(undo_path)}"
        ) from error
    if intent_path is None or remove_file(system, intent_path):
        remove_file(system, undo_path)
    raise RepairFailedError(f"the repair did not hold ({why}); the original was restored")


def check_interrupted(undo_path: str, intent_path: str, *, system: SystemCalls = SYSTEM) -> list[tuple[UndoEntry, str]]:
    """Check whether an interrupted repair of several files can be finished; return its entries and their states.

    Raises:
        RefusedError: it is not one of the files in this directory, or they changed; nothing was changed. OSError.
    """
    undo = read_intended_undo(system, undo_path, intent_path)
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
        RefusedError: a file is neither the old one nor the new one; nothing was changed. OSError.
    """
    files = check_interrupted(undo_path, intent_path, system=system)
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
            intent.remove_intent(system, intent_path)
    return RepairResult(tuple(_make_written_file(entry) for entry in undo.entries), undo_path)


def _open_locked(system: SystemCalls, entry: UndoEntry, held: ExitStack) -> int | None:
    """Open and lock a file; return None if it does not exist yet."""
    if entry.created:
        return None
    refuse_special_file(system, entry.path)
    fd = open_for_change(system, entry.path, held)
    take_file_locks(system, entry.path, fd)
    return fd


@contextmanager
def _write_result(system: SystemCalls, entry: UndoEntry, fd: int | None) -> Iterator[TemporaryFile]:
    """Write the planned result of a replaced or created file, without its name yet.

    Raises:
        RefusedError: it is not the planned one; nothing was changed. OSError.
    """
    with TemporaryFile(system, entry.path) as file:
        source = -1 if fd is None else fd  # of a file that is not there nothing is kept
        if file.append(read_pieces(system, source, entry.pieces)) != entry.result_sha256:
            raise RefusedError(f"{entry.path}: does not give the planned result; nothing was changed")
        system.set_attributes(file.fd, {name: bytes.fromhex(value) for name, value in entry.attributes.items()})
        copy_owner_and_mode(system, file.fd, entry.path, make_recorded_status(entry))
        yield file


def _make_written_file(entry: UndoEntry) -> WrittenFile:
    return WrittenFile(entry.path, entry.size, entry.sha256, entry.result_size, entry.result_sha256)
