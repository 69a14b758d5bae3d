"""Where a chain goes on behind damage, in a format made for this: `FR`, a length, a checksum, the content."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from binlogtool.core import resync
from binlogtool.core.open_file import BytesSource
from binlogtool.core.resync import ResyncPoint
from tests.core.made_frames import MARK, PLAIN, SIZED, frame, level, made, plain, proved, searching, sized, window_of


@pytest.fixture(autouse=True, params=[80, 1 << 20])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How much a search reads at a time: less than the files here, and more."""
    monkeypatch.setattr(resync, "_READ_BYTES", request.param)
    return int(request.param)


@pytest.mark.parametrize("gap", [1, 2, 7, 63, 64, 65, 200, 5000])
def test_the_first_whole_frame_is_found_behind_any_number_of_bytes(gap: int) -> None:
    data = b"x" * gap + frame(b"one") + frame(b"two")
    for chunk in (64, 128, 4096):
        assert made(data, chunk=chunk).find_resync_point(0) == ResyncPoint(gap)


def test_the_damage_itself_is_not_taken_for_a_frame() -> None:
    data = frame(b"one") + frame(b"two")
    assert made(data).find_resync_point(0) == ResyncPoint(10)
    assert made(data).find_resync_point(9) == ResyncPoint(10)
    assert made(data).find_resync_point(10) is None


def test_what_looks_like_a_frame_is_passed_over_if_its_checksum_is_wrong() -> None:
    wrong = bytearray(frame(b"one"))
    wrong[-1] ^= 1
    assert made(b"x" + wrong + frame(b"two")).find_resync_point(0) == ResyncPoint(11)
    assert made(b"x" + wrong).find_resync_point(0) is None


def test_frames_that_overlap_a_false_start_are_found() -> None:
    assert made(b"xFR" + frame(b"one")).find_resync_point(0) == ResyncPoint(3)
    assert made(b"xF" + frame(b"one")).find_resync_point(0) == ResyncPoint(2)


def test_a_frame_is_looked_for_at_the_place_where_the_damaged_one_says_that_it_ends() -> None:
    data = b"x" * 50 + frame(b"one")
    assert made(data).find_resync_point(0, 50) == ResyncPoint(50)
    assert made(b"x" * 20 + frame(b"in") + b"x" * 21 + frame(b"one")).find_resync_point(0, 50) == ResyncPoint(20)


def test_a_frame_that_reaches_over_that_place_is_not_inside() -> None:
    outer = frame(b"xx" + frame(b"one"))
    inner_at = 5 + 7 + 2
    data = b"x" * 5 + outer
    assert made(data).find_resync_point(0, inner_at) == ResyncPoint(inner_at)
    assert made(data).find_resync_point(0, 3) == ResyncPoint(5)


def test_a_frame_that_ends_exactly_at_that_place_is_inside() -> None:
    data = b"x" * 10 + frame(b"one") + frame(b"two")
    assert made(data).find_resync_point(0, 20) == ResyncPoint(10)


def test_a_place_where_nothing_stands_is_no_reason_to_stop() -> None:
    data = b"x" * 30 + frame(b"one")
    assert made(data).find_resync_point(0, 12) == ResyncPoint(30)
    assert made(data).find_resync_point(0, 0) == ResyncPoint(30)
    assert made(data).find_resync_point(0, 10_000) == ResyncPoint(30)


@pytest.mark.parametrize("chunk", [64, 4096])
def test_a_closing_mark_is_the_last_resort_and_only_at_the_end(chunk: int) -> None:
    marked = level(end_mark=MARK)
    assert made(b"x" * 100 + MARK, marked, chunk).find_resync_point(0) == ResyncPoint(100, closing=True)
    assert made(b"x" * 100 + MARK + b"x", marked, chunk).find_resync_point(0) is None
    assert made(b"x" * 100 + MARK + frame(b"one") + MARK, marked, chunk).find_resync_point(0) == ResyncPoint(104)
    assert made(b"x" * 100 + MARK, level(), chunk).find_resync_point(0) is None


def test_a_closing_mark_stands_where_the_damaged_frame_says_that_it_ends() -> None:
    marked = level(end_mark=MARK)
    assert made(b"x" * 40 + MARK, marked).find_resync_point(0, 40) == ResyncPoint(40, closing=True)
    assert made(b"x" * 40 + MARK + b"x" * 9 + frame(b"one"), marked).find_resync_point(0, 40) == ResyncPoint(53)
    assert made(b"x" * 8 + frame(b"one") + b"x" * 8 + MARK, marked).find_resync_point(0, 26) == ResyncPoint(8)


def test_a_closing_mark_that_is_itself_damaged_is_none() -> None:
    assert made(b"x" + MARK, level(end_mark=MARK)).find_resync_point(1) is None
    assert made(b"x" + MARK, level(end_mark=MARK)).find_resync_point(0) == ResyncPoint(1, closing=True)


