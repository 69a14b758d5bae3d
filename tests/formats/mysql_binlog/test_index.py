"""The text files beside a log: index, GTID state, relay-log.info."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest

import binlogtool
from binlogtool import formats
from binlogtool.core.open_file import detect_format
from binlogtool.core.resolve_paths import find_logs_in_directory
from binlogtool.errors import UnknownFormatError
from binlogtool.findings import Finding
from binlogtool.format_api.format import FileHead
from binlogtool.format_api.layout import LogFileLayout
from binlogtool.formats.mysql_binlog.format import FORMAT
from binlogtool.formats.mysql_binlog.index_and_state_files import TextFileContext, get_folder, parse_log_name
from binlogtool.limits import Limits
from tests.formats.mysql_binlog.sets import said

INDEX = "rot-bin.index"
FIRST = "/logs/rot-bin.000001\n/logs/rot-bin.000002\n"


def head(data: bytes | str, name: str = INDEX) -> FileHead:
    """A file in memory."""
    raw = data.encode() if isinstance(data, str) else data

    def peek(offset: int, size: int) -> bytes:
        return raw[offset : offset + size]

    return FileHead(raw[:4096], name, len(raw), peek=peek)


def layout(data: bytes | str, name: str = INDEX) -> LogFileLayout:
    """Its layout."""
    return FORMAT.reading.layout(head(data, name), Limits())


def findings(data: bytes | str, name: str = INDEX) -> list[Finding]:
    """What is wrong with its lines."""
    return list(layout(data, name).findings)


def brief(found: list[Finding]) -> list[tuple[str, str, int | None, int]]:
    """Severity, id, offset and length."""
    return [(one.severity.name, one.id, one.offset, one.length) for one in found]


def numbers(data: bytes | str) -> dict[str, list[int]]:
    """The numbers that an index lists, by base."""
    context = layout(data).context
    assert isinstance(context, TextFileContext)
    return {base: list(listing.sorted_numbers()) for base, listing in context.listings.items()}


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "base", "number"),
    [
        ("/var/lib/mysql/binlog.000001", "binlog", 1),
        ("./a.b.1234567", "a.b", 1234567),
        ("C:\\data\\mysql-bin.000042", "mysql-bin", 42),
        (".\\x.000001", "x", 1),
    ],
)
def test_the_name_of_a_log_file_is_found_in_its_path(path: str, base: str, number: int) -> None:
    known = parse_log_name(path.encode())
    assert known is not None
    assert (known.base, known.number) == (base, number)


@pytest.mark.parametrize(
    "path", ["", "/", "binlog", "binlog.00001", "binlog.00000x", ".000001", "a.000001/", "a.000001.idx"]
)
def test_other_paths_name_no_log_file(path: str) -> None:
    assert parse_log_name(path) is None


def test_the_folder_of_a_path_has_no_separator_at_its_end() -> None:
    paths = [b"a.000001", b"./a.000001", b"/a.000001", b"/x/y/a.000001", b"..\\z\\a.000001", b"/x//a.000001"]
    assert [get_folder(path) for path in paths] == [b"", b".", b"/", b"/x/y", b"..\\z", b"/x"]


# -- lines -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["", "./", "/var/lib/mysql/", "../logs/", "C:\\data\\", "/with blank/"])
def test_paths_that_all_have_the_same_folder_are_normal(folder: str) -> None:
    text = "".join(f"{folder}rot-bin.{n:06d}\n" for n in (3, 4, 5))
    assert findings(text) == []
    assert numbers(text) == {"rot-bin": [3, 4, 5]}


def test_relative_paths_beside_those_of_one_folder_are_normal() -> None:
    assert findings("./rot-bin.000001\n/logs/rot-bin.000002\nrot-bin.000003\n") == []


@pytest.mark.parametrize("foreign", ["/etc/", "../../", "./../other/", "/logs/sub/", "\\\\host\\share\\"])
def test_a_path_in_another_folder_is_told_and_compared_by_its_name(foreign: str) -> None:
    text = FIRST + f"{foreign}rot-bin.000003\n"
    (found,) = findings(text)
    assert brief([found]) == [("ERROR", "path-outside-set", len(FIRST), len(foreign) + 15)]
    assert "not opened" in found.message
    assert numbers(text) == {"rot-bin": [1, 2, 3]}


def test_a_file_in_a_foreign_folder_is_never_opened(tmp_path: Path, samples: Path) -> None:
    inside, outside = tmp_path / "set", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    log = (samples / "mysql_binlog/sets/mysql/rot-bin.000007").read_bytes()
    (inside / "rot-bin.000007").write_bytes(log)
    (outside / "rot-bin.000008").write_bytes(b"not a log")
    (inside / INDEX).write_text(f"{inside}/rot-bin.000006\n{inside}/rot-bin.000007\n{outside}/rot-bin.000008\n")
    found = said(binlogtool.verify([inside]))
    assert sorted((one.file, one.id) for one in found) == [
        ("", "missing-member"), ("", "missing-member"), (INDEX, "path-outside-set"),
    ]  # fmt: skip


def test_an_empty_line_hides_what_stands_behind_it() -> None:
    text = FIRST + "\n/logs/rot-bin.000003\n/logs/rot-bin.000004\n"
    (found,) = findings(text)
    assert brief([found]) == [("ERROR", "bad-header", len(FIRST), 1)]
    assert "the 2 lines after it" in found.message
    assert numbers(text) == {"rot-bin": [1, 2, 3, 4]}


def test_empty_lines_at_the_end_hide_nothing() -> None:
    assert findings(FIRST + "\n\n") == []


def test_lines_that_end_in_cr_lf_are_told_once() -> None:
    text = FIRST.replace("\n", "\r\n")
    (found,) = findings(text)
    assert brief([found]) == [("WARNING", "bad-header", 0, 22)]
    assert found.message.startswith("2 lines end in CR LF")
    assert numbers(text) == {"rot-bin": [1, 2]}


def test_a_line_that_breaks_off_is_a_torn_end() -> None:
    text = FIRST + "/logs/rot-bin.00"
    assert brief(findings(text)) == [("NOTE", "torn-tail", len(FIRST), 16)]


def test_a_last_line_without_its_line_feed_is_told() -> None:
    """Both servers drop it, and append the next name to it: they come up once more, and never again."""
    text = FIRST + "/logs/rot-bin.000003"
    assert brief(findings(text)) == [("WARNING", "bad-header", len(FIRST), 20)]
    assert numbers(text) == {"rot-bin": [1, 2, 3]}


def test_a_file_that_is_listed_twice_is_told() -> None:
    text = FIRST + "/logs/rot-bin.000002\n"
    assert brief(findings(text)) == [("ERROR", "duplicate-sequence", len(FIRST), 21)]
    assert numbers(text) == {"rot-bin": [1, 2]}


@pytest.mark.parametrize("joint", ["./rot-bin", "rot-bin", "/logs/rot-bin"])
def test_names_that_a_server_joined_on_one_line_are_told_and_both_are_listed(joint: str) -> None:
    text = FIRST + f"/logs/rot-bin.000003{joint}.000004\n"
    assert brief(findings(text)) == [("ERROR", "bad-header", len(FIRST), len(text) - len(FIRST))]
    assert numbers(text) == {"rot-bin": [1, 2, 3, 4]}


def test_a_folder_that_is_named_like_a_log_joins_nothing() -> None:
    assert findings("/data.000001/rot-bin.000001\n") == []


def test_a_number_that_is_listed_in_two_widths_is_listed_twice() -> None:
    assert [one.id for one in findings(FIRST + "/logs/rot-bin.0000002\n")] == ["duplicate-sequence"]


def test_files_out_of_order_are_told_and_still_known() -> None:
    text = "a.000005\na.000003\na.000004\na.000003\n"
    assert brief(findings(text)) == [
        ("ERROR", "duplicate-sequence", 27, 9), ("ERROR", "sequence-regression", 9, 9),
    ]  # fmt: skip
    assert numbers(text) == {"a": [3, 4, 5]}


def test_two_base_names_in_one_index_are_two_logs() -> None:
    text = "./old.000007\n./old.000008\n./new.000001\n"
    assert findings(text) == []
    assert numbers(text) == {"old": [7, 8], "new": [1]}


def test_lines_that_are_no_paths_are_told_one_by_one_and_then_counted() -> None:
    found = findings(FIRST + "nonsense\n" * 50)
    assert {one.id for one in found} == {"bad-header"}
    assert len(found) == 21
    assert found[-1].message == "30 more lines like this"


@pytest.mark.parametrize(
    "hostile", [b"\x1b[31mrot-bin.000003", b"rot\x00bin.000003", b"a" * 5000 + b".000003", b"\xff\xfe"]
)
def test_hostile_lines_are_told_in_printable_text(hostile: bytes) -> None:
    found = findings(FIRST.encode() + hostile + b"\n/logs/rot-bin.000004\n")
    assert {one.id for one in found} == {"bad-header"}
    assert all(len(one.message) < 900 for one in found)
    assert numbers(FIRST.encode() + hostile + b"\n/logs/rot-bin.000004\n") == {"rot-bin": [1, 2, 4]}


def test_a_name_that_is_no_utf8_is_a_name() -> None:
    data = b"/logs/caf\xe9.000001\n/logs/caf\xe9.000002\n"
    assert findings(data) == []
    (base,) = numbers(data)
    assert base.encode("utf-8", "surrogateescape") == b"caf\xe9"


@pytest.mark.parametrize("seed", range(30))
def test_binary_garbage_is_findings_and_never_an_exception(seed: int) -> None:
    rng = random.Random(seed)
    data = rng.randbytes(rng.randrange(1, 20_000))
    if seed % 3 == 0:
        data = bytes(rng.choice(b"/.\n\r\x00a01") for _ in range(5000))
    for name in (INDEX, "rot-bin.state", "relay-log.info", "rot-bin.000001.idx", "rot-bin.index_crash_safe"):
        made = layout(data, name)
        assert made.frames_at == len(data)
        assert len(made.findings) < 200


def many_lines(count: int) -> FileHead:
    """An index of so many lines, made where it is read."""
    line = b"/var/lib/mysql/mysql-bin.%06d\n"
    size = len(line % 1)

    def peek(offset: int, length: int) -> bytes:
        first, last = offset // size, (offset + length) // size + 1
        text = b"".join(line % n for n in range(first, min(last, count - 1) + 1))
        return text[offset - first * size :][:length]

    return FileHead(peek(0, 4096), "mysql-bin.index", count * size, peek=peek)


@pytest.mark.full
def test_an_index_may_have_a_million_lines() -> None:
    made = FORMAT.reading.layout(many_lines(1_000_000), Limits())
    listing = made.context.listings["mysql-bin"]
    assert made.findings == ()
    assert (len(listing.numbers), listing.numbers[0], listing.numbers[-1]) == (1_000_000, 0, 999_999)


@pytest.mark.full
def test_a_long_index_takes_little_memory() -> None:
    start = many_lines(100_000)
    tracemalloc.start()
    FORMAT.reading.layout(start, Limits())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 << 20  # mostly the piece of 1 MiB that is read at a time, as lines


@pytest.mark.full
@pytest.mark.parametrize("text", [b"\n", b"./a.000001\n" + b"#" * 4000, b"a" * 1000])
def test_a_file_that_is_too_long_is_read_in_part(text: bytes) -> None:
    read: list[int] = []

    def peek(offset: int, length: int) -> bytes:
        read.append(length)
        return (text * (length // len(text) + 1))[:length]

    made = FORMAT.reading.layout(FileHead(peek(0, 4096), "a.index", 1 << 40, peek=peek), Limits())
    assert "count-out-of-bounds" in {one.id for one in made.findings}
    assert sum(read) <= 65 << 20
    assert not made.context.sound


# -- state and relay-log.info ------------------------------------------------------------------------------------------


def test_a_state_holds_the_last_number_of_each_domain_and_server() -> None:
    made = layout("0-1-5\n0-2-6\n7-1-18446744073709551615\n", "rot-bin.state")
    assert made.findings == ()
    assert made.context.last_numbers == {"0-1": 5, "0-2": 6, "7-1": 18446744073709551615}


def test_lines_of_a_state_that_are_no_gtids_are_told() -> None:
    assert brief(findings("0-1-5\n0-1\n", "rot-bin.state")) == [("ERROR", "bad-header", 6, 4)]


@pytest.mark.parametrize(
    "text", ["5\n./relay.000012\n2085\nsrc.000005\n1837\n", "./relay.000012\n2085\nsrc.000005\n1837\n"]
)
def test_relay_log_info_says_where_the_replica_goes_on(text: str) -> None:
    made = layout(text, "relay-log.info")
    assert made.findings == ()
    assert made.context.position == ("relay.000012", 2085)


def test_relay_log_info_with_other_lines_is_told() -> None:
    assert [one.id for one in findings("5\nnothing\n1\n", "relay-log.info")] == ["bad-header"]


# -- detection ---------------------------------------------------------------------------------------------------------


def detected(data: bytes | str, name: str) -> str | None:
    """Which format it is taken for."""
    try:
        return detect_format(head(data, name)).name
    except UnknownFormatError:
        return None


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (FIRST, INDEX), ("1-2-53\n", "rot-bin.state"), ("5\n/x/relay.000012\n2085\n", "relay-log.info"),
        (FIRST, "rot-bin.index_crash_safe"), ("", INDEX), (FIRST + "garbage\n", INDEX),
    ],
)  # fmt: skip
def test_a_file_beside_a_log_is_known_by_name_and_content(data: str, name: str) -> None:
    assert detected(data, name) == "mysql-binlog"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (FIRST, "notes.txt"), ("something else\n", INDEX), ("state=1\n", "galera.state"),
        ("", "00000000000000000012.txt"),
        ("5\nnothing\n", "relay-log.info"), (FIRST, "00000000000000000012.index"),
    ],
)  # fmt: skip
def test_other_files_are_not_taken_for_one(data: str, name: str) -> None:
    assert detected(data, name) != "mysql-binlog"


def test_an_index_of_tarantool_stays_one_of_tarantool(samples: Path) -> None:
    paths = sorted((samples / "tarantool").rglob("*.index"))
    assert paths
    for path in paths:
        assert detected(path.read_bytes(), path.name) == "tarantool"
        assert FORMAT.reading.detect(head(path.read_bytes(), path.name)).score == 0
        assert FORMAT.reading.detect(head(b"", path.name)).score == 0


def test_directories_of_both_formats_below_one_are_told_apart(tmp_path: Path, samples: Path) -> None:
    import shutil

    shutil.copytree(samples / "mysql_binlog/sets/mysql", tmp_path / "mysql")
    shutil.copytree(samples / "tarantool/vinyl", tmp_path / "tarantool")
    found = {log.format.name: log.names for log in find_logs_in_directory(str(tmp_path), None).logs}
    assert set(found) == {"mysql-binlog", "tarantool"}
    assert all(name.startswith("rot-bin.") for name in found["mysql-binlog"])
    assert not any(name.startswith("rot-bin.") for name in found["tarantool"])
    assert any(name.endswith(".index") for name in found["tarantool"])


def test_stray_files_of_other_programs_make_no_log(tmp_path: Path) -> None:
    (tmp_path / "cache.index").write_text("keys: 5\n")
    (tmp_path / "daemon.state").write_text("running\n")
    with pytest.raises(UnknownFormatError):
        find_logs_in_directory(str(tmp_path), None)


def test_stray_files_beside_a_log_are_no_part_of_it(tmp_path: Path, samples: Path) -> None:
    (tmp_path / "rot-bin.000007").write_bytes((samples / "mysql_binlog/sets/mysql/rot-bin.000007").read_bytes())
    (tmp_path / "cache.index").write_text("keys: 5\n")
    (tmp_path / "daemon.state").write_text("running\n")
    report = binlogtool.verify([tmp_path])
    assert not said(report)
    assert [one.name for part in report.skipped for one in part.files] == ["cache.index", "daemon.state"]


def test_every_format_is_listed_once() -> None:
    assert len(set(formats.list_names())) == len(formats.list_names())


# -- given alone -------------------------------------------------------------------------------------------------------


def test_an_index_alone_is_verified_and_has_no_records(tmp_path: Path) -> None:
    path = tmp_path / INDEX
    path.write_text(FIRST)
    (report,) = binlogtool.verify([path]).files
    assert (report.variant, report.records, report.findings) == ("binlog index", 0, ())
    assert report.bytes["header"] == report.size == len(FIRST)
    with binlogtool.open(path) as log:
        assert list(log.records()) == []


@pytest.mark.parametrize(
    ("name", "data", "rows"),
    [
        (INDEX, FIRST, [("path[0]", 0, 21), ("path[1]", 21, 42)]),
        (INDEX, "\n" + FIRST[:30], [("path[0]", 0, 1), ("path[1]", 1, 22), ("path[2]", 22, 31)]),
        ("rot-bin.state", "1-2-53\n", [("gtid[0]", 0, 7)]),
        (
            "relay-log.info", "5\n./r.000012\n2085\nsrc.000005\n1837\n0\n0\n",
            [("info.lines", 0, 2), ("info.relay_log_file", 2, 13), ("info.relay_log_pos", 13, 18),
             ("info.source_log_file", 18, 29), ("info.source_log_pos", 29, 34), ("info.delay", 34, 36),
             ("info[6]", 36, 38)],
        ),
        ("relay-log.info", "./r.000012\n2085\n", [("info.relay_log_file", 0, 11), ("info.relay_log_pos", 11, 16)]),
    ],
)  # fmt: skip
def test_the_hexdump_names_every_line(tmp_path: Path, name: str, data: str, rows: list[tuple[str, int, int]]) -> None:
    path = tmp_path / name
    path.write_text(data)
    shown = binlogtool.annotate(path).rows
    assert [(row.path, row.start, row.end) for row in shown if row.leaf] == rows


def test_the_hexdump_shows_a_line_and_what_it_means(tmp_path: Path) -> None:
    path = tmp_path / INDEX
    path.write_text(FIRST)
    row = next(row for row in binlogtool.annotate(path).rows if row.path == "path[1]")
    assert (row.value, row.meaning) == ("/logs/rot-bin.000002", "log 2")
