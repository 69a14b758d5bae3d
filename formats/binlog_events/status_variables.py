"""Status variables of QUERY events, as values and as JSON by kernels.

See docs/spec/mysql_binlog.md#event-bodies.

Kernels return the new output position; -1 if the output buffer is full, -2 if the general Python writer must take over.

The event records the character set of its text (status variable `charset`, member `client`). Invalid text stays bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from construct import Construct, stream_write

from binlogtool.format_api.json_kernels import (
    UNSUPPORTED,
    build_text_table,
    put_any_text,
    put_entry,
    put_null,
    put_unsigned,
)
from binlogtool.format_api.lazy_import import LazyRef
from binlogtool.format_api.schema_fields import (
    LeafFormat,
    MalformedError,
    MutableUInt8s,
    TextField,
    TracePart,
    UInt8s,
    decode_text,
    kernel,
    load_little_endian,
    make_count_error,
    make_truncation_error,
)
from binlogtool.format_api.schema_fields import decode_text as utf8_text
from binlogtool.formats.binlog_events.values.column_types import charset_decoder, charset_of_collation
from binlogtool.limits import Limits

# --- Status variables of QUERY events ---

_KERNELS = "binlog_events.status_variables"
OVER_MAX_DBS = 254
ALTER_COMMIT_OR_ROLLBACK = 4 | 8


class StatusValuePart(NamedTuple):
    """A value inside a status variable; name "" = the only value of the variable."""

    name: str
    start: int
    end: int
    value: Any


class StatusVariable(NamedTuple):
    """One status variable at `[start, end)` of the block.

    `value`: value as shown by `dump`. `parts`: its parts, for the annotated view.
    """

    code: int
    name: str
    start: int
    end: int
    value: Any
    parts: tuple[StatusValuePart, ...]


VariableReader = Callable[[bytes, int, int], tuple[Any, tuple[StatusValuePart, ...], int]]
"""Reads the value after a code byte: (shown value, its parts, its end)."""


def _checked_end(data: bytes, offset: int, size: int, end: int) -> int:
    """Return `offset + size`. Raises MalformedError: the value extends beyond `end`."""
    if offset + size > end:
        raise make_truncation_error("a status variable", size, end - offset)
    return offset + size


def _number_reader(size: int) -> VariableReader:
    def read(data: bytes, offset: int, end: int) -> tuple[int, tuple[StatusValuePart, ...], int]:
        stop = _checked_end(data, offset, size, end)
        value = int.from_bytes(data[offset:stop], "little")
        return value, (StatusValuePart("", offset, stop, value),), stop

    return read


def _numbers_reader(*names: str) -> VariableReader:
    unpack, size, number_size = struct.Struct(f"<{len(names)}H").unpack_from, 2 * len(names), 2

    def read(data: bytes, offset: int, end: int) -> tuple[dict[str, int], tuple[StatusValuePart, ...], int]:
        stop = _checked_end(data, offset, size, end)
        values = dict(zip(names, unpack(data, offset), strict=True))
        pieces = (
            StatusValuePart(name, offset + i * number_size, offset + i * number_size + number_size, values[name])
            for i, name in enumerate(names)
        )
        return values, tuple(pieces), stop

    return read


def _read_sized_text(data: bytes, offset: int, end: int, name: str) -> tuple[list[StatusValuePart], str | bytes, int]:
    """Read a length byte and text; return (parts, text, end)."""
    start = _checked_end(data, offset, 1, end)
    stop = _checked_end(data, start, data[offset], end)
    value = decode_text(data[start:stop])
    pieces = [StatusValuePart(f"{name}_len" if name else "len", offset, start, data[offset])]
    if stop > start:
        pieces.append(StatusValuePart(name or "value", start, stop, value))
    return pieces, value, stop


def _read_text(data: bytes, offset: int, end: int) -> tuple[str | bytes, tuple[StatusValuePart, ...], int]:
    pieces, value, stop = _read_sized_text(data, offset, end, "")
    return value, tuple(pieces), stop


def _read_terminated_text(data: bytes, offset: int, end: int) -> tuple[str | bytes, tuple[StatusValuePart, ...], int]:
    pieces, value, stop = _read_sized_text(data, offset, end, "")
    after = _checked_end(data, stop, 1, end)
    return value, (*pieces, StatusValuePart("nul", stop, after, data[stop])), after


def _read_invoker(data: bytes, offset: int, end: int) -> tuple[dict[str, Any], tuple[StatusValuePart, ...], int]:
    user_parts, user, offset = _read_sized_text(data, offset, end, "user")
    host_parts, host, offset = _read_sized_text(data, offset, end, "host")
    return {"user": user, "host": host}, (*user_parts, *host_parts), offset


def _read_databases(
    data: bytes, offset: int, end: int
) -> tuple[list[str | bytes] | None, tuple[StatusValuePart, ...], int]:
    start = _checked_end(data, offset, 1, end)
    count, pieces = data[offset], [StatusValuePart("count", offset, start, data[offset])]
    if count == OVER_MAX_DBS:
        return None, tuple(pieces), start
    names: list[str | bytes] = []
    if count > end - start:
        raise make_count_error("database names", count, end - start)
    for index in range(count):
        nul = data.find(b"\0", start, end)
        if nul < 0:
            raise MalformedError("a database name has no terminating NUL", finding_id="length-out-of-bounds")
        names.append(decode_text(data[start:nul]))
        pieces.append(StatusValuePart(f"[{index}]", start, nul + 1, names[-1]))
        start = nul + 1
    return names, tuple(pieces), start


def _read_flags3(data: bytes, offset: int, end: int) -> tuple[dict[str, int], tuple[StatusValuePart, ...], int]:
    stop = _checked_end(data, offset, 1, end)
    pieces = [StatusValuePart("flags", offset, stop, data[offset])]
    if data[offset] & ALTER_COMMIT_OR_ROLLBACK:
        after = _checked_end(data, stop, 8, end)
        pieces.append(StatusValuePart("start_alter_seq", stop, after, int.from_bytes(data[stop:after], "little")))
        stop = after
    return {piece.name: piece.value for piece in pieces}, tuple(pieces), stop


def _read_collations(data: bytes, offset: int, end: int) -> tuple[list[list[int]], tuple[StatusValuePart, ...], int]:
    start = _checked_end(data, offset, 1, end)
    stop = _checked_end(data, start, 4 * data[offset], end)
    pairs = [list(pair) for pair in struct.iter_unpack("<HH", data[start:stop])]
    pieces = (
        piece
        for index, (charset, collation) in enumerate(pairs)
        for piece in (
            StatusValuePart(f"[{index}].charset", start + 4 * index, start + 4 * index + 2, charset),
            StatusValuePart(f"[{index}].collation", start + 4 * index + 2, start + 4 * index + 4, collation),
        )
    )
    return pairs, (StatusValuePart("count", offset, start, data[offset]), *pieces), stop


_NUMBERS: Mapping[int, tuple[str, int]] = {
    0: ("flags2", 4),
    1: ("sql_mode", 8),
    7: ("lc_time_names", 2),
    8: ("charset_database", 2),
    9: ("table_map_for_update", 8),
    10: ("master_data_written", 4),
    13: ("microseconds", 3),
    16: ("explicit_defaults_ts", 1),
    17: ("ddl_logged_with_xid", 8),
    18: ("default_collation_utf8mb4", 2),
    19: ("sql_require_primary_key", 1),
    20: ("default_table_encryption", 1),
    21: ("enable_cascade_triggers", 1),
    128: ("hrnow", 3),
    129: ("xid", 8),
}
"""Names and sizes in bytes, by code, of the variables that are one number."""
AUTO_INCREMENT, CHARSET = 3, 4
_PAIRS: Mapping[int, tuple[str, tuple[str, ...]]] = {
    AUTO_INCREMENT: ("auto_increment", ("increment", "offset")),
    CHARSET: ("charset", ("client", "connection", "server")),
}
"""Names, by code, of the variables that are several numbers of two bytes."""
_FIXED_SIZES = {code: size for code, (_, size) in _NUMBERS.items()} | {c: 2 * len(n) for c, (_, n) in _PAIRS.items()}
VARIABLES: dict[int, tuple[str, VariableReader]] = {
    **{code: (name, _number_reader(size)) for code, (name, size) in _NUMBERS.items()},
    **{code: (name, _numbers_reader(*names)) for code, (name, names) in _PAIRS.items()},
    2: ("catalog", _read_terminated_text),
    5: ("time_zone", _read_text),
    6: ("catalog_nz", _read_text),
    11: ("invoker", _read_invoker),
    12: ("updated_db_names", _read_databases),
    130: ("gtid_flags3", _read_flags3),
    131: ("character_set_collations", _read_collations),
}
"""Names and readers by code. Codes 14 and 15 (obsolete) end the parse like all unknown codes; 255 is filler."""

FILLER = 255
FIRST_OF_MARIADB = 128


def iter_status_variables(data: bytes, offset: int, end: int) -> Iterator[StatusVariable]:
    """Yield the variables of the block `data[offset:end]`; the last one may be `opaque` or `filler`.

    Raises:
        MalformedError: a value extends beyond the end of the block.
    """
    while offset < end:
        code = data[offset]
        variable_type = VARIABLES.get(code)
        if variable_type is None:
            rest = data[offset:end]
            is_filler = code == FILLER
            yield StatusVariable(code, "filler" if is_filler else "opaque", offset, end, rest, ())
            return
        name, read = variable_type
        value, pieces, stop = read(data, offset + 1, end)
        yield StatusVariable(code, name, offset, stop, value, pieces)
        offset = stop


@lru_cache(maxsize=1024)
def decode_status_variables(block: bytes) -> dict[str, Any]:
    """Decode the variables by name; the result is shared and must not be changed.

    Raises:
        MalformedError: a value extends beyond the end of the block.
    """
    return {one.name: one.value for one in iter_status_variables(block, 0, len(block)) if one.code != FILLER}


def copy_status_variables(block: bytes) -> dict[str, Any]:
    """Decode the variables into a dictionary that the caller may change."""
    return decode_status_variables(block).copy()


class StatusVars(Construct):  # type: ignore[misc]
    """Construct of a whole stream of status variables; its value is their bytes."""

    leaf = LeafFormat(
        copy_status_variables, LazyRef(f"{_KERNELS}:put_variables"), text_table=LazyRef(f"{_KERNELS}:LABELS")
    )

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        data: bytes = stream.read()
        for _ in iter_status_variables(data, 0, len(data)):
            pass
        return data

    def _build(self, obj: bytes, stream: Any, context: Any, path: str) -> bytes:
        stream_write(stream, obj, len(obj), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Trace each variable: its code, then its values."""
        for variable in iter_status_variables(data, start, end):
            if not variable.parts:
                yield TracePart(f".{variable.name}", 1, variable.start, variable.end, variable.value)
                continue
            yield TracePart(f".{variable.name}", 1, variable.start, None)
            yield TracePart(f".{variable.name}.code", 2, variable.start, variable.start + 1, variable.code)
            for name, first, last, value in variable.parts:
                path = name if name.startswith("[") else f".{name or 'value'}"
                yield TracePart(f".{variable.name}{path}", 2, first, last, value)


