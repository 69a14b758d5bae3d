"""Decode status variables of QUERY events: a code byte and a value whose length depends on the code.

See docs/spec/mysql-mariadb-binlog.md#bodies-after-the-header-without-the-checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from construct import Construct, stream_write

from binlogtool.formats.bodies import Leaf, cut, text, too_many
from binlogtool.formats.fields import MalformedError, Part
from binlogtool.formats.later import Later
from binlogtool.limits import Limits

_KERNELS = "binlog_events.wire.status_kernels"
TOO_MANY_DATABASES = 254
ALTER_COMMIT_OR_ROLLBACK = 4 | 8


class Piece(NamedTuple):
    """A value inside a status variable; name "" = the variable's only one."""

    name: str
    start: int
    end: int
    value: Any


class Variable(NamedTuple):
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
    pieces: tuple[Piece, ...]


Reader = Callable[[bytes, int, int], tuple[Any, tuple[Piece, ...], int]]
"""Reads the value behind a code byte: what `dump` shows, its pieces and its end."""


def _need(data: bytes, at: int, size: int, end: int) -> int:
    """Return `offset + size`; refuse a value beyond `end`."""
    if at + size > end:
        raise cut("a status variable", size, end - at)
    return at + size


def _number(size: int) -> Reader:
    def read(data: bytes, at: int, end: int) -> tuple[int, tuple[Piece, ...], int]:
        stop = _need(data, at, size, end)
        value = int.from_bytes(data[at:stop], "little")
        return value, (Piece("", at, stop, value),), stop

    return read


def _numbers(layout: str, *names: str) -> Reader:
    unpack, size = struct.Struct(layout).unpack_from, struct.calcsize(layout)
    each = size // len(names)

    def read(data: bytes, at: int, end: int) -> tuple[dict[str, int], tuple[Piece, ...], int]:
        stop = _need(data, at, size, end)
        values = dict(zip(names, unpack(data, at), strict=True))
        pieces = (Piece(name, at + i * each, at + i * each + each, values[name]) for i, name in enumerate(names))
        return values, tuple(pieces), stop

    return read


def _sized(data: bytes, at: int, end: int, name: str) -> tuple[list[Piece], str | bytes, int]:
    """Read a length byte and text; returns (parts, text, end)."""
    start = _need(data, at, 1, end)
    stop = _need(data, start, data[at], end)
    value = text(data[start:stop])
    pieces = [Piece(f"{name}_len" if name else "len", at, start, data[at])]
    if stop > start:
        pieces.append(Piece(name or "value", start, stop, value))
    return pieces, value, stop


def _text(data: bytes, at: int, end: int) -> tuple[str | bytes, tuple[Piece, ...], int]:
    pieces, value, stop = _sized(data, at, end, "")
    return value, tuple(pieces), stop


def _terminated(data: bytes, at: int, end: int) -> tuple[str | bytes, tuple[Piece, ...], int]:
    pieces, value, stop = _sized(data, at, end, "")
    after = _need(data, stop, 1, end)
    return value, (*pieces, Piece("nul", stop, after, data[stop])), after


def _invoker(data: bytes, at: int, end: int) -> tuple[dict[str, Any], tuple[Piece, ...], int]:
    users, user, at = _sized(data, at, end, "user")
    hosts, host, at = _sized(data, at, end, "host")
    return {"user": user, "host": host}, (*users, *hosts), at


def _databases(data: bytes, at: int, end: int) -> tuple[list[str | bytes] | None, tuple[Piece, ...], int]:
    start = _need(data, at, 1, end)
    count, pieces = data[at], [Piece("count", at, start, data[at])]
    if count == TOO_MANY_DATABASES:
        return None, tuple(pieces), start
    names: list[str | bytes] = []
    if count > end - start:
        raise too_many("database names", count, end - start)
    for index in range(count):
        nul = data.find(b"\0", start, end)
        if nul < 0:
            raise MalformedError("a database name does not end", finding_id="length-out-of-bounds")
        names.append(text(data[start:nul]))
        pieces.append(Piece(f"[{index}]", start, nul + 1, names[-1]))
        start = nul + 1
    return names, tuple(pieces), start


def _flags3(data: bytes, at: int, end: int) -> tuple[dict[str, int], tuple[Piece, ...], int]:
    stop = _need(data, at, 1, end)
    pieces = [Piece("flags", at, stop, data[at])]
    if data[at] & ALTER_COMMIT_OR_ROLLBACK:
        after = _need(data, stop, 8, end)
        pieces.append(Piece("start_alter_seq", stop, after, int.from_bytes(data[stop:after], "little")))
        stop = after
    return {piece.name: piece.value for piece in pieces}, tuple(pieces), stop


