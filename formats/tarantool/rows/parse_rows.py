"""Parse rows of an xlog: header map and body map.

Each generator yields parts and returns the position where the next value starts.

Source: `docs/spec/tarantool.md#rows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec
from construct import Construct

from binlogtool.format_api.schema_fields import (
    Int64s,
    MalformedError,
    MutableInt64s,
    PlainPart,
    RecordKernel,
    TracePart,
    UInt8s,
    kernel,
)
from binlogtool.formats.tarantool import codes
from binlogtool.formats.tarantool.codes import (
    BODY_NAMES,
    BODY_NAMES_BY_TYPE,
    HEADER_NAMES,
    KEY_TYPES,
    TYPE_NAMES,
    HeaderKey,
    RowType,
)
from binlogtool.formats.tarantool.msgpack.decode_values import (
    PartsThenEnd,
    create_leaf,
    trace_container_or_extension,
    trace_value,
)
from binlogtool.formats.tarantool.msgpack.parse import (
    MpKind,
    MpNode,
    MpToken,
    decode_value,
    encode_value,
    get_buffer_and_position,
    get_max_nesting_depth,
    load_big_endian_int64,
    read_map_head,
    read_token,
    read_uint,
    skip_value_and_count,
)
from binlogtool.limits import Limits

# --- Rows in the annotated view ---

_UINT, _DOUBLE, _STR, _EXT, _ARRAY, _MAP = MpKind.UINT, MpKind.DOUBLE, MpKind.STR, MpKind.EXT, MpKind.ARRAY, MpKind.MAP
_TYPE, _TIMESTAMP, _TSN, _FLAGS = map(int, (
    codes.HeaderKey.TYPE, codes.HeaderKey.TIMESTAMP, codes.HeaderKey.TSN, codes.HeaderKey.FLAGS,
))  # fmt: skip
_LAST_HEADER_KEY = int(codes.HeaderKey.THREAD_ID)
_SPACE_ID = int(codes.BodyKey.SPACE_ID)
_RAFT, _NOP = int(codes.RowType.RAFT), int(codes.RowType.NOP)
_OPERATIONS_KEYS = {
    int(codes.RowType.UPDATE): int(codes.BodyKey.TUPLE),
    int(codes.RowType.UPSERT): int(codes.BodyKey.OPS),
}
"""Row types with update operations, and the key that holds them."""


def trace_row(data: Any, start: int, end: int, path: str, depth: int, allowed_levels: int) -> PartsThenEnd:
    """Trace one row: header map, body map. Raises MalformedError, after the valid parts were yielded."""
    yield f"{path}.header", depth + 1, start, None, None, ""
    row_type = 0
    position, size = _read_map_head(data, start, end, "header")
    yield f"{path}.header.count", depth + 2, start, position, size, "map"
    for index in range(size):
        number, after = _read_key(data, position, end)
        name = HEADER_NAMES.get(number) or f"key_0x{number:02x}"
        yield f"{path}.header.keys[{index}]", depth + 2, position, after, number, name
        token = _read_header_value(data, after, end, number)
        yield create_leaf(f"{path}.header.{name}", depth + 2, token, _describe_header_value(number, token.value))
        position = token.end
        if number == _TYPE:
            row_type = token.value
    if position >= end or (row_type == _NOP and data[position] != 0x80):
        return position
    yield f"{path}.body", depth + 1, position, None, None, TYPE_NAMES[row_type]
    return (yield from _trace_body(data, position, end, f"{path}.body", depth + 2, allowed_levels, row_type))


def _read_map_head(data: Any, start: int, end: int, map_name: str) -> tuple[int, int]:
    """Return the position of the first pair of a row's map, and the number of pairs."""
    head = read_token(data, start, end)
    if head.kind is not _MAP:
        raise MalformedError(f"a row's {map_name} is no map")
    return head.end, head.value


def _read_key(data: Any, start: int, end: int) -> tuple[int, int]:
    """Read a key of a row's map; return (key, position of its value)."""
    if start < end and data[start] < 0x80:
        return data[start], start + 1
    token = read_token(data, start, end)
    if token.kind is not _UINT:
        raise MalformedError("a key of a row is not an unsigned integer")
    return token.value, token.end


def _read_header_value(data: Any, start: int, end: int, key: int) -> MpToken:
    token = read_token(data, start, end)
    expected_kind = _DOUBLE if key == _TIMESTAMP else _UINT
    if key <= _LAST_HEADER_KEY and token.kind is not expected_kind:
        raise MalformedError(f"header key {key} has a value of another type than {expected_kind.name.lower()}")
    if token.kind >= _ARRAY:
        raise MalformedError(f"header key {key} has an array or map as its value")
    return token


