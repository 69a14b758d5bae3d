"""What this harness found in the reader of MariaDB's InnoDB binlog when it was first turned on it; all samples made."""

from __future__ import annotations

import pytest

from tests.formats.mariadb_innodb_binlog.ibb_make import DUMMY, LAST, STATE, cints, group, header, sealed
from tests.harness.engine import opinion
from tests.harness.hostile_ibb import chunk, commit

FORMAT, NAME, P = "mariadb-innodb-binlog", "binlog-000000.ibb", 4096
STATE_CHUNK = chunk(STATE | LAST, cints(0, 0))


def log(*pages: bytes) -> bytes:
    return header(0, 4, P, 4) + b"".join(sealed(page, P) for page in pages)


def test_a_torn_page_does_not_make_the_records_before_it_undurable() -> None:
    """States and fillers can be parts of an open record: where none turns up before the damage, they are not."""
    page = STATE_CHUNK + chunk(DUMMY | LAST, b"\xff" * (P - 4 - len(STATE_CHUNK) - 3))
    whole = opinion(FORMAT, NAME, log(page, commit(cints(0) + group(1))))
    assert (whole.records, whole.durable_end) == (3, P + P + 3 + len(cints(0)) + len(group(1)))
    torn = opinion(FORMAT, NAME, log(page, commit(cints(0) + group(1)))[: 2 * P + 100])
    assert (torn.records, torn.durable_end) == (2, P + len(page))


def test_data_behind_the_end_of_data_does_not_make_the_records_before_it_undurable() -> None:
    page = STATE_CHUNK + chunk(DUMMY | LAST, b"\xff" * 100)
    seen = opinion(FORMAT, NAME, log(page, commit(cints(0) + group(1))))
    assert (seen.records, seen.durable_end) == (3, P + len(page))


def test_a_state_in_a_record_that_goes_on_is_not_durable_by_itself() -> None:
    pages = commit(cints(0) + group(1, P - 200)), chunk(STATE | LAST, cints(0, 0))
    begun = chunk(1, b"\0" + b"x" * 100) + chunk(STATE | LAST, cints(0, 0))
    first = log(STATE_CHUNK + begun, *pages)
    end = P + len(STATE_CHUNK)
    assert opinion(FORMAT, NAME, first[: 2 * P + 5]).durable_end == end


@pytest.mark.parametrize("size", [513, 2000, P - 1])
def test_a_header_page_that_is_cut_is_no_page_of_512_bytes_and_nothing_behind_it_is_durable(size: int) -> None:
    seen = opinion(FORMAT, NAME, log(STATE_CHUNK)[:size])
    assert (seen.records, seen.durable_end) == (0, None)
    assert not any("512" in found.message for found in seen.findings)


@pytest.mark.parametrize("size", [64, 300, 511, 512, 600])
def test_findings_about_a_damaged_header_end_with_the_file(size: int) -> None:
    """`opinion` holds every finding to that."""
    data = bytearray(log(STATE_CHUNK)[:size])
    data[30] ^= 1
    assert "bad-header" in opinion(FORMAT, NAME, bytes(data)).ids
