"""Rows counted by compiled code: the same number, and where rows do not fit the same words, as without it."""

from __future__ import annotations

import random
import struct

import pytest

from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.rows.rows_event import RowReader, count_rows
from binlogtool.formats.binlog_events.rows.table_map import TableMap, parse_table_map
from binlogtool.formats.binlog_events.rows.write_rows_json_kernels import count_image_rows
from binlogtool.formats.binlog_events.values.column_types import ColumnType
from binlogtool.formats.binlog_events.wire_format import EventType
from binlogtool.limits import Limits
from binlogtool.schema.backends import get_native_backend
from tests.formats.mysql_binlog.row_building import image, rows_body, table_map_body

_C, _E = ColumnType, EventType
BACKEND = get_native_backend()
COMPILED = count_image_rows if BACKEND is None else BACKEND.compile_kernel(count_image_rows)
LIMITS = Limits()


def table() -> TableMap:
    """INT, VARCHAR(100), BLOB with a length of 3 bytes, DOUBLE."""
    return parse_table_map(table_map_body(bytes([_C.LONG, _C.VARCHAR, _C.BLOB, _C.DOUBLE]), b"\x64\x00\x03\x08"))


def row(number: int, text: bytes | None) -> bytes:
    blob = None if number % 3 else b"\x05\0\0five!"
    return image([struct.pack("<i", number), None if text is None else bytes([len(text)]) + text, blob, bytes(8)])


ROWS = b"".join(row(number, None if number % 5 == 0 else b"x" * number) for number in range(40))
PAIRS = b"".join(row(number, b"old") + row(number, b"newer") for number in range(40))
BODIES = (
    (_E.WRITE_ROWS_V1, rows_body(4, ROWS)),
    (_E.DELETE_ROWS_V2, rows_body(4, ROWS, extra=b"")),
    (_E.UPDATE_ROWS_V1, rows_body(4, PAIRS, [[True] * 4] * 2)),
)


def told(type_code: int, body: bytes, compiled: bool) -> int | str:
    try:
        return count_rows(type_code, body, table(), LIMITS, COMPILED if compiled else None)
    except MalformedError as error:
        return f"{error.finding_id}: {error}"


@pytest.mark.parametrize(("type_code", "body"), BODIES)
def test_the_kernel_counts_forty_rows_by_itself(monkeypatch: pytest.MonkeyPatch, type_code: int, body: bytes) -> None:
    monkeypatch.setattr(RowReader, "iter_row_bounds", None)
    assert told(type_code, body, compiled=True) == 40


def test_images_with_some_of_the_columns_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowReader, "iter_row_bounds", None)
    images = b"".join(image([struct.pack("<i", number)]) + row(number, b"y") for number in range(30))
    assert told(_E.UPDATE_ROWS_V1, rows_body(4, images, [[True, False, False, False], [True] * 4]), compiled=True) == 30


def test_images_without_columns_are_refused() -> None:
    body = rows_body(4, bytes(600), [[False] * 4])
    assert "belong to no row" in str(told(_E.WRITE_ROWS_V1, body, compiled=True))


@pytest.mark.parametrize(("type_code", "body"), BODIES)
def test_what_does_not_fit_is_told_as_without_compiled_code(type_code: int, body: bytes) -> None:
    dice = random.Random(7)
    wrong = 0
    for _ in range(300):
        bad = bytearray(body)
        for _ in range(dice.randint(1, 4)):
            bad[dice.randrange(16, len(bad))] = dice.randrange(256)
        cut = bytes(bad[: dice.choice([len(bad), dice.randrange(len(bad))])])
        found = told(type_code, cut, compiled=True)
        assert found == told(type_code, cut, compiled=False)
        wrong += isinstance(found, str)
    assert 100 < wrong < 300


@pytest.mark.skipif(BACKEND is None, reason="no native library")
def test_the_kernel_is_in_the_library() -> None:
    assert COMPILED is not count_image_rows
