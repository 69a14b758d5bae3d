"""Which plan a log gets: what the others of its log, its list, its server and earlier runs have to do with it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

import binlogtool
from binlogtool.errors import RefusedError, UsageError
from binlogtool.limits import Limits
from binlogtool.repair import execute_plan as transaction
from binlogtool.repair.plan_truncate import make_result_check
from binlogtool.repair.plan_types import RepairPlan, RepairPolicy
from binlogtool.repair.repaired_content import LogExaminer
from tests.cli.samples import damaged_log, plain_log
from tests.formats.manticore import make as manticore
from tests.formats.mariadb_innodb_binlog import ibb_make as ibb
from tests.formats.tarantool.make import block, dml, header, log
from tests.harness.hostile_ibb import chunk

LEFT = RepairPolicy(allow_discard_valid=True)
SALVAGE = RepairPolicy(salvage=True)
FIX = RepairPolicy(fix_meta=True)
FIRST, SECOND = log([block(dml(1)), block(dml(2))]), log([block(dml(3)), block(dml(4))], vclock="{1: 2}")
ROW = len(block(dml(1)))
IS_NEWER = "00000000000000000002.xlog is newer: the server no longer appends here"


@pytest.fixture
def pair(tmp_path: Path) -> Sequence[Path]:
    """Two logs of Tarantool, of which the second goes on where the first ends; and their directory."""
    folder = tmp_path / "log"
    folder.mkdir()
    paths = [folder / f"{number:020}.xlog" for number in (0, 2)]
    for path, data in zip(paths, (FIRST, SECOND), strict=True):
        path.write_bytes(data)
    return (*paths, folder)


def actions(plan: RepairPlan) -> list[tuple[str, int]]:
    return [(one.action, one.cut_bytes) for one in plan.files]


def flipped() -> bytes:
    """The first log with a damaged first row, not closed."""
    data = bytearray(FIRST[:-4])
    data[len(header()) + 30] ^= 1
    return bytes(data)


# -- the others of a log


def test_a_torn_end_that_nobody_reads_on_from_is_cut_only_if_the_file_is_named(pair: Sequence[Path]) -> None:
    first, _, folder = pair
    first.write_bytes(FIRST[:-4] + b"\xd5\xba")
    plan = binlogtool.plan_truncate(folder)
    assert (plan.refused, actions(plan)) == (False, [("none", 0), ("none", 0)])
    (note,) = plan.notes
    assert note.startswith(f"{first}: {IS_NEWER}") and note.endswith("; name the file itself to truncate it")
    plan = binlogtool.plan_truncate(first)
    assert (plan.refused, actions(plan)) == (False, [("truncate", 2)])
    (note,) = plan.notes
    assert note.startswith(f"{first}: {IS_NEWER}") and not note.endswith("name the file itself to truncate it")
    assert (plan.target, plan.format) == (str(first), "tarantool")


@pytest.mark.parametrize("relative", [False, True])
def test_a_cut_that_would_hide_what_the_next_file_shows_is_refused_also_of_a_file_by_itself(
    pair: Sequence[Path], relative: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _, folder = pair
    first.write_bytes(FIRST[:-7])
    monkeypatch.chdir(folder)
    for path in (first.name if relative else first, "." if relative else folder):
        plan = binlogtool.plan_truncate(path)
        (reason,) = plan.reasons
        assert plan.refused and "gap-in-sequence: LSN 2 of replica 1 are missing between the end of this file" in reason
        assert reason.endswith("of 00000000000000000002.xlog; truncating would hide that")
    (folder / "00000000000000000002.xlog").unlink()
    plan = binlogtool.plan_truncate(first.name if relative else first)
    assert (plan.refused, plan.notes, actions(plan)) == (False, (), [("truncate", ROW - 3)])


def test_a_result_that_would_not_be_clean_is_refused_also_with_leave_to_discard(pair: Sequence[Path]) -> None:
    first, _, folder = pair
    first.write_bytes(flipped())
    for path in (first, folder):
        (reason,) = (one for one in binlogtool.plan_truncate(path, policy=LEFT).reasons if "clean" in one)
        assert reason.startswith(f"the result would not be clean: {first}: gap-in-sequence: LSN 1..2 of replica 1")


def test_rows_that_are_missing_in_the_middle_of_one_file_are_taken_where_salvage_was_asked(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.xlog"
    path.write_bytes(flipped())
    plan = binlogtool.plan_truncate(path, policy=SALVAGE)
    assert (plan.refused, actions(plan)) == (False, [("rewrite", ROW)])
    path.write_bytes(log([block(dml(1)), block(dml(3))]))
    (reason,) = binlogtool.plan_truncate(path).reasons
    assert reason == (f"{path}: gap-in-sequence: LSN 2 of replica 1 is missing (this command cannot repair it)")
    plan = binlogtool.plan_truncate(path, policy=SALVAGE)
    assert (plan.refused, actions(plan)) == (False, [("none", 0)])


def test_other_damage_that_no_cut_mends_is_told_also_where_salvage_was_asked(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.xlog"
    path.write_bytes(log([block(dml(1)), block(dml(1))]))
    for asked in (RepairPolicy(), SALVAGE):
        plan = binlogtool.plan_truncate(path, policy=asked)
        assert plan.refused and "this command cannot repair it" in plan.reasons[0], asked


def test_a_directory_of_several_formats_has_the_format_of_its_first_file(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.xlog").write_bytes(FIRST)
    (tmp_path / "transaction.log").write_bytes(plain_log()[:-3])
    plan = binlogtool.plan_truncate(tmp_path)
    assert (plan.format, plan.refused) == ("tarantool", False)
    assert [action for action, _ in actions(plan)] == ["none", "truncate"]


# -- what would be left


@pytest.mark.parametrize("relative", [False, True])
def test_nothing_is_cut_away_altogether_unless_a_file_of_a_named_format_may_become_empty(
    tmp_path: Path, relative: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "transaction.log"
    path.write_bytes(plain_log(1)[:-3])
    monkeypatch.chdir(tmp_path)
    file, folder = (Path(path.name), Path(".")) if relative else (path, tmp_path)
    allowed = RepairPolicy(allow_empty_result=True)
    assert binlogtool.plan_truncate(file, format="drizzle", policy=allowed).refused is False
    for target, format, asked in (
        (file, "drizzle", RepairPolicy()), (file, "auto", allowed), (folder, "drizzle", allowed), (folder,
        "auto", allowed),
    ):  # fmt: skip
        plan = binlogtool.plan_truncate(target, format=format, policy=asked)
        assert plan.refused and "no record would be kept" in plan.reasons[0], (target, format)


# -- what cannot be planned


def test_what_is_not_on_a_disk_here_or_is_compressed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^s3://logs/binlog: repair is for local files only"):
        binlogtool.plan_truncate("s3://logs/binlog")
    path = tmp_path / "log"
    for magic in (b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd"):
        path.write_bytes(magic + bytes(60))
        with pytest.raises(RefusedError, match="is a compressed file; unpack it first"):
            binlogtool.plan_truncate(path)
    path.write_bytes(plain_log())
    assert not binlogtool.plan_truncate(path).refused


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """A log of MariaDB in InnoDB's own format."""
    folder = tmp_path / "ibb"
    folder.mkdir()
    page = ibb.sealed(chunk(1, b"\0" + ibb.group(1)), 4096)
    (folder / "binlog-000000.ibb").write_bytes(ibb.header(0, 1, 4096, 4) + page)
    return folder


