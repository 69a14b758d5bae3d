"""TABLE_MAP: all metadata, and nothing that does not fit."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import binlogtool
from binlogtool.findings import Severity
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.rows.annotate_row_events import make_table_map_construct as table_map_schema
from binlogtool.formats.binlog_events.rows.table_map import TableMap, get_column_encodings, parse_table_map
from binlogtool.formats.binlog_events.values.column_types import (
    ColumnType,
    DeclaredColumn,
    LogicalType,
    TableMapColumn,
    ValueKind,
)
from binlogtool.limits import Limits
from tests.formats.mysql_binlog.row_building import lenenc, optional, sized, table_map_body
from tests.verify_bytes import verify_bytes

_C = ColumnType


def columns(
    types: bytes, metadata: bytes = b"", more: bytes = b"", mariadb: bool | None = None
) -> tuple[TableMapColumn, ...]:
    return parse_table_map(table_map_body(types, metadata, more), 6, mariadb).columns


def test_a_plain_map_has_its_names_types_and_nullable_bits() -> None:
    body = bytearray(table_map_body(bytes([_C.LONG, _C.VARCHAR]), b"\xc8\x00", database=b"shop", table=b"orders"))
    body[-1] = 0b10
    table = parse_table_map(bytes(body))
    assert (table.table_id, table.flags, table.database, table.table) == (7, 1, "shop", "orders")
    assert table.columns == (TableMapColumn(_C.LONG, nullable=False), TableMapColumn(_C.VARCHAR, 200))
    assert table.column_keys == ("@1", "@2")
    assert table.qualified_name == "shop.orders"


def test_table_ids_of_four_bytes_are_read() -> None:
    body = table_map_body(bytes([_C.LONG]))
    assert parse_table_map(body[:4] + body[6:], 4).table_id == 7


def test_equal_bodies_give_the_same_object() -> None:
    body = table_map_body(bytes([_C.LONG]), table=b"same")
    assert parse_table_map(body) is parse_table_map(bytes(bytearray(body)))


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (b"\xfe\x10", TableMapColumn(_C.STRING, 16)),
        (b"\xee\x90", TableMapColumn(_C.STRING, 400)),
        (b"\xf7\x01", TableMapColumn(_C.ENUM, 1)),
        (b"\xf8\x02", TableMapColumn(_C.SET, 2)),
    ],
)
def test_a_string_column_says_its_real_type_in_its_metadata(metadata: bytes, expected: TableMapColumn) -> None:
    assert columns(bytes([_C.STRING]), metadata) == (expected,)


def test_metadata_of_decimal_and_bit_columns_is_one_number() -> None:
    assert columns(bytes([_C.NEWDECIMAL, _C.BIT]), b"\x1e\x0a\x05\x01") == (
        TableMapColumn(_C.NEWDECIMAL, 30 * 256 + 10),
        TableMapColumn(_C.BIT, 13),
    )


def test_signedness_has_a_bit_for_each_number_and_for_year_the_highest_first() -> None:
    types = bytes([_C.LONG, _C.VARCHAR, _C.TINY, _C.YEAR, _C.DATE, _C.DOUBLE])
    unsigned = [column.unsigned for column in columns(types, b"\x10\x00\x08", optional(1, b"\xa0"))]
    assert unsigned == [True, None, False, True, None, False]


def test_the_default_character_set_counts_character_columns_only() -> None:
    types = bytes([_C.LONG, _C.VARCHAR, _C.BLOB, _C.VARCHAR])
    found = columns(types, b"\x10\x00\x02\x10\x00", optional(2, lenenc(255) + b"\x01\x3f"))
    assert [(column.collation, column.charset) for column in found] == [
        (None, None),
        (255, "utf8mb4"),
        (63, "binary"),
        (255, "utf8mb4"),
    ]


def test_mariadb_lists_a_collation_for_geometry_and_mysql_does_not() -> None:
    types, metadata = bytes([_C.GEOMETRY, _C.BLOB]), b"\x04\x02"
    assert [column.collation for column in columns(types, metadata, optional(3, b"\x3f\x08"), True)] == [63, 8]
    assert [column.collation for column in columns(types, metadata, optional(3, b"\x3f\x08"))] == [63, 8]
    assert [column.collation for column in columns(types, metadata, optional(3, b"\x08"), False)] == [None, 8]
    assert [column.collation for column in columns(types, metadata, optional(2, b"\x08\x00\x3f"), True)] == [63, 8]
    assert [column.collation for column in columns(types, metadata, optional(2, b"\x08\x00\x3f"), False)] == [None, 63]
    with pytest.raises(MalformedError, match="2 collations for 1 columns"):
        columns(types, metadata, optional(3, b"\x3f\x08"), False)


@pytest.mark.parametrize(
    ("collation", "charset"),
    [
        (8, "latin1"),
        (63, "binary"),
        (83, "utf8mb3"),
        (255, "utf8mb4"),
        (309, "utf8mb4"),
        (1032, "latin1"),
        (2048, "utf8mb3"),
        (2304, "utf8mb4"),
        (2560, "ucs2"),
        (2816, "utf16"),
        (3072, "utf32"),
        (3999, None),
        (500, None),
    ],
)
def test_collation_numbers_of_both_servers_name_their_character_set(collation: int, charset: str | None) -> None:
    (column,) = columns(bytes([_C.VARCHAR]), b"\x10\x00", optional(3, lenenc(collation)))
    assert (column.collation, column.charset) == (collation, charset)


def test_texts_of_enum_and_set_are_in_their_own_character_set() -> None:
    texts = optional(6, b"\x02" + sized(b"gr\xfcn") + sized(b"rot")) + optional(5, b"\x01" + sized("é".encode()))
    found = columns(bytes([_C.STRING, _C.STRING]), b"\xf7\x01\xf8\x01", texts + optional(11, b"\x08\x2d"))
    assert [column.values for column in found] == [("grün", "rot"), ("é",)]


def test_names_keys_and_the_rest_of_the_metadata_are_read() -> None:
    more = (
        optional(4, sized(b"id") + sized(b"place") + sized(b"v"))
        + optional(7, b"\x01")
        + optional(9, b"\x00\x00\x01\x14")
        + optional(12, b"\x60")
        + optional(13, b"\x04")
    )
    table = parse_table_map(table_map_body(bytes([_C.LONG, _C.GEOMETRY, _C.VECTOR]), b"\x04\x04", more))
    assert table.column_keys == ("id", "place", "v")
    assert table.primary_key == ((0, 0), (1, 20))
    assert [column.visible for column in table.columns] == [False, True, True]
    assert (table.columns[1].geometry_type, table.columns[2].dimension) == (1, 4)
    assert json.loads(json.dumps(table.to_json_body())) == {
        "table_id": 7,
        "flags": 1,
        "database": "db",
        "table": "t",
        "columns": [
            {"name": "id", "type": "LONG", "metadata": 0, "nullable": True, "visible": False},
            {"name": "place", "type": "GEOMETRY", "metadata": 4, "nullable": True, "geometry_type": 1, "visible": True},
            {"name": "v", "type": "VECTOR", "metadata": 4, "nullable": True, "visible": True, "dimension": 4},
        ],
        "primary_key": [{"column": "id"}, {"column": "place", "prefix": 20}],
    }


def test_a_simple_primary_key_takes_whole_columns() -> None:
    body = table_map_body(bytes([_C.LONG, _C.LONG]), more=optional(8, b"\x01\x00"))
    assert parse_table_map(body).primary_key == ((1, 0), (0, 0))


def test_columns_with_the_same_name_are_called_by_their_number() -> None:
    body = table_map_body(bytes([_C.LONG, _C.LONG]), more=optional(4, sized(b"a") * 2))
    assert parse_table_map(body).column_keys == ("@1", "@2")


def test_unknown_optional_metadata_is_skipped_by_its_length() -> None:
    (column,) = columns(bytes([_C.LONG]), more=optional(99, b"what") + optional(1, b"\x80"))
    assert column.unsigned is True


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (table_map_body(bytes([_C.LONG]))[:-1], "nullable bits of 1 bytes"),
        (table_map_body(bytes([_C.VARCHAR]), b"\x10"), "the longest value of 2 bytes"),
        (table_map_body(bytes([_C.LONG]), b"\x10"), "1 bytes of metadata belong to no column"),
        (table_map_body(bytes([_C.LONG]), more=b"\x01"), "the length of optional metadata"),
        (table_map_body(bytes([_C.LONG]), more=b"\x01\x05\x80"), "of 5 bytes"),
        (table_map_body(bytes([_C.LONG]), more=optional(1, b"\x80\x00")), "1 bytes too many"),
        (table_map_body(bytes([_C.LONG]), more=optional(1, b"\x80") * 2), "duplicate optional metadata SIGNEDNESS"),
        (table_map_body(bytes([_C.LONG]), more=optional(4, b"\x05ab")), "a column name of 5 bytes"),
        (table_map_body(bytes([_C.LONG]), more=optional(8, b"\x01")), "key column 1 of 1 columns"),
        (table_map_body(bytes([_C.VARCHAR]), b"\x10\x00", optional(2, b"\x08\x01\x08")), "column 1 of 1"),
        (table_map_body(bytes([_C.STRING]), b"\xf7\x01", optional(6, b"\x09\x01a")), "9 texts declared"),
        (table_map_body(bytes([_C.STRING]), b"\xf7\x09"), "values of 9 bytes in a column of type ENUM"),
        (table_map_body(bytes([_C.STRING]), b"\x31\x09"), "names type 49"),
        (table_map_body(bytes([_C.BLOB]), b"\x05"), "the bytes of a length is 5"),
        (table_map_body(bytes([_C.TIME2]), b"\x07"), "the digits of a fraction is 7"),
        (table_map_body(bytes([_C.NEWDECIMAL]), b"\x05\x06"), "precision 5 and scale 6"),
        (table_map_body(bytes([_C.NEWDECIMAL]), b"\x42\x06"), "precision 66"),
        (table_map_body(bytes([_C.BIT]), b"\x01\x08"), "BIT column of 65 bits"),
        (table_map_body(bytes([_C.LONG])).replace(b"db\0", b"dbX"), "does not end with a zero byte"),
    ],
)
def test_a_part_that_does_not_fit_is_named(body: bytes, words: str) -> None:
    with pytest.raises(MalformedError, match=words):
        parse_table_map(body)


def test_more_columns_than_a_table_can_have_are_refused_before_they_are_read() -> None:
    with pytest.raises(MalformedError, match="5,000 columns") as caught:
        parse_table_map(table_map_body(bytes([_C.LONG]) * 5000))
    assert caught.value.finding_id == "count-out-of-bounds"


def test_a_type_that_is_not_known_is_only_wrong_where_values_are_read() -> None:
    table = parse_table_map(table_map_body(bytes([200])))
    assert table.to_json_body()["columns"] == [{"type": "200", "metadata": 0, "nullable": True}]
    with pytest.raises(MalformedError, match="type 200"):
        get_column_encodings(table)


def everything() -> bytes:
    types = bytes([_C.LONG, _C.VARCHAR, _C.STRING, _C.STRING, _C.NEWDECIMAL, _C.BLOB, _C.GEOMETRY, _C.BIT, _C.TIME2])
    more = (
        optional(1, b"\x80")
        + optional(2, b"\x08\x01\x3f")
        + optional(4, b"".join(sized(b"c%d" % index) for index in range(9)))
        + optional(6, b"\x02" + sized(b"red") + sized(b"blue"))
        + optional(7, b"\x01")
        + optional(9, b"\x00\x00\x01\x14")
        + optional(10, b"\x2d")
        + optional(12, b"\xff\x80")
    )
    return table_map_body(types, b"\x10\x00\xfe\x10\xf7\x01\x0a\x02\x02\x04\x05\x01\x03", more)


def test_whatever_the_bytes_are_only_malformed_errors_come() -> None:
    whole = everything()
    assert len(parse_table_map(whole).columns) == 9
    dice = random.Random(11)
    cut = wrong = 0
    for size in range(len(whole)):
        cut += _is_malformed(whole[:size])
    for _ in range(4000):
        body = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            body[dice.randrange(len(body))] = dice.randrange(256)
        wrong += _is_malformed(bytes(body))
    assert cut > len(whole) // 2
    assert wrong > 1000


Row = tuple[str, int, int, int | None, object, str]


def shown(body: bytes) -> tuple[list[Row], str | None]:
    """The rows of the annotated view, and the words of the error that they end with."""
    rows: list[Row] = []
    try:
        rows.extend(table_map_schema().trace_plain_parts(body, 0, len(body), Limits()))
    except MalformedError as error:
        return rows, str(error)
    return rows, None


def test_the_annotated_view_has_a_row_for_every_field_that_the_parser_reads() -> None:
    more = (
        optional(2, b"\x08\x01\x3f")
        + optional(4, sized(b"a") + sized(b"b") + sized(b"c"))
        + optional(6, b"\x02" + sized(b"x") + sized(b"yz"))
        + optional(9, b"\x01\x14")
        + optional(12, b"\xa0")
    )
    types = bytes([_C.VARCHAR, _C.BLOB, _C.STRING])
    rows, error = shown(table_map_body(types, b"\x10\x00\x02\xf7\x01", more, database=b"d", table=b"tt"))
    assert error is None
    assert [(path, value, words) for path, _, _, end, value, words in rows if end is not None] == [
        (".table_id", 7, ""),
        (".flags", 1, "BIT_LEN_EXACT"),
        (".db_len", 1, ""),
        (".db", "d", ""),
        (".db_nul", 0, ""),
        (".tbl_len", 2, ""),
        (".table", "tt", ""),
        (".table_nul", 0, ""),
        (".n_cols", 3, ""),
        (".types[0]", 15, "VARCHAR"),
        (".types[1]", 252, "BLOB"),
        (".types[2]", 254, "STRING"),
        (".meta_len", 5, ""),
        (".metadata[0]", 16, "VARCHAR, at most 16 bytes"),
        (".metadata[1]", 2, "BLOB, length of 2 bytes"),
        (".metadata[2]", 0x1F7, "ENUM, 1 bytes"),
        (".null_bits", b"\x07", "@1 @2 @3"),
        (".optional_metadata[0].type", 2, "DEFAULT_CHARSET"),
        (".optional_metadata[0].len", 3, ""),
        (".optional_metadata[0].default_charset.default", 8, ""),
        (".optional_metadata[0].default_charset[0].column", 1, "@2"),
        (".optional_metadata[0].default_charset[0].collation", 63, ""),
        (".optional_metadata[1].type", 4, "COLUMN_NAME"),
        (".optional_metadata[1].len", 6, ""),
        (".optional_metadata[1].column_name[0]", "a", ""),
        (".optional_metadata[1].column_name[1]", "b", ""),
        (".optional_metadata[1].column_name[2]", "c", ""),
        (".optional_metadata[2].type", 6, "ENUM_STR_VALUE"),
        (".optional_metadata[2].len", 6, ""),
        (".optional_metadata[2].enum_str_value[2].count", 2, ""),
        (".optional_metadata[2].enum_str_value[2].values[0]", "x", ""),
        (".optional_metadata[2].enum_str_value[2].values[1]", "yz", ""),
        (".optional_metadata[3].type", 9, "PRIMARY_KEY_WITH_PREFIX"),
        (".optional_metadata[3].len", 2, ""),
        (".optional_metadata[3].primary_key_with_prefix[0].column", 1, "@2"),
        (".optional_metadata[3].primary_key_with_prefix[0].prefix", 20, ""),
        (".optional_metadata[4].type", 12, "COLUMN_VISIBILITY"),
        (".optional_metadata[4].len", 1, ""),
        (".optional_metadata[4].column_visibility", b"\xa0", "@1 @3"),
    ]


def test_what_cannot_be_told_apart_in_the_view_cannot_be_parsed_and_the_words_are_the_same() -> None:
    whole, dice, refused, same = everything(), random.Random(12), 0, 0
    for _ in range(3000):
        body = bytearray(whole[: dice.randint(len(whole) // 2, len(whole))])
        for _ in range(dice.randint(0, 3)):
            body[dice.randrange(len(body))] = dice.randrange(256)
        rows, error = shown(bytes(body))
        leaves = [(start, end) for _, _, start, end, _, _ in rows if end is not None]
        assert [start for start, _ in leaves] == [0, *(end for _, end in leaves)][: len(leaves)], bytes(body).hex()
        if error is None:
            assert leaves[-1][1] == len(body)
            continue
        with pytest.raises(MalformedError) as caught:
            parse_table_map(bytes(body))
        refused, same = refused + 1, same + (str(caught.value) == error)
    assert refused > 1000
    assert same > refused // 2, "the others are refused for what a server checks before it"


@pytest.mark.parametrize("code", [1, 2, 3, 4, 6, 7, 10, 11, 12])
def test_an_empty_value_says_nothing_of_columns_that_it_must_be_about(code: int) -> None:
    types, metadata = bytes([_C.LONG, _C.VARCHAR, _C.STRING, _C.GEOMETRY]), b"\x10\x00\xf7\x01\x04"
    body = table_map_body(types, metadata, optional(code, b""))
    assert shown(body)[1] is None
    with pytest.raises(MalformedError):
        parse_table_map(body)


def _is_malformed(body: bytes) -> bool:
    try:
        table = parse_table_map(body)
        table.to_json_body()
        get_column_encodings(table)
    except MalformedError:
        return True
    return False


def hinted(hints: tuple[DeclaredColumn, ...]) -> tuple[TableMap, TableMap]:
    types = bytes([_C.LONG, _C.STRING, _C.STRING, _C.VARCHAR])
    table = parse_table_map(table_map_body(types, b"\xfe\x10\xf7\x01\x64\x00"))
    return table, table.complete_with_declared_columns(hints)


def test_hints_fill_in_what_the_log_leaves_open() -> None:
    hints = (
        DeclaredColumn("id", frozenset({_C.LONG}), unsigned=True),
        DeclaredColumn("key", frozenset({_C.STRING}), logical=LogicalType.UUID),
        DeclaredColumn("colour", frozenset({_C.ENUM}), values=("red", "blue")),
        DeclaredColumn("name", charset="latin1"),
    )
    table, better = hinted(hints)
    assert better.column_keys == ("id", "key", "colour", "name")
    assert [kind.kind for kind in get_column_encodings(better)] == [
        ValueKind.UNSIGNED,
        ValueKind.UUID,
        ValueKind.ENUM,
        ValueKind.TEXT,
    ]
    assert [kind.kind for kind in get_column_encodings(table)] == [
        ValueKind.SIGNED,
        ValueKind.GUESS,
        ValueKind.ENUM,
        ValueKind.GUESS,
    ]
    assert better.columns[2].values == ("red", "blue")
    assert table.complete_with_declared_columns(hints) is better


@pytest.mark.parametrize(
    "hints",
    [(DeclaredColumn("id"),), (DeclaredColumn("id", frozenset({_C.TINY})), *[DeclaredColumn(name) for name in "abc"])],
)
def test_hints_about_another_table_are_not_used(hints: tuple[DeclaredColumn, ...]) -> None:
    table, same = hinted(hints)
    assert same is table


def test_the_log_s_own_word_goes_before_a_hint() -> None:
    body = table_map_body(bytes([_C.LONG]), more=optional(1, b"\x00") + optional(4, sized(b"log")))
    (column,) = parse_table_map(body).complete_with_declared_columns([DeclaredColumn("sql", unsigned=True)]).columns
    assert (column.name, column.unsigned) == ("log", False)


# -- every type beside every other -------------------------------------------------------------------------------------

METADATA: dict[int, bytes] = {
    _C.FLOAT: b"\x04", _C.DOUBLE: b"\x08", _C.VARCHAR: b"\x90\x01", _C.VAR_STRING: b"\x10\x00", _C.BIT: b"\x05\x01",
    _C.TIMESTAMP2: b"\x03", _C.DATETIME2: b"\x06", _C.TIME2: b"\x00", _C.VECTOR: b"\x04", _C.JSON: b"\x04",
    _C.NEWDECIMAL: b"\x0a\x02", _C.BLOB: b"\x02", _C.STRING: b"\xfe\x10", _C.GEOMETRY: b"\x04", _C.ENUM: b"\xf7\x01",
    _C.SET: b"\xf8\x01", _C.BLOB_COMPRESSED: b"\x02", _C.VARCHAR_COMPRESSED: b"\x90\x01",
}  # fmt: skip
PLAIN = (_C.TINY, _C.SHORT, _C.LONG, _C.LONGLONG, _C.INT24, _C.DATE, _C.YEAR)
TYPES_OF = {
    False: (*PLAIN, *(kind for kind in METADATA if kind not in (_C.BLOB_COMPRESSED, _C.VARCHAR_COMPRESSED))),
    True: (*PLAIN, *(kind for kind in METADATA if kind not in (_C.VECTOR, _C.JSON))),
}
"""mariadb -> the types that its servers write."""
LISTED = {
    False: {_C.STRING, _C.VAR_STRING, _C.VARCHAR, _C.BLOB, _C.VECTOR},
    True: {_C.STRING, _C.VAR_STRING, _C.VARCHAR, _C.BLOB, _C.GEOMETRY, _C.BLOB_COMPRESSED, _C.VARCHAR_COMPRESSED},
}
"""mariadb -> the types that its servers count as character columns."""
CHOICE = (_C.ENUM, _C.SET)


def collation_of(kind: int, place: int) -> int:
    """A collation that tells the place of a column: neighbours have different ones."""
    return {_C.VECTOR: 63, _C.GEOMETRY: 63}.get(ColumnType(kind), (8, 255, 33, 45)[place % 4])


def written(kinds: tuple[int, ...], mariadb: bool, each: bool) -> bytes:
    """The map as a server writes it. each: one collation for every column, else a default and what differs from it."""
    stored = bytes(_C.STRING if kind in CHOICE else kind for kind in kinds)
    more = b""
    for counted, fields in ((LISTED[mariadb], (2, 3)), (CHOICE, (10, 11))):
        found = [collation_of(kind, place) for place, kind in enumerate(kinds) if kind in counted]
        if found and each:
            more += optional(fields[1], b"".join(map(lenenc, found)))
        elif found:
            default = max(set(found), key=found.count)
            others = [lenenc(i) + lenenc(one) for i, one in enumerate(found) if one != default]
            more += optional(fields[0], lenenc(default) + b"".join(others))
    more += b"".join(
        optional(code, b"".join(b"\x01" + sized(b"x") for one in kinds if one == kind))
        for code, kind in ((5, _C.SET), (6, _C.ENUM))
        if kind in kinds
    )
    vectors = [lenenc(place + 1) for place, kind in enumerate(kinds) if kind == _C.VECTOR]
    more += optional(13, b"".join(vectors)) if vectors else b""
    return table_map_body(stored, b"".join(METADATA.get(kind, b"") for kind in kinds), more)


@pytest.mark.parametrize("mariadb", [False, True])
@pytest.mark.parametrize("each", [False, True])
def test_every_type_in_every_position_beside_every_other_keeps_the_collations_in_their_places(
    mariadb: bool, each: bool
) -> None:
    kinds_known = TYPES_OF[mariadb]
    count = len(kinds_known)
    for turn in range(count):
        for step in (1, 2, 3, 5, 7):
            kinds = tuple(kinds_known[(turn + step * place) % count] for place in range(count)) * 2
            found = parse_table_map(written(kinds, mariadb, each), 6, mariadb).columns
            assert [int(column.type) for column in found] == list(kinds)
            counted = LISTED[mariadb] | set(CHOICE)
            expected = [collation_of(kind, i) if kind in counted else None for i, kind in enumerate(kinds)]
            assert [column.collation for column in found] == expected, kinds
            dimensions = [i + 1 if kind == _C.VECTOR else None for i, kind in enumerate(kinds)]
            assert [column.dimension for column in found] == dimensions


@pytest.mark.full_corpus
def test_a_real_log_of_mysql_9_with_vectors_is_whole_and_text_behind_a_vector_is_text(corpus: Path) -> None:
    path = corpus / "third-party-2" / "vector.binlog"
    report = verify_bytes("bin.000001", path.read_bytes())
    assert not [found.id for found in report.findings if found.severity >= Severity.WARNING]
    made = corpus / "found" / "third-party" / "vector-text.000001"
    with binlogtool.open(made) as log:
        rows = [record.body["rows"][0]["after"] for record in log.records() if record.type == "WRITE_ROWS_V2"]
    assert rows == [{"id": 1, "v": [1.0, 2.0], "title": "tïtle!", "body": "body"}]


@pytest.mark.full_corpus
def test_the_annotated_hexdump_counts_vectors_as_the_server_does(corpus: Path) -> None:
    path = corpus / "third-party-2" / "vector.binlog"
    event = path.read_bytes()[0x492 + 19 : 0x4FF - 4]
    rows = list(table_map_schema(is_mariadb=False).trace_rows(event, 0, len(event), Limits()))
    own = next(row for row in rows if row.path.endswith("default_charset[0].column"))
    assert own.meaning == "@3"
