"""MariaDB's GTID index: pages, their checksums, keys that go on in the next page."""

from __future__ import annotations

import re
import struct
import zlib
from itertools import pairwise
from pathlib import Path

import pytest

import binlogtool
from binlogtool.findings import Finding
from binlogtool.format_api.format import FileHead
from binlogtool.format_api.layout import LogFileLayout
from binlogtool.formats.mysql_binlog.format import FORMAT
from binlogtool.formats.mysql_binlog.index_and_state_files import GtidIndexContext
from binlogtool.limits import Limits
from tests.formats.mysql_binlog.sets import copy

NAME = "rot-bin.000003.idx"
LEAF, CONTINUED, LAST, ROOT = 1, 2, 4, 8


def page(flags: int, content: bytes, size: int = 64, front: bytes = b"") -> bytes:
    """One page with its checksum."""
    body = (front + bytes([flags, 0, 0, 0]) + content).ljust(size - 4, b"\0")
    return body + struct.pack("<I", zlib.crc32(body))


def file_head(page_size: int = 64) -> bytes:
    """The file header in front of the first page."""
    return b"\xfe\xfe\x0c\x01\x01\x00\x00\x00" + struct.pack("<I", page_size)


def key(offset: int, *gtids: tuple[int, int, int]) -> bytes:
    """A key of a leaf."""
    return struct.pack("<II", len(gtids) + 1, offset) + b"".join(struct.pack("<IIQ", *one) for one in gtids)


def layout(data: bytes, name: str = NAME) -> LogFileLayout:
    """The layout of a file in memory."""

    def peek(offset: int, size: int) -> bytes:
        return data[offset : offset + size]

    return FORMAT.reading.layout(FileHead(data[:4096], name, len(data), peek=peek), Limits())


def brief(found: tuple[Finding, ...]) -> list[tuple[str, str, int | None, int]]:
    """Severity, id, offset and length."""
    return [(one.severity.name, one.id, one.offset, one.length) for one in found]


@pytest.fixture
def real(samples: Path) -> bytes:
    """An index of four small pages."""
    return (samples / "mysql_binlog/sets/mariadb" / NAME).read_bytes()


def test_an_index_of_a_real_server_is_whole(real: bytes) -> None:
    made = layout(real)
    assert (made.variant, made.frames_at, made.findings) == ("GTID index v1.0", 256, ())
    assert isinstance(made.context, GtidIndexContext)
    assert (made.context.page_size, made.context.pages, made.context.has_root) == (64, 4, True)


def test_its_keys_are_the_events_of_the_log(samples: Path, tmp_path: Path) -> None:
    log = copy(samples, "mariadb", tmp_path)
    for number in range(3, 9):
        name = f"rot-bin.{number:06d}"
        with binlogtool.open(log.path / name) as opened:
            offsets = {record.offset for record in opened.records()}
        rows = binlogtool.annotate(log.path / f"{name}.idx").rows
        keys = [row.value for row in rows if row.path.endswith(".offset")]
        assert keys
        assert set(keys) <= offsets


