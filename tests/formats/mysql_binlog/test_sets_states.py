"""GTID sets and lists as states: what one has beyond another."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from binlogtool.formats.binlog_events.gtid.gtid_events import ListedGtid, PreviousGtidsOfSource
from binlogtool.formats.binlog_events.gtid.gtid_sets import (
    GtidRange,
    MariadbGtidState,
    MysqlGtidState,
    build_state_from_gtid_list,
    build_state_from_previous_gtids,
    format_gtid_ranges,
    gtid_ranges_to_json,
)

SID = bytes(range(16))
SOURCE = "00010203-0405-0607-0809-0a0b0c0d0e0f"


def numbers(state: MysqlGtidState) -> set[int]:
    """The numbers of the one source."""
    return {n for low, high in state.intervals.get(SOURCE, []) for n in range(low, high)}


@pytest.mark.parametrize("seed", range(50))
def test_what_a_set_lacks_is_the_difference_of_sets(seed: int) -> None:
    rng = random.Random(seed)
    one, other = ({rng.randrange(40) for _ in range(rng.randrange(30))} for _ in range(2))
    first, second = MysqlGtidState(), MysqlGtidState()
    for state, known in ((first, one), (second, other)):
        for number in rng.sample(sorted(known), len(known)):
            state.add_intervals(SOURCE, [(number, number + 1)])
    assert (numbers(first), numbers(second)) == (one, other)
    spans = first.list_transactions_only_in(second)
    assert {n for span in spans for n in range(span.first, span.last + 1)} == other - one
    assert all(left.last + 1 < right.first for left, right in pairwise(spans))


def test_intervals_of_previous_gtids_may_touch_overlap_or_be_empty() -> None:
    state = build_state_from_previous_gtids(
        [PreviousGtidsOfSource(SID, b"", ((5, 9), (1, 3), (3, 5), (7, 12), (20, 20)))]
    )
    assert state.intervals == {SOURCE: [(1, 12)]}


def test_tags_are_sources_of_their_own() -> None:
    state = build_state_from_previous_gtids(
        [PreviousGtidsOfSource(SID, b"", ((1, 3),)), PreviousGtidsOfSource(SID, b"tag", ((1, 2),))]
    )
    assert MysqlGtidState().list_transactions_only_in(state) == [
        GtidRange(SOURCE, 1, 2, False),
        GtidRange(f"{SOURCE}:tag", 1, 1, False),
    ]


def test_a_list_lacks_what_lies_behind_its_domain() -> None:
    known = build_state_from_gtid_list([ListedGtid(0, 1, 5), ListedGtid(0, 2, 9), ListedGtid(7, 1, 3)])
    later = build_state_from_gtid_list(
        [ListedGtid(0, 1, 12), ListedGtid(0, 2, 9), ListedGtid(7, 1, 4), ListedGtid(8, 1, 2)]
    )
    assert known.list_transactions_only_in(later) == [
        GtidRange("0-1", 10, 12, True),
        GtidRange("7-1", 4, 4, True),
        GtidRange("8-1", 1, 2, True),
    ]
    assert later.list_transactions_only_in(known) == []


def test_states_of_two_servers_are_not_compared() -> None:
    assert MysqlGtidState().list_transactions_only_in(MariadbGtidState({"0-1": 5})) == []
    assert MariadbGtidState().list_transactions_only_in(MysqlGtidState({SOURCE: [(1, 2)]})) == []


def test_gtids_in_words_are_as_the_servers_write_them() -> None:
    assert format_gtid_ranges([GtidRange("0-1", 5, 7, True), GtidRange("0-1", 9, 9, True)]) == "0-1-5 to 0-1-7, 0-1-9"
    assert (
        format_gtid_ranges([GtidRange(SOURCE, 5, 7, False), GtidRange(SOURCE, 9, 9, False)])
        == f"{SOURCE}:5-7, {SOURCE}:9"
    )
    assert format_gtid_ranges([GtidRange("0-1", n, n, True) for n in range(8)]).endswith("0-1-4 and 3 more ranges")


def test_gtids_as_facts_are_runs_by_source() -> None:
    assert gtid_ranges_to_json([GtidRange("0-1", 5, 7, True), GtidRange("0-1", 9, 9, True)]) == {
        "0-1": [[5, 7], [9, 9]]
    }
