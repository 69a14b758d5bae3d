"""Finish a repair, or an undo, of several files that was interrupted: plan it, show it, carry it out."""

from __future__ import annotations

import os

from binlogtool.errors import BinlogtoolError, InputOutputError, RefusedError
from binlogtool.recovery import intent
from binlogtool.recovery.fileio import get_directory, path_exists
from binlogtool.recovery.plan import FinishPlan, RepairResult
from binlogtool.recovery.refusals import UNFINISHED_ADVICE
from binlogtool.recovery.restore import ORIGINAL, OTHER, RESULT, find_file_state
from binlogtool.recovery.system import SYSTEM, SystemCalls
from binlogtool.recovery.transaction import check_interrupted, finish_repair
from binlogtool.recovery.undo import apply_undo
from binlogtool.recovery.undo_checks import read_intended_undo, refuse_unsafe_undo
from binlogtool.recovery.undofile import UndoEntry, refuse_foreign_owner


def plan_finish(path: str | os.PathLike[str], *, system: SystemCalls = SYSTEM) -> FinishPlan | None:
    """Return what finishing an interrupted repair in the directory of `path` would write; None if there is none.

    Raises:
        RefusedError: it must not be finished. InputOutputError.
    """
    intent_path = _locate_intent(path)
    try:
        intent_content = _read_intent(system, intent_path)
        if intent_content is None:
            return None
        undo_path, direction = intent_content
        if not path_exists(system, undo_path):
            return FinishPlan(intent_path, None, direction, ())
        return FinishPlan(
            intent_path, undo_path, direction, tuple(_list_actions(system, intent_path, undo_path, direction))
        )
    except OSError as error:
        raise InputOutputError(f"{error.filename or intent_path}: {error.strerror or error}") from error


def finish_interrupted(path: str | os.PathLike[str], *, system: SystemCalls = SYSTEM) -> RepairResult | None:
    """Finish a repair of several files that was interrupted in the directory of `path`; None if there is none.

    Raises:
        RefusedError: the files changed since, or are not the log's. InputOutputError.
    """
    intent_path = _locate_intent(path)
    try:
        intent_content = _read_intent(system, intent_path)
        if intent_content is None:
            return None
        undo_path, direction = intent_content
        if not path_exists(system, undo_path):  # it was removed because nothing was changed
            intent.remove_intent(system, intent_path)
            return None
        if direction == "undo":
            _list_actions(system, intent_path, undo_path, direction)
            return apply_undo(undo_path, allow_network=True, system=system)  # it was allowed when it began
        return finish_repair(undo_path, intent_path, system=system)
    except OSError as error:
        raise InputOutputError(f"{error.filename or intent_path}: {error.strerror or error}") from error


def explain_unfinished(path: str) -> list[str]:
    """Return why a log cannot be planned for before an interrupted repair is finished, with the files to be written;
    else [].
    """
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    if not os.path.lexists(os.path.join(folder, intent.INTENT_NAME)):
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
    return os.path.join(os.path.realpath(folder), intent.INTENT_NAME)


def _read_intent(system: SystemCalls, intent_path: str) -> tuple[str, str] | None:
    intent_content = intent.read_intent(system, intent_path)
    if intent_content is not None:
        refuse_foreign_owner(system, intent_path)
    return intent_content


def _list_actions(system: SystemCalls, intent_path: str, undo_path: str, direction: str) -> list[tuple[str, str]]:
    """Return the files to be written, each with what happens to it.

    Raises:
        RefusedError: it must not be finished; nothing was changed. OSError.
    """
    if direction == "apply":
        files = check_interrupted(undo_path, intent_path, system=system)
        return [(entry.path, _describe_apply(entry)) for entry, state in files if state == ORIGINAL]
    undo = read_intended_undo(system, undo_path, intent_path)
    refuse_unsafe_undo(system, undo)
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