def _collations(data: bytes, at: int, end: int) -> tuple[list[list[int]], tuple[Piece, ...], int]:
    start = _need(data, at, 1, end)
    stop = _need(data, start, 4 * data[at], end)
    pairs = [list(pair) for pair in struct.iter_unpack("<HH", data[start:stop])]
    pieces = (
        piece
        for index, (charset, collation) in enumerate(pairs)
        for piece in (
            Piece(f"[{index}].charset", start + 4 * index, start + 4 * index + 2, charset),
            Piece(f"[{index}].collation", start + 4 * index + 2, start + 4 * index + 4, collation),
        )
    )
    return pairs, (Piece("count", at, start, data[at]), *pieces), stop


VARIABLES: dict[int, tuple[str, Reader]] = {
    0: ("flags2", _number(4)),
    1: ("sql_mode", _number(8)),
    2: ("catalog", _terminated),
    3: ("auto_increment", _numbers("<HH", "increment", "offset")),
    4: ("charset", _numbers("<HHH", "client", "connection", "server")),
    5: ("time_zone", _text),
    6: ("catalog_nz", _text),
    7: ("lc_time_names", _number(2)),
    8: ("charset_database", _number(2)),
    9: ("table_map_for_update", _number(8)),
    10: ("master_data_written", _number(4)),
    11: ("invoker", _invoker),
    12: ("updated_db_names", _databases),
    13: ("microseconds", _number(3)),
    16: ("explicit_defaults_ts", _number(1)),
    17: ("ddl_logged_with_xid", _number(8)),
    18: ("default_collation_utf8mb4", _number(2)),
    19: ("sql_require_primary_key", _number(1)),
    20: ("default_table_encryption", _number(1)),
    21: ("enable_cascade_triggers", _number(1)),
    128: ("hrnow", _number(3)),
    129: ("xid", _number(8)),
    130: ("gtid_flags3", _flags3),
    131: ("character_set_collations", _collations),
}
"""Names and readers by code. 14 and 15 (obsolete) end the parse, as every unknown code does; 255 is filler."""

FILLER = 255


def variables(data: bytes, at: int, end: int) -> Iterator[Variable]:
    """Iterate over the variables of the block `data[offset:end]`; the last may be `opaque` or `filler`.

    Raises:
        MalformedError: a value goes beyond the end of the block.
    """
    while at < end:
        code = data[at]
        known = VARIABLES.get(code)
        if known is None:
            rest = data[at:end]
            filler = code == FILLER
            yield Variable(code, "filler" if filler else "opaque", at, end, rest, ())
            return
        name, read = known
        value, pieces, stop = read(data, at + 1, end)
        yield Variable(code, name, at, stop, value, pieces)
        at = stop


@lru_cache(maxsize=1024)
def status_values(block: bytes) -> dict[str, Any]:
    """Decode the variables by name; the result is shared and must not be changed.

    Raises:
        MalformedError: a value goes beyond the end of the block.
    """
    return {one.name: one.value for one in variables(block, 0, len(block)) if one.code != FILLER}


def shown_values(block: bytes) -> dict[str, Any]:
    """Decode the variables to a dictionary that the caller may change."""
    return status_values(block).copy()


class StatusVars(Construct):  # type: ignore[misc]
    """Construct of a whole stream of status variables; its value is their bytes."""

    leaf = Leaf(shown_values, Later(f"{_KERNELS}:put_variables"), table=Later(f"{_KERNELS}:LABELS"))

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        data: bytes = stream.read()
        for _ in variables(data, 0, len(data)):
            pass
        return data

    def _build(self, obj: bytes, stream: Any, context: Any, path: str) -> bytes:
        stream_write(stream, obj, len(obj), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[Part]:
        """Trace each variable: its code, then its values."""
        for one in variables(data, start, end):
            if not one.pieces:
                yield Part(f".{one.name}", 1, one.start, one.end, one.value)
                continue
            yield Part(f".{one.name}", 1, one.start, None)
            yield Part(f".{one.name}.code", 2, one.start, one.start + 1, one.code)
            for name, first, last, value in one.pieces:
                path = name if name.startswith("[") else f".{name or 'value'}"
                yield Part(f".{one.name}{path}", 2, first, last, value)
