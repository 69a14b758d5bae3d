"""Changes inside of JSON as expressions; what real servers make of them is in the workloads `partial-json`."""

from __future__ import annotations

import pytest

from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.sql.format_literals import format_json_update_expression
from binlogtool.formats.binlog_events.values.decode_values import DecodeBudget
from binlogtool.limits import Limits

REPLACE, INSERT, REMOVE = range(3)
ONE = b"\x05\x01\x00"
TEXT = b"\x0c\x03it'"
DECIMAL = b"\x0f\xf6\x04\x02\x01\x81\x01"


def change(operation: int, path: bytes, value: bytes | None = None) -> bytes:
    sized = b"" if value is None else bytes([len(value)]) + value
    return bytes([operation, len(path)]) + path + sized


@pytest.mark.parametrize(
    ("changes", "expression"),
    [
        (change(REPLACE, b"$.a", ONE), b"JSON_REPLACE(`j`, '$.a', CAST('1' AS JSON))"),
        (change(REMOVE, b"$[0]") + change(REMOVE, b"$.b"), b"JSON_REMOVE(`j`, '$[0]', '$.b')"),
        (change(INSERT, b"$.b", TEXT), b"JSON_INSERT(`j`, '$.b', CAST('\"it''\"' AS JSON))"),
        (change(INSERT, b"$.b[3]", ONE), b"JSON_ARRAY_INSERT(`j`, '$.b[3]', CAST('1' AS JSON))"),
        (
            change(REMOVE, b'$."it\'s \\\\"') + change(REPLACE, b"$.c", ONE),
            b"JSON_REPLACE(JSON_REMOVE(`j`, '$.\"it''s \\\\\\\\\"'), '$.c', CAST('1' AS JSON))",
        ),
        (change(REPLACE, b"$.a", DECIMAL), None),
        (change(REMOVE, b"$.\xff"), None),
        ((change(REMOVE, b"$.a") + change(REPLACE, b"$.b", ONE)) * 26, None),
    ],
)
def test_changes_are_functions_of_the_column(changes: bytes, expression: bytes | None) -> None:
    assert format_json_update_expression(b"`j`", changes, DecodeBudget(Limits())) == expression


@pytest.mark.parametrize("size", range(1, len(change(REPLACE, b"$.a", ONE))))
def test_changes_that_are_cut_are_damage(size: int) -> None:
    with pytest.raises(MalformedError):
        format_json_update_expression(b"`j`", change(REPLACE, b"$.a", ONE)[:size], DecodeBudget(Limits()))