def test_logs_of_several_formats_are_not_mended_together_where_one_mends_all_files_of_a_log(pages: Path) -> None:
    assert binlogtool.plan_truncate(pages).format == "mariadb-innodb-binlog"
    (pages / "transaction.log").write_bytes(plain_log())
    with pytest.raises(UsageError, match=r"of several formats \(drizzle, mariadb-innodb-binlog\); choose one"):
        binlogtool.plan_truncate(pages)
    assert binlogtool.plan_truncate(pages, format="drizzle").format == "drizzle"


def test_a_format_without_transactions_over_records_refuses_a_cut_behind_them(pages: Path) -> None:
    for path in (pages, pages / "binlog-000000.ibb"):
        with pytest.raises(UsageError, match="--transactions"):
            binlogtool.plan_truncate(path, policy=RepairPolicy(transactions=True))


# -- the list of files


@pytest.mark.parametrize("there", [False, True])
def test_a_list_of_files_is_made_anew_only_if_that_is_asked(tmp_path: Path, there: bool) -> None:
    data = manticore.log(manticore.add_index(0, b"t"), manticore.add_txn(0, 1, manticore.killed(1)))
    (tmp_path / "binlog.0000").write_bytes(data)
    meta = tmp_path / "binlog.meta"
    if there:
        meta.write_bytes(b"XXXXXXX")
    plan = binlogtool.plan_truncate(tmp_path)
    assert plan.refused and plan.reasons[0].endswith("(--fix-meta may fix it)") and not plan.changes
    plan = binlogtool.plan_truncate(tmp_path, policy=FIX)
    (file,) = plan.changes
    assert not plan.refused and (file.path, file.action, file.durable_end) == (str(meta), "rewrite", None)
    assert (file.size, file.cut_bytes, file.cut_valid_records) == (7 * there, 0, 0)
    assert [piece.data for piece in file.pieces] == [manticore.meta([0])]
    assert file.made_like == (None if there else str(tmp_path / "binlog.0000"))


