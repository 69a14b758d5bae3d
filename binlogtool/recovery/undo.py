"""Undo a repair with the same care: plan, locks, proof, one atomic change per file."""

from __future__ import annotations

import os
from contextlib import ExitStack

from binlogtool.errors import InputOutputError, RefusedError
from binlogtool.recovery import intent
from binlogtool.recovery.fileio import get_directory
from binlogtool.recovery.live import take_file_locks, take_undo_locks
from binlogtool.recovery.mounts import refuse_network
from binlogtool.recovery.plan import RepairResult, UndoPlan, WrittenFile
from binlogtool.recovery.restore import (
    ORIGINAL,
    OTHER,
    find_file_state,
    prove_original,
    refuse_unsettable_owner,
    restore_file,
)
from binlogtool.recovery.signals import DeferredSignals
from binlogtool.recovery.system import SYSTEM, SystemCalls
from binlogtool.recovery.targets import open_for_change, refuse_special_file
from binlogtool.recovery.undo_checks import refuse_unsafe_undo, refuse_without_space
from binlogtool.recovery.undofile import UNDONE, UndoEntry, UndoFile, read_undo_file, refuse_foreign_owner, write_state


def plan_undo(path: str | os.PathLike[str], *, system: SystemCalls = SYSTEM) -> UndoPlan:
    """Return what undoing a repair would do; nothing is written.

    Raises:
        UnknownFormatError: this is not an undo file. RefusedError: it is incomplete. InputOutputError.
    """
    name = os.path.abspath(os.fspath(path))
    try:
        undo = read_undo_file(system, name)
        return _make_undo_plan(system, undo)
    except OSError as error:
        raise InputOutputError(f"{error.filename or name}: {error.strerror or error}") from error


def _make_undo_plan(system: SystemCalls, undo: UndoFile) -> UndoPlan:
    refuse_unsafe_undo(system, undo)
    files, reasons = [], []
    for entry in undo.entries:
        try:
            state = find_file_state(system, entry)
        except FileNotFoundError:
            state = OTHER
        if state == OTHER:
            reasons.append(f"{entry.path}: changed since the repair, or is gone")
        action = {ORIGINAL: "none", OTHER: "none"}.get(state, "restore")
        restored = WrittenFile(entry.path, entry.result_size, entry.result_sha256, entry.size, entry.sha256)
        files.append((entry.path, action, restored))
    return UndoPlan(undo.path, undo.state, undo.made, tuple(files), tuple(reasons))


def apply_undo(
    path: str | os.PathLike[str], *, allow_network: bool = False, system: SystemCalls = SYSTEM
) -> RepairResult:
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
            return _undo_repair(system, read_undo_file(system, name), held, allow_network)
        except MemoryError as error:
            raise InputOutputError(f"{name}: out of memory; no file is half-written; try it again") from error
        except OSError as error:
            text = f"{error.filename or name}: {error.strerror or error}; no file is half-written; try it again"
            raise InputOutputError(text) from error


def _undo_repair(system: SystemCalls, undo: UndoFile, held: ExitStack, allow_network: bool) -> RepairResult:
    refuse_foreign_owner(system, undo.path)
    plan = _make_undo_plan(system, undo)
    if plan.reasons:
        raise RefusedError(f"{plan.reasons[0]}; nothing was changed")
    changed_paths = {path for path, action, _ in plan.files if action != "none"}
    entries = [entry for entry in undo.entries if entry.path in changed_paths]
    if entries:
        refuse_network(system, [get_directory(entry.path) for entry in entries], allow_network)
        take_undo_locks(system, undo, held)
    for entry in entries:
        if not entry.removed:  # a removed file does not exist
            _lock_file(system, entry, held)
    refuse_unsettable_owner(system, entries)
    refuse_without_space(system, _compute_needed_space(entries))
    if len(entries) > 1:
        for entry in entries:
            prove_original(system, undo, entry)
    with DeferredSignals():
        intent_path = _publish_intent(system, undo)
        done = [entry for entry in entries if restore_file(system, undo, entry)]
        write_state(system, undo.path, UNDONE)
        if intent_path is not None:
            intent.remove_intent(system, intent_path)
    files = tuple(WrittenFile(e.path, e.result_size, e.result_sha256, e.size, e.sha256) for e in done)
    return RepairResult(files, undo.path)


def _compute_needed_space(entries: list[UndoEntry]) -> dict[str, int]:
    """Return the bytes that are written per directory; each file is replaced before the next one is written."""
    needed = dict[str, int]()
    for entry in entries:
        if not entry.created:
            folder = get_directory(entry.path)
            needed[folder] = max(needed.get(folder, 0), entry.size)
    return needed


def _lock_file(system: SystemCalls, entry: UndoEntry, held: ExitStack) -> None:
    refuse_special_file(system, entry.path)
    fd = open_for_change(system, entry.path, held)
    take_file_locks(system, entry.path, fd)


def _publish_intent(system: SystemCalls, undo: UndoFile) -> str | None:
    """Publish the intent to undo several files, so that the next run finishes it; return its path, None for one file.

    Raises:
        RefusedError: another repair was interrupted here. OSError.
    """
    if len(undo.entries) < 2:
        return None
    intent_path = intent.find_intent_path(*(entry.path for entry in undo.entries))
    present = intent.read_intent(system, intent_path)
    if present is not None and present[0] != undo.path:
        raise RefusedError(f"{get_directory(intent_path)}: another repair was interrupted here; finish that first")
    if present != (undo.path, "undo"):  # replace it atomically: some files may be changed already
        intent.write_intent(system, intent_path, undo.path, "undo", replace=present is not None)
    return intent_path
