"""Test that `write_result_to_new_file` refuses what it cannot prove, with the reason, and leaves no file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

import binlogtool
from binlogtool.core.record_and_selection_types import ReadOptions
from binlogtool.errors import InputOutputError, RefusedError
from binlogtool.format_api.format import ResultPiece
from binlogtool.repair.apply_plan_or_salvage import write_result_to_new_file
from binlogtool.repair.plan_types import RepairPlan
from binlogtool.repair.system_calls import SystemCalls
from tests.cli.samples import plain_log

TORN = plain_log()[:-10]
"""Two records of 95 bytes, and the beginning of a third."""
NOTHING_WRITTEN = "; nothing was written"


@pytest.fixture
def plan(tmp_path: Path) -> RepairPlan:
    path = tmp_path / "torn.log"
    path.write_bytes(TORN)
    return binlogtool.plan_truncate(path, format="drizzle", backend="python")


def copy_error(plan: RepairPlan, copy: Path, system: SystemCalls | None = None) -> str:
    """Return the message of the refusal or error; no file is left beside the log."""
    with pytest.raises((RefusedError, InputOutputError)) as raised:
        write_result_to_new_file(plan, copy, ReadOptions("drizzle", backend="python"), system=system or SystemCalls())
    assert os.listdir(copy.parent) == ["torn.log"]
    return f"{type(raised.value).__name__}: {raised.value}"


def test_a_copy_with_another_number_of_records_than_planned_is_refused(plan: RepairPlan, tmp_path: Path) -> None:
    (file,) = plan.files
    wrong = replace(plan, files=(replace(file, proof={**file.proof, "records": 3}),))
    reason = "the copy would not verify: other records than planned"
    assert copy_error(wrong, tmp_path / "new") == f"RefusedError: {tmp_path}/new: {reason}{NOTHING_WRITTEN}"


def test_a_copy_that_does_not_verify_is_refused_with_its_first_finding(plan: RepairPlan, tmp_path: Path) -> None:
    (file,) = plan.files
    torn = replace(plan, files=(replace(file, pieces=(ResultPiece(0, 200),)),))
    message = copy_error(torn, tmp_path / "new")
    assert message.startswith(f"RefusedError: {tmp_path}/new: the copy would not verify: ")
    assert "torn" in message and message.endswith(NOTHING_WRITTEN)


def test_a_name_that_is_taken_while_the_copy_is_written_is_refused(plan: RepairPlan, tmp_path: Path) -> None:
    class Taken(SystemCalls):
        def link(self, old: str, new: str) -> None:
            raise FileExistsError(errno.EEXIST, "File exists", new)

    assert copy_error(plan, tmp_path / "new", Taken()) == f"RefusedError: {tmp_path}/new exists{NOTHING_WRITTEN}"


@pytest.mark.parametrize(("path", "named"), [("/elsewhere/disk", "/elsewhere/disk"), (None, "new")])
def test_an_error_of_the_system_names_its_file_or_else_the_copy(
    plan: RepairPlan, tmp_path: Path, path: str | None, named: str
) -> None:
    class Full(SystemCalls):
        def fsync(self, fd: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device", path)

    expected = f"InputOutputError: {tmp_path / named}: No space left on device{NOTHING_WRITTEN}"
    assert copy_error(plan, tmp_path / "new", Full()) == expected


def test_a_source_that_changes_while_it_is_copied_is_refused(plan: RepairPlan, tmp_path: Path) -> None:
    class Growing(SystemCalls):
        def copy_owner_and_mode(self, fd: int, like: os.stat_result) -> None:
            with (tmp_path / "torn.log").open("ab") as log:
                log.write(b"x")

    message = copy_error(plan, tmp_path / "new", Growing())
    assert message == f"RefusedError: {tmp_path}/torn.log: changed while it was copied{NOTHING_WRITTEN}"


def test_a_disk_without_room_for_the_copy_is_refused(plan: RepairPlan, tmp_path: Path) -> None:
    """The copy of 190 bytes needs 1 MiB more."""

    class Small(SystemCalls):
        free = 190 + (1 << 20)

        def get_free_space(self, directory: str) -> int:
            return self.free

    enough, short = Small(), Small()
    short.free -= 1
    message = copy_error(plan, tmp_path / "new", short)
    assert message == f"RefusedError: {tmp_path}: 190 bytes are needed, 1,048,765 are free"
    done = write_result_to_new_file(plan, tmp_path / "new", ReadOptions("drizzle", backend="python"), system=enough)
    assert (tmp_path / "new").read_bytes() == TORN[:190]
    assert (done.files[0].size_before, done.files[0].size_after, done.undo) == (275, 190, None)
