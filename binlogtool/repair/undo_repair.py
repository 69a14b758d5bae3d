"""Undo a repair, and finish an interrupted repair or undo."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack

from binlogtool.errors import BinlogtoolError, InputOutputError, RefusedError, UnknownFormatError, name_os_errors
from binlogtool.repair import execute_plan as transaction
from binlogtool.repair.execute_plan import (
    finish_repair,
    list_finishable_entry_states,
    lock_file_or_refuse,
    open_for_change,
    refuse_special_file,
    take_undo_locks,
)
from binlogtool.repair.plan_types import UNFINISHED_ADVICE, FinishPlan, RepairResult, UndoPlan, WrittenFile
from binlogtool.repair.system_calls import (
    SYSTEM,
    DeferredSignals,
    SystemCalls,
    get_directory,
    path_exists,
    refuse_network,
)
from binlogtool.repair.undo_file import (
    ORIGINAL,
    OTHER,
    RESULT,
    UNDONE,
    UndoEntry,
    UndoFile,
    check_undo_reproduces_original,
    find_file_state,
    parse_log_name_of_undo_file,
    read_undo_file,
    read_undo_file_of_intent,
    refuse_foreign_owner,
    refuse_unsafe_undo_file,
    refuse_unsettable_owner,
    refuse_without_space,
    restore_file_if_changed,
    write_state,
)

# --- Undo of a repair ---


def choose_undo_file(paths: Sequence[str], *, system: SystemCalls = SYSTEM) -> str:
    """Return the undo file of the newest repair that is not undone yet; of the newest one if all are.

    Args:
        paths: Undo files, or directories that contain them; a single file is returned unread.

    Raises:
        UnknownFormatError: a file is no undo file, or a directory contains none. RefusedError: an undo file is damaged.
            InputOutputError.
    """
    if len(paths) == 1 and not os.path.isdir(paths[0]):
        return paths[0]
    candidates = []
    for path in (name for one in paths for name in _list_undo_files(one)):
        with name_os_errors(path):
            undo = read_undo_file(system, path)
            candidates.append((undo.state != UNDONE, undo.made, os.stat(path).st_mtime_ns, path))
    if not candidates:
        raise UnknownFormatError(f"{paths[0]}: no undo file of binlogtool is in this directory")
    return max(candidates)[-1]


def _list_undo_files(path: str) -> list[str]:
    """Return the undo files in a directory; a path of another kind unchanged."""
    if not os.path.isdir(path):
        return [path]
    with name_os_errors(path):
        return sorted(
            os.path.join(path, name) for name in os.listdir(path) if parse_log_name_of_undo_file(name) is not None
        )


def plan_undo(path: str | os.PathLike[str], *, system: SystemCalls = SYSTEM) -> UndoPlan:
    """Plan the undo of a repair; nothing is written.

    Raises:
        UnknownFormatError: the file is no undo file. RefusedError: it is incomplete. InputOutputError.
    """
    name = os.path.abspath(os.fspath(path))
    with name_os_errors(name, by_file=True):
        undo = read_undo_file(system, name)
        return _make_undo_plan(system, undo)


def _make_undo_plan(system: SystemCalls, undo: UndoFile) -> UndoPlan:
    refuse_unsafe_undo_file(system, undo)
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
    """Undo a repair: restore content, owner, mode, times and extended attributes of the originals.

    Args:
        allow_network: Allow network file systems, on which other machines can change the files.

    Raises:
        RefusedError: a safety rule forbids it; nothing was changed. InputOutputError: no file is half-written; the call
            can be repeated.
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
            refuse_special_file(system, entry.path)
            fd = open_for_change(system, entry.path, held)
            lock_file_or_refuse(system, entry.path, fd)
    refuse_unsettable_owner(system, entries)
    refuse_without_space(system, _compute_needed_space(entries))
    if len(entries) > 1:
        for entry in entries:
            check_undo_reproduces_original(system, undo, entry)
    with DeferredSignals():
        intent_path = _publish_intent(system, undo)
        done = [entry for entry in entries if restore_file_if_changed(system, undo, entry)]
        write_state(system, undo.path, UNDONE)
        if intent_path is not None:
            transaction.remove_intent(system, intent_path)
    files = tuple(WrittenFile(e.path, e.result_size, e.result_sha256, e.size, e.sha256) for e in done)
    return RepairResult(files, undo.path)


def _compute_needed_space(entries: list[UndoEntry]) -> dict[str, int]:
    """Return the free bytes needed per directory; each file is replaced before the next one is written."""
    needed = dict[str, int]()
    for entry in entries:
        if not entry.created:
            folder = get_directory(entry.path)
            needed[folder] = max(needed.get(folder, 0), entry.size)
    return needed