BORDERS = (b"", bytes(3), bytes(100), plain(b"!"), MARK, bytes(64) + b"x")
NO_BORDERS = (b"x", bytes(10) + b"x", b"F", b"xFR")


@pytest.mark.parametrize(
    ("behind", "is_border"), [*((one, True) for one in BORDERS), *((one, False) for one in NO_BORDERS)]
)
def test_without_a_checksum_a_frame_ends_where_another_one_can_start_or_the_file_ends(
    behind: bytes, is_border: bool
) -> None:
    data = b"x" * 5 + plain(b"one!") + behind
    found = made(data, proved()).find_resync_point(0)
    assert (found == ResyncPoint(5)) is is_border


def test_without_a_checksum_the_format_has_to_prove_the_frame() -> None:
    assert made(b"x" * 5 + plain(b"one!"), level(PLAIN)).find_resync_point(0) is None
    assert made(b"x" * 5 + plain(b"one?"), proved()).find_resync_point(0) is None
    nowhere = replace(proved(), sync=None)
    assert made(b"x" * 5 + plain(b"one!") + b"x", nowhere).is_proven(5)
    assert made(b"x" * 5 + plain(b"one!") + b"x", nowhere).find_resync_point(0) is None


@pytest.mark.parametrize("chunk", [16, 40, 64, 300])
def test_a_frame_that_is_longer_than_what_is_in_memory_is_read_whole(chunk: int) -> None:
    data = b"x" * 10 + frame(b"y" * 255) + b"x"
    assert made(data, chunk=chunk).find_resync_point(0) == ResyncPoint(10)
    assert made(data[:-2], chunk=chunk).find_resync_point(0) is None


def test_a_frame_that_is_longer_than_allowed_is_not_read(piece: int) -> None:
    data = b"x" * 10 + frame(b"y" * 200) + b"x" * 200 + frame(b"z")
    in_memory = piece > len(data)
    assert made(data, chunk=64, longest=206).find_resync_point(0) == ResyncPoint(10 if in_memory else 417)
    assert made(data, chunk=64, longest=207).find_resync_point(0) == ResyncPoint(10)


def test_places_that_are_not_in_memory_are_not_proven() -> None:
    search = made(b"x" * 100 + frame(b"one"))
    assert search.is_proven(100) is True
    assert all(search.is_proven(offset) is False for offset in (-1, 0, 99, 101, 110, 111, 5000))


@pytest.mark.parametrize(("at", "found"), [(3, 3), (11, 11), (12, None), (10, None), (19, 19)])
def test_frames_in_pages_start_at_pages_behind_the_header(at: int, found: int | None) -> None:
    search = made(b"x" * at + frame(b"one"), replace(level(), align=8), frames_at=3)
    assert search.find_resync_point(0) == (None if found is None else ResyncPoint(found))


def test_inside_a_range_the_first_frame_counts_and_none_behind_its_end() -> None:
    search = made(b"x" * 5 + frame(b"one") + b"x" * 5 + frame(b"two"))
    assert search.find_proven_frame_inside(0, 30) == 5
    assert search.find_proven_frame_inside(5, 6) == 5
    assert search.find_proven_frame_inside(6, 30) == 20
    assert search.find_proven_frame_inside(6, 20) is None
    assert search.find_proven_frame_inside(0, 5) is None


def test_inside_a_range_nothing_is_read_that_is_not_in_memory() -> None:
    search = made(b"x" * 5 + frame(b"y" * 100), chunk=32)
    assert search.find_proven_frame_inside(0, 32) is None
    assert search.find_resync_point(0) == ResyncPoint(5)


@pytest.mark.parametrize(("tail", "end"), [(0, 100), (1, 100), (5000, 100)])
def test_the_last_byte_that_is_not_zero_is_told(tail: int, end: int) -> None:
    for chunk in (64, 4096):
        search = made(b"x" * 100 + bytes(tail), chunk=chunk)
        assert search.find_resync_point(20) is None
        assert search.data_end == end


def test_of_nothing_but_zeros_the_place_of_the_damage_is_told() -> None:
    search = made(b"x" * 20 + bytes(5000), chunk=64)
    assert search.find_resync_point(20) is None
    assert search.data_end == 20


def test_a_search_that_takes_too_much_work_ends_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"FR\x02" * 1000 + frame(b"one")
    assert made(data).find_resync_point(0) == ResyncPoint(3000)
    monkeypatch.setattr(resync, "_MIN_WORK", 0)
    monkeypatch.setattr(resync, "_WORK_PER_BYTE", 0)
    search = made(data)
    assert search.find_resync_point(0) is None and search.exhausted


def test_a_long_search_inside_a_frame_does_not_use_up_the_work_of_the_next_one() -> None:
    data = b"x" * 10 + frame(b"one") + b"x" * 10 + frame(b"two")
    search = made(data)
    for _ in range(3):
        assert search.find_resync_point(0, 30) == ResyncPoint(10)
        assert not search.exhausted


