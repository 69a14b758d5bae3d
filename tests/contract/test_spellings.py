"""A structure that has a schema has no second reader: which modules take numbers out of bytes by hand, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.package_figures.figures import by_hand, by_reader
from tests.package_figures.kernels import iter_kernels, list_hand_readers, modules_of_formats
from tests.package_figures.modules import ROOT, Code

LEAF = "a value that no schema says: the schema's field of it calls this very code"
FOUND = "looks at bytes that are no whole structure: damaged, searched for, or cut off"
HEAD = "what a file is, before there is a layout with a schema"
WRITTEN = "bytes that this program makes or changes itself"
KEY = "a table id of a width that the file says, or a part of a key: one number, not a structure"
TWICE = "to be derived: the schema has an array, a condition or a packed integer that `lower_bodies` does not know yet"
VALUE = "makes floats and larger numbers of the dwords that a schema gave"
SERVER = "does what the server does with these bytes, in its order, with its words"
OTHER = "no structure of a log: an index, a key file, a state that was saved"

BY_HAND: dict[str, tuple[str, ...]] = {
    LEAF: (
        "binlog_events/changes/typed_column_kernels", "binlog_events/event_schemas", "binlog_events/gtid/gtid_events",
        "binlog_events/rows/rows_event", "binlog_events/sql/kernels/event_script_kernels",
        "binlog_events/sql/format_literals",
        "binlog_events/values/decode_values", "binlog_events/wire_format",
        "drizzle/schema", "eblob/schema", "format_api/schema_fields", "format_api/row_store_kernels",
        "manticore/payload_kernels", "innodb/redo_records", "mysql_binlog/validate/gtid_rules",
        "tarantool/msgpack/parse", "tarantool/msgpack/decode_values", "tarantool/schema",
    ),
    FOUND: (
        "binlog_events/decode", "binlog_events/wire_format", "drizzle/explain_damage", "eblob/explain_damage",
        "format_api/format",
        "manticore/explain_damage", "mariadb_innodb_binlog/records/salvage",
        "mariadb_innodb_binlog/redo_recovery", "innodb/redo_log", "mysql_binlog/explain_damage",
    ),
    HEAD: (
        "binlog_events/crypt/decrypt", "binlog_events/wire_format", "drizzle/format", "eblob/decode",
        "manticore/decode", "mariadb_innodb_binlog/schema", "mysql_binlog/detect_layout",
    ),
    WRITTEN: (
        "binlog_events/crypt/decrypt", "binlog_events/crypt/keys_and_ciphers", "binlog_events/sql/flashback",
        "binlog_events/sql/row_statements", "binlog_events/sql/script", "binlog_events/write_mariadb_binlog",
        "manticore/format", "mariadb_innodb_binlog/redo_recovery", "mariadb_innodb_binlog/repair",
    ),
    KEY: (
        "binlog_events/changes/row_changes", "binlog_events/changes/row_event_table_reader", "binlog_events/decode",
        "binlog_events/sql/script_writer_with_kernels", "binlog_events/transactions/transaction_kernels",
    ),
    TWICE: (),
    VALUE: ("manticore/decode",),
    SERVER: (
        "drizzle/replay", "eblob/replay", "manticore/replay/startup", "mariadb_innodb_binlog/replay",
        "mysql_binlog/repair_in_use_flag_and_index", "mysql_binlog/replay/crash_recovery",
        "mysql_binlog/replay/mariadb_event_checks",
        "tarantool/replay/simulated_xlog_reader",
    ),
    OTHER: (
        "manticore/replay/replayer", "mysql_binlog/index_and_state_files",
    ),
}  # fmt: skip
"""Why, and which modules of those that use `int.from_bytes` or `struct`; a module may have several reasons.
Derived code (`binlogtool/format_api/schema_fields.py`) needs none."""

SCALAR = "decodes one value: the field of a schema, and other kernels, read that value by this kernel"
LISTED = "lists or skips the values of a leaf, whose number and types are in fields that a schema gave it"
LETTERS = "compares letters of a text"
EQUAL = "compares bytes, or groups them for base64, eight or six at a time, whatever they mean"
ID = "one number at the place that a schema gives, of a size that the file says, or whose meaning depends on others"
NO_SCHEMA = "bytes that no schema describes: what a row image holds depends on the columns of its table"
SEARCHED = "looks for the end of bytes that are opaque to the server, too"
CANONICAL = "accepts a number only in its shortest form, as the server writes it; the general reader takes the others"

BY_KERNEL: dict[str, dict[str, str]] = {
    SCALAR: {
        "format_api/json_text_kernels": "_utf8_sequence_size",
        "format_api/schema_fields": "load_int64 load_little_endian load_uint32 load_uint48",
        "binlog_events/event_schemas": "detect_checksum_form",
        "binlog_events/values/decode_value_to_sink_kernels":
            "decode_datetime2 decode_old_temporal decode_time2 decode_timestamp2 decode_value_to_sink load_digit_group "
            "load_microseconds load_signed",
        "binlog_events/wire_format": "load_compressed_block_head load_lenenc",
        "eblob/json_line_kernels": "write_json_control_flags",
        "manticore/payload_kernels": "read_sized_number read_zint skip_text",
        "mariadb_innodb_binlog/schema": "read_compressed_integer",
        "tarantool/msgpack/parse":
            "load_big_endian_uint16 load_big_endian_uint32 load_big_endian_int64 load_mp_integer "
            "load_big_endian_number read_length read_uint skip_number",
        "tarantool/rows/json_line_kernels": "write_json_scalar",
        "tarantool/rows/parse_rows": "read_row_header",
        "tarantool/validate/base_validator": "read_sortable_integer",
    },
    LISTED: {
        "manticore/payload_kernels": "read_v2_to_v14_body_columns",
        "manticore/json_line_kernels": "get_value_size_in_dwords write_json_updated_documents "
            "write_json_integer_list write_json_attribute_value",
    },
    LETTERS: {
        "binlog_events/sql/format_literals": "write_string_literal",
        "binlog_events/transactions/boundaries": "is_begin is_possible_ddl",
        "mysql_binlog/validate/expected_event_kernels": "track_query_if_expected",
    },
    EQUAL: {
        "binlog_events/transactions/transaction_kernels": "is_equal_to_packed_words try_set_transaction_gtid",
        "mysql_binlog/validate/expected_event_kernels": "track_mysql_gtid_if_expected",
    },
    ID: {
        "binlog_events/sql/kernels/row_statement_kernels": "is_table_id_of_statement",
        "binlog_events/sql/kernels/event_script_kernels": "find_last_event_of_statement write_session_before_query",
        "binlog_events/transactions/transaction_kernels": "find_table_map_number",
        "eblob/json_line_kernels": "write_record_columns",
        "mysql_binlog/validate/expected_event_kernels": "track_rows_event_if_valid track_table_map_if_unchanged",
    },
    NO_SCHEMA: {
        "binlog_events/changes/typed_column_kernels": "store_cell_value_and_get_status",
        "binlog_events/rows/write_rows_json_kernels": "find_value_bounds",
    },
    SEARCHED: {"manticore/payload_kernels": "find_settings_end_by_checksum"},
    CANONICAL: {"tarantool/replay/replay_kernels": "find_number_end read_addable_integer read_operation"},
}  # fmt: skip
"""Why, and which kernels, by module, take numbers out of bytes by offsets that no schema gives. All others read the
fields of a structure by a kernel that is generated from its schema (`schema_fields.make_fields_kernel`)."""

READERS = (
    "binlog_events/rows/annotate_row_events",
    "binlog_events/rows/rows_event",
    "binlog_events/rows/table_map",
    "binlog_events/values/decode_values",
)
"""Modules that read numbers through `BoundedReader` of `binlog_events/wire_format`. The list may only get shorter."""

DERIVED = {
    "QUERY", "EXECUTE_LOAD_QUERY", "QUERY_COMPRESSED", "XID", "XA_PREPARE", "INTVAR", "RAND", "ROTATE", "ROWS_QUERY",
    "ANNOTATE_ROWS", "GTID", "GTID_LOG", "ANONYMOUS_GTID", "BEGIN_LOAD_QUERY", "APPEND_BLOCK", "DELETE_FILE", "STOP",
    "INCIDENT", "HEARTBEAT", "BINLOG_CHECKPOINT", "START_ENCRYPTION",
}  # fmt: skip
"""Events whose bodies are read by nothing but what is made of their schemas."""


def modules(reads: Callable[[Path], bool] = by_hand) -> set[str]:
    """Names of the modules of formats, and of the API for them, that do so."""
    return {name for name, path in modules_of_formats(ROOT).items() if reads(path)}


def test_a_kernel_that_counts_bytes_itself_says_why() -> None:
    listed = [(module, name) for why in BY_KERNEL.values() for module, names in why.items() for name in names.split()]
    assert len(listed) == len(set(listed))
    found = {(module, name) for module, names in list_hand_readers(Code(ROOT)).items() for name in names}
    assert sorted(found - set(listed)) == [], (
        "read the fields by a kernel made of the schema (binlogtool/format_api/schema_fields.py: make_fields_kernel)"
    )
    assert sorted(set(listed) - found) == [], "no longer by itself: take it off the list"


@pytest.mark.parametrize(
    ("body", "by_hand"),
    [
        ("return load_int64(buf, pos + 17)", True),
        ("return load_int64(buf, pos + GNO_AT)", False),
        ("return buf[pos + 11] | buf[pos + 12] << 8", True),
        ("return buf[pos] | buf[pos + WIDTH] << 8", True),
        ("return buf[pos + 4]", True),
        ("return memory.buf[pos + 4]", True),
        ("return texts[pos + 4] << 8", False),
        ("return load_gtid(buf, pos, limit)[1]", False),
    ],
)
def test_a_second_reader_in_a_kernel_is_found(tmp_path: Path, body: str, by_hand: bool) -> None:
    (tmp_path / "formats").mkdir()
    signature = "(buf: UInt8s, texts: UInt8s, memory: Memory, pos: int, limit: int) -> int"
    text = f"GNO_AT = field_offset(GTID, 'gno')\n@kernel(load_int64)\ndef read{signature}:\n    {body}\n"
    (tmp_path / "formats/module.py").write_text(text)
    assert list_hand_readers(Code(tmp_path)) == ({"module": {"read"}} if by_hand else {})
    assert [one.name for one in iter_kernels(tmp_path / "formats/module.py")] == ["read"]


@pytest.mark.full
def test_readers_that_take_numbers_out_of_bytes_are_listed() -> None:
    found = modules(by_reader)
    assert sorted(found - set(READERS)) == [], (
        "read the fields by what is made of the schema (binlogtool/format_api/schema_fields.py)"
    )
    assert sorted(set(READERS) - found) == [], "no longer by itself: take it off the list"


@pytest.mark.full
def test_whoever_takes_numbers_out_of_bytes_by_hand_says_why() -> None:
    listed = [name for names in BY_HAND.values() for name in names]
    assert all(len(names) == len(set(names)) for names in BY_HAND.values())
    found = modules()
    assert sorted(found - set(listed)) == [], (
        "read the fields by what is made of the schema (binlogtool/format_api/schema_fields.py)"
    )
    assert sorted(set(listed) - found) == [], "no longer by hand: take it off the list"


@pytest.mark.parametrize("name", sorted(DERIVED))
def test_a_derived_body_has_a_reader_and_a_writer_of_json(name: str) -> None:
    from binlogtool.formats.binlog_events.event_schemas import SHOWN_BODIES
    from binlogtool.formats.binlog_events.wire_format import EventType
    from binlogtool.schema.json_body_codegen import generate_json_body
    from binlogtool.schema.native_library import KernelNames
    from binlogtool.schema.python_body_codegen import make_decoder

    shown = SHOWN_BODIES[EventType[name]]
    assert callable(make_decoder(shown))
    made, text = generate_json_body(shown, KernelNames())
    assert f"def {made}(buf, p, n, " in text
