"""Public calls that plan repairs, apply them and undo them."""

from __future__ import annotations

from collections.abc import Iterable
from os import fspath
from typing import TYPE_CHECKING, Unpack

if TYPE_CHECKING:
    from binlogtool.calls import Path
    from binlogtool.log.how import ReadOptionArguments
    from binlogtool.recovery.plan import FinishPlan, RepairPlan, RepairPolicy, RepairResult, UndoPlan


def plan_truncate(
    path: Path,
    *,
    policy: RepairPolicy | None = None,
    **read_options: Unpack[ReadOptionArguments],
) -> RepairPlan:
    """Plan the truncation of a log to its durable end; nothing is written.

    Args:
        path: a file or a directory.
        policy: what the plan may discard, and what else it should repair; None = the defaults.
        read_options: as for `binlogtool.open`.

    Raises:
        UnknownFormatError, InputOutputError, UsageError, RefusedError.
    """
    from binlogtool.log.how import ReadOptions
    from binlogtool.recovery.durable import plan_truncate as plan
    from binlogtool.recovery.plan import RepairPolicy

    return plan(path, ReadOptions(**read_options), policy or RepairPolicy())


def load_plan(plan_file: Path, paths: Iterable[Path] = (), **read_options: Unpack[ReadOptionArguments]) -> RepairPlan:
    """Load a saved plan, if the log is still exactly the one that the plan was made for.

    Args:
        plan_file: a file with what `plan_as_json` returned.
        paths: the log, where its path differs from the one in the plan.
        read_options: as for `binlogtool.open`.

    Raises:
        RefusedError: the log differs from the plan.
    """
    from binlogtool.log.how import ReadOptions
    from binlogtool.recovery.repair import read_saved_plan, recreate_plan

    path_names = tuple(fspath(one) for one in paths)
    return recreate_plan(read_saved_plan(plan_file), path_names, ReadOptions(**read_options))


def apply_plan(
    plan: RepairPlan,
    *,
    undo_dir: str | None = None,
    backup: str = "tail",
    network: bool = False,
    **read_options: Unpack[ReadOptionArguments],
) -> RepairResult:
    """Apply a plan; after a crash at any moment each file has either its old or its new content.

    What is removed is kept in an undo file.

    Args:
        plan: the plan.
        undo_dir: directory of the undo file; None = beside the log.
        backup: "tail" (keep the removed bytes) or "full" (keep the whole file).
        network: allow a network file system.
        read_options: as for `plan_truncate`.

    Raises:
        RefusedError, InputOutputError: nothing was changed.
        RepairFailedError: the check after the write failed; the message says whether the original was restored.
    """
    from binlogtool.recovery.repair import apply_plan as apply

    return apply(plan, undo_dir=undo_dir, backup=backup, network=network, **read_options)


def write_repaired_copy(plan: RepairPlan, output: Path, **read_options: Unpack[ReadOptionArguments]) -> RepairResult:
    """Write the result of a plan for one file to a new file; the log is only read.

    Raises:
        RefusedError, InputOutputError: nothing was written.
    """
    from binlogtool.log.how import ReadOptions
    from binlogtool.recovery.repair import write_copy

    return write_copy(plan, output, ReadOptions(**read_options))


def finish_repair(path: Path) -> RepairResult | None:
    """Finish an interrupted repair of several files in the directory of `path`; return None if there is none.

    Raises:
        RefusedError, InputOutputError.
    """
    from binlogtool.recovery.interrupted import finish_interrupted

    return finish_interrupted(path)


def plan_finish(path: Path) -> FinishPlan | None:
    """Return what `finish_repair` would write, with paths; None if no repair was interrupted beside `path`.

    Raises:
        RefusedError: the repair must not be finished.
        InputOutputError.
    """
    from binlogtool.recovery.interrupted import plan_finish as plan

    return plan(path)


def plan_undo(undo_file: Path) -> UndoPlan:
    """Plan the undo of a repair; nothing is written.

    Raises:
        RefusedError: the undo file is incomplete or not an undo file.
        InputOutputError.
    """
    from binlogtool.recovery.undo import plan_undo as plan

    return plan(undo_file)


def undo(undo_file: Path, *, network: bool = False) -> RepairResult:
    """Undo a repair: restore the original bytes, mode and times (and the owner where allowed).

    Args:
        undo_file: the file that `apply_plan` wrote.
        network: allow a network file system.

    Raises:
        RefusedError: nothing was changed.
        InputOutputError: no file is half-written; the call can be repeated.
    """
    from binlogtool.recovery.undo import apply_undo

    return apply_undo(undo_file, allow_network=network)
