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

from binlogtool.errors import InputOutputError, RefusedError, RestoredError
from binlogtool.formats.repair_rules import EngineLock
from binlogtool.limits import MIB
from binlogtool.recovery import intent
from binlogtool.recovery.fileio import Temporary, directory_of, gaps, piece_chunks, remove, runs
from binlogtool.recovery.leftovers import clear
from binlogtool.recovery.live import take_engine_locks, take_file_locks, take_locks_again
from binlogtool.recovery.mounts import refuse_network
from binlogtool.recovery.plan import Applied, Piece, Plan, Written
from binlogtool.recovery.restore import ORIGINAL, OTHER, dress, noted, refuse_other_owner, restore, state_of
from binlogtool.recovery.signals import Deferred
from binlogtool.recovery.system import SYSTEM, System
from binlogtool.recovery.targets import Target, open_for_change, open_target, refuse_odd, still
from binlogtool.recovery.undo_checks import read_intended, refuse_without_space
from binlogtool.recovery.undofile import (
    APPLIED,
    PREPARED,
    Entry,
    mark,
    read_undo,
    restoring,
    write_undo,
)

Check = Callable[[], list[str]]
"""Looks at the result; says what is wrong with it."""


class How(msgspec.Struct, frozen=True):
    """Options for carrying out a plan.

    Attributes:
        locks: The locks of the engine.
        undo_dir: Directory of the undo file; None = beside the first file.
        full_backup: The undo file keeps the whole file.
        allow_network: Also on network file systems.
    """

    locks: tuple[EngineLock, ...] = ()
    undo_dir: str | None = None
    full: bool = False
    network: bool = False


def apply(
    plan: Plan,
    *,
    check: Check,
    locks: tuple[EngineLock, ...] = (),
    undo_dir: str | None = None,
    backup: str = "tail",
    network: bool = False,
    system: System = SYSTEM,
) -> Applied:
    """Carry out a plan that is not refused.

    Raises:
        RefusedError: a safety rule forbids it; nothing was changed. InputOutputError: nothing was changed.
        RestoredError: the result did not verify; the original was restored.
    """
    if plan.refused:
        raise RefusedError(f"{plan.reasons[0]}; nothing was changed")
    if not plan.changes:
        return Applied((), None)
    with ExitStack() as held:
        try:
            return _apply(system, plan, How(locks, undo_dir, backup == "full", network), check, held)
        except MemoryError as error:
            raise InputOutputError(f"{plan.target}: out of memory; nothing was changed") from error
        except OSError as error:
            what = error.filename or plan.target
            raise InputOutputError(f"{what}: {error.strerror or error}; nothing was changed") from error


def _apply(system: System, plan: Plan, how: How, check: Check, held: ExitStack) -> Applied:
    homes = [os.path.realpath(directory_of(file.path)) for file in plan.changes]
    where = os.path.realpath(how.undo_dir) if how.undo_dir is not None else homes[0]
    refuse_network(system, [*homes, where], how.network)
    targets = [open_target(system, file, held) for file in plan.changes]
    for directory in dict.fromkeys(homes):
        take_engine_locks(system, directory, how.locks, held)
    notes = _cleared(system, {*homes, where}, targets)
    full = how.full
    _check_space(system, targets, where, full)
    fresh = [held.enter_context(_new_file(system, t)) if t.is_replaced else None for t in targets]
    notes += _attributes_lost(system, targets, fresh)
    entries, removed = _entries(system, targets, fresh, full)
    made = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    undo = f"{os.path.join(where, os.path.basename(targets[0].path))}.binlogtool-undo-{made}-{secrets.token_hex(4)}"
    guard = intent.path_for(*(target.path for target in targets)) if len(targets) > 1 else None
    try:
        bodies = [(target.fd, pieces) for target, pieces in zip(targets, removed, strict=True)]
        write_undo(system, undo, made, plan.as_value(), entries, bodies)
        for target in targets:
            still(system, target)
    except BaseException:
        remove(system, undo)  # nothing was changed yet
        raise
    with Deferred():
        if guard is not None:
            _announce(system, guard, undo)
        _change(system, targets, [None if f is None else f[0] for f in fresh], undo, guard, check)
    return Applied(tuple(_written(entry) for entry in entries), undo, notes)


def _cleared(system: System, folders: set[str], targets: list[Target]) -> tuple[str, ...]:
    names = [os.path.basename(target.path) for target in targets]
    return tuple(text for folder in sorted(folders) for text in clear(system, folder, names))


