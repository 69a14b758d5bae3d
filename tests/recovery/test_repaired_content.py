"""Test the content of repaired files: chunks, holes, pieces, edits, salvaged frames; and small helpers of repairs."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from binlogtool.core.open_file import find_format, open_file, open_source
from binlogtool.format_api.format import ByteEdit, Hints, ResultPiece
from binlogtool.limits import Limits
from binlogtool.repair import diagnose_startup
from binlogtool.repair.repaired_content import PiecesSource, apply_edits, build_salvaged_content, is_same_path
from binlogtool.repair.system_calls import (
    DeferredSignals,
    SystemCalls,
    iter_piece_bytes,
    read_chunks,
    try_remove_file,
    zero_chunks,
)
from tests.cli.samples import damaged_log, plain_log

MIB = 1 << 20
CONTENT = b"ab" + bytes(5) + b"cd"


class SparseFile(SystemCalls):
    """A file of nine bytes with a hole in [2, 7), which must not be read."""

    def __init__(self) -> None:
        self.reads: list[tuple[int, int]] = []

    def find_next_data(self, fd: int, offset: int) -> int:
        return 7 if 2 <= offset < 7 else offset

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        self.reads.append((offset, size))
        end = 2 if offset < 2 else 9
        return CONTENT[offset : min(end, offset + size)]


def test_a_hole_is_given_as_zeros_without_being_read() -> None:
    file = SparseFile()
    assert list(itertools.islice(read_chunks(file, 3, 0, 9), 9)) == [b"ab", bytes(5), b"cd"]
    assert file.reads == [(0, 9), (7, 2)]


def test_a_range_that_ends_inside_a_hole_ends_there() -> None:
    file = SparseFile()
    assert list(itertools.islice(read_chunks(file, 3, 1, 4), 9)) == [b"b", bytes(2)]
    assert list(itertools.islice(read_chunks(file, 3, 4, 8), 9)) == [bytes(3), b"c"]
    assert list(read_chunks(file, 3, 5, 5)) == []


def test_pieces_are_original_bytes_new_bytes_and_zeros_in_order() -> None:
    pieces = (ResultPiece(7, 9), ResultPiece(data=b"new"), ResultPiece(zeros=3), ResultPiece(0, 2))
    assert b"".join(iter_piece_bytes(SparseFile(), 3, pieces)) == b"cd" + b"new" + bytes(3) + b"ab"


def test_zeros_come_in_chunks_of_a_mebibyte() -> None:
    assert [list(map(len, zero_chunks(size))) for size in (0, 1, MIB, MIB + 1)] == [[], [1], [MIB], [MIB, 1]]


def test_a_user_without_a_name_is_given_by_number() -> None:
    def look_up(number: int) -> tuple[str, int]:
        return {0: ("root", 0)}[number]

    assert diagnose_startup._find_name(look_up, 0) == "root"
    assert diagnose_startup._find_name(look_up, 4711) == "4711"


def test_signals_inside_the_block_take_effect_once_each_after_it() -> None:
    seen: list[str] = []
    before = signal.signal(signal.SIGHUP, lambda number, frame: seen.append("hangup"))
    try:
        with DeferredSignals():
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGHUP)
            seen.append("end of the block")
        assert seen == ["end of the block", "hangup"]
        signal.raise_signal(signal.SIGHUP)
        assert seen == ["end of the block", "hangup", "hangup"]
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_planned_file_is_read_at_any_offset_across_its_pieces(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")
    pieces = (ResultPiece(0, 4), ResultPiece(zeros=3), ResultPiece(data=b"new"), ResultPiece(8, 10))
    source = PiecesSource(str(path), pieces)
    content = b"0123\0\0\0new89"
    assert source.size == 12
    for offset in range(13):
        for size in range(14):
            view = memoryview(bytearray(b"?" * size))
            count = source.read_at(offset, view)
            assert bytes(view[:count]) == content[offset : offset + size], (offset, size)


def test_two_names_of_one_file_are_the_same_path(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    (tmp_path / "link").symlink_to("log")
    assert is_same_path(str(tmp_path / "link"), f"{tmp_path}/x/../log") is True
    assert is_same_path(str(tmp_path / "link"), str(tmp_path / "other")) is False


def test_edits_of_the_first_piece_are_new_bytes_and_those_past_its_end_are_left_out() -> None:
    tail = ResultPiece(20, 30)
    edits = [ByteEdit(2, b"a", b"A"), ByteEdit(8, b"ij", b"IJ")]
    expected = (ResultPiece(0, 2), ResultPiece(data=b"A"), ResultPiece(3, 8), ResultPiece(data=b"IJ"), tail)
    assert apply_edits((ResultPiece(0, 10), tail), edits) == expected
    inside = (ResultPiece(0, 2), ResultPiece(data=b"A"), ResultPiece(3, 9), tail)
    assert apply_edits((ResultPiece(0, 9), tail), edits) == inside
    assert apply_edits((ResultPiece(0, 0),), edits) == (ResultPiece(0, 0),)


def test_an_edit_at_the_first_byte_or_after_another_leaves_no_empty_piece() -> None:
    edits = [ByteEdit(0, b"a", b"A"), ByteEdit(1, b"b", b"B")]
    expected = (ResultPiece(data=b"A"), ResultPiece(data=b"B"), ResultPiece(2, 10))
    assert apply_edits((ResultPiece(0, 10),), edits) == expected
    assert apply_edits((ResultPiece(0, 2),), edits) == expected[:2]


@pytest.mark.parametrize(("data", "holes"), [(damaged_log(5), 1), (plain_log()[:-10], 0), (plain_log(), 0)])
def test_a_hole_of_salvaged_content_is_damage_with_frames_after_it(tmp_path: Path, data: bytes, holes: int) -> None:
    path = str(tmp_path / "drizzle.log")
    Path(path).write_bytes(data)
    opened = open_file(path, "drizzle.log", find_format("drizzle"), Limits(), open_source(path), hints=Hints())
    try:
        content = build_salvaged_content(opened, Limits(), "python")
    finally:
        opened.source.close()
    assert (content.holes, len(content.left_out)) == (holes, int(data != plain_log()))


def test_a_removed_file_is_gone_durably_and_one_that_stays_is_reported() -> None:
    class Recorded(SystemCalls):
        def __init__(self, error: OSError | None) -> None:
            self.error, self.calls = error, list[str]()

        def unlink(self, path: str) -> None:
            self.calls.append(f"unlink {path}")
            if self.error is not None:
                raise self.error

        def fsync_directory(self, path: str) -> None:
            self.calls.append(f"fsync {path}")

    removed, missing, denied = Recorded(None), Recorded(FileNotFoundError()), Recorded(PermissionError())
    assert [try_remove_file(system, "/a/b") for system in (removed, missing, denied)] == [True, True, False]
    assert removed.calls == ["unlink /a/b", "fsync /a"]


def test_records_that_servers_reject_are_added_up() -> None:
    replays = tuple(SimpleNamespace(decisions={"rejected": count}) for count in (2, 0, 3))
    assert diagnose_startup.Diagnosis.rejected_records.fget(SimpleNamespace(replays=replays)) == 5  # type: ignore[attr-defined]