def _publish_intent(system: SystemCalls, undo: UndoFile) -> str | None:
    """Write the intent to undo several files, so that the next run can finish it; return its path, None for one file.

    Raises:
        RefusedError: another repair was interrupted in this directory. OSError.
    """
    if len(undo.entries) < 2:
        return None
    intent_path = transaction.find_intent_path(*(entry.path for entry in undo.entries))
    present = transaction.read_intent(system, intent_path)
    if present is not None and present[0] != undo.path:
        raise RefusedError(f"{get_directory(intent_path)}: another repair was interrupted here; finish that first")
    if present != (undo.path, "undo"):  # replace it atomically: some files may already be changed
        transaction.write_intent(system, intent_path, undo.path, "undo", replace=present is not None)
    return intent_path


# --- Completion of an interrupted repair or undo ---


def plan_finish(path: str | os.PathLike[str], *, system: SystemCalls = SYSTEM) -> FinishPlan | None:
    """Plan to finish an interrupted repair in the directory of `path`; None if there is none. Nothing is written.

    Raises:
        RefusedError: the repair must not be finished. InputOutputError.
    """
    intent_path = _locate_intent(path)
    with name_os_errors(intent_path, by_file=True):
        intent_content = _read_undo_path_and_direction(system, intent_path)
        if intent_content is None:
            return None
        undo_path, direction = intent_content
        if not path_exists(system, undo_path):
            return FinishPlan(intent_path, None, direction, ())
        return FinishPlan(
            intent_path, undo_path, direction, tuple(_list_actions(system, intent_path, undo_path, direction))
        )


def finish_interrupted(path: str | os.PathLike[str], *, system: SystemCalls = SYSTEM) -> RepairResult | None:
    """Finish an interrupted repair of several files in the directory of `path`; return None if there is none.

    Raises:
        RefusedError: the files have changed since, or do not belong to the log. InputOutputError.
    """
    intent_path = _locate_intent(path)
    with name_os_errors(intent_path, by_file=True):
        intent_content = _read_undo_path_and_direction(system, intent_path)
        if intent_content is None:
            return None
        undo_path, direction = intent_content
        if not path_exists(system, undo_path):  # the undo file was removed because nothing was changed
            transaction.remove_intent(system, intent_path)
            return None
        if direction == "undo":
            _list_actions(system, intent_path, undo_path, direction)
            return apply_undo(undo_path, allow_network=True, system=system)  # it was allowed when it began
        return finish_repair(undo_path, intent_path, system=system)


def explain_interrupted_repair(path: str) -> list[str]:
    """Return why an interrupted repair must be finished before another one can be planned, with the files to be
    written; [] if no repair was interrupted.
    """
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    if not os.path.lexists(os.path.join(folder, transaction.INTENT_NAME)):
        return []
    text = f"{folder}: a repair of several files was interrupted here"
    try:
        plan = plan_finish(path)
    except BinlogtoolError as error:
        return [f"{text}, and cannot be finished: {error}"]
    files = "; ".join(f"{name}: {action}" for name, action in plan.files) if plan is not None else ""
    return [f"{text}; {UNFINISHED_ADVICE}{f' ({files})' if files else ''}"]


def _locate_intent(path: str | os.PathLike[str]) -> str:
    name = os.fspath(path)
    folder = name if os.path.isdir(name) else get_directory(name)
    return os.path.join(os.path.realpath(folder), transaction.INTENT_NAME)


def _read_undo_path_and_direction(system: SystemCalls, intent_path: str) -> tuple[str, str] | None:
    intent_content = transaction.read_intent(system, intent_path)
    if intent_content is not None:
        refuse_foreign_owner(system, intent_path)
    return intent_content


def _list_actions(system: SystemCalls, intent_path: str, undo_path: str, direction: str) -> list[tuple[str, str]]:
    """Return (file, action) of the files to be written.

    Raises:
        RefusedError: the repair must not be finished; nothing was changed. OSError.
    """
    if direction == "apply":
        files = list_finishable_entry_states(undo_path, intent_path, system=system)
        return [(entry.path, _describe_apply(entry)) for entry, state in files if state == ORIGINAL]
    undo = read_undo_file_of_intent(system, undo_path, intent_path)
    refuse_unsafe_undo_file(system, undo)
    states = [(entry, find_file_state(system, entry)) for entry in undo.entries]
    for entry, state in states:
        if state == OTHER:
            raise RefusedError(f"{entry.path}: changed since the undo was interrupted; see {undo_path}")
    return [(entry.path, _describe_undo(entry)) for entry, state in states if state == RESULT]


def _describe_apply(entry: UndoEntry) -> str:
    if entry.removed:
        return f"remove, {entry.size:,} bytes"
    if entry.created:
        return f"create, {entry.result_size:,} bytes"
    return f"{'cut' if entry.cut else 'rewrite'}, {entry.size:,} to {entry.result_size:,} bytes"


def _describe_undo(entry: UndoEntry) -> str:
    if entry.created:
        return f"remove, {entry.result_size:,} bytes"
    return f"restore, {entry.result_size:,} to {entry.size:,} bytes"