def test_a_key_that_does_not_fit_goes_on_in_the_next_page(real: bytes, tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(real)
    found = {row.path: row.value for row in binlogtool.annotate(path).rows}
    assert found["content.key[1].count"] == 2
    assert "content.key[1].gtid[0].seq_no" not in found
    assert found["page[0].content.gtid[0].seq_no"] == 17
    assert found["page[2].content.child"] == 1
    assert found["page[2].content.key[0].child"] == 3


def test_the_hexdump_tiles_every_byte(samples: Path) -> None:
    for path in sorted((samples / "mysql_binlog/sets/mariadb").glob("*.idx")):
        reached = 0
        for row in binlogtool.annotate(path).rows:
            if row.leaf:
                assert row.start == reached, row
                assert "unmapped" not in row.path
                assert row.ok
                reached = row.end
        assert reached == path.stat().st_size


def test_checksums_of_pages_are_shown_as_right(samples: Path) -> None:
    rows = binlogtool.annotate(samples / "mysql_binlog/sets/mariadb" / NAME).rows
    words = [row.meaning for row in rows if row.path.endswith("crc32")]
    assert [re.sub(r" \(crc32.*", "", word) for word in words] == ["ok"] * 4


@pytest.mark.parametrize("bit", range(0, 2048, 37))
def test_a_flipped_bit_is_at_most_a_warning(real: bytes, bit: int) -> None:
    data = bytearray(real)
    data[bit // 8] ^= 1 << bit % 8
    made = layout(bytes(data))
    assert made.findings
    assert {one.severity.name for one in made.findings} <= {"WARNING", "NOTE"}
    if bit >= 12 * 8:
        start = bit // 8 // 64 * 64
        assert ("WARNING", "checksum-mismatch", start, 64) in brief(made.findings)


@pytest.mark.parametrize("size", [1, 3, 4, 11, 12, 40, 63, 64, 65, 127, 128, 200, 255])
def test_a_cut_file_is_at_most_a_warning_and_every_byte_is_shown(real: bytes, tmp_path: Path, size: int) -> None:
    made = layout(real[:size])
    assert made.findings
    assert {one.severity.name for one in made.findings} <= {"WARNING", "NOTE"}
    path = tmp_path / NAME
    path.write_bytes(real[:size])
    ends = [(row.start, row.end) for row in binlogtool.annotate(path).rows if row.leaf]
    assert ends[0][0] == 0
    assert ends[-1][1] == size
    assert all(one[1] == other[0] for one, other in pairwise(ends))


def test_an_empty_file_is_a_note() -> None:
    made = layout(b"")
    assert brief(made.findings) == [("NOTE", "unclean-close", 0, 0)]


def test_an_index_without_a_root_is_a_note() -> None:
    data = page(LEAF | LAST, key(299, (1, 2, 3)), front=file_head())
    assert brief(layout(data).findings) == [("NOTE", "unclean-close", 64, 0)]


def test_pages_that_were_only_made_room_for_are_a_note() -> None:
    data = page(LEAF | LAST, key(299, (1, 2, 3)), front=file_head()) + bytes(640)
    assert ("NOTE", "preallocated-tail", 64, 640) in brief(layout(data).findings)


@pytest.mark.parametrize("size", [0, 1, 63, (1 << 24) + 1, 0xFFFFFFFF])
def test_an_impossible_page_size_is_a_warning(size: int) -> None:
    data = page(LEAF | LAST | ROOT, key(299), front=file_head(size))
    assert brief(layout(data).findings) == [("WARNING", "bad-header", 8, 4)]


def test_another_version_is_a_warning() -> None:
    data = page(LEAF | LAST | ROOT, key(299), front=b"\xfe\xfe\x0c\x01\x02\x00\x00\x00" + struct.pack("<I", 64))
    assert brief(layout(data).findings) == [("WARNING", "unsupported-version", 4, 2)]


def test_a_name_without_the_magic_is_a_warning() -> None:
    assert brief(layout(b"no index at all").findings) == [("WARNING", "bad-magic", 0, 4)]


def test_a_key_that_claims_more_gtids_than_there_are_pages_ends_with_the_file(tmp_path: Path) -> None:
    count = struct.pack("<II", 0xFFFFFFFF, 4)
    data = page(LEAF, count, front=file_head()) + page(LEAF | CONTINUED | LAST | ROOT, bytes(56)) * 50
    path = tmp_path / NAME
    path.write_bytes(data)
    assert layout(data).findings == ()
    rows = [row for row in binlogtool.annotate(path).rows if row.leaf]
    assert (rows[0].start, rows[-1].end) == (0, len(data))


def test_a_key_with_many_gtids_goes_on_over_several_pages(tmp_path: Path) -> None:
    gtids = [(domain, 1, 100 + domain) for domain in range(7)]
    parts = [struct.pack("<IIQ", *one) for one in gtids]
    data = page(LEAF, struct.pack("<II", 8, 299) + b"".join(parts[:2]), front=file_head())
    data += page(LEAF | CONTINUED, b"".join(parts[2:5]))
    data += page(LEAF | CONTINUED | LAST | ROOT, b"".join(parts[5:]))
    path = tmp_path / NAME
    path.write_bytes(data)
    found = [row.value for row in binlogtool.annotate(path).rows if row.path.endswith("seq_no")]
    assert found == [100, 101, 102, 103, 104, 105, 106]


def test_every_gtid_index_of_the_corpus_is_whole(corpus: Path) -> None:
    paths = sorted((corpus / "mysql-binlog/generated").rglob("*.idx"))
    assert len(paths) > 40
    for path in paths:
        (report,) = binlogtool.verify([path]).files
        assert [one.severity.name for one in report.findings] in ([], ["NOTE"]), path
        assert bool(report.findings) == (report.size == 0), path