def test_what_a_new_list_does_not_mend_is_told_as_such(tmp_path: Path) -> None:
    data = manticore.log(manticore.add_index(0, b"t"), manticore.add_txn(0, 2, manticore.killed(1)),
                         manticore.add_txn(0, 1, manticore.killed(2)))  # fmt: skip
    (tmp_path / "binlog.0000").write_bytes(data)
    (tmp_path / "binlog.meta").write_bytes(manticore.meta([0]))
    for asked in (RepairPolicy(), FIX):
        plan = binlogtool.plan_truncate(tmp_path, policy=asked)
        assert plan.refused and plan.reasons[0].endswith("(this command cannot repair it)"), plan.reasons


# -- earlier runs


@pytest.mark.parametrize("relative", [False, True])
def test_while_a_repair_of_several_files_is_not_finished_nothing_is_planned(
    pair: Sequence[Path], relative: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _, folder = pair
    if relative:
        monkeypatch.chdir(folder)
    (folder / transaction.INTENT_NAME).write_bytes(b"{}")
    for path in (first.name if relative else first, "." if relative else folder):
        plan = binlogtool.plan_truncate(path)
        assert plan.refused and "a repair of several files was interrupted here" in plan.reasons[0]


def test_what_an_earlier_run_left_beside_the_files_is_told(pair: Sequence[Path]) -> None:
    first, second, folder = pair
    left = [folder / f".{path.name}.binlogtool-tmp-{'0' * 12}" for path in (first, second)]
    for path in left:
        path.write_bytes(b"half")
    words = "a temporary file of an aborted run; --apply removes it"
    assert binlogtool.plan_truncate(first).notes == (f"{left[0]}: {words}",)
    assert sorted(binlogtool.plan_truncate(folder).notes) == [f"{path}: {words}" for path in left]


# -- the look at the result


def reading() -> LogExaminer:
    return LogExaminer("auto", Limits(), "python")


def test_a_result_that_is_not_as_planned_is_told(tmp_path: Path) -> None:
    path = tmp_path / "transaction.log"
    path.write_bytes(damaged_log(5))
    plan = binlogtool.plan_truncate(path, policy=LEFT)
    check = make_result_check(plan, reading())
    assert f"{path}: still has bytes to remove" in check()
    kept = path.read_bytes()[: plan.files[0].durable_end]
    path.write_bytes(kept)
    assert check() == []
    path.write_bytes(plain_log(4))
    assert check() == [f"{path}: other records than planned"]
    path.unlink()
    (told,) = check()
    assert str(path) in told and "No such file" in told


def test_a_bound_of_the_loss_is_for_the_plan_and_not_for_the_result(tmp_path: Path) -> None:
    path = tmp_path / "transaction.log"
    path.write_bytes(plain_log() + b"\1")
    plan = binlogtool.plan_truncate(path, policy=RepairPolicy(max_loss=1))
    path.write_bytes(plain_log())
    assert make_result_check(plan, reading())() == []


def test_a_file_that_should_be_gone_is_looked_for(pair: Sequence[Path]) -> None:
    from msgspec.structs import replace

    first, second, folder = pair
    plan = binlogtool.plan_truncate(folder)
    gone = replace(plan, files=tuple(replace(one, action="remove", pieces=()) for one in plan.files))
    check = make_result_check(gone, reading())
    assert check() == [f"{first}: still exists", f"{second}: still exists"]
    first.unlink()
    assert check() == [f"{second}: still exists"]
    second.unlink()
    os.symlink("nowhere", second)
    assert check() == [f"{second}: still exists"]
    second.unlink()
    assert check() == []
