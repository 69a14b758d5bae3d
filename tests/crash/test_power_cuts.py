"""Test goal W2 for real logs of every format: writes without fsync are dropped, torn at 512 bytes, or reordered."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

import binlogtool
from binlogtool.repair.execute_plan import execute_plan
from binlogtool.repair.plan_types import RepairPolicy
from tests.cli.samples import plain_log
from tests.crash.disk import Disk
from tests.crash.real import Real, partial
from tests.crash.runs import Case
from tests.formats.mariadb_innodb_binlog import ibb_logs
from tests.formats.mariadb_innodb_binlog.ibb_repairs import DISCARD, PLAIN, case_of, planned
from tests.sampling import EXHAUSTIVE

OWN = Path(__file__).parent.parent / "corpus"


def drizzle(folder: Path) -> Real:
    (folder / "log.dat").write_bytes(plain_log()[:-10])
    return Real(folder, binlogtool.plan_truncate(folder / "log.dat", format="drizzle", backend="python"))


def manticore(folder: Path) -> Real:
    """Return a torn log and its list of files: a repair of several files."""
    shutil.copytree(OWN / "manticore/damaged/torn-mid-txn", folder, dirs_exist_ok=True)
    policy = RepairPolicy(fix_meta=True, allow_discard_valid=True)
    return Real(folder, binlogtool.plan_truncate(folder, policy=policy, format="manticore", backend="python"))


def tarantool(folder: Path) -> Real:
    source = next(p for p in sorted((OWN / "tarantool/chain").rglob("*.xlog")) if p.stat().st_size > 300)
    (folder / source.name).write_bytes(source.read_bytes()[:-20])
    return Real(folder, binlogtool.plan_truncate(folder / source.name, format="tarantool", backend="python"))


def eblob(folder: Path) -> Real:
    data = (OWN / "eblob/instance-a.binlog").read_bytes().rstrip(b"\0")
    (folder / "a.binlog").write_bytes(data[:-7])
    return Real(folder, binlogtool.plan_truncate(folder / "a.binlog", format="eblob", backend="python"))


@pytest.mark.parametrize("make", [drizzle, manticore, tarantool, eblob])
@pytest.mark.parametrize("undo", [False, True], ids=["repair", "undo"])
def test_w2_a_repair_of_a_real_log_is_done_or_not_after_a_power_cut(make: object, undo: bool, tmp_path: Path) -> None:
    assert callable(make)
    real: Real = make(tmp_path)
    ends = real.cuts(undo=undo, most=12)
    print(f"\nW2 {make.__name__} {'undo' if undo else 'repair'}: {sum(ends.values())} disks: {dict(ends)}")
    assert ends["before"] > 5 and ends["after"] > 5


@pytest.mark.full
@pytest.mark.parametrize("index", range(15))
def test_w2_the_crash_cases_of_ibb_are_old_or_recovered_after_a_power_cut(
    index: int, corpus: Path, tmp_path: Path
) -> None:
    case, folder, redo = case_of(corpus, tmp_path, index)
    plan = planned(folder, redo, DISCARD if case["dir"] == "crash/c15-file-missing" else PLAIN)
    if not plan.changes:
        real_recovery = case["real_recovery"]
        assert not real_recovery["files_changed"] and not real_recovery["files_removed"]
        return
    real = Real(folder, plan)
    contents = {path.rsplit("/", 1)[1]: data for path, data in real.after.items() if data is not None}
    expected = {name: one["sha256"] for name, one in case["real_recovery"]["files_after"].items()}
    assert {name: ibb_logs.digest(data) for name, data in contents.items()} == expected
    ends: Counter[str] = Counter()
    for undo in (False, True):
        ends += real.cuts(undo=undo, most=3)
    print(f"\nW2 {case['dir']}: {sum(ends.values())} disks: {dict(ends)}")
    assert ends["before"] and ends["after"]


@pytest.mark.parametrize("name", ["cut", "rewrite", "several", "removal", "creation"])
@pytest.mark.parametrize("most", [1, 2, 3, 7, 511, 512, 513, 4095])
def test_short_writes_of_every_length_are_continued(name: str, most: int) -> None:
    """Every write of the repair and of its undo writes at most `most` bytes."""
    from binlogtool.repair.undo_repair import apply_undo

    case = Case(name)
    disk: Disk = partial(case.disk, most)
    undo = case.apply(disk)
    assert set(case.states(disk)) == {"after"}
    apply_undo(undo, system=disk)  # type: ignore[arg-type]
    assert set(case.states(disk)) == {"before"}


@pytest.mark.full
def test_a_write_that_ends_after_any_number_of_bytes_leaves_old_or_new() -> None:
    """The undo file and the new file, cut by a dead machine in the middle of each write."""
    case, ends = Case("rewrite"), Counter[str]()
    for most in (1, 100, 512):
        disk = partial(case.disk, most)
        disk.snapshots = []
        execute_plan(case.plan, check_result=list, system=disk)  # type: ignore[arg-type]
        snapshots = disk.snapshots or []
        for snapshot in snapshots[:: max(1, len(snapshots) // (60 if EXHAUSTIVE else 20))]:
            ends[case.hold(snapshot.after_kill())] += 1
    print(f"\nshort writes, then the end: {dict(ends)}")
    assert ends["before"] > 5 and ends["after"] > 5