def test_a_frame_at_the_very_beginning_of_what_is_in_memory_is_proven() -> None:
    assert made(frame(b"one")).is_proven(0)


def test_a_closing_mark_that_ends_where_the_memory_ends_is_one_only_if_the_file_ends_there_too() -> None:
    marked = level(end_mark=MARK)
    assert made(b"x" * 100 + MARK, marked, chunk=104).find_resync_point(0, 100) == ResyncPoint(100, closing=True)
    assert made(b"x" * 100 + MARK + b"x", marked, chunk=104).find_resync_point(0, 100) is None


def test_a_byte_that_is_not_zero_is_told_also_where_it_is_the_damage_itself() -> None:
    search = made(b"x" * 21 + bytes(500))
    assert search.find_resync_point(20) is None
    assert search.data_end == 21


def test_without_a_checksum_what_stands_behind_a_frame_is_looked_at_though_it_is_not_in_memory_yet() -> None:
    whole = b"x" * 7 + plain(b"y" * 70 + b"!")
    assert made(whole + b"x", proved(), chunk=64).find_resync_point(0) is None
    assert made(whole + plain(b"!"), proved(), chunk=64).find_resync_point(0) == ResyncPoint(7)


class Holey(BytesSource):
    """Bytes with a hole of zeros that need not be read. counted: the bytes that were."""

    counted = 0

    def read_at(self, offset: int, view: memoryview) -> int:
        read = super().read_at(offset, view)
        self.counted += read
        return read

    def find_hole_end(self, offset: int) -> int:
        return offset if offset < 500 else max(offset, 200_000)


def test_a_hole_in_the_file_is_not_read(piece: int) -> None:
    source = Holey("made", b"x" * 500 + bytes(199_500) + frame(b"one"))
    search = searching(window_of(source, 64))
    assert search.find_resync_point(0) == ResyncPoint(200_000)
    assert (source.counted < 5_000) == (piece == 80)  # the larger one holds the hole and what is around it


def test_the_work_of_a_search_counts_places_and_the_bytes_of_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    """A place costs 64 twice if a checksum is computed for it, and one for every byte up to the end of the frame."""
    monkeypatch.setattr(resync, "_WORK_PER_BYTE", 0)
    for size in (1, 100):
        bad = b"FR" + bytes([size]) + bytes(4) + b"x" * size
        cost = 128 + len(bad)
        for count in (1, 5):
            data = b"x" + bad * count + frame(b"one")
            monkeypatch.setattr(resync, "_MIN_WORK", count * cost + 128 + 10)
            assert made(data, chunk=4096).find_resync_point(0) == ResyncPoint(1 + count * len(bad))
            monkeypatch.setattr(resync, "_MIN_WORK", count * cost - 1)
            search = made(data, chunk=4096)
            assert search.find_resync_point(0) is None and search.exhausted


@pytest.mark.parametrize("chunk", [64, 4096])
def test_where_frames_say_how_long_they_are_those_that_have_no_room_are_passed_over(chunk: int) -> None:
    frames = replace(level(SIZED, length_field="whole"), columns=("whole",), sync=rb"(?s)(?=..FR)", min_size=8)
    too_long = b"\xff\x00FR" + b"zzzz"
    assert made(b"x" * 9 + sized(b"one") + sized(b"two"), frames, chunk).find_resync_point(0) == ResyncPoint(9)
    assert made(b"x" * 9 + too_long + sized(b"one"), frames, chunk).find_resync_point(0) == ResyncPoint(17)
    assert made(b"x" * 9 + sized(b"one")[:-1], frames, chunk).find_resync_point(0) is None
    data = b"x" * 5 + sized(b"in") + b"x" * 5 + sized(b"one")
    assert made(data, frames, chunk).find_resync_point(0, 20) == ResyncPoint(5)
    assert made(data, frames, chunk).find_resync_point(5, 20) == ResyncPoint(20)
    outer = b"x" * 5 + sized(b"y" * 20 + sized(b"one") + b"y")
    assert made(outer, frames, chunk).find_resync_point(0, 33) == ResyncPoint(33)


@pytest.mark.parametrize(("work", "found"), [(2000, 541), (500, 551)])
def test_the_work_inside_a_damaged_frame_is_bounded_and_not_counted_against_what_follows(
    monkeypatch: pytest.MonkeyPatch, work: int, found: int
) -> None:
    """Five places of 107 bytes each with a wrong checksum cost 855; without them the first frame is at 541."""
    bad = b"FR" + bytes([100]) + bytes(4) + b"x" * 100
    data = b"x" * 6 + bad * 5 + frame(b"one") + frame(b"two")
    monkeypatch.setattr(resync, "_WORK_PER_BYTE", 0)
    monkeypatch.setattr(resync, "_MIN_WORK", work)
    search = made(data, chunk=4096, longest=2000)
    for _ in range(3):
        assert search.find_resync_point(0, 551) == ResyncPoint(found)
        assert not search.exhausted
