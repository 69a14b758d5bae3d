"""Records as text for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from binlogtool.core.record_and_selection_types import InnerPosition, RecordBlock, RecordChecksum
from binlogtool.findings import make_finding
from binlogtool.format_api.encode_json import JsonStyle
from binlogtool.format_api.format import LongValue, RowChanges
from binlogtool.report.dump_output_formats import SqlLiteralFormatter, TextOptions, TextWriter
from binlogtool.terminal.escape_and_fold_text import make_painter
from tests.report.values import block


def text_of(*blocks: RecordBlock, **options: bool | Callable[[str, str], str]) -> str:
    """Everything that `-O text` prints."""
    made: Any = options
    writer = TextWriter(JsonStyle(), TextOptions(**made))
    return (b"".join(map(writer.encode_block, blocks)) + writer.finish()).decode()


def events(*events: tuple[str, dict[str, Any]], **members: Any) -> RecordBlock:
    """Events of a binary log: types and bodies."""
    made = block([body for _, body in events], format="mysql-binlog", **members)
    return replace(made, envelope=replace(made.envelope, type=[name for name, _ in events]))


TABLE_MAP = {
    "table_id": 18, "database": "shop", "table": "orders", "primary_key": [{"column": "id"}],
    "columns": [
        {"name": "customer", "type": "VARCHAR"}, {"name": "id", "type": "LONG"}, {"name": "total", "type": "NEWDECIMAL"}
    ],
}  # fmt: skip


def change(before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any]:
    """The body of an event with one row change."""
    images = {name: image for name, image in (("before", before), ("after", after)) if image is not None}
    return {"table_id": 18, "flags": 1, "table": "shop.orders", "rows": [images]}


def test_a_record_is_a_header_line_and_its_row() -> None:
    text = text_of(block([{"space_id": 512, "tuple": [1, "a b", None]}]))
    assert text == "0x00000082 2026-01-01T00:00:00Z INSERT         1:100 512\n  + [1, 'a b', NULL]\n"


def test_row_changes_are_a_diff_with_the_key_first() -> None:
    ada = {"customer": "Ada", "id": 1, "total": "120.00"}
    text = text_of(
        events(
            ("TABLE_MAP", TABLE_MAP),
            ("WRITE_ROWS_V1", change(None, ada)),
            ("UPDATE_ROWS_V1", change(ada, ada | {"total": "99.00"})),
            ("DELETE_ROWS_V1", change({"customer": "O'Hara", "id": 2, "total": None}, None)),
        )
    )  # fmt: skip
    assert [line for line in text.splitlines() if line.startswith("  ")] == [
        "  + id=1 customer='Ada' total=120.00",
        "  ~ id=1 total: 120.00 → 99.00",
        "  - id=2 customer='O''Hara' total=NULL",
    ]
    assert text.endswith("# 1 record is not shown: 1 TABLE_MAP; -v shows all\n")


def test_an_update_without_a_known_key_shows_what_stays_the_same() -> None:
    body = change({"@1": 1, "@2": "x", "@3": None}, {"@1": 1, "@2": "y", "@3": b"\x00\xff"})
    assert "  ~ @1=1 @2: 'x' → 'y' @3: NULL → x'00ff'\n" in text_of(events(("UPDATE_ROWS_V1", body)))


def test_statements_are_sql_and_control_characters_are_escaped() -> None:
    body = {"db": "shop", "sql": "DELETE FROM t\nWHERE a = '\x1b[2J'", "status_vars": {"flags2": 0}, "error_code": 0}
    shown = text_of(events(("QUERY", body))).splitlines()
    assert shown[0].endswith(" db='shop'")
    assert shown[1:] == ["    DELETE FROM t", "    WHERE a = '\\x1b[2J'"]


def test_long_values_are_cut_unless_everything_is_requested() -> None:
    made = block([{"space_id": 512, "tuple": ["x" * 1234, list(range(300))]}])
    short, full = text_of(made), text_of(made, everything=True)
    assert f"'{'x' * 200}'… (1,034 more characters)" in short
    assert "x" * 201 not in short
    assert f"'{'x' * 1234}'" in full
    assert full.rstrip().endswith("298,299]]")


def test_a_value_that_is_not_in_memory_shows_its_start_and_its_length() -> None:
    placeholder = f"@{'0' * 32}@"
    value = LongValue(lambda: iter([b"ab" * 500, b"c" * 500]), True)
    made = block([{"tuple": [placeholder]}], long_values={placeholder: value})
    assert f"  + ['{'ab' * 100}'… (1,300 more characters)]\n" in text_of(made)
    assert f'  + ["{placeholder}"]\n' in text_of(made, everything=True)  # filled by the writer of long values


def test_text_marks_a_bad_checksum_and_findings() -> None:
    found = make_finding("payload-undecodable", 130, 44, "no\x1bmap", record=0)
    made = block([None], checksum=[RecordChecksum("crc32c", 1, 2, False)], findings={0: (found,)})
    shown = text_of(made).splitlines()
    assert "CHECKSUM-BAD" in shown[0]
    assert shown[1] == "  ! payload-undecodable: no\\x1bmap"


def test_a_record_with_a_finding_is_never_left_out() -> None:
    found = make_finding("payload-undecodable", 130, 44, "odd", record=0)
    assert "TABLE_MAP" in text_of(events(("TABLE_MAP", TABLE_MAP), findings={0: (found,)})).splitlines()[0]


def test_text_can_show_the_bytes() -> None:
    made = block([None], raw=[bytes(range(20))])
    shown = text_of(made, hex_bytes=True).splitlines()
    assert shown[1:] == ["  00000000  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f", "  00000010  10 11 12 13"]


def test_text_names_each_of_several_files_once() -> None:
    shown = text_of(block([1]), block([2]), block([3], file="b\n.xlog"), headings=True).splitlines()
    assert [line for line in shown if line.startswith("#")] == ["# a.xlog (tarantool)", "# b\\n.xlog (tarantool)"]


def test_text_without_offsets_starts_with_the_time() -> None:
    assert text_of(block([1]), offsets=False).startswith("2026-01-01T00:00:00Z INSERT ")


def test_an_empty_line_ends_a_transaction_of_several_records() -> None:
    made = block([None] * 5)
    made = replace(made, envelope=replace(made.envelope, txn=[None, "0-1-1", "0-1-1", "b\x1b[2J", None]))
    lines = text_of(made).splitlines()
    assert [line == "" for line in lines] == [False, False, False, True, False, False]
    assert "(transaction b\\x1b[2J)" in lines[4]


def test_a_record_inside_another_one_shows_its_place_in_there() -> None:
    assert text_of(block([1], inner=[InnerPosition(0x4B, 201)])).startswith("0x00000082+0x4b ")


def test_signs_have_colours_and_data_cannot_add_any() -> None:
    made = block([{"tuple": [1, "\x1b[31mred"]}])
    lines = text_of(made, paint=make_painter(True)).splitlines()
    assert lines[1] == "\x1b[32m  + [1, '\\x1b[31mred']\x1b[0m"


def test_a_body_of_another_shape_is_shown_as_it_is() -> None:
    shown = text_of(events(("TABLE_MAP", {"table_id": 1, "columns": 7, "x": "a\u202eb"})))
    assert "table_id=1 columns=7 x='a\\u202eb'" in shown


def test_an_update_by_key_changes_no_value_that_looks_like_a_separator() -> None:
    values = SqlLiteralFormatter(JsonStyle(), everything=False)
    by_key = RowChanges([{"key": {"id": "a : b"}, "after": {"n": 7}}])
    assert list(values.format_changes(by_key)) == ["  ~ id='a : b': n=7"]
    images = RowChanges([{"before": {"k": 1, "a=b": 1}, "after": {"k": 1, "a=b": 2}}], key=("k",))
    assert list(values.format_changes(images)) == ["  ~ k=1 a=b: 1 → 2"]
