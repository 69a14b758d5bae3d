"""What a search for the next frame reads, keeps in memory and may cost; and searches in windows that have moved on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from binlogtool.core import resync
from binlogtool.core.open_file import BytesSource
from binlogtool.core.resync import Resynchronizer, ResyncPoint
from binlogtool.format_api.layout import FrameLevel
from binlogtool.formats.manticore.decode import create_frame_level
from tests.core.made_frames import (
    MARK,
    PLAIN,
    SIZED,
    frame,
    level,
    made,
    plain,
    proved,
    searching,
    sized,
    window_of,  # fmt: skip
)

PLACE = 64
"""What a place costs where a frame may begin; looking into it costs as much again, and every byte one."""
JUDGED = 2 * PLACE
SIZES = replace(level(SIZED, length_field="whole"), columns=("whole",), sync=rb"(?s)(?=..FR)", min_size=8)
BAD = b"FR\x05" + bytes(4) + b"wrong"


class Stream(BytesSource):
    """Bytes whose number is not known before the last one was read. furthest: what was asked for."""

    furthest = 0

    def __init__(self, data: bytes) -> None:
        super().__init__("stream", data)
        self.size = None

    def read_at(self, offset: int, view: memoryview) -> int:
        self.furthest = max(self.furthest, offset + len(view))
        return super().read_at(offset, view)


def moved(data: bytes, base: int, frames: FrameLevel | None = None, longest: int = 262) -> Resynchronizer:
    """A search that has all bytes from `base` on in memory, and none before."""
    return searching(window_of(BytesSource("made", data), len(data) - base + 1, base), frames, longest=longest)


def costs(
    make: Callable[[], Resynchronizer], work: Callable[[Resynchronizer], Any], cost: int, patch: pytest.MonkeyPatch
) -> bool:
    """Is `cost` just enough for this work?"""
    ended = []
    for floor in (cost, cost - 1):
        patch.setattr(resync, "_WORK_PER_BYTE", 0)
        patch.setattr(resync, "_MIN_WORK", floor)
        search = make()
        work(search)
        ended.append(search.exhausted)
    return ended == [False, True]


# -- what it costs


def test_every_place_costs_and_every_frame_that_is_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"x" + BAD + b"FR" + frame(b"one") + frame(b"two")
    first, second = JUDGED + len(BAD) + PLACE + JUDGED + 10, JUDGED + 10
    assert costs(lambda: made(data), lambda s: s.find_resync_point(0), first, monkeypatch)
    assert costs(
        lambda: made(data), lambda s: [s.find_resync_point(0), s.find_resync_point(15)], first + second, monkeypatch
    )
    assert costs(
        lambda: made(data), lambda s: s.find_proven_frame_inside(0, 40), PLACE + first - JUDGED - len(BAD), monkeypatch
    )


def test_a_frame_that_the_format_does_not_prove_costs_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"x" + plain(b"?" * 50) + b"x"
    assert costs(lambda: made(data, level(PLAIN)), lambda s: s.find_resync_point(0), JUDGED + 53, monkeypatch)


def test_the_larger_the_file_the_more_it_may_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four places of `BAD`, then a frame: with the file in memory as a whole its size counts."""
    data = b"x" + BAD * 4 + frame(b"one")
    cost = 4 * (JUDGED + len(BAD)) + JUDGED + 10
    monkeypatch.setattr(resync, "_WORK_PER_BYTE", 2)
    for floor, ends in ((cost - 2 * len(data), False), (cost - 2 * len(data) - 1, True)):
        monkeypatch.setattr(resync, "_MIN_WORK", floor)
        search = made(data)
        search.find_resync_point(0)
        assert search.exhausted is ends


def test_a_place_whose_frame_has_no_room_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"x" * 9 + b"\xff\x00FRzzzz" * 20 + sized(b"one")
    assert costs(lambda: made(data, SIZES), lambda s: s.find_resync_point(0), JUDGED + 11, monkeypatch)
    inside = b"x" * 5 + b"\xff\x00FRzzzz" * 20 + sized(b"in") + sized(b"one") + b"x" * 300
    monkeypatch.setattr(resync, "_MIN_WORK", 2 * JUDGED)
    assert made(inside, SIZES).find_resync_point(0, 175) == ResyncPoint(165)


