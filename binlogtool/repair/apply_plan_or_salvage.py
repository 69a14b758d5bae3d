"""Repair commands as functions: apply a new or saved plan, or write a salvaged copy."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Unpack

from binlogtool.core.open_file import find_format, open_file, open_source
from binlogtool.errors import InputOutputError, RefusedError
from binlogtool.format_api.format import Hints
from binlogtool.limits import MIB
from binlogtool.repair.execute_plan import execute_plan, remove_temporaries
from binlogtool.repair.plan_truncate import make_plan, make_result_check
from binlogtool.repair.plan_types import FilePlan, RepairPlan, RepairPolicy, RepairResult, WrittenFile
from binlogtool.repair.repaired_content import LogExaminer, list_unclean_findings
from binlogtool.repair.system_calls import (
    READ,
    SYSTEM,
    SystemCalls,
    TemporaryFile,
    get_directory,
    hash_chunks,
    iter_piece_bytes,
    read_chunks,
)
from binlogtool.verification.verify_logs import LogVerifyOptions, verify_file

if TYPE_CHECKING:
    from binlogtool.core.record_and_selection_types import ReadOptionArguments, ReadOptions


MAX_PLAN_BYTES = 64 * MIB


def apply_plan(
    plan: RepairPlan,
    *,
    undo_dir: str | None = None,
    backup: str = "tail",
    allow_network: bool = False,
    system: SystemCalls = SYSTEM,
    **read_options: Unpack[ReadOptionArguments],
) -> RepairResult:
    """Apply a plan, with the parameters of `binlogtool.apply_plan`."""
    examiner = LogExaminer(**read_options)
    locks = examiner.get_format(plan.format).repair.locks
    check = make_result_check(plan, examiner)
    return execute_plan(
        plan, check_result=check, locks=locks, undo_dir=undo_dir, backup=backup, allow_network=allow_network,
        system=system
    )  # fmt: skip


def read_saved_plan_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the JSON value of a saved plan.

    Raises:
        RefusedError: the file is not a saved plan. InputOutputError.
    """
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read(MAX_PLAN_BYTES))
    except OSError as error:
        raise InputOutputError(f"{os.fspath(path)}: {error.strerror}") from error
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("target"), str):
        value = {}
    if value.get("schema") != "binlogtool/plan/1" or not _is_valid_path(value["target"]):
        raise RefusedError(f"{os.fspath(path)}: is not a saved plan; nothing was changed")
    return value


