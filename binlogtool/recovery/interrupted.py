"""Finish a repair, or an undo, of several files that was interrupted: plan it, show it, carry it out."""

from __future__ import annotations

import os

from binlogtool.errors import BinlogtoolError, InputOutputError, RefusedError
from binlogtool.recovery import intent
from binlogtool.recovery.fileio import directory_of, exists
from binlogtool.recovery.plan import Applied, FinishPlan
from binlogtool.recovery.refusals import UNFINISHED
from binlogtool.recovery.restore import ORIGINAL, OTHER, RESULT, state_of
from binlogtool.recovery.system import SYSTEM, System
from binlogtool.recovery.transaction import check_interrupted, finish
from binlogtool.recovery.undo import apply_undo
from binlogtool.recovery.undo_checks import read_intended, refuse_strange_undo
from binlogtool.recovery.undofile import Entry, refuse_foreign


def plan_finish(path: str | os.PathLike[str], *, system: System = SYSTEM) -> FinishPlan | None:
    """Return what finishing an interrupted repair in the directory of `path` would write; None if there is none.

    Raises:
        RefusedError: it must not be finished. InputOutputError.
    """
    guard = _guard(path)
    try:
        known = _intent(system, guard)
        if known is None:
            return None
        undo, direction = known
        if not exists(system, undo):
            return FinishPlan(guard, None, direction, ())
        return FinishPlan(guard, undo, direction, tuple(_actions(system, guard, undo, direction)))
    except OSError as error:
        raise InputOutputError(f"{error.filename or guard}: {error.strerror or error}") from error


def finish_interrupted(path: str | os.PathLike[str], *, system: System = SYSTEM) -> Applied | None:
    """Finish a repair of several files that was interrupted in the directory of `path`; None if there is none.

    Raises:
        RefusedError: the files changed since, or are not the log's. InputOutputError.
    """
    guard = _guard(path)
    try:
        known = _intent(system, guard)
        if known is None:
            return None
        undo, direction = known
        if not exists(system, undo):  # it was removed because nothing was changed
            intent.remove(system, guard)
            return None
        if direction == "undo":
            _actions(system, guard, undo, direction)
            return apply_undo(undo, network=True, system=system)  # it was allowed when it began
        return finish(undo, guard, system=system)
    except OSError as error:
        raise InputOutputError(f"{error.filename or guard}: {error.strerror or error}") from error


def unfinished(path: str) -> list[str]:
    """Return why a log cannot be planned for before an interrupted repair is finished, with the files to be written;
    else [].
    """
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    if not os.path.lexists(os.path.join(folder, intent.NAME)):
        return []
    text = f"{folder}: a repair of several files was interrupted here"
    try:
        plan = plan_finish(path)
    except BinlogtoolError as error:
        return [f"{text}, and cannot be finished: {error}"]
    files = "; ".join(f"{name}: {action}" for name, action in plan.files) if plan is not None else ""
    return [f"{text}; {UNFINISHED}{f' ({files})' if files else ''}"]


def _guard(path: str | os.PathLike[str]) -> str:
    name = os.fspath(path)
    folder = name if os.path.isdir(name) else directory_of(name)
    return os.path.join(os.path.realpath(folder), intent.NAME)


def _intent(system: System, guard: str) -> tuple[str, str] | None:
    known = intent.read(system, guard)
    if known is not None:
        refuse_foreign(system, guard)
    return known


def _actions(system: System, guard: str, undo_path: str, direction: str) -> list[tuple[str, str]]:
    """Return the files to be written, each with what happens to it.

    Raises:
        RefusedError: it must not be finished; nothing was changed. OSError.
    """
    if direction == "apply":
        files = check_interrupted(undo_path, guard, system=system)
        return [(entry.path, _apply_words(entry)) for entry, state in files if state == ORIGINAL]
    undo = read_intended(system, undo_path, guard)
    refuse_strange_undo(system, undo)
    states = [(entry, state_of(system, entry)) for entry in undo.entries]
    for entry, state in states:
        if state == OTHER:
            raise RefusedError(f"{entry.path}: changed since the undo was interrupted; see {undo_path}")
    return [(entry.path, _undo_words(entry)) for entry, state in states if state == RESULT]


def _apply_words(entry: Entry) -> str:
    if entry.removed:
        return f"remove, {entry.size:,} bytes"
    if entry.created:
        return f"create, {entry.result_size:,} bytes"
    return f"{'cut' if entry.cut else 'rewrite'}, {entry.size:,} to {entry.result_size:,} bytes"


def _undo_words(entry: Entry) -> str:
    if entry.created:
        return f"remove, {entry.result_size:,} bytes"
    return f"restore, {entry.result_size:,} to {entry.size:,} bytes"
