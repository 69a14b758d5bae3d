"""The calls of the library that plan repairs, carry them out and take them back; `binlogtool` names all of them."""

from __future__ import annotations

from collections.abc import Iterable
from os import fspath
from typing import TYPE_CHECKING, Unpack

if TYPE_CHECKING:
    from binlogtool.calls import Path
    from binlogtool.log.how import Means
    from binlogtool.recovery.plan import Applied, Asked, FinishPlan, Plan, UndoPlan


def plan_truncate(
    path: Path,
    *,
    asked: Asked | None = None,
    **how: Unpack[Means],
) -> Plan:
    """The plan that cuts a log to its durable end; nothing is written. asked: what is allowed and wanted beyond that.

    how: as for `binlogtool.open`.

    Raises:
        UnknownFormatError, InputOutputError, UsageError, RefusedError.
    """
    from binlogtool.log.how import How
    from binlogtool.recovery.durable import plan_truncate as plan
    from binlogtool.recovery.plan import Asked

    return plan(path, How(**how), asked or Asked())


def saved_plan(plan_file: Path, paths: Iterable[Path] = (), **how: Unpack[Means]) -> Plan:
    """A saved plan, if the log is still exactly what it was made for. paths: the log, if it is to be named again.

    how: as for `binlogtool.open`.

    Raises:
        RefusedError: anything is different.
    """
    from binlogtool.log.how import How
    from binlogtool.recovery.repair import read_plan, replanned

    names = tuple(fspath(one) for one in paths)
    return replanned(read_plan(plan_file), names, How(**how))


def apply_plan(
    plan: Plan, *, undo_dir: str | None = None, backup: str = "tail", network: bool = False, **how: Unpack[Means]
) -> Applied:
    """Carries a plan out: the old file or the new one after any crash; what is removed is kept in an undo file.

    backup: tail (what is removed) or full. network: also on a network file system. how: as for `plan_truncate`.

    Raises:
        RefusedError, InputOutputError: nothing was changed. RestoredError: the original was restored.
    """
    from binlogtool.recovery.repair import apply_plan as apply

    return apply(plan, undo_dir=undo_dir, backup=backup, network=network, **how)


def write_repaired(plan: Plan, new: Path, **how: Unpack[Means]) -> Applied:
    """Writes the result of a plan for one file to a new file; the log is only read.

    Raises:
        RefusedError, InputOutputError: nothing was written.
    """
    from binlogtool.log.how import How
    from binlogtool.recovery.repair import write_copy

    return write_copy(plan, new, How(**how))


def finish_repair(path: Path) -> Applied | None:
    """Finishes a repair of several files that broke off in the directory of `path`; None if there is none.

    Raises:
        RefusedError, InputOutputError.
    """
    from binlogtool.recovery.interrupted import finish_interrupted

    return finish_interrupted(path)


def plan_finish(path: Path) -> FinishPlan | None:
    """Return what `finish_repair` would write, with paths; None if no repair was interrupted beside `path`.

    Raises:
        RefusedError: it must not be finished. InputOutputError.
    """
    from binlogtool.recovery.interrupted import plan_finish as plan

    return plan(path)


def plan_undo(undo_file: Path) -> UndoPlan:
    """What taking a repair back would do; nothing is written.

    Raises:
        RefusedError: it is no whole undo file. InputOutputError.
    """
    from binlogtool.recovery.undo import plan_undo as plan

    return plan(undo_file)


def undo(undo_file: Path, *, network: bool = False) -> Applied:
    """Takes a repair back: bytes, mode and times (owner where allowed) are the original's again.

    network: also on a network file system.

    Raises:
        RefusedError: nothing was changed. InputOutputError: no file is half-written; it can be called again.
    """
    from binlogtool.recovery.undo import apply_undo

    return apply_undo(undo_file, network=network)
