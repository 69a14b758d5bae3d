"""A structure that has a schema has no second reader: which modules take numbers out of bytes by hand, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.house.figures import by_hand, by_kernel, by_reader

FORMATS = Path(__file__).resolve().parents[2] / "formats"

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
        "bodies", "keeping", "binlog_events/events/user_var",
        "binlog_events/gtid/tagged", "binlog_events/rows/images", "binlog_events/values/binary_json",
        "binlog_events/values/decimals", "binlog_events/values/decoding", "binlog_events/values/temporal",
        "binlog_events/wire/compression", "binlog_events/wire/status",
        "binlog_events/changes/cells", "binlog_events/sql/literals", "binlog_events/sql/kernels/texts",
        "drizzle/protobuf/wire", "manticore/payloads/leaves", "tarantool/msgpack/extensions",
        "tarantool/msgpack/messages", "tarantool/layout/compression", "eblob/schema", "mysql_binlog/judge/gtid_rules",
        "mariadb_innodb_binlog/redo/records",
    ),
    FOUND: (
        "heads", "binlog_events/stream/proofs", "binlog_events/wire/reading", "drizzle/damage", "eblob/damage/damage",
        "manticore/damage/damage", "manticore/damage/heads", "mysql_binlog/damage/damage", "mysql_binlog/damage/heads",
        "mariadb_innodb_binlog/records/doubtful", "mariadb_innodb_binlog/cuts/cuts",
        "mariadb_innodb_binlog/redo/walk", "mariadb_innodb_binlog/redo/recovery",
    ),
    HEAD: (
        "binlog_events/crypt/headers", "binlog_events/wire/description", "drizzle/layout", "eblob/layout/dialects",
        "eblob/layout/layout", "manticore/layout", "mariadb_innodb_binlog/records/context",
        "mysql_binlog/layout/description", "mysql_binlog/layout/layout", "mysql_binlog/layout/levels",
    ),
    WRITTEN: (
        "binlog_events/crypt/sealed", "binlog_events/crypt/sealing", "binlog_events/events/writing",
        "binlog_events/sql/load", "binlog_events/sql/row_events", "binlog_events/sql/writers",
        "binlog_events/sql/undo", "manticore/repair", "mariadb_innodb_binlog/repair/recovered",
        "mariadb_innodb_binlog/repair/repair",
    ),
    KEY: (
        "binlog_events/changes/changes", "binlog_events/changes/row_tables", "binlog_events/groups/following",
        "binlog_events/groups/nested", "binlog_events/groups/tracking", "binlog_events/sql/quick",
        "mysql_binlog/cuts",
    ),
    TWICE: (),
    VALUE: ("manticore/meaning",),
    SERVER: (
        "manticore/replay/unchecked_parse",
        "mysql_binlog/repair", "mysql_binlog/replay/recovery_reader", "mysql_binlog/replay/startup",
        "drizzle/replay/reader", "eblob/replay", "mariadb_innodb_binlog/replay/readers",
        "tarantool/replay/server_reader",
    ),
    OTHER: ("manticore/replay/saved", "mysql_binlog/members/gtid_index"),
}  # fmt: skip
"""Why, and which modules of those that use `int.from_bytes` or `struct`; derived code (`formats.derived`) does not."""

COMPILED = (
    "binlog_events/changes/cell_kernels", "binlog_events/changes/run_kernels", "binlog_events/groups/cut_kernels",
    "binlog_events/groups/tracking_kernels", "binlog_events/rows/image_kernels", "binlog_events/rows/kernels",
    "binlog_events/sql/kernels/blocks", "binlog_events/sql/kernels/events", "binlog_events/sql/kernels/frequent",
    "binlog_events/sql/kernels/row_statements", "binlog_events/sql/kernels/session",
    "binlog_events/sql/kernels/texts", "binlog_events/sql/kernels/values", "binlog_events/sql/kernels/walk",
    "binlog_events/values/kernels", "binlog_events/values/numbers", "binlog_events/wire/fields",
    "binlog_events/wire/status_kernels", "crc32", "drizzle/protobuf/jsonlines", "eblob/groups/lines",
    "manticore/payloads/jsonlines", "manticore/payloads/walk", "mariadb_innodb_binlog/groups/commits",
    "mariadb_innodb_binlog/groups/plain_groups", "mysql_binlog/judge/folds", "tarantool/judge/folds",
    "tarantool/msgpack/canonical", "tarantool/msgpack/kernels", "tarantool/replay/kernels",
    "tarantool/rows/jsonlines", "tarantool/rows/rows",
)  # fmt: skip
"""Modules whose compiled code reads numbers itself: a second reader of what a schema says, for speed; tests hold both
against each other. The list may only get shorter."""

READERS = (
    "binlog_events/rows/partial_rows", "binlog_events/rows/rows", "binlog_events/rows/table_map",
    "binlog_events/rows/table_map_fields", "binlog_events/rows/table_map_view", "binlog_events/rows/table_metadata",
    "binlog_events/values/binary_json", "binlog_events/wire/compression",
)  # fmt: skip
"""Modules that read numbers through `Reader` (`binlog_events/wire/reading.py`). The list may only get shorter."""

DERIVED = {
    "QUERY", "EXECUTE_LOAD_QUERY", "QUERY_COMPRESSED", "XID", "XA_PREPARE", "INTVAR", "RAND", "ROTATE", "ROWS_QUERY",
    "ANNOTATE_ROWS", "GTID", "GTID_LOG", "ANONYMOUS_GTID", "BEGIN_LOAD_QUERY", "APPEND_BLOCK", "DELETE_FILE", "STOP",
    "INCIDENT", "HEARTBEAT", "BINLOG_CHECKPOINT", "START_ENCRYPTION",
}  # fmt: skip
"""Events whose bodies are read by nothing but what is made of their schemas."""


def modules(reads: Callable[[Path], bool] = by_hand) -> set[str]:
    return {str(path.relative_to(FORMATS).with_suffix("")) for path in FORMATS.rglob("*.py") if reads(path)}


@pytest.mark.full
@pytest.mark.parametrize(("reads", "listed"), [(by_kernel, COMPILED), (by_reader, READERS)])
def test_compiled_code_and_readers_that_take_numbers_out_of_bytes_are_listed(
    reads: Callable[[Path], bool], listed: tuple[str, ...]
) -> None:
    found = modules(reads)
    assert sorted(found - set(listed)) == [], "read the fields by what is made of the schema (formats/derived.py)"
    assert sorted(set(listed) - found) == [], "no longer by itself: take it off the list"


@pytest.mark.full
def test_whoever_takes_numbers_out_of_bytes_by_hand_says_why() -> None:
    listed = [name for names in BY_HAND.values() for name in names]
    assert len(listed) == len(set(listed))
    found = modules()
    assert sorted(found - set(listed)) == [], "read the fields by what is made of the schema (formats/derived.py)"
    assert sorted(set(listed) - found) == [], "no longer by hand: take it off the list"


@pytest.mark.parametrize("name", sorted(DERIVED))
def test_a_derived_body_has_a_reader_and_a_writer_of_json(name: str) -> None:
    from binlogtool.formats.binlog_events.codes import EventType
    from binlogtool.formats.binlog_events.events.bodies import SHOWN_BODIES
    from binlogtool.schema.decoders import make_decoder
    from binlogtool.schema.identity import KernelNames
    from binlogtool.schema.json_bodies import generate_json_body

    shown = SHOWN_BODIES[EventType[name]]
    assert callable(make_decoder(shown))
    made, text = generate_json_body(shown, KernelNames())
    assert f"def {made}(buf, p, n, " in text
