"""Sets of numbers as intervals, against sets of numbers; and end_log_pos over the 4 GiB border."""

from __future__ import annotations

import itertools
from array import array

from hypothesis import given
from hypothesis import strategies as st

from binlogtool.formats.binlog_events.event_schemas import Event
from binlogtool.formats.binlog_events.gtid import gtid_sets
from binlogtool.formats.binlog_events.gtid.gtid_sets import IntervalSet
from binlogtool.formats.mysql_binlog.validate import expected_event_kernels
from binlogtool.formats.mysql_binlog.validate.event_rules import PositionRules
from binlogtool.formats.mysql_binlog.validate.expected_event_kernels import CHAINED

_RUNS = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 6)).map(lambda run: (run[0], run[0] + run[1])), max_size=30
)


@given(_RUNS)
def test_intervals_hold_the_numbers_that_were_added(runs: list[tuple[int, int]]) -> None:
    held, numbers = IntervalSet(), set[int]()
    for start, stop in runs:
        held.add_interval(start, stop)
        numbers |= set(range(start, stop))
    pairs = list(held)
    assert {n for start, stop in pairs for n in range(start, stop)} == numbers
    assert all(a[1] < b[0] for a, b in itertools.pairwise(pairs))
    assert [n for n in range(70) if n in held] == sorted(numbers)
    assert (held.highest, held.count_numbers(), bool(held)) == (max(numbers, default=0), len(numbers), bool(numbers))
    missing = {n for start, stop in held.iter_gaps() for n in range(start, stop)}
    assert missing == set(range(min(numbers, default=0), max(numbers, default=0))) - numbers


def test_intervals_are_written_like_gtid_sets() -> None:
    assert IntervalSet([(1, 6), (7, 8), (10, 12)]).format_text() == "1-5:7:10-11"
    assert IntervalSet([(2 * n, 2 * n + 1) for n in range(1, 9)]).format_text(3) == "2:4:6:…"


def test_a_set_with_too_many_intervals_says_that_it_is_full() -> None:
    held = IntervalSet((2 * n, 2 * n + 1) for n in range(gtid_sets.MAX_INTERVALS + 5))
    assert (held.is_full, len(held)) == (True, gtid_sets.MAX_INTERVALS)


def _event(end: int, position: int) -> Event:
    return Event(2, 1, 1, position, 0, end - 40, end, 7, memoryview(b""))


def test_positions_are_compared_modulo_four_gibibytes() -> None:
    state = array("q", bytes(8 * expected_event_kernels.STATE_SIZE))
    positions = PositionRules(state, CHAINED, 0)
    border = 1 << 32
    told = [
        fault
        for end in (border - 40, border, border + 40)
        for fault in positions.check_position(_event(end, end % border))
    ]
    assert [*told, *positions.iter_faults_at_end()] == []


def test_bytes_that_are_missing_are_counted_over_the_border() -> None:
    state = array("q", bytes(8 * expected_event_kernels.STATE_SIZE))
    positions = PositionRules(state, CHAINED, 0)
    border = 1 << 32
    told = [
        fault
        for end in (border - 80, border - 40)
        for _, fault in positions.check_position(_event(end, (end + 1000) % border))
    ]
    assert [(fault.diagnosis, fault.facts["bytes"]) for fault in told] == [("bytes-removed", 1000)]
    assert [*positions.check_position(_event(border + 40, 1040))] == []


def test_an_encrypted_file_counts_from_behind_its_header() -> None:
    state = array("q", bytes(8 * expected_event_kernels.STATE_SIZE))
    positions = PositionRules(state, CHAINED, 512)
    assert [*positions.check_position(_event(1000, 488)), *positions.iter_faults_at_end()] == []
