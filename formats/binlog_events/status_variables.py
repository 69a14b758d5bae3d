"""Status variables of QUERY events: their schema, and statement texts in the character set that they name.

See docs/spec/mysql_binlog.md#event-bodies.

Kernels return the new output position; -1 if the output buffer is full, -2 if the general Python writer must take over.

The event records the character set of its text (status variable `charset`, member `client`). Invalid text stays bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from construct import (
    Array,
    Bytes,
    BytesInteger,
    Construct,
    GreedyBytes,
    If,
    Int8ul,
    Int16ul,
    Int64ul,
    Sequence,
    Struct,
    Tell,
    stream_read,
    this,
)

from binlogtool.format_api.json_text_kernels import (
    UNSUPPORTED,
    write_json_bytes,
    write_json_null,
    write_json_text_or_bytes,
    write_json_unsigned,
)
from binlogtool.format_api.lazy_import import LazyRef
from binlogtool.format_api.schema_fields import (
    BodySchema,
    FieldsByCode,
    HiddenField,
    LeafFormat,
    MalformedError,
    MutableUInt8s,
    NestedSchema,
    OpaqueLeaf,
    ScalarKernel,
    TextField,
    UInt8s,
    decode_text,
    kernel,
    make_body_decoder,
    make_fields_kernel,
    make_json_kernel,
    make_tuple_decoder,
)
from binlogtool.format_api.schema_fields import decode_text as utf8_text
from binlogtool.formats.binlog_events.values.column_types import charset_of_collation, get_charset_decoder
from binlogtool.formats.binlog_events.wire_format import ROLLBACK_ALTER, START_ALTER

# --- Names of databases ---

_MODULE = "binlog_events.status_variables"
OVER_MAX_DBS = 254
"""Count that a server writes instead of more than 16 names."""


@kernel()
def scan_nul_terminated_name(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Return the size of a name without its NUL, and the position after the NUL; -1 if there is none."""
    end = pos
    while end < limit and buf[end] != 0:
        end += 1
    return end - pos, -1 if end == limit else end + 1


class NulTerminatedName(Construct):  # type: ignore[misc]
    """Construct of a name that ends with a NUL."""

    scan = ScalarKernel(scan_nul_terminated_name)

    def _parse(self, stream: Any, context: Any, path: str) -> str | bytes:
        name = b"".join(iter(lambda: stream_read(stream, 1, path), b"\0"))
        return decode_text(name)


def decode_database_names(value: bytes) -> list[str | bytes] | None:
    """Decode the value of UPDATED_DB_NAMES; None = more databases than a server lists."""
    return None if value[0] == OVER_MAX_DBS else [decode_text(name) for name in value[1:].split(b"\0")[:-1]]


