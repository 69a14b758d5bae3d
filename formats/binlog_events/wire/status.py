"""Decode status variables of QUERY events: a code byte and a value whose length depends on the code.

See docs/spec/mysql_binlog.md#event-bodies.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from construct import Construct, stream_write

from binlogtool.formats.bodies import LeafFormat, decode_text, make_count_error, make_truncation_error
from binlogtool.formats.fields import MalformedError, TracePart
from binlogtool.formats.later import LazyRef
from binlogtool.limits import Limits

_KERNELS = "binlog_events.wire.status_kernels"
OVER_MAX_DBS = 254
ALTER_COMMIT_OR_ROLLBACK = 4 | 8


class StatusValuePart(NamedTuple):
    """A value inside a status variable; name "" = the variable's only one."""

    name: str
    start: int
    end: int
    value: Any


class StatusVariable(NamedTuple):
    """One status variable at `[start, end)` of the block.

    Attributes:
        value: shown by `dump`.
        parts: its parts, for the annotated view.
    """

    code: int
    name: str
    start: int
    end: int
    value: Any
    parts: tuple[StatusValuePart, ...]


VariableReader = Callable[[bytes, int, int], tuple[Any, tuple[StatusValuePart, ...], int]]
"""Reads the value behind a code byte: what `dump` shows, its pieces and its end."""


def _checked_end(data: bytes, offset: int, size: int, end: int) -> int:
    """Return `offset + size`; refuse a value beyond `end`."""
    if offset + size > end:
        raise make_truncation_error("a status variable", size, end - offset)
    return offset + size


def _number_reader(size: int) -> VariableReader:
    def read(data: bytes, offset: int, end: int) -> tuple[int, tuple[StatusValuePart, ...], int]:
        stop = _checked_end(data, offset, size, end)
        value = int.from_bytes(data[offset:stop], "little")
        return value, (StatusValuePart("", offset, stop, value),), stop

    return read


def _struct_reader(layout: str, *names: str) -> VariableReader:
    unpack, size = struct.Struct(layout).unpack_from, struct.calcsize(layout)
    number_size = size // len(names)

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
    """Read a length byte and text; returns (parts, text, end)."""
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
            raise MalformedError("a database name does not end", finding_id="length-out-of-bounds")
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


VARIABLES: dict[int, tuple[str, VariableReader]] = {
    0: ("flags2", _number_reader(4)),
    1: ("sql_mode", _number_reader(8)),
    2: ("catalog", _read_terminated_text),
    3: ("auto_increment", _struct_reader("<HH", "increment", "offset")),
    4: ("charset", _struct_reader("<HHH", "client", "connection", "server")),
    5: ("time_zone", _read_text),
    6: ("catalog_nz", _read_text),
    7: ("lc_time_names", _number_reader(2)),
    8: ("charset_database", _number_reader(2)),
    9: ("table_map_for_update", _number_reader(8)),
    10: ("master_data_written", _number_reader(4)),
    11: ("invoker", _read_invoker),
    12: ("updated_db_names", _read_databases),
    13: ("microseconds", _number_reader(3)),
    16: ("explicit_defaults_ts", _number_reader(1)),
    17: ("ddl_logged_with_xid", _number_reader(8)),
    18: ("default_collation_utf8mb4", _number_reader(2)),
    19: ("sql_require_primary_key", _number_reader(1)),
    20: ("default_table_encryption", _number_reader(1)),
    21: ("enable_cascade_triggers", _number_reader(1)),
    128: ("hrnow", _number_reader(3)),
    129: ("xid", _number_reader(8)),
    130: ("gtid_flags3", _read_flags3),
    131: ("character_set_collations", _read_collations),
}
"""Names and readers by code. 14 and 15 (obsolete) end the parse, as every unknown code does; 255 is filler."""

FILLER = 255


def iter_status_variables(data: bytes, offset: int, end: int) -> Iterator[StatusVariable]:
    """Iterate over the variables of the block `data[offset:end]`; the last may be `opaque` or `filler`.

    Raises:
        MalformedError: a value goes beyond the end of the block.
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
        MalformedError: a value goes beyond the end of the block.
    """
    return {one.name: one.value for one in iter_status_variables(block, 0, len(block)) if one.code != FILLER}


def copy_status_variables(block: bytes) -> dict[str, Any]:
    """Decode the variables to a dictionary that the caller may change."""
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