def _describe_header_value(key: int, value: Any) -> str:
    if key == _TYPE:
        return TYPE_NAMES[value]
    if key == _FLAGS:
        return _describe_flags(value)
    return "lsn - tsn" if key == _TSN else ""


@lru_cache(maxsize=64)
def _describe_flags(value: int) -> str:
    return " + ".join(flag.name.lower() for flag in codes.RowFlag if value & flag and flag.name)


def _trace_body(data: Any, start: int, end: int, path: str, depth: int, levels: int, row_type: int) -> PartsThenEnd:
    position, size = _read_map_head(data, start, end, "body")
    yield f"{path}.count", depth, start, position, size, "map"
    names, operations = BODY_NAMES_BY_TYPE.get(row_type, BODY_NAMES), _OPERATIONS_KEYS.get(row_type, -1)
    for index in range(size):
        if row_type < _RAFT and read_token(data, position, end).kind is not _UINT:
            number, name = -1, f"key_{index}"
            yield f"{path}.keys[{index}]", depth, position, None, None, "not a number: skipped"
            after = yield from trace_value(data, position, end, f"{path}.keys[{index}].value", depth + 1, levels)
        else:
            number, after = _read_key(data, position, end)
            name = names.get(number) or f"key_0x{number:02x}"
            yield f"{path}.keys[{index}]", depth, position, after, number, name
        if number == operations:
            position = yield from _trace_operations(data, after, end, f"{path}.{name}", depth, levels)
            continue
        token = read_token(data, after, end)
        if token.kind < _EXT:
            is_space_id = number == _SPACE_ID and row_type < _RAFT
            yield create_leaf(
                f"{path}.{name}", depth, token, codes.SYSTEM_SPACES.get(token.value, "") if is_space_id else ""
            )
            position = token.end
        else:
            position = yield from trace_container_or_extension(data, token, end, f"{path}.{name}", depth, levels)
    return position


def _trace_operations(data: Any, start: int, end: int, path: str, depth: int, levels: int) -> PartsThenEnd:
    """Trace an array of update operations: `[i].op`, `[i].field`, `[i].argument[j]`."""
    head = read_token(data, start, end)
    if head.kind is not _ARRAY:
        raise MalformedError("update operations are not an array")
    yield TracePart(path, depth, start, None, meaning=f"{head.value} operations")
    yield TracePart(f"{path}.count", depth + 1, start, head.end, head.value, "array")
    position = head.end
    for index in range(head.value):
        position = yield from _trace_operation(data, position, end, f"{path}[{index}]", depth + 1, levels - 1)
    return position


def _trace_operation(data: Any, start: int, end: int, path: str, depth: int, levels: int) -> PartsThenEnd:
    head = read_token(data, start, end)
    if head.kind is not _ARRAY:
        return (yield from trace_value(data, start, end, path, depth, levels))
    yield TracePart(path, depth, start, None)
    yield TracePart(f"{path}.count", depth + 1, start, head.end, head.value, "array")
    position = head.end
    for index in range(head.value):
        item_path = path + ((".op", ".field")[index] if index < 2 else f".argument[{index - 2}]")
        token = read_token(data, position, end)
        if token.kind < _EXT:
            meaning = ""
            if index == 0 and token.kind is _STR:
                meaning = codes.UPDATE_OPERATIONS.get(token.value.decode("latin-1"), "unknown")
            yield create_leaf(item_path, depth + 1, token, meaning)
            position = token.end
        else:
            position = yield from trace_container_or_extension(data, token, end, item_path, depth + 1, levels - 1)
    return position


# --- Rows ---

NOP = RowType.NOP.value
ROW_COLUMNS = (
    "header_keys", "type", "replica_id", "lsn", "timestamp", "group_id", "tsn", "flags",
    "body", "body_keys", "space_id", "tuple", "shape",
)  # fmt: skip
"""Columns of the row kernel.

header_keys: bit k = header key k is present; UNKNOWN_KEY and DUPLICATE_KEY. timestamp: bit pattern of the double. tsn:
the stored difference. body: position of the body, -1 = none. body_keys: bit k = body key k (k < 59), TERM_KEY,
UNKNOWN_KEY, DUPLICATE_KEY. space_id: -1 = none. tuple: position of the value, -1 = none. shape: of the body's values:
marks (`messages.skip_value_and_count`) in 8 bits, number of arrays and maps (at most 2**24-1) in 24 bits, pairs of maps
above.
"""