def _is_valid_path(text: str) -> bool:
    """Return True if this can be the name of a file on this system."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def recreate_plan(
    saved_plan: dict[str, Any],
    paths: tuple[str, ...],
    read_options: ReadOptions,
) -> RepairPlan:
    """Plan the log of a saved plan again; return the new plan if it is the same.

    Raises:
        RefusedError: the plans differ. BinlogtoolError: the log cannot be read.
    """
    target = str(saved_plan["target"])
    for path in paths:
        if os.path.realpath(path) != os.path.realpath(target):
            raise RefusedError(f"{path}: the plan is about another file, {target}; nothing was changed")
    policy = _parse_policy(saved_plan.get("asked", {}))
    plan = make_plan(paths[0] if paths else target, LogExaminer.from_read_options(read_options), policy)
    fresh, saved = (
        _strip_path_dependent_texts(json.loads(json.dumps(plan.to_json_value(), default=str))),
        _strip_path_dependent_texts(saved_plan),
    )
    if fresh != saved:
        changed = ", ".join(key for key in fresh if fresh[key] != saved.get(key)) or "other members"
        text = f"{target}: changed since the plan was made ({changed}); plan again; nothing was changed"
        raise RefusedError(text)
    return plan


def _parse_policy(members: Any) -> RepairPolicy:
    """Return the repair policy of a saved plan. Raises RefusedError: it is no policy."""
    kinds = {"max_loss": int, "max_loss_records": int}
    known_names = RepairPolicy.__struct_fields__
    if isinstance(members, dict) and all(
        k in known_names and type(v) is kinds.get(k, bool) for k, v in members.items()
    ):
        return RepairPolicy(**members)
    raise RefusedError("the saved plan has settings that this version does not know; nothing was changed")


def _strip_path_dependent_texts(plan_json: dict[str, Any]) -> dict[str, Any]:
    """Return a plan without the texts that depend on how its path was spelled.

    Inode, size and hashes identify the files.
    """
    files = [
        {**one, "path": os.path.basename(str(one.get("path")))} if isinstance(one, dict) else one
        for one in plan_json["files"]
    ] if isinstance(plan_json.get("files"), list) else None  # fmt: skip
    return {**plan_json, "files": files, "reasons": None, "notes": None, "target": None, "not_logs": None}


def write_result_to_new_file(
    plan: RepairPlan, copy_path: str | os.PathLike[str], read_options: ReadOptions, *, system: SystemCalls = SYSTEM
) -> RepairResult:
    """Write the result of a plan for one file to a new file; the source is only read.

    Raises:
        RefusedError: a safety rule forbids it, the new file exists, or the copy does not verify. InputOutputError.
    """
    path = os.fspath(copy_path)
    if plan.refused:
        raise RefusedError(f"{plan.reasons[0]}; nothing was written")
    if len(plan.files) != 1:
        raise RefusedError(f"{plan.target}: --to-file takes one file, not a directory; nothing was written")
    (file,) = plan.files
    try:
        with ExitStack() as held:
            return _copy_file(system, plan, file, path, held, LogExaminer.from_read_options(read_options))
    except FileExistsError as error:
        raise RefusedError(f"{path} exists; nothing was written") from error
    except OSError as error:
        raise InputOutputError(f"{error.filename or path}: {error.strerror or error}; nothing was written") from error


def _copy_file(
    system: SystemCalls, plan: RepairPlan, file: FilePlan, copy_path: str, held: ExitStack, examiner: LogExaminer
) -> RepairResult:
    if os.path.lexists(copy_path):
        raise RefusedError(f"{copy_path} exists; nothing was written")
    free = system.get_free_space(get_directory(copy_path))
    if free < file.result_size + MIB:
        raise RefusedError(f"{get_directory(copy_path)}: {file.result_size:,} bytes are needed, {free:,} are free")
    fd = system.open(os.path.realpath(file.path), READ)
    held.callback(system.close, fd)
    notes = tuple(remove_temporaries(system, get_directory(copy_path), [os.path.basename(copy_path)]))
    before = hash_chunks(read_chunks(system, fd, 0, file.size))
    with TemporaryFile(system, copy_path) as copy:
        pieces = file.pieces
        data = iter_piece_bytes(system, fd, pieces) if pieces else read_chunks(system, fd, 0, file.size)
        after = copy.append_and_hash(data)
        system.copy_owner_and_mode(copy.fd, _combine_mode_and_owner(system, fd, copy.fd))
        _require_copy_as_planned(str(copy.name), copy_path, file, examiner, plan.policy.salvage)
        now = system.fstat(fd)
        if (now.st_size, now.st_mtime_ns) != (file.size, file.mtime_ns or now.st_mtime_ns):
            raise RefusedError(f"{file.path}: changed while it was copied; nothing was written")
        copy.publish(replace=False)
    return RepairResult((WrittenFile(copy_path, file.size, before, file.result_size, after),), None, notes)


def _combine_mode_and_owner(system: SystemCalls, source: int, copy: int) -> Any:
    """Return a status with the mode of the source and the owner that the copy already has."""
    own = system.fstat(copy)
    return SimpleNamespace(st_mode=system.fstat(source).st_mode, st_uid=own.st_uid, st_gid=own.st_gid)


def _require_copy_as_planned(
    temporary: str, copy_path: str, file: FilePlan, examiner: LogExaminer, salvage: bool
) -> None:
    """Check that the copy verifies as planned, by itself and under the name of its source.

    Raises:
        RefusedError.
    """
    format_ = None if examiner.format == "auto" else find_format(examiner.format)
    source, name = open_source(temporary), os.path.basename(file.path)
    opened = open_file(file.path, name, format_, examiner.limits, source, hints=examiner.hints or Hints())
    try:
        report = verify_file(opened, LogVerifyOptions(limits=examiner.limits, backend=examiner.backend)).report
    finally:
        opened.source.close()
    unclean = list_unclean_findings(report, salvage=salvage, allow_open_end=file.corrects_bits)
    if unclean or report.records != file.proof.get("records_kept", file.proof["records"]):
        why = unclean[0] if unclean else "other records than planned"
        raise RefusedError(f"{copy_path}: the copy would not verify: {why}; nothing was written")
