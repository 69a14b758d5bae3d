"""Repairs of logs that were damaged at random: nothing that can be read is lost, and what is changed is sound."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

import binlogtool
from binlogtool.errors import RefusedError, UsageError
from binlogtool.repair.plan_types import RepairPolicy
from tests.cli.samples import plain_log
from tests.formats.mariadb_innodb_binlog import ibb_logs as logs
from tests.formats.mariadb_innodb_binlog.ibb_make import Maker, group, sealed
from tests.formats.mariadb_innodb_binlog.ibb_server import restart

P = 1024
RUNS = 120
Files = dict[str, bytes]


def made() -> Files:
    """A log of several files with records over pages and files, and out-of-band data."""
    maker = Maker(page_size=P, file_pages=6, interval=2, oob_from=0)
    for number in range(1, 30):
        maker.commit(group(number, 45 * number % 900 + 20), (0, 11, number))
    return maker.done()


def damaged(files: Files, luck: random.Random) -> tuple[str, Files]:
    """One thing that can happen to a log."""
    kind = luck.choice(("flip", "forged", "zeroed", "shortened", "gone", "torn"))
    name = luck.choice(sorted(files)[-3:] if luck.random() < 0.7 else sorted(files)[1:])  # the first may be purged
    data = bytearray(files[name])
    start = luck.randrange(len(data) // P) * P
    if not any(data[start : start + P]):
        kind = luck.choice(("shortened", "gone"))
    if kind == "gone":
        return kind, {other: files[other] for other in files if other != name}
    if kind == "shortened":
        del data[luck.randrange(len(data)) :]
    elif kind == "zeroed":
        data[start : start + P] = bytes(P)
    elif kind == "torn":
        data[start + P // 2 :] = bytes(len(data) - start - P // 2)
    else:
        at = start + luck.randrange(P)
        data[at] = luck.choice((0, 0xFF, data[at] ^ 1 << luck.randrange(8)))
        if kind == "forged":
            data[start : start + P] = sealed(bytes(data[start : start + P - 4]), P)
    return kind, {**files, name: bytes(data)}


def contents(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder.iterdir() if "binlogtool" not in path.name}


@pytest.mark.full
def test_no_group_that_could_be_read_is_lost_whatever_happened(tmp_path: Path) -> None:
    luck, files, outcomes = random.Random(6), made(), Counter[str]()
    for number in range(RUNS):
        kind, hurt = damaged(files, luck)
        folder = logs.written(tmp_path / str(number), hurt)
        groups = logs.gtids(folder)
        plan = binlogtool.plan_truncate(folder, format=logs.FORMAT, backend="python")
        outcomes["refused" if plan.refused else "changed" if plan.changes else "nothing"] += 1
        if plan.refused:
            assert plan.reasons
            continue
        done = binlogtool.apply_plan(plan, format=logs.FORMAT, backend="python")
        assert logs.gtids(folder) == groups, (number, kind)
        assert not logs.errors(logs.verified(folder)), (number, kind)
        assert not restart(folder).open, (number, kind)
        if done.undo is not None:
            binlogtool.undo(done.undo)
        assert contents(folder) == hurt, (number, kind)
    print(f"\n{RUNS} damaged logs: {dict(outcomes)}")
    assert min(outcomes["refused"], outcomes["changed"]) > RUNS // 20


@pytest.mark.full
def test_with_consent_what_stays_is_the_beginning_of_the_log(tmp_path: Path) -> None:
    luck, files, changed, sound = random.Random(7), made(), 0, 0
    whole = logs.gtids(logs.written(tmp_path / "whole", files))
    for number in range(RUNS // 2):
        kind, hurt = damaged(files, luck)
        folder = logs.written(tmp_path / str(number), hurt)
        asked = RepairPolicy(allow_discard_valid=True)
        plan = binlogtool.plan_truncate(folder, format=logs.FORMAT, backend="python", policy=asked)
        if plan.refused or not plan.changes:
            continue
        changed += 1
        done = binlogtool.apply_plan(plan, format=logs.FORMAT, backend="python")
        left = logs.gtids(folder)
        if kind != "forged":  # a forged record is in the log, and not among the sound ones
            assert left == whole[: len(left)], (number, kind)
            sound += 1
        assert not logs.errors(logs.verified(folder)), (number, kind)
        assert done.undo is not None
        binlogtool.undo(done.undo)
        assert contents(folder) == hurt
    assert changed > RUNS // 20 and sound > changed // 2


def test_logs_of_several_formats_in_a_directory_are_not_repaired_at_once(tmp_path: Path) -> None:
    folder = logs.written(tmp_path / "log", made())
    (folder / "transaction.log").write_bytes(plain_log())
    with pytest.raises(UsageError, match="choose one with --format"):
        binlogtool.plan_truncate(folder)
    plan = binlogtool.plan_truncate(folder, format=logs.FORMAT)
    assert (plan.refused, plan.changes) == (False, ())


def test_a_file_in_a_strange_name_is_not_touched(tmp_path: Path) -> None:
    files = made()
    last = sorted(name for name, data in files.items() if any(data))[-1]
    files["binlog-0099.ibb"] = files.pop(last)
    folder = logs.written(tmp_path / "log", files)
    with pytest.raises(RefusedError, match="servers do not open a file with this name"):
        binlogtool.apply_plan(binlogtool.plan_truncate(folder, format=logs.FORMAT), format=logs.FORMAT)
    assert contents(folder) == files
