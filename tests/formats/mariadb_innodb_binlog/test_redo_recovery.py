"""The rules of the server's binlog recovery, one by one (docs/spec/mysql-mariadb-binlog.md, section 12)."""

from __future__ import annotations

import crc32c
import pytest

from binlogtool.formats.innodb.redo_log import RedoLog, iter_page_writes
from binlogtool.formats.mariadb_innodb_binlog.redo_recovery import (
    BinlogRecovery,
    PageRelation,
    RecoveredPage,
    RecoveryFile,
    RecoveryOutcome,
    compare_page_with_recovered,
    make_recovery_file,
)
from tests.formats.mariadb_innodb_binlog import redo_make as make

E, O = make.EVEN, make.ODD  # noqa: E741
FULL = 16380
FIRST = make.START
FILE_0 = RecoveryFile(0, 65536, FIRST, 4)
EMPTY_1 = RecoveryFile(1, 65536)

Write = tuple[int, int, int, bytes]


def run(writes: list[Write | bytes], files: list[RecoveryFile]) -> tuple[list[RecoveredPage], RecoveryOutcome]:
    """Each write is a mini-transaction of its own; bytes are the body of one."""
    bodies = [one if isinstance(one, bytes) else make.write(*one) for one in writes]
    data = make.redo_log(bodies, size=make.START + (1 << 20))
    log = RedoLog(lambda offset, size: data[offset : offset + size], len(data))
    recovery = BinlogRecovery(iter_page_writes(log), files)
    pages = list(recovery.iter_pages())
    return pages, recovery.outcome


def page(data: bytes) -> bytes:
    data = data.ljust(FULL, b"\0")
    return data + crc32c.crc32c(data).to_bytes(4, "little")


def refused(writes: list[Write | bytes], files: list[RecoveryFile]) -> str:
    _, outcome = run(writes, files)
    assert not outcome.succeeds and outcome.removed == () and outcome.page_count is None
    (found,) = outcome.findings
    return found.message


def test_writes_are_joined_to_pages_and_later_files_removed() -> None:
    pages, outcome = run([(E, 1, 0, b"a" * FULL), (E, 2, 0, b"b" * 10), (E, 2, 10, b"c")], [FILE_0, EMPTY_1])
    assert pages == [
        RecoveredPage(0, 1, FULL, page(b"a" * FULL)),
        RecoveredPage(0, 2, 11, page(b"b" * 10 + b"c")),
    ]
    assert outcome == RecoveryOutcome(True, 3, 3, 0, 2, 11, 4, (1,))


def test_without_a_binlog_record_nothing_is_done() -> None:
    assert run([make.write(5, 1, 10, b"row")], [FILE_0, EMPTY_1]) == ([], RecoveryOutcome())


def test_records_in_the_middle_of_a_page_are_skipped_until_one_starts_a_page() -> None:
    pages, outcome = run([(E, 1, 50, b"x"), (E, 1, 51, b"y"), (E, 1, 0, b"all of it")], [FILE_0, EMPTY_1])
    assert [one.used for one in pages] == [9] and (outcome.writes, outcome.applied) == (3, 1)


def test_when_all_records_are_skipped_only_later_files_go() -> None:
    pages, outcome = run([(E, 1, 50, b"x")], [FILE_0, EMPTY_1])
    assert pages == [] and outcome == RecoveryOutcome(True, 1, 0, removed=(1,))


def test_a_page_that_was_flushed_half_full_is_written_again_from_its_start() -> None:
    pages, _ = run([(E, 1, 0, b"abc"), (E, 1, 3, b"def"), (E, 1, 0, b"abcdefghi")], [FILE_0, EMPTY_1])
    assert [one.data for one in pages] == [page(b"abcdefghi")]


def test_the_next_file_starts_with_its_header_page() -> None:
    header = make.binlog_header(1, 6, FIRST + 9)
    writes = [(E, 3, 0, b"a" * FULL), (O, 0, 0, header), (O, 1, 0, b"b")]
    pages, outcome = run(writes, [FILE_0])  # type: ignore[arg-type]
    assert [(one.file_no, one.page_no) for one in pages] == [(0, 3), (1, 0), (1, 1)]
    assert pages[1].data == make.header_page(1, 6, FIRST + 9)
    assert outcome.page_count == 6


def test_records_of_a_file_older_than_the_start_of_the_newest_are_skipped() -> None:
    late = RecoveryFile(2, 65536, FIRST + 30, 4)
    for files in ([late], [late, RecoveryFile(3, 65536)]):
        for old in ((E, 3, 0, b"old"), (O, 3, 0, b"old")):
            pages, outcome = run([old, (E, 1, 0, b"new")], files)
            assert [(one.file_no, one.page_no, one.used) for one in pages] == [(2, 1, 3)] and outcome.applied == 1


def test_a_record_that_starts_the_file_behind_the_newest_creates_it() -> None:
    writes = [(O, 0, 0, make.binlog_header(1, 5, FIRST)), (O, 1, 0, b"b")]
    for files in ([FILE_0], [FILE_0, EMPTY_1], [FILE_0, RecoveryFile(1, 65536, FIRST, 4)]):
        pages, outcome = run(writes, files)  # type: ignore[arg-type]
        assert [(one.file_no, one.page_no) for one in pages] == [(1, 0), (1, 1)] and outcome.page_count == 5


