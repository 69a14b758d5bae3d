"""The repair commands as functions: carry out a plan, also a saved one, or write a salvaged copy."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Unpack

from binlogtool.errors import InputOutputError, RefusedError
from binlogtool.formats.detecting import Hints
from binlogtool.limits import MIB
from binlogtool.log.detect import by_name
from binlogtool.log.how import How
from binlogtool.log.opened_file import open_file
from binlogtool.log.source import open_source
from binlogtool.recovery.durable import planned, result_check
from binlogtool.recovery.fileio import Temporary, chunks, directory_of, piece_chunks, sha256
from binlogtool.recovery.leftovers import clear
from binlogtool.recovery.plan import Applied, Asked, FilePlan, Plan, Written
from binlogtool.recovery.predict import not_clean
from binlogtool.recovery.reading import Reading
from binlogtool.recovery.system import READ, SYSTEM, System
from binlogtool.recovery.transaction import apply
from binlogtool.recovery.verify import Options, judge_file

if TYPE_CHECKING:
    from binlogtool.log.how import Means

MAX_PLAN = 64 * MIB


def apply_plan(
    plan: Plan,
    *,
    undo_dir: str | None = None,
    backup: str = "tail",
    network: bool = False,
    system: System = SYSTEM,
    **how: Unpack[Means],
) -> Applied:
    """See `binlogtool.apply_plan`."""
    reading = Reading(**how)
    locks = reading.format_of(plan.format).repair.locks
    check = result_check(plan, reading)
    return apply(
        plan, check=check, locks=locks, undo_dir=undo_dir, backup=backup, network=network, system=system
    )  # fmt: skip


def read_plan(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return a saved plan as it was printed.

    Raises:
        RefusedError: the file is not a saved plan. InputOutputError.
    """
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read(MAX_PLAN))
    except OSError as error:
        raise InputOutputError(f"{os.fspath(path)}: {error.strerror}") from error
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("target"), str):
        value = {}
    if value.get("schema") != "binlogtool/plan/1" or not _is_path(value["target"]):
        raise RefusedError(f"{os.fspath(path)}: is not a saved plan; nothing was changed")
    return value


def _is_path(text: str) -> bool:
    """Return True if the system can have a file of this name."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def replanned(
    value: dict[str, Any],
    paths: tuple[str, ...],
    how: How,
) -> Plan:
    """Make the plan for the log of a saved plan again; return it if it is the same.

    Raises:
        RefusedError: anything is different. BinlogtoolError: the log cannot be read.
    """
    target = str(value["target"])
    for path in paths:
        if os.path.realpath(path) != os.path.realpath(target):
            raise RefusedError(f"{path}: the plan is about another file, {target}; nothing was changed")
    asked = _asked(value.get("asked", {}))
    plan = planned(paths[0] if paths else target, Reading.of(how), asked)
    fresh, saved = _comparable(json.loads(json.dumps(plan.as_value(), default=str))), _comparable(value)
    if fresh != saved:
        changed = ", ".join(key for key in fresh if fresh[key] != saved.get(key)) or "other members"
        text = f"{target}: is not what the plan was made for ({changed}); plan again; nothing was changed"
        raise RefusedError(text)
    return plan


def _asked(given: Any) -> Asked:
    """Return the repair policy of a saved plan.

    Raises:
        RefusedError: it is not a policy.
    """
    kinds = {"max_loss": int, "max_loss_records": int}
    known = Asked.__struct_fields__
    if isinstance(given, dict) and all(k in known and type(v) is kinds.get(k, bool) for k, v in given.items()):
        return Asked(**given)
    raise RefusedError("the saved plan asks for something that this version does not know; nothing was changed")


def _comparable(value: dict[str, Any]) -> dict[str, Any]:
    """Return a plan without the texts that depend on how its path was written; inode, size and hashes identify the
    files.
    """
    files = [
        {**one, "path": os.path.basename(str(one.get("path")))} if isinstance(one, dict) else one
        for one in value["files"]
    ] if isinstance(value.get("files"), list) else None  # fmt: skip
    return {**value, "files": files, "reasons": None, "notes": None, "target": None, "not_logs": None}


def write_copy(plan: Plan, new: str | os.PathLike[str], how: How, *, system: System = SYSTEM) -> Applied:
    """Write the result of a plan for one file to a new file; the source is only read.

    Raises:
        RefusedError: a safety rule forbids it, the new file exists, or the copy does not verify. InputOutputError.
    """
    name = os.fspath(new)
    if plan.refused:
        raise RefusedError(f"{plan.reasons[0]}; nothing was written")
    if len(plan.files) != 1:
        raise RefusedError(f"{plan.target}: --to-file takes one file, not a directory; nothing was written")
    (file,) = plan.files
    try:
        with ExitStack() as held:
            return _copied(system, plan, file, name, held, Reading.of(how))
    except FileExistsError as error:
        raise RefusedError(f"{name} exists; nothing was written") from error
    except OSError as error:
        raise InputOutputError(f"{error.filename or name}: {error.strerror or error}; nothing was written") from error


def _copied(system: System, plan: Plan, file: FilePlan, new: str, held: ExitStack, reading: Reading) -> Applied:
    if os.path.lexists(new):
        raise RefusedError(f"{new} exists; nothing was written")
    free = system.free(directory_of(new))
    if free < file.result_size + MIB:
        raise RefusedError(f"{directory_of(new)}: {file.result_size:,} bytes are needed, {free:,} are free")
    fd = system.open(os.path.realpath(file.path), READ)
    held.callback(system.close, fd)
    notes = tuple(clear(system, directory_of(new), [os.path.basename(new)]))
    before = sha256(chunks(system, fd, 0, file.size))
    with Temporary(system, new) as copy:
        pieces = file.pieces
        data = piece_chunks(system, fd, pieces) if pieces else chunks(system, fd, 0, file.size)
        after = copy.append(data)
        system.dress(copy.fd, _mode_of(system, fd, copy.fd))
        _check_copy(str(copy.name), new, file, reading, plan.asked.salvage)
        now = system.fstat(fd)
        if (now.st_size, now.st_mtime_ns) != (file.size, file.mtime_ns or now.st_mtime_ns):
            raise RefusedError(f"{file.path}: changed while it was copied; nothing was written")
        copy.publish(replace=False)
    return Applied((Written(new, file.size, before, file.result_size, after),), None, notes)


def _mode_of(system: System, source: int, copy: int) -> Any:
    """Return the mode of the source with the owner that the copy has already."""
    own = system.fstat(copy)
    return SimpleNamespace(st_mode=system.fstat(source).st_mode, st_uid=own.st_uid, st_gid=own.st_gid)


def _check_copy(temporary: str, new: str, file: FilePlan, reading: Reading, salvage: bool) -> None:
    """Check that the copy verifies as the plan says, by itself and under the name of its source.

    Raises:
        RefusedError.
    """
    wanted = None if reading.format == "auto" else by_name(reading.format)
    source, name = open_source(temporary), os.path.basename(file.path)
    opened = open_file(file.path, name, wanted, reading.limits, source, hints=reading.hints or Hints())
    try:
        report = judge_file(opened, Options(limits=reading.limits, backend=reading.backend)).report
    finally:
        opened.source.close()
    wrong = not_clean(report, salvage=salvage, open_end=file.corrects)
    if wrong or report.records != file.proof.get("records_kept", file.proof["records"]):
        why = wrong[0] if wrong else "other records than planned"
        raise RefusedError(f"{new}: the copy would not verify: {why}; nothing was written")