TERM_KEY = 1 << 60
UNKNOWN_KEY = 1 << 61
DUPLICATE_KEY = 1 << 59
COMMIT = 1


_COLUMN_OF_HEADER_KEY = (1, 12, 2, 3, 12, 12, 12, 5, 6, 7, 12, 12)
"""Column of each header key; 12 (a column overwritten later) for keys that have none."""
ROW_TABLE = _COLUMN_OF_HEADER_KEY + KEY_TYPES
"""Table of `read_row`: first the columns of header keys, then, from index 12, the value type of each key."""


@kernel()
def is_wrong_type(expected_type: int, first_byte: int) -> bool:
    """Return whether a first byte does not match a type of `KEY_TYPES`; type 0 matches any value."""
    if expected_type == 1:
        return first_byte >= 0x80 and (first_byte < 0xCC or first_byte > 0xCF)
    if expected_type == 3:
        return (first_byte < 0xA0 or first_byte > 0xBF) and (first_byte < 0xD9 or first_byte > 0xDB)
    if expected_type == 5:
        return (first_byte < 0x90 or first_byte > 0x9F) and first_byte != 0xDC and first_byte != 0xDD
    if expected_type == 6:
        return (first_byte < 0x80 or first_byte > 0x8F) and first_byte != 0xDE and first_byte != 0xDF
    if expected_type == 7:
        return first_byte != 0xC2 and first_byte != 0xC3
    if expected_type == 9:
        return first_byte != 0xCB
    if expected_type == 10:
        return (first_byte < 0xC7 or first_byte > 0xC9) and (first_byte < 0xD4 or first_byte > 0xD8)
    return False


@kernel(is_wrong_type, load_big_endian_int64, read_map_head, read_uint, skip_value_and_count)
def read_row_header(buf: UInt8s, pos: int, limit: int, table: Int64s, out: MutableInt64s, at: int) -> int:
    """Read the header map of a row into the columns `out[at:]`; return the position after it."""
    count, pos = read_map_head(buf, pos, limit)
    if pos < 0:
        return pos
    if count > limit - pos:
        return -1
    keys = 0
    for _ in range(count):
        key, pos = read_uint(buf, pos, limit)
        if pos < 0:
            return pos
        if pos >= limit:
            return -1
        if key == 4:
            if pos + 9 > limit:
                return -1
            if buf[pos] != 0xCB:
                return -2
            out[at + 4] = load_big_endian_int64(buf, pos + 1)
            pos += 9
        elif key >= 0 and key <= 11:
            value, pos = read_uint(buf, pos, limit)
            if pos < 0:
                return pos
            out[at + table[key]] = value
        else:
            if key >= 0 and key <= 100 and is_wrong_type(table[12 + key], buf[pos] + 0):
                return -2
            pos, _, _, _ = skip_value_and_count(buf, pos, limit)
            if pos < 0:
                return pos
            keys |= 1 << 61
            continue
        if keys & (1 << key) != 0:
            keys |= 1 << 59
        keys |= 1 << key
    out[at] = keys
    return pos


@kernel(is_wrong_type)
def is_wrong_body_type(row_type: int, key: int, first_byte: int, table: Int64s) -> bool:
    """Return whether the value of a body key does not have the key's type.

    For requests, only the keys that all versions check are checked (IPROTO_DML_BODY_BMAP of 2.6).

    Args:
        first_byte: first byte of the value.
    """
    if row_type >= 0 and row_type < 30:
        checked = (key >= 0x10 and key <= 0x15) or key == 0x20 or key == 0x21 or key == 0x28 or key == 0x2A
        return checked and is_wrong_type(table[12 + key], first_byte)
    if row_type >= 31 and row_type <= 41 and (key == 2 or key == 3 or key == 0x53):
        return is_wrong_type(1, first_byte)
    return False