# --- Kernels that write status variables as JSON ---

_LABELS = ('{"increment":', ',"offset":', '{"client":', ',"connection":', ',"server":', "}")
INCREMENT, OFFSET, CLIENT, CONNECTION, SERVER, END = range(200, 206)
"""Numbers of labels in the text table; lower numbers are the codes of variables."""


_TEXTS = {code: f'"{name}":' for code, (name, _) in VARIABLES.items()} | dict(enumerate(_LABELS, INCREMENT))
LABELS = build_text_table({number: text.encode() for number, text in _TEXTS.items()})


@kernel(put_entry)
def put_label(texts: UInt8s, number: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write a text of the table, and ensure 64 free bytes after it; a negative `out_pos` is returned unchanged."""
    if out_pos < 0:
        return out_pos
    out_pos = put_entry(texts, 0, number, out, out_pos, out_limit)
    return -1 if out_pos >= 0 and out_limit - out_pos < 64 else out_pos


@kernel(load_little_endian, put_label, put_unsigned)
def put_number_member(
    buf: UInt8s, pos: int, size: int, texts: UInt8s, number: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write a label and the unsigned number of `size` bytes at `buf[pos]`."""
    out_pos = put_label(texts, number, out, out_pos, out_limit)
    return out_pos if out_pos < 0 else put_unsigned(load_little_endian(buf, pos, size), out, out_pos, out_limit)


def _pack_sizes(first: int) -> int:
    """Return the sizes of 16 codes from `first` on, 4 bits each."""
    return sum(size << 4 * (code - first) for code, size in _FIXED_SIZES.items() if first <= code < first + 16)


_FIRST_SIZES, _NEXT_SIZES, _MARIADB_SIZES = _pack_sizes(0), _pack_sizes(16), _pack_sizes(FIRST_OF_MARIADB)


@kernel()
def fixed_size(code: int) -> int:
    """Return the size in bytes of a status variable of fixed size; 0 for other variables."""
    if code < FIRST_OF_MARIADB:
        return (_FIRST_SIZES >> 4 * code if code < 16 else _NEXT_SIZES >> 4 * (code - 16)) & 15 if code < 32 else 0
    return _MARIADB_SIZES >> 4 * (code - FIRST_OF_MARIADB) & 15 if code < FIRST_OF_MARIADB + 16 else 0


@kernel(put_any_text, put_null)
def put_databases(
    buf: UInt8s, pos: int, limit: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> tuple[int, int]:
    """Write UPDATED_DB_NAMES; return (end of the variable, end of the output or an error)."""
    if pos >= limit or out_limit - out_pos < 64:
        return pos, -2 if pos >= limit else -1
    count = buf[pos] + 0
    pos += 1
    if count == 254:
        return pos, put_null(out, out_pos, out_limit)
    out[out_pos] = 91
    out_pos += 1
    for i in range(count):
        end = pos
        while end < limit and buf[end] != 0:
            end += 1
        if end == limit:
            return pos, -2
        if i > 0:
            out[out_pos] = 44
            out_pos += 1
        out_pos = put_any_text(buf, pos, end, out, out_pos, out_limit)
        if out_pos < 0:
            return pos, out_pos
        if out_limit - out_pos < 64:
            return pos, -1
        pos = end + 1
    out[out_pos] = 93
    return pos, out_pos + 1


@kernel(put_number_member, put_unsigned, load_little_endian)
def put_collations(
    buf: UInt8s, pos: int, limit: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> tuple[int, int]:
    """Write CHARACTER_SET_COLLATIONS; return (end of the variable, end of the output or an error)."""
    if pos >= limit or buf[pos] * 4 > limit - pos - 1:
        return pos, -2
    count = buf[pos] + 0
    pos += 1
    if out_limit - out_pos < 64 * (count + 1):
        return pos, -1
    out[out_pos] = 91
    out_pos += 1
    for i in range(count):
        if i > 0:
            out[out_pos] = 44
            out_pos += 1
        out[out_pos] = 91
        out_pos = put_unsigned(load_little_endian(buf, pos, 2), out, out_pos + 1, out_limit)
        out[out_pos] = 44
        out_pos = put_unsigned(load_little_endian(buf, pos + 2, 2), out, out_pos + 1, out_limit)
        out[out_pos] = 93
        out_pos += 1
        pos += 4
    out[out_pos] = 93
    return pos, out_pos + 1


@kernel(
    fixed_size,
    put_any_text,
    put_collations,
    put_databases,
    put_number_member,
    put_label,
    put_unsigned,
    load_little_endian,
)
def put_variable(
    buf: UInt8s, pos: int, limit: int, code: int, texts: UInt8s, out: MutableUInt8s, out_pos: int, out_limit: int
) -> tuple[int, int]:
    """Write the value of a status variable; return (end of the variable, end of the output or an error)."""
    size = fixed_size(code)
    if limit - pos < size:
        return pos, -2
    if code == AUTO_INCREMENT:
        out_pos = put_number_member(buf, pos, 2, texts, INCREMENT, out, out_pos, out_limit)
        out_pos = put_number_member(buf, pos + 2, 2, texts, OFFSET, out, out_pos, out_limit)
        return pos + size, put_label(texts, END, out, out_pos, out_limit)
    if code == CHARSET:
        out_pos = put_number_member(buf, pos, 2, texts, CLIENT, out, out_pos, out_limit)
        out_pos = put_number_member(buf, pos + 2, 2, texts, CONNECTION, out, out_pos, out_limit)
        out_pos = put_number_member(buf, pos + 4, 2, texts, SERVER, out, out_pos, out_limit)
        return pos + size, put_label(texts, END, out, out_pos, out_limit)
    if size > 0:
        return pos + size, put_unsigned(load_little_endian(buf, pos, size), out, out_pos, out_limit)
    if code == 5 or code == 6:
        if limit - pos < 1 or limit - pos - 1 < buf[pos]:
            return pos, -2
        end = pos + 1 + buf[pos]
        return end, put_any_text(buf, pos + 1, end, out, out_pos, out_limit)
    if code == 12:
        return put_databases(buf, pos, limit, out, out_pos, out_limit)
    if code == 131:
        return put_collations(buf, pos, limit, out, out_pos, out_limit)
    return pos, -2


@kernel(put_label, put_variable)
def put_variables(
    buf: UInt8s, pos: int, limit: int, texts: UInt8s, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write the status variables as a JSON object; -2 for unknown or duplicate variables."""
    seen = 0
    if out_limit - out_pos < 2:
        return -1
    out[out_pos] = 123
    out_pos += 1
    while pos < limit:
        code = buf[pos] + 0
        bit = 1 << (code & 31) << (code >> 7) * 32
        if (code > 31 and code < 128) or code > 131 or seen & bit:
            return -2
        if seen != 0:
            if out_limit - out_pos < 1:
                return -1
            out[out_pos] = 44
            out_pos += 1
        seen |= bit
        out_pos = put_label(texts, code, out, out_pos, out_limit)
        if out_pos < 0:
            return out_pos
        pos, out_pos = put_variable(buf, pos + 1, limit, code, texts, out, out_pos, out_limit)
        if out_pos < 0:
            return out_pos
    if out_limit - out_pos < 1:
        return -1
    out[out_pos] = 125
    return out_pos + 1


# --- Text of a statement in its character set ---

_UTF8_COMPATIBLE = frozenset({None, "utf8mb3", "utf8mb4", "ascii", "binary"})
"""Character sets whose statements are decoded as UTF-8; None = unknown."""

_CATALOG = 6
"""Code of the only variable with a length that servers write before the character sets."""


def decode_statement_text(sql: bytes, status: Any) -> str | bytes:
    """Decode the text of a statement; `status`: its status variables by name."""
    charset = status.get("charset") if isinstance(status, Mapping) else None
    name = charset_of_collation(charset.get("client")) if isinstance(charset, Mapping) else None
    return utf8_text(sql) if name in _UTF8_COMPATIBLE or sql.isascii() else charset_decoder(name)(sql)


def recode_statement_text(body: dict[str, Any]) -> dict[str, Any]:
    """Decode the text in a statement's body again, by the client's character set instead of UTF-8."""
    sql = body.get("sql")
    if sql is not None:
        raw = sql.encode() if isinstance(sql, str) else sql
        if not raw.isascii():
            body["sql"] = decode_statement_text(raw, body.get("status_vars"))
    return body


@kernel(fixed_size, load_little_endian)
def find_client_collation(buf: UInt8s, pos: int, limit: int) -> int:
    """Return the client's collation in the variables `buf[pos:limit]`; -1 = absent, or after unusual variables."""
    while pos < limit:
        code = buf[pos] + 0
        pos += 1
        size = fixed_size(code)
        if code == CHARSET:
            return load_little_endian(buf, pos, 2) if limit - pos >= size else -1
        if code == _CATALOG and pos < limit:
            size = 1 + buf[pos]
        if size == 0:
            return -1
        pos += size
    return -1


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


@kernel(find_client_collation, is_ascii, is_utf8_collation, put_any_text)
def put_statement_text(
    buf: UInt8s, pos: int, limit: int, size: int, status: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write a text in UTF-8 or ASCII as a JSON string; other texts are left to the general writer.

    `size`, `status`: size and position of the status variables.
    """
    if not is_utf8_collation(find_client_collation(buf, status, status + size)) and not is_ascii(buf, pos, limit):
        return UNSUPPORTED
    return put_any_text(buf, pos, limit, out, out_pos, out_limit)


class StatementText(TextField):
    """Construct of the text of a statement, after `status_len` and `status_vars`."""

    leaf = LeafFormat(
        utf8_text,
        LazyRef("binlog_events.status_variables:put_statement_text"),
        context_fields=("status_len", "status_vars"),
    )
