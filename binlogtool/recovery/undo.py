"""Undo a repair with the same care: plan, locks, proof, one atomic change per file."""

from __future__ import annotations

import os
from contextlib import ExitStack

from binlogtool.errors import InputOutputError, RefusedError
from binlogtool.recovery import intent
from binlogtool.recovery.fileio import directory_of
from binlogtool.recovery.live import take_file_locks, take_locks_again
from binlogtool.recovery.mounts import refuse_network
from binlogtool.recovery.plan import Applied, UndoPlan, Written
from binlogtool.recovery.restore import ORIGINAL, OTHER, prove_original, refuse_other_owner, restore, state_of
from binlogtool.recovery.signals import Deferred
from binlogtool.recovery.system import SYSTEM, System
from binlogtool.recovery.targets import open_for_change, refuse_odd
from binlogtool.recovery.undo_checks import refuse_strange_undo, refuse_without_space
from binlogtool.recovery.undofile import UNDONE, Entry, Undo, mark, read_undo, refuse_foreign


def plan_undo(path: str | os.PathLike[str], *, system: System = SYSTEM) -> UndoPlan:
    """Return what undoing a repair would do; nothing is written.

    Raises:
        UnknownFormatError: this is not an undo file. RefusedError: it is incomplete. InputOutputError.
    """
    name = os.path.abspath(os.fspath(path))
    try:
        undo = read_undo(system, name)
        return _plan(system, undo)
    except OSError as error:
        raise InputOutputError(f"{error.filename or name}: {error.strerror or error}") from error


def _plan(system: System, undo: Undo) -> UndoPlan:
    refuse_strange_undo(system, undo)
    files, reasons = [], []
    for entry in undo.entries:
        try:
            state = state_of(system, entry)
        except FileNotFoundError:
            state = OTHER
        if state == OTHER:
            reasons.append(f"{entry.path}: changed since the repair, or is gone")
        action = {ORIGINAL: "none", OTHER: "none"}.get(state, "restore")
        back = Written(entry.path, entry.result_size, entry.result_sha256, entry.size, entry.sha256)
        files.append((entry.path, action, back))
    return UndoPlan(undo.path, undo.state, undo.made, tuple(files), tuple(reasons))


def apply_undo(path: str | os.PathLike[str], *, network: bool = False, system: System = SYSTEM) -> Applied:
    """Undo a repair: content, owner, mode, times and extended attributes are those of the original again.

    Args:
        allow_network: Also on network file systems, where other machines can change the files.

    Raises:
        RefusedError: a safety rule forbids it; nothing was changed. InputOutputError: no file is half-written; call
            it again.
    """
    name = os.path.abspath(os.fspath(path))
    with ExitStack() as held:
        try:
            return _apply(system, read_undo(system, name), held, network)
        except MemoryError as error:
            raise InputOutputError(f"{name}: out of memory; no file is half-written; try it again") from error
        except OSError as error:
            text = f"{error.filename or name}: {error.strerror or error}; no file is half-written; try it again"
            raise InputOutputError(text) from error


def _apply(system: System, undo: Undo, held: ExitStack, network: bool) -> Applied:
    refuse_foreign(system, undo.path)
    plan = _plan(system, undo)
    if plan.reasons:
        raise RefusedError(f"{plan.reasons[0]}; nothing was changed")
    wanted = {path for path, action, _ in plan.files if action != "none"}
    entries = [entry for entry in undo.entries if entry.path in wanted]
    if entries:
        refuse_network(system, [directory_of(entry.path) for entry in entries], network)
        take_locks_again(system, undo, held)
    for entry in entries:
        if not entry.removed:  # a removed file does not exist
            _lock(system, entry, held)
    refuse_other_owner(system, entries)
    refuse_without_space(system, _needed(entries))
    if len(entries) > 1:
        for entry in entries:
            prove_original(system, undo, entry)
    with Deferred():
        guard = _guard(system, undo)
        done = [entry for entry in entries if restore(system, undo, entry)]
        mark(system, undo.path, UNDONE)
        if guard is not None:
            intent.remove(system, guard)
    files = tuple(Written(e.path, e.result_size, e.result_sha256, e.size, e.sha256) for e in done)
    return Applied(files, undo.path)


def _needed(entries: list[Entry]) -> dict[str, int]:
    """Return the bytes that are written per directory; each file is replaced before the next one is written."""
    needed = dict[str, int]()
    for entry in entries:
        if not entry.created:
            folder = directory_of(entry.path)
            needed[folder] = max(needed.get(folder, 0), entry.size)
    return needed


def _lock(system: System, entry: Entry, held: ExitStack) -> None:
    refuse_odd(system, entry.path)
    fd = open_for_change(system, entry.path, held)
    take_file_locks(system, entry.path, fd)


def _guard(system: System, undo: Undo) -> str | None:
    """Publish the intent to undo several files, so that the next run finishes it; return its path, None for one file.

    Raises:
        RefusedError: another repair was interrupted here. OSError.
    """
    if len(undo.entries) < 2:
        return None
    guard = intent.path_for(*(entry.path for entry in undo.entries))
    known = intent.read(system, guard)
    if known is not None and known[0] != undo.path:
        raise RefusedError(f"{directory_of(guard)}: another repair was interrupted here; finish that first")
    if known != (undo.path, "undo"):  # replace it atomically: some files may be changed already
        intent.write(system, guard, undo.path, "undo", replace=known is not None)
    return guard