@kernel(scan_nul_terminated_name, write_json_text_or_bytes, write_json_null)
def write_updated_db_names(buf: UInt8s, pos: int, limit: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write the value of UPDATED_DB_NAMES."""
    if out_limit - out_pos < 64:
        return -1
    if buf[pos] == OVER_MAX_DBS:
        return write_json_null(out, out_pos, out_limit)
    start = pos + 1
    out[out_pos] = 91
    while start < limit:
        size, end = scan_nul_terminated_name(buf, start, limit)
        out_pos = write_json_text_or_bytes(buf, start, start + size, out, out_pos + 1, out_limit - 64)
        if out_pos < 0:
            return out_pos
        out[out_pos] = 44
        start = end
    out[out_pos + (limit - pos == 1)] = 93
    return out_pos + 1 + (limit - pos == 1)


# --- The variables ---

_CODE = "code" / HiddenField(Int8ul)
_COLLATION = Sequence("charset" / Int16ul, "collation" / Int16ul)
_NAMES = Struct(
    "count" / Int8ul,
    "names" / If(this.count != OVER_MAX_DBS, Array(this.count, NulTerminatedName())),
)
_NAMES_LEAF = LeafFormat(decode_database_names, LazyRef(f"{_MODULE}:write_updated_db_names"))


def _number(size: int) -> Construct:
    return Struct(_CODE, "value" / BytesInteger(size, swapped=True))


def _located_number(position: str, size: int) -> Construct:
    return Struct(_CODE, position / HiddenField(Tell), "value" / BytesInteger(size, swapped=True))


def _numbers(*names: str) -> Construct:
    return Struct(_CODE, *(name / Int16ul for name in names))


def _text(name: str) -> tuple[Construct, Construct]:
    size = "len" if name == "value" else f"{name}_len"
    return size / HiddenField(Int8ul), name / TextField(Bytes(this[size]))


STATUS_VARIABLES = FieldsByCode(
    {
        0: "flags2" / _number(4),
        1: "sql_mode" / _number(8),
        2: "catalog" / Struct(_CODE, *_text("value"), "nul" / HiddenField(Int8ul)),
        6: "catalog_nz" / Struct(_CODE, *_text("value")),
        3: "auto_increment" / _numbers("increment", "offset"),
        131: "character_set_collations"
        / Struct(_CODE, "count" / HiddenField(Int8ul), "value" / Array(this.count, _COLLATION)),
        4: "charset" / _numbers("client", "connection", "server"),
        5: "time_zone" / Struct(_CODE, *_text("value")),
        7: "lc_time_names" / _number(2),
        8: "charset_database" / _number(2),
        9: "table_map_for_update" / _number(8),
        10: "master_data_written" / _number(4),
        11: "invoker" / Struct(_CODE, *_text("user"), *_text("host")),
        12: "updated_db_names" / Struct(_CODE, "value" / OpaqueLeaf(_NAMES, _NAMES_LEAF)),
        13: "microseconds" / _located_number("microseconds_at", 3),
        16: "explicit_defaults_ts" / _number(1),
        17: "ddl_logged_with_xid" / _number(8),
        18: "default_collation_utf8mb4" / _number(2),
        19: "sql_require_primary_key" / _number(1),
        20: "default_table_encryption" / _number(1),
        21: "enable_cascade_triggers" / _number(1),
        128: "hrnow" / _located_number("hrnow_at", 3),
        129: "xid" / _number(8),
        130: "gtid_flags3" / Struct(_CODE, "flags" / Int8ul, "start_alter_seq" / If(this.flags & 12, Int64ul)),
        255: "filler" / HiddenField(GreedyBytes),
    },
    "opaque" / GreedyBytes,
)  # fmt: skip
"""All status variables, in the order in which servers write them. Unknown codes end the parse."""

find_microseconds = make_tuple_decoder(STATUS_VARIABLES, "microseconds_at", "hrnow_at")
"""Positions of the two variables with the microseconds of a statement; None if absent."""
load_client_collation = make_fields_kernel(STATUS_VARIABLES, "client", uses=(scan_nul_terminated_name,))
write_json_status_variables = make_json_kernel(
    BodySchema(STATUS_VARIABLES),
    scan_nul_terminated_name,
    write_json_text_or_bytes,
    write_json_bytes,
    write_updated_db_names,
    write_json_unsigned,
)
_decode_variables = make_body_decoder(BodySchema(STATUS_VARIABLES))


@lru_cache(maxsize=1024)
def decode_status_variables(block: bytes) -> dict[str, Any]:
    """Decode the variables by name; the result is shared and must not be changed.

    Raises:
        MalformedError: a value extends beyond the end of the block.
    """
    return _decode_variables(block)


def is_unfinished_alter(status_block: bytes) -> bool:
    """Return whether a statement with these variables is a START ALTER or ROLLBACK ALTER, which changes nothing.

    With binlog_alter_two_phase MariaDB logs an ALTER TABLE twice: when it begins, and as COMMIT ALTER or ROLLBACK ALTER
    when it ends.

    Raises:
        MalformedError: a value extends beyond the end of the block.
    """
    flags = decode_status_variables(status_block).get("gtid_flags3")
    return flags is not None and bool(flags["flags"] & (START_ALTER | ROLLBACK_ALTER))


def copy_status_variables(block: bytes) -> dict[str, Any]:
    """Decode the variables into a dictionary that the caller may change."""
    return decode_status_variables(block).copy()


def make_status_variables_field(size: Any) -> Construct:
    """Return the field of the variables, which take `size` bytes."""
    leaf = LeafFormat(copy_status_variables, LazyRef(f"{_MODULE}:write_json_status_variables"))
    return NestedSchema(Bytes(size), OpaqueLeaf(STATUS_VARIABLES, leaf))


# --- Text of a statement in its character set ---

_UTF8_COMPATIBLE = frozenset({None, "utf8mb3", "utf8mb4", "ascii", "binary"})
"""Character sets whose statements are decoded as UTF-8; None = unknown."""


def decode_statement_text(sql: bytes, status_variables: Any) -> str | bytes:
    """Decode the text of a statement; `status_variables`: its status variables by name."""
    charset = status_variables.get("charset") if isinstance(status_variables, Mapping) else None
    name = charset_of_collation(charset.get("client")) if isinstance(charset, Mapping) else None
    return utf8_text(sql) if name in _UTF8_COMPATIBLE or sql.isascii() else get_charset_decoder(name)(sql)


def decode_annotation_text(sql: str | bytes, status_variables: Any) -> str | bytes:
    """Decode the text of an ANNOTATE_ROWS or ROWS_QUERY event, which names no character set; else return its bytes.

    Args:
        sql: the text; a string if its bytes are UTF-8.
        status_variables: status variables of the last QUERY of its transaction, by name or as a block; empty without
            one.
    """
    raw = sql.encode() if isinstance(sql, str) else sql
    if isinstance(status_variables, bytes):
        try:
            status_variables = decode_status_variables(status_variables)
        except MalformedError:
            status_variables = {}
    return decode_statement_text(raw, status_variables)


def recode_statement_text(statement_body: dict[str, Any]) -> dict[str, Any]:
    """Decode the text in a statement's body again, by the client's character set instead of UTF-8."""
    sql = statement_body.get("sql")
    if sql is not None:
        raw = sql.encode() if isinstance(sql, str) else sql
        if not raw.isascii():
            statement_body["sql"] = decode_statement_text(raw, statement_body.get("status_vars"))
    return statement_body


@kernel()
def is_utf8_collation(collation: int) -> bool:
    """Return whether a collation is certainly one of utf8mb3 or utf8mb4."""
    is_common = collation == 33 or (collation >= 45 and collation <= 46) or collation == 83
    is_mysql = (
        (collation >= 192 and collation <= 215)
        or (collation >= 224 and collation <= 247)
        or (collation >= 255 and collation <= 323)
    )
    return is_common or is_mysql or (collation >= 2048 and collation < 2560)


@kernel()
def is_ascii(buf: UInt8s, pos: int, limit: int) -> bool:
    """Return whether all bytes are ASCII."""
    all_bits = 0
    for i in range(pos, limit):
        all_bits |= buf[i]
    return all_bits < 128


@kernel(load_client_collation, is_ascii, is_utf8_collation, write_json_text_or_bytes)
def write_json_statement_text(
    buf: UInt8s,
    pos: int,
    limit: int,
    status_size: int,
    status_at: int,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
) -> int:
    """Write a text in UTF-8 or ASCII as a JSON string; other texts are left to the general writer.

    `status_size`, `status_at`: size and position of the status variables.
    """
    collation, _end = load_client_collation(buf, status_at, status_at + status_size)
    if not is_utf8_collation(collation) and not is_ascii(buf, pos, limit):
        return UNSUPPORTED
    return write_json_text_or_bytes(buf, pos, limit, out, out_pos, out_limit)


class StatementText(TextField):
    """Construct of the text of a statement, after `status_len` and `status_vars`."""

    leaf = LeafFormat(
        utf8_text,
        LazyRef("binlog_events.status_variables:write_json_statement_text"),
        context_fields=("status_len", "status_vars"),
    )
