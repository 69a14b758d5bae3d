"""Simulate how servers of the old frame read a damaged transaction: every length first, the checksum last.

Sphinx 2.2 and Manticore 2.8 use a length unchecked ("FIXME? sanitize?" in `LoadVector`): a garbage length lets them
crash, or read zeros for hours. Up to version 13 a wrong checksum alone only ends the replay of the file. Bytes after
the end of the file are read as 0. Source: Sphinx 2.2.11 and Manticore 2.8.2, `RtBinlog_c::Replay*`; both were seen to
crash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from binlogtool.formats.layouts import Read
from binlogtool.formats.manticore.payloads.sphinx4 import LAST_LOWEST_FIRST, read_low
from binlogtool.formats.manticore.payloads.zint import MAX_ZINT, read_zint
from binlogtool.formats.manticore.schema import OldOp
from binlogtool.limits import MIB

MAX_BYTES = 256 * MIB
"""Bytes of one vector that a server is trusted to allocate and fill in time."""
MAX_COUNT = 16 * MIB
"""Elements that a server is trusted to read one by one in time."""

_OP_AT, _BODY_AT = 4, 5
_SETTINGS = (
    "the server loads the settings of a RECONFIGURE before it looks at the checksum, and stops if they are damaged"
)


_INT_MAX = 0x7FFFFFFF
_MINUS_ONE = 0xFFFFFFFF
"""As a length Manticore 2.8.2 crashed at it in one vector, and got over it in another."""


class ParseDoubt(NamedTuple):
    """Reason why a server may not survive a damaged transaction. crashes: it does not (seen wherever it was tried)."""

    why: str
    crashes: bool


class _LengthError(Exception):
    """A length that a server may not survive. negative: it is negative as the server's `int`."""

    def __init__(self, message: str, negative: bool) -> None:
        super().__init__(message)
        self.negative = negative


class _Reader:
    """Reads as `BinlogReader_c` does."""

    def __init__(self, read: Read, at: int, size: int, version: int) -> None:
        self._read, self._at, self._size = read, at, size
        self._number = read_low if version <= LAST_LOWEST_FIRST else read_zint

    def number(self) -> int:
        """Read a number; 0 after the end of the file."""
        if self._at >= self._size:
            return 0
        data = self._read(self._at, MAX_ZINT)
        value, after = self._number(data, 0, len(data))
        self._at += after if after > 0 else len(data)
        return int(value) if after > 0 else 0

    def count(self, most: int, width: int = 1) -> int:
        """Read a number as the server's `int`."""
        return self._checked(self.number() & 0xFFFFFFFF, most, width)

    def vector(self, width: int) -> None:
        """Skip a count and that many elements."""
        count = self.count(MAX_BYTES, width)
        self._at += width * count

    def text(self) -> None:
        """Skip four bytes of length, and the text."""
        length = int.from_bytes(self._read(self._at, 4), "little") if self._at < self._size else 0
        self._at += 4 + self._checked(
            length, _INT_MAX, 1
        )  # a text is allocated, and filled only with the bytes that exist

    def numbers(self, count: int) -> None:
        """Skip `count` numbers."""
        for _ in range(count):
            if self._at >= self._size:
                return
            self.number()

    def skip_names(self, count: int) -> None:
        """Skip a text and `count` numbers."""
        self.text()
        self.numbers(count)

    def repeat(self, element: Callable[[], None]) -> None:
        """Read a count, and each element by itself."""
        for _ in range(self.count(MAX_COUNT)):
            if self._at >= self._size:
                return
            element()

    def _checked(self, value: int, most: int, width: int) -> int:
        if value * width > most:
            raise _LengthError(f"a length of {value:,} at {self._at:#x}", _INT_MAX < value < _MINUS_ONE)
        return value


def parse_doubt(read: Read, offset: int, size: int, version: int, ids: int) -> ParseDoubt | None:
    """Find out why the server's reaction to a damaged transaction cannot be determined; None = it only drops the
    file.

    Args:
        offset: of the transaction, whose operation and table are known.
        size: of the file.
        id_size: bytes of a document id.
    """
    op = read(offset + _OP_AT, 1)[:1]
    kind = op[0] if op else 0
    if kind == OldOp.RECONFIGURE:
        return ParseDoubt(f"not checked: {_SETTINGS}", False)
    reader = _Reader(read, offset + _BODY_AT, size, version)
    try:
        _parse(reader, kind, version, ids)
    except _LengthError as error:
        text = (
            f"the damaged transaction at {offset:#x} has {error}: the server takes it as it is, before it looks at the "
        )
        if error.negative and kind == OldOp.COMMIT:  # Sphinx 2.2 survived one in an UPDATE
            return ParseDoubt(f"{text}checksum, and crashes", True)
        return ParseDoubt(f"not checked: {text}checksum, and may crash or read for very long", False)
    return None


def _parse(reader: _Reader, kind: int, version: int, ids: int) -> None:
    if kind == OldOp.ADD_CACHE:
        reader.repeat(lambda: reader.skip_names(5))
        return
    reader.numbers(1)
    if kind == OldOp.ADD_INDEX:
        reader.text()
        return
    reader.numbers(2)
    if kind == OldOp.COMMIT:
        _parse_commit(reader, version, ids)
    elif kind == OldOp.UPDATE_ATTRS:
        reader.repeat(lambda: reader.skip_names(1))
        for width in (4, ids, 4):
            reader.vector(width)
    elif kind == OldOp.PQ_ADD:
        _parse_query(reader)
    elif kind == OldOp.PQ_DELETE:
        reader.repeat(lambda: reader.numbers(1))
        reader.text()


def _parse_commit(reader: _Reader, version: int, ids: int) -> None:
    if reader.number() & 0xFFFFFFFF:
        reader.vector(1)
        reader.repeat(lambda: reader.numbers(2))
        for width in (1, 1, 4, 1):
            reader.vector(width)
        if 3 <= version < 8:
            reader.vector(4)
        if version >= 4:
            reader.vector(1)
    reader.vector(ids)


def _parse_query(reader: _Reader) -> None:
    """Read a stored query: its filters and the nodes of their tree."""
    reader.numbers(2)
    reader.text()
    reader.text()
    filters, nodes = reader.count(MAX_COUNT), reader.count(MAX_COUNT)
    for _ in range(filters):
        reader.text()
        reader.numbers(10)
        values, texts = reader.count(MAX_COUNT), reader.count(MAX_COUNT)
        reader.numbers(values)
        for _ in range(texts):
            reader.text()
    reader.numbers(4 * nodes)