@kernel(read_map_head, read_uint, skip_value_and_count, is_wrong_body_type)
def read_row_body(buf: UInt8s, pos: int, limit: int, row_type: int, table: Int64s, out: MutableInt64s, at: int) -> int:
    """Read the body map of a row. A key that is not an unsigned integer is skipped with its value, as by the server."""
    count, pos = read_map_head(buf, pos, limit)
    if pos < 0:
        return pos
    if count > limit - pos:
        return -1
    keys = 0
    all_marks = 0
    all_pairs = 0
    all_nested = 0
    for _ in range(count):
        if pos >= limit:
            return -1
        first = buf[pos] + 0
        key = -1
        if first < 0x80 or (first >= 0xCC and first <= 0xCF):
            key, pos = read_uint(buf, pos, limit)
        elif row_type >= 0 and row_type < 30:
            pos, _, _, _ = skip_value_and_count(buf, pos, limit)
        else:
            return -2
        if pos < 0:
            return pos
        if pos >= limit:
            return -1
        bit = key
        if key < 0 or key > 58:
            bit = 60 if key == 0x53 else 61
        if keys & (1 << bit) != 0 and bit != 61:
            keys |= 1 << 59
        keys |= 1 << bit
        if is_wrong_body_type(row_type, key, buf[pos] + 0, table):
            return -2
        if row_type >= 0 and row_type < 30:
            if key == 0x10:
                out[at + 10], _ = read_uint(buf, pos, limit)
            elif key == 0x21:
                out[at + 11] = pos
        pos, marks, pairs, nested = skip_value_and_count(buf, pos, limit)
        if pos < 0:
            return pos
        all_marks |= marks
        all_pairs += pairs
        all_nested += nested
    if all_nested > 0xFFFFFF:
        all_nested = 0xFFFFFF
    out[at + 9] = keys
    out[at + 12] = all_marks + all_nested * 0x100 + all_pairs * 0x100000000
    return pos


@kernel(read_row_header, read_row_body)
def read_row(buf: UInt8s, pos: int, limit: int, table: Int64s, out: MutableInt64s, at: int) -> int:
    """Read one row into the columns `out[at:]` (ROW_COLUMNS): header map, then a body map unless it is a NOP; return
    the position after it, -1 = truncated, -2 = malformed.
    """
    for i in range(13):
        out[at + i] = 0
    pos = read_row_header(buf, pos, limit, table, out, at)
    out[at + 8] = -1
    out[at + 10] = -1
    out[at + 11] = -1
    out[at + 12] = 0
    if pos < 0 or pos >= limit:
        return pos
    row_type = out[at + 1]
    if row_type != 12:
        out[at + 8] = pos
        return read_row_body(buf, pos, limit, row_type, table, out, at)
    if buf[pos] == 0x80:
        out[at + 8] = pos
        return pos + 1
    return pos


@kernel(read_row_header, skip_value_and_count)
def read_row_header_and_skip_body(buf: UInt8s, pos: int, limit: int, table: Int64s, out: MutableInt64s, at: int) -> int:
    """Read one row but decode only its header; the body may be any one value, as in the server's framing of rows."""
    for i in range(13):
        out[at + i] = 0
    pos = read_row_header(buf, pos, limit, table, out, at)
    out[at + 8] = -1
    out[at + 10] = -1
    out[at + 11] = -1
    out[at + 12] = 0
    if pos < 0 or pos >= limit or out[at + 1] == 12:
        return pos
    pos, _, _, _ = skip_value_and_count(buf, pos, limit)
    return pos


_CHECKED_BODY_KEYS = (*range(0x10, 0x16), 0x20, 0x21, 0x28, 0x2A)
_KINDS_BY_CODE = {
    1: MpKind.UINT,
    3: MpKind.STR,
    5: MpKind.ARRAY,
    6: MpKind.MAP,
    7: MpKind.BOOL,
    9: MpKind.DOUBLE,
    10: MpKind.EXT,
}


class ParsedRow(msgspec.Struct, frozen=True):
    """One parsed row: its two maps, with their encodings."""

    header: MpNode
    body: MpNode | None

    @property
    def type(self) -> int:
        """The row type (0 if the header has none)."""
        stored_type = self.header.get(0)
        return stored_type.value if stored_type else 0