def _attributes_lost(
    system: System, targets: list[Target], fresh: list[tuple[Temporary, str] | None]
) -> tuple[str, ...]:
    out = []
    for target, new in zip(targets, fresh, strict=True):
        if new is not None:
            has = system.attributes(new[0].fd)
            lost = sorted(name for name, value in system.attributes(target.fd).items() if has.get(name) != value)
            out += [f"{target.path}: the new file could not be given the extended attribute {name}" for name in lost]
    return tuple(out)


def _announce(system: System, guard: str, undo: str) -> None:
    try:
        intent.write(system, guard, undo, "apply")
    except BaseException:
        if remove(system, guard):  # else the intent still names it
            remove(system, undo)
        raise


def _check_space(system: System, targets: list[Target], where: str, full: bool) -> None:
    wanted: dict[str, int] = {where: MIB}
    for target in targets:
        wanted[where] += target.plan.size if full else _kept_bytes(system, target)
        if target.is_replaced:
            folder = directory_of(target.path)
            wanted[folder] = wanted.get(folder, MIB) + target.plan.result_size
    for folder, needed in wanted.items():
        free = system.free(folder)
        if free < needed:
            raise RefusedError(f"{folder}: {needed:,} bytes are needed, {free:,} are free; nothing was changed")


def _kept_bytes(system: System, target: Target) -> int:
    """Return how many bytes of a file the undo file keeps."""
    gone = gaps([p for p in target.plan.pieces if p.kept], target.plan.size)
    return sum(part.size for one in gone for part, blank in runs(system, target.fd, one) if not blank)


class _new_file:
    """Context manager for the complete new content of a file that is replaced, not yet named; yields it with its
    SHA-256.
    """

    def __init__(self, system: System, target: Target) -> None:
        self._file = Temporary(system, target.path)
        self._system, self._target = system, target

    def __enter__(self) -> tuple[Temporary, str]:
        system, target = self._system, self._target
        try:
            digest = self._file.append(piece_chunks(system, target.fd, target.plan.pieces))
            system.set_attributes(self._file.fd, system.attributes(target.fd))
            dress(system, self._file.fd, target.path, target.status)
            system.fsync(self._file.fd)
        except BaseException:
            self._file.__exit__()
            raise
        return self._file, digest

    def __exit__(self, *_: object) -> None:
        self._file.__exit__()


def _entries(
    system: System, targets: list[Target], fresh: list[tuple[Temporary, str] | None], full: bool
) -> tuple[list[Entry], list[list[Piece]]]:
    entries, removed, body = [], [], 0
    for target, new in zip(targets, fresh, strict=True):
        file, before = target.plan, target.status
        split = _whole if full else partial(runs, system, target.fd)
        steps, gone = restoring(() if full else file.pieces, file.size, body, split)
        body += sum(p.size for p in gone)
        removed.append(gone)
        entries.append(
            Entry(
                path=target.path,
                size=file.size,
                sha256=target.sha256,
                result_size=file.result_size,
                result_sha256=_result_hash(target) if new is None else new[1],
                mode=stat.S_IMODE(before.st_mode),
                uid=before.st_uid,
                gid=before.st_gid,
                atime_ns=before.st_atime_ns,
                mtime_ns=before.st_mtime_ns,
                cut=target.is_cut,
                pieces=file.pieces,
                restore=steps,
                removed=target.is_removed,
                created=target.is_new,
                attributes={name: value.hex() for name, value in system.attributes(target.fd).items()},
            )
        )
    return entries, removed


def _result_hash(target: Target) -> str:
    """Return the hash of the result of a file that is shortened; empty if the file is removed."""
    return "" if target.is_removed else str(target.plan.sha256_kept)


def _whole(part: Piece) -> list[tuple[Piece, bool]]:
    return [(part, False)]


def _change(
    system: System,
    targets: list[Target],
    fresh: list[Temporary | None],
    undo: str,
    guard: str | None,
    check: Check,
) -> None:
    """Change the files, verify, and mark the undo file as applied; roll back if anything fails."""
    try:
        for target, new in zip(targets, fresh, strict=True):
            if new is not None:
                new.publish(replace=True)
            else:
                _shorten(system, target.path, target.fd, None if target.is_removed else target.plan.result_size)
        wrong = check()
        if not wrong:
            mark(system, undo, APPLIED)
            if guard is not None:
                intent.remove(system, guard)
            return
    except Exception as error:
        wrong = [str(error)]
    _take_back(system, undo, guard, wrong)