@pytest.mark.parametrize(
    ("writes", "said"),
    [
        ([(E, 1, 0, b"a"), (E, 1, 5, b"b")], "missing in file 0, page 1"),
        ([(E, 1, 0, b"a"), (E, 2, 0, b"b")], "missing in file 0 after page 1"),
        ([(E, 1, 0, b"a" * FULL), (E, 3, 0, b"b")], "missing in file 0 after page 1"),
        ([(E, 1, 0, b"a" * FULL), (E, 2, 7, b"b")], "missing in file 0 after page 1"),
        ([(E, 2, 0, b"a" * FULL), (E, 3, 0, b"b"), (O, 0, 0, b"")], "missing at the end of file 0"),
        ([(E, 1, 0, b"a" * FULL), (E, 2, 0, b"b" * FULL), (O, 0, 0, b"c")], "missing at the end of file 0"),
        ([(E, 3, 0, b"a" * FULL), (O, 1, 0, b"c")], "missing at the start of file 1"),
        ([(E, 3, 0, b"a" * FULL), (O, 0, 0, b"c")], "no valid header for file 1"),
        ([(E, 3, 0, b"a" * FULL), (O, 0, 0, make.binlog_header(3, 4, 1))], "header of file 3 is where that of 1"),
        ([(E, 1, 0, b"a" * (FULL + 1))], "bytes up to 16381"),
        ([make.record(0x40, make.varint(E) + b"\1\x09\5a")], "MEMSET on a binlog file"),
        ([make.record(0x10, make.varint(E) + b"\1")], "INIT_PAGE on a binlog file"),
        ([make.write(E, 1, 0, b"a") + make.record(0xB0, b"\0b")], "same_page"),
    ],
)
def test_records_that_do_not_fit_stop_the_server(writes: list[Write | bytes], said: str) -> None:
    if writes[-1] == (O, 0, 0, b""):
        writes = [*writes[:-1], (O, 0, 0, b"x")]
    assert said in refused(writes, [FILE_0, EMPTY_1])


def test_a_file_that_is_missing_can_only_begin_with_its_header() -> None:
    _, outcome = run([(O, 1, 0, b"abc")], [FILE_0])
    assert not outcome.succeeds


def test_only_empty_files_count_as_a_new_binlog_and_the_missing_one_is_told() -> None:
    pages, outcome = run([(E, 1, 9018, b"x")], [EMPTY_1])
    assert pages == [] and outcome.succeeds and outcome.removed == (1,)
    (found,) = outcome.findings
    assert (found.id, found.facts["diagnosis"], found.facts["page_no"]) == ("missing-member", "missing-file", 1)
    assert run([(E, 1, 0, b"x")], [])[1].succeeds


def test_of_two_empty_files_the_newest_is_put_aside_and_three_stop_the_server() -> None:
    empty = [RecoveryFile(number, 65536) for number in (1, 2)]
    pages, outcome = run([(E, 1, 0, b"x")], [FILE_0, *empty])
    assert [(one.file_no, one.page_no) for one in pages] == [(0, 1)] and outcome.removed == (1, 2)
    assert "all empty" in refused([(E, 1, 0, b"x")], [RecoveryFile(0, 65536), *empty])
    assert run([(E, 1, 0, b"x")], empty)[1].removed == (1, 2)


def test_records_of_one_mini_transaction_that_do_not_advance_are_repetitions() -> None:
    body = make.write(E, 1, 3, b"def") + make.write(E, 1, 0, b"abc")
    pages, outcome = run([(E, 1, 0, b"abc"), body], [FILE_0, EMPTY_1])
    assert [one.data for one in pages] == [page(b"abcdef")] and outcome.applied == 2


def test_a_header_page_with_a_wrong_checksum_makes_the_file_empty() -> None:
    good = make.header_page(7, 4, 999)
    assert make_recovery_file(7, good, 65536) == RecoveryFile(7, 65536, 999, 4)
    for bad in (b"", bytes(16384), good[:-1], good[:600] + b"\1" + good[601:], b"\0" + good[1:]):
        assert (
            make_recovery_file(7, bad, 65536) == RecoveryFile(7, 65536) and make_recovery_file(7, bad, 65536).is_empty
        )
    foreign = bytearray(good)
    foreign[8] = 2  # major version
    foreign[508:512] = crc32c.crc32c(bytes(foreign[:508])).to_bytes(4, "little")
    foreign[FULL:] = crc32c.crc32c(bytes(foreign[:FULL])).to_bytes(4, "little")
    assert make_recovery_file(7, bytes(foreign), 65536).is_empty


def test_how_a_page_on_disk_compares_with_the_recovered_one() -> None:
    recovered = RecoveredPage(0, 1, 6, page(b"abcdef"))
    assert compare_page_with_recovered(page(b"abcdef"), recovered) is PageRelation.EQUAL
    assert compare_page_with_recovered(page(b"abcdefgh"), recovered) is PageRelation.AHEAD
    assert compare_page_with_recovered(page(b"abc"), recovered) is PageRelation.BEHIND
    assert (
        compare_page_with_recovered(bytes(16384), recovered)
        is compare_page_with_recovered(b"", recovered)
        is PageRelation.BEHIND
    )
    assert compare_page_with_recovered(page(b"abXdef"), recovered) is PageRelation.CONFLICT
    assert compare_page_with_recovered(page(b"abcdef")[:-1] + b"\0", recovered) is PageRelation.TORN