@pytest.mark.parametrize(("floor", "per_byte", "found"), [(559, 0, 49), (558, 0, 61), (459, 2, 49), (457, 2, 61)])
def test_what_is_inside_a_damaged_frame_may_cost_as_much_as_it_is_long(
    monkeypatch: pytest.MonkeyPatch, floor: int, per_byte: int, found: int
) -> None:
    """Four places with wrong checksums (12 bytes and 64 each), one that is no frame, and the first good one.

    The frame that is found counts as a place, too; that it is then looked into comes on top. The damaged frame ends
    at 61, and 50 bytes of it are looked through.
    """
    data = b"x" * 11 + b"FR" + BAD * 3 + frame(b"one") + b"xx" + frame(b"two")
    assert data.index(frame(b"two")) == 61
    cost = PLACE + 3 * (PLACE + len(BAD)) + PLACE
    monkeypatch.setattr(resync, "_WORK_PER_BYTE", per_byte)
    monkeypatch.setattr(resync, "_MIN_WORK", floor - 559 + cost)
    assert made(data).find_resync_point(10, 61) == ResyncPoint(found)


# -- what is read, and kept


def test_the_byte_of_the_damage_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "_READ_BYTES", 80)
    window = window_of(Stream(b"0123456789" + b"x" * 60 + frame(b"one")), 8)
    assert searching(window).find_resync_point(5) == ResyncPoint(70)
    assert bytes(window.view(5, 10)) == b"56789"


def test_a_frame_right_behind_the_damage_is_found_where_neither_is_in_memory_yet() -> None:
    assert made(b"x" + frame(b"one"), chunk=8).find_resync_point(0) == ResyncPoint(1)
    assert made(b"x" * 9 + frame(b"one"), chunk=8).find_resync_point(8) == ResyncPoint(9)


def test_a_place_behind_what_is_in_memory_is_not_read_for_a_proof() -> None:
    for chunk in (64, 70, 74):
        search = made(b"x" * 64 + frame(b"one") + b"x" * 20, chunk=chunk)
        assert search.is_proven(64) is (chunk > 64)
        assert search.is_proven(chunk) is False
    assert made(b"x" * 64 + frame(b"one"), chunk=70).find_proven_frame_inside(0, 74) is None
    assert made(b"x" * 64 + frame(b"one"), chunk=74).find_proven_frame_inside(0, 74) == 64


def test_what_cannot_be_a_frame_is_told_as_such() -> None:
    assert made(BAD).is_proven(0) is False
    assert made(plain(b"one?"), proved()).is_proven(0) is False
    assert made(plain(b"one!"), level(PLAIN)).is_proven(0) is False
    assert made(frame(b"y" * 200), chunk=64, longest=206).is_proven(0) is False
    assert made(frame(b"y" * 200), chunk=64, longest=207).is_proven(0) is True


def test_no_more_is_read_for_a_frame_than_it_needs_and_than_is_allowed() -> None:
    source = Stream(frame(b"y" * 200) + b"x" * 1000)
    assert searching(window_of(source, 64)).is_proven(0)
    assert source.furthest == 207
    source = Stream(frame(b"y" * 200) + b"x" * 1000)
    assert not searching(window_of(source, 64), longest=206).is_proven(0)
    assert source.furthest == 64


@pytest.mark.parametrize("size", [1, 90, 300])
def test_in_a_stream_frames_that_say_how_long_they_are_are_found(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "_READ_BYTES", 80)
    data = b"x" * 9 + sized(b"y" * size) + sized(b"two")
    for source in (Stream(data), BytesSource("made", data)):
        assert searching(window_of(source, 64), SIZES, longest=400).find_resync_point(0) == ResyncPoint(9)


def test_before_any_search_nothing_is_known_of_where_the_data_ends() -> None:
    assert made(b"x" * 100).data_end == 0


def test_a_frame_that_reaches_into_a_hole_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hole begins where a piece ends, and the frame's head is among the last bytes before it."""

    class Holey(BytesSource):
        def find_hole_end(self, offset: int) -> int:
            return offset if offset < 401 else max(offset, 100_000)

    monkeypatch.setattr(resync, "_READ_BYTES", 80)
    source = Holey("made", b"x" * 381 + frame(bytes(200)) + bytes(99_412) + frame(b"one"))
    assert searching(window_of(source, 64)).find_resync_point(0) == ResyncPoint(381)


