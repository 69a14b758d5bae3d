"""A structure that has a schema has no second reader: which modules take numbers out of bytes by hand, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.house.figures import by_hand, by_kernel, by_reader, modules_of_formats
from tests.house.modules import ROOT

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
        "binlog_events/changes/typed_cells", "binlog_events/event_schemas", "binlog_events/gtid/gtid_events",
        "binlog_events/rows/rows_event", "binlog_events/sql/kernels/statements", "binlog_events/sql/literals",
        "binlog_events/status_variables", "binlog_events/values/decode", "binlog_events/wire_format",
        "drizzle/schema", "eblob/schema", "format_api/schema_fields", "format_api/row_store_kernels",
        "manticore/field_types", "mariadb_innodb_binlog/redo/records", "mysql_binlog/validate/gtid_rules",
        "tarantool/msgpack/messages", "tarantool/msgpack/values", "tarantool/schema",
    ),
    FOUND: (
        "binlog_events/decode", "binlog_events/wire_format", "drizzle/explain_damage", "eblob/explain_damage",
        "format_api/format",
        "manticore/explain_damage", "mariadb_innodb_binlog/records/salvage",
        "mariadb_innodb_binlog/redo/recovery", "mariadb_innodb_binlog/redo/redo_log", "mysql_binlog/explain_damage",
    ),
    HEAD: (
        "binlog_events/crypt/decrypt", "binlog_events/wire_format", "drizzle/detect_layout", "eblob/detect_layout",
        "manticore/detect_layout", "mariadb_innodb_binlog/schema", "mysql_binlog/detect_layout",
    ),
    WRITTEN: (
        "binlog_events/crypt/decrypt", "binlog_events/crypt/keys_and_ciphers", "binlog_events/sql/flashback",
        "binlog_events/sql/row_statements", "binlog_events/sql/script", "binlog_events/write_log",
        "manticore/format", "mariadb_innodb_binlog/redo/recovery", "mariadb_innodb_binlog/repair",
    ),
    KEY: (
        "binlog_events/changes/row_changes", "binlog_events/changes/row_tables", "binlog_events/decode",
        "binlog_events/sql/fast_path", "binlog_events/transactions/tracker_kernels", "mysql_binlog/transactions",
    ),
    TWICE: (),
    VALUE: ("manticore/decode",),
    SERVER: (
        "drizzle/replay", "eblob/replay", "manticore/replay/startup", "mariadb_innodb_binlog/replay",
        "mysql_binlog/repair", "mysql_binlog/replay/crash_recovery",
        "tarantool/replay/server_reader",
    ),
    OTHER: (
        "manticore/replay/replay", "mysql_binlog/index_files",
    ),
}  # fmt: skip
"""Why, and which modules of those that use `int.from_bytes` or `struct`; a module may have several reasons.
Derived code (`binlogtool/format_api/schema_fields.py`) needs none."""

COMPILED = (
    "binlog_events/changes/row_event_selection_kernels",
    "binlog_events/changes/typed_cells", "binlog_events/rows/json_kernels",
    "binlog_events/sql/kernels/row_statements", "binlog_events/sql/kernels/statements",
    "binlog_events/status_variables", "binlog_events/transactions/tracker_kernels", "binlog_events/values/decoders",
    "binlog_events/wire_format", "drizzle/json_lines", "eblob/json_lines", "format_api/layout", "manticore/json_lines",
    "manticore/field_types", "mariadb_innodb_binlog/event_groups", "mysql_binlog/validate/kernels",
    "tarantool/msgpack/messages", "tarantool/replay/fast_path", "tarantool/rows/json_lines", "tarantool/rows/rows",
)  # fmt: skip
"""Modules whose compiled code reads numbers itself: a second reader of what a schema says, for speed; tests hold both
against each other. The list may only get shorter."""

READERS = (
    "binlog_events/rows/annotated_rows",
    "binlog_events/rows/rows_event",
    "binlog_events/rows/table_map",
    "binlog_events/values/decode",
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


@pytest.mark.full
@pytest.mark.parametrize(("reads", "listed"), [(by_kernel, COMPILED), (by_reader, READERS)])
def test_compiled_code_and_readers_that_take_numbers_out_of_bytes_are_listed(
    reads: Callable[[Path], bool], listed: tuple[str, ...]
) -> None:
    found = modules(reads)
    assert sorted(found - set(listed)) == [], (
        "read the fields by what is made of the schema (binlogtool/format_api/schema_fields.py)"
    )
    assert sorted(set(listed) - found) == [], "no longer by itself: take it off the list"


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
    from binlogtool.schema.body_decoders import make_decoder
    from binlogtool.schema.json_body_codegen import generate_json_body
    from binlogtool.schema.native_library import KernelNames

    shown = SHOWN_BODIES[EventType[name]]
    assert callable(make_decoder(shown))
    made, text = generate_json_body(shown, KernelNames())
    assert f"def {made}(buf, p, n, " in text
