"""`--transactions`: a cut behind the last whole transaction, where whole records of an unfinished one follow."""

from __future__ import annotations

from pathlib import Path

import pytest

import binlogtool
from binlogtool.errors import RefusedError, UsageError
from binlogtool.repair.plan_types import RepairPolicy
from tests.harness import oracle

ASKED = RepairPolicy(transactions=True)


def whole_ends(data: bytes) -> list[int]:
    """For each number of entries, from none on: the end of the last one behind which nothing unfinished lies.

    By the harness' own reader: entry types and members 4 and 5 of a message (segment number, is it the last?).
    """
    ends = [0]
    for frame in oracle.drizzle(data).frames:
        message = data[frame.start + 8 : frame.end - 4]
        blob = data[frame.start] == 2
        last = blob or dict(oracle.wire(message)).get(5, 1) == 1
        ends.append(frame.end if last else ends[-1])
    return ends


def test_logs_of_large_transactions_are_cut_behind_the_last_whole_one(corpus: Path, tmp_path: Path) -> None:
    data = (corpus / "drizzle/generated/segmented.log").read_bytes()
    borders = [frame.end for frame in oracle.drizzle(data).frames]
    expected = whole_ends(data)
    path = tmp_path / "transaction.log"
    shorter = 0
    for number, border in enumerate(borders, start=1):
        path.write_bytes(data[: border + 5])
        plan = binlogtool.plan_truncate(path, policy=ASKED)
        (file,) = plan.files
        end = expected[number]
        torn = data[border : border + 5] != b""
        assert (file.action, plan.refused) == ("truncate" if torn or end < border else "none", False), border
        if file.action == "none":
            continue
        kept = sum(one <= end for one in borders)
        assert (file.result_size, file.durable_end, file.cut_valid_records) == (end, border, number - kept)
        shorter += end < border
        binlogtool.apply_plan(plan)
        assert path.read_bytes() == data[:end]
        assert not binlogtool.plan_truncate(path, policy=ASKED).changes
    print(f"\n--transactions: {len(borders)} cuts, {shorter} of them within a transaction")
    assert shorter >= 5


def test_without_the_option_whole_records_stay(corpus: Path, tmp_path: Path) -> None:
    path = tmp_path / "transaction.log"
    data = (corpus / "drizzle/generated/damaged/unterminated-transaction.log").read_bytes()
    path.write_bytes(data)
    assert not binlogtool.plan_truncate(path).changes
    plan = binlogtool.plan_truncate(path, policy=ASKED)
    assert (plan.files[0].result_size, plan.files[0].cut_valid_records) == (whole_ends(data)[-1], 1)
    assert binlogtool.plan_truncate(path, policy=RepairPolicy(transactions=True, max_loss_records=0)).refused
    done = binlogtool.apply_plan(plan)
    assert done.undo is not None
    binlogtool.undo(done.undo)
    assert path.read_bytes() == data


def test_records_of_an_open_transaction_between_whole_ones_stay(corpus: Path, tmp_path: Path) -> None:
    """Transaction 10 of this log was rolled back without a word; what was committed behind it must not go."""
    path = tmp_path / "transaction.log"
    path.write_bytes((corpus / "drizzle/generated/segmented.log").read_bytes())
    report = binlogtool.verify([path]).files[0]
    assert report.details["transactions_unterminated"] == 1
    assert not binlogtool.plan_truncate(path, policy=ASKED).changes


def test_nothing_is_cut_in_front_of_a_damage(corpus: Path, tmp_path: Path) -> None:
    """Whole transactions behind a damage do not move the end."""
    path = tmp_path / "transaction.log"
    path.write_bytes((corpus / "drizzle/generated/damaged/bitflip-payload.log").read_bytes())
    plan = binlogtool.plan_truncate(path, policy=ASKED)
    assert (plan.refused, plan.files[0].result_size) == (True, 13055)
    with pytest.raises(RefusedError, match="valid-after-damage"):
        binlogtool.apply_plan(plan)


def test_formats_whose_durable_end_is_that_of_a_transaction_say_so(samples: Path) -> None:
    path = sorted((samples / "readme/torn-tail").glob("*.xlog"))[-1]
    with pytest.raises(UsageError, match="--transactions cannot be used"):
        binlogtool.plan_truncate(path, policy=ASKED)