def test_a_transaction_of_sphinx_whose_numbers_end_with_the_memory_is_read_on(samples: Path) -> None:
    """It does not say how long it is: how much more is needed is not known."""
    data, at = (samples / "manticore" / "sphinx-mixed" / "binlog.001").read_bytes(), 8
    for chunk in range(at + 1, 400):
        search = searching(window_of(BytesSource("binlog.001", data), chunk), create_frame_level(5), longest=1 << 20)
        assert search.is_proven(at) is True, chunk
    for longest, is_read in ((64, False), (390, False), (391, True)):
        search = searching(window_of(Stream(data), 50), create_frame_level(5), longest=longest)
        assert search.is_proven(34) is is_read


# -- where the damaged frame says that it ends


def test_the_first_of_several_frames_inside_counts() -> None:
    data = b"x" + frame(b"one") + frame(b"two") + frame(b"six") + frame(b"ten")
    assert made(data).find_resync_point(0, 31) == ResyncPoint(1)
    assert made(data).find_resync_point(1, 31) == ResyncPoint(11)


def test_the_damage_itself_is_not_where_it_ends() -> None:
    assert made(frame(b"one") + frame(b"two")).find_resync_point(0, 0) == ResyncPoint(10)


OUTER = b"x" * 5 + frame(b"xx" + frame(b"one"))
"""A frame at 5, and in its content another one at 14."""


@pytest.mark.parametrize("base", [0, 3])
def test_a_frame_over_that_place_does_not_count_also_where_the_memory_ends_or_begins(base: int) -> None:
    assert searching(window_of(BytesSource("made", OUTER), 14 - base, base)).find_resync_point(3, 14) == ResyncPoint(14)
    assert moved(OUTER, base).find_resync_point(3, 14) == ResyncPoint(14)


def test_a_closing_mark_at_that_place_counts_also_where_the_memory_ends_with_it() -> None:
    data = b"x" * 5 + frame(b"in" + MARK)
    for chunk in (10, len(data) - 4, len(data), len(data) + 1, 4096):
        found = made(data, level(end_mark=MARK), chunk).find_resync_point(0, len(data) - 4)
        assert found == ResyncPoint(len(data) - 4, closing=True), chunk


def test_a_place_further_than_any_frame_may_be_long_is_not_looked_at() -> None:
    """A frame of 19 bytes in which another one stands nine bytes behind its head."""
    far = b"x" * 40 + OUTER
    assert moved(far, 40, longest=14).find_resync_point(40, 54) == ResyncPoint(54)
    assert moved(far, 40, longest=13).find_resync_point(40, 54) == ResyncPoint(45)
    assert moved(far, 20, longest=34).find_resync_point(40, 54) == ResyncPoint(54)
    assert moved(far, 20, longest=33).find_resync_point(40, 54) == ResyncPoint(45)


# -- where the memory does not begin with the file


@pytest.mark.parametrize("base", [0, 1, 19, 20])
def test_places_count_from_the_beginning_of_the_file(base: int) -> None:
    data = b"x" * 20 + frame(b"one") + b"x" * 5 + frame(b"two")
    assert moved(data, base).is_proven(20) is True
    assert moved(data, base).find_proven_frame_inside(20, 45) == 20
    assert moved(data, base).find_proven_frame_inside(21, 45) == 35
    assert moved(data, base).find_proven_frame_inside(21, 35) is None
    assert moved(data, base).find_resync_point(20) == ResyncPoint(35)
    assert moved(data, base).find_resync_point(20, 35) == ResyncPoint(35)
    assert moved(data, base).find_resync_point(base, 35) == ResyncPoint(20 if base < 20 else 35)


def test_what_frames_say_of_their_length_is_read_at_their_place() -> None:
    data = b"\xff" * 20 + sized(b"one") + sized(b"two")
    for base in (0, 10, 19):
        assert moved(data, base, SIZES).find_resync_point(19) == ResyncPoint(20)
        assert moved(data, base, SIZES).find_resync_point(20) == ResyncPoint(31)


@pytest.mark.parametrize(("align", "damage", "found"), [(8, 11, 27), (8, 4, 11), (8, 26, 27), (2, 10, 11), (2, 12, 27)])
def test_frames_in_pages_are_looked_for_behind_the_damage_only(align: int, damage: int, found: int) -> None:
    data = b"x" * 11 + frame(b"one") + b"x" * 6 + frame(b"two") + b"x" + frame(b"six")
    search = made(data, replace(level(), align=align), frames_at=3)
    assert search.find_resync_point(damage) == ResyncPoint(found)
    assert search.find_resync_point(27) is None


def test_a_frame_of_pages_at_an_odd_place_is_none() -> None:
    for align in (2, 8):
        assert made(b"x" * 12 + frame(b"one"), replace(level(), align=align), frames_at=3).find_resync_point(0) is None