def _shorten(system: System, path: str, fd: int, size: int | None) -> None:
    """Set a file to its new size, durably.

    Args:
        size: Bytes; None = remove the file.
    """
    if size is None:
        system.unlink(path)
        system.fsync_directory(directory_of(path))
    else:
        system.ftruncate(fd, size)
        system.fsync(fd)


def _take_back(system: System, undo: str, guard: str | None, wrong: list[str]) -> NoReturn:
    why = "; ".join(wrong[:3])
    try:
        whole = read_undo(system, undo)
        for entry in whole.entries:
            restore(system, whole, entry)
    except Exception as error:
        text = f"the repair did not hold ({why}), and the original could not be restored ({error})"
        raise RestoredError(f"{text}; its bytes are in {undo}: binlogtool undo --apply {shlex.quote(undo)}") from error
    if guard is None or remove(system, guard):
        remove(system, undo)
    raise RestoredError(f"the repair did not hold ({why}); the original was restored")


def check_interrupted(undo_path: str, guard: str, *, system: System = SYSTEM) -> list[tuple[Entry, str]]:
    """Check whether an interrupted repair of several files can be finished; return its entries and their states.

    Raises:
        RefusedError: it is not one of the files in this directory, or they changed; nothing was changed. OSError.
    """
    undo = read_intended(system, undo_path, guard)
    if undo.state != PREPARED:
        return []
    files = [(entry, state_of(system, entry)) for entry in undo.entries]
    for entry, state in files:
        if state == OTHER:
            raise RefusedError(f"{entry.path}: changed since the repair was interrupted; see {undo_path}")
    return files


def finish(undo_path: str, guard: str, *, system: System = SYSTEM) -> Applied:
    """Finish a repair of several files that was interrupted after its intent was written.

    Raises:
        RefusedError: a file is neither the old one nor the new one; nothing was changed. OSError.
    """
    files = check_interrupted(undo_path, guard, system=system)
    undo = read_undo(system, undo_path)
    with ExitStack() as held:
        take_locks_again(system, undo, held)
        opened = [(entry, _locked(system, entry, held)) for entry, state in files if state == ORIGINAL]
        replaced = [(entry, fd) for entry, fd in opened if not (fd is not None and (entry.cut or entry.removed))]
        refuse_other_owner(system, [entry for entry, _ in replaced])
        needed = dict[str, int]()
        for entry, _ in replaced:
            folder = directory_of(entry.path)
            needed[folder] = needed.get(folder, 0) + entry.result_size
        refuse_without_space(system, needed)
        fresh = [(held.enter_context(_redone(system, entry, fd)), not entry.created) for entry, fd in replaced]
        with Deferred():
            for entry, fd in opened:
                if fd is not None and (entry.cut or entry.removed):
                    _shorten(system, entry.path, fd, None if entry.removed else entry.result_size)
            for file, replace in fresh:
                file.publish(replace=replace)
            if undo.state == PREPARED:
                mark(system, undo_path, APPLIED)
            intent.remove(system, guard)
    return Applied(tuple(_written(entry) for entry in undo.entries), undo_path)


def _locked(system: System, entry: Entry, held: ExitStack) -> int | None:
    """Open and lock a file; return None if it does not exist yet."""
    if entry.created:
        return None
    refuse_odd(system, entry.path)
    fd = open_for_change(system, entry.path, held)
    take_file_locks(system, entry.path, fd)
    return fd


@contextmanager
def _redone(system: System, entry: Entry, fd: int | None) -> Iterator[Temporary]:
    """Write the planned result of a replaced or created file, without its name yet.

    Raises:
        RefusedError: it is not the planned one; nothing was changed. OSError.
    """
    with Temporary(system, entry.path) as file:
        source = -1 if fd is None else fd  # of a file that is not there nothing is kept
        if file.append(piece_chunks(system, source, entry.pieces)) != entry.result_sha256:
            raise RefusedError(f"{entry.path}: does not give the planned result; nothing was changed")
        system.set_attributes(file.fd, {name: bytes.fromhex(value) for name, value in entry.attributes.items()})
        dress(system, file.fd, entry.path, noted(entry))
        yield file


def _written(entry: Entry) -> Written:
    return Written(entry.path, entry.size, entry.sha256, entry.result_size, entry.result_sha256)