class RowConstruct(Construct):  # type: ignore[misc]
    """Construct type of one row."""

    kernel = RecordKernel(read_row, ROW_COLUMNS, ROW_TABLE)

    def _parse(self, stream: Any, context: Any, path: str) -> ParsedRow:
        data, start, end, base = get_buffer_and_position(stream)
        row, after = parse_row(data, start, end, path)
        stream.seek(after + base)
        return row

    def _build(self, obj: ParsedRow, stream: Any, context: Any, path: str) -> ParsedRow:
        stream.write(encode_value(obj.header) + (encode_value(obj.body) if obj.body else b""))
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Yield the parts of the two maps: counts, keys, values, nested values with their indexes."""
        return map(TracePart._make, trace_row(data, start, end, "", 0, get_max_nesting_depth(limits)))


class RowFrameConstruct(RowConstruct):
    """Construct type of a row with an arbitrary body; finds the end of a row whose body is not valid."""

    kernel = RecordKernel(read_row_header_and_skip_body, ROW_COLUMNS, ROW_TABLE)


class RowsConstruct(Construct):  # type: ignore[misc]
    """Construct type of all rows up to the end of the bytes, as a list."""

    fills_stream = True

    def _parse(self, stream: Any, context: Any, path: str) -> list[ParsedRow]:
        data, position, end, base = get_buffer_and_position(stream)
        rows: list[ParsedRow] = []
        while position < end:
            row, position = parse_row(data, position, end, f"{path}[{len(rows)}]")
            rows.append(row)
        stream.seek(position + base)
        return rows

    def _build(self, obj: list[ParsedRow], stream: Any, context: Any, path: str) -> list[ParsedRow]:
        for row in obj:
            stream.write(encode_value(row.header) + (encode_value(row.body) if row.body else b""))
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Yield the rows by index, each with its two maps."""
        return map(TracePart._make, self.trace_plain_parts(data, start, end, limits))

    def trace_plain_parts(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[PlainPart]:
        """Yield the same parts as plain tuples."""
        index, depth = 0, get_max_nesting_depth(limits)
        while start < end:
            yield f"[{index}]", 1, start, None, None, ""
            start = yield from trace_row(data, start, end, f"[{index}]", 1, depth)
            index += 1


def parse_row(data: Any, start: int, end: int, path: str = "row") -> tuple[ParsedRow, int]:
    """Parse the row at `data[start]` by the rules of `read_row`; return it and its end.

    Raises:
        MalformedError: the bytes are not a row.
    """
    columns = [0] * len(ROW_COLUMNS)
    after = read_row(data, start, end, ROW_TABLE, columns, 0)
    header = _decode_map(data, start, end, f"{path} -> header")
    _check_header(header, f"{path} -> header")
    row, body = ParsedRow(header, None), None
    if columns[8] >= 0:
        body = _decode_map(data, header.end, end, f"{path} -> body")
        _check_body(body, row.type, f"{path} -> body")
    if after < 0:
        raise MalformedError("no row", path)
    return ParsedRow(header, body), after


def _decode_map(data: Any, start: int, end: int, path: str) -> MpNode:
    try:
        return decode_value(data, start, end)
    except MalformedError as error:
        raise MalformedError(error.args[0], path, error.finding_id) from None


def _check_header(header: MpNode, path: str) -> None:
    if header.kind is not MpKind.MAP:
        raise MalformedError("a row's header is not a map", path)
    for key, value in header.value:
        if key.kind is not MpKind.UINT:
            raise MalformedError("a key of a row's header is not an unsigned integer", path)
        expected = get_header_kind(key.value)
        if expected is not None and value.kind is not expected:
            text = f"header key {key.value} has a value of another type than {expected.name.lower()}"
            raise MalformedError(text, path)


def _check_body(body: MpNode, row_type: int, path: str) -> None:
    if body.kind is not MpKind.MAP:
        raise MalformedError("a row's body is not a map", path)
    for key, value in body.value:
        if key.kind is not MpKind.UINT:
            if 0 <= row_type < RowType.RAFT:
                continue
            raise MalformedError("a key of a row's body is not an unsigned integer", path)
        expected = get_body_kind(row_type, key.value)
        if expected is not None and value.kind is not expected:
            text = f"body key {key.value:#04x} has a value of another type than {expected.name.lower()}"
            raise MalformedError(text, path)


def get_header_kind(key: int) -> MpKind | None:
    """Return the type that the value of a header key must have; None = any."""
    if key <= HeaderKey.THREAD_ID:
        return MpKind.DOUBLE if key == HeaderKey.TIMESTAMP else MpKind.UINT
    return _get_key_kind(key)


def get_body_kind(row_type: int, key: int) -> MpKind | None:
    """Return the type that the value of a body key must have in a row of this type; None = any."""
    if row_type < RowType.RAFT:
        return _get_key_kind(key) if key in _CHECKED_BODY_KEYS else None
    if RowType.RAFT_PROMOTE <= row_type <= RowType.ROLLBACK and key in (2, 3, 0x53):
        return MpKind.UINT
    return None


def _get_key_kind(key: int) -> MpKind | None:
    return _KINDS_BY_CODE.get(KEY_TYPES[key]) if key < len(KEY_TYPES) else None
