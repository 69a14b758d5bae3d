"""Simulate how servers of the old frame read a damaged transaction: every length first, the checksum last.

Sphinx 2.2 and Manticore 2.8 use a length unchecked ("FIXME? sanitize?" in `LoadVector`): a garbage length lets them
crash, or read zeros for hours. Up to version 13 a wrong checksum alone only ends the replay of the file. Bytes after
the end of the file are read as 0. Source: Sphinx 2.2.11 and Manticore 2.8.2, `RtBinlog_c::Replay*`; both were seen to
crash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from binlogtool.formats.layouts import RangeReader
from binlogtool.formats.manticore.payloads.sphinx4 import LAST_LOW_VERSION, read_low_zint
from binlogtool.formats.manticore.payloads.zint import MAX_ZINT_SIZE, read_zint
from binlogtool.formats.manticore.schema import OldOp
from binlogtool.limits import MIB

MAX_BYTES = 256 * MIB
"""Bytes of one vector that a server is trusted to allocate and fill in time."""
MAX_COUNT = 16 * MIB
"""Elements that a server is trusted to read one by one in time."""

_OP_AT, _BODY_AT = 4, 5
_SETTINGS_TEXT = (
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


class _UncheckedReader:
    """Reads as `BinlogReader_c` does."""

    def __init__(self, read: RangeReader, position: int, size: int, version: int) -> None:
        self._read, self._position, self._size = read, position, size
        self._read_kernel = read_low_zint if version <= LAST_LOW_VERSION else read_zint

    def read_number(self) -> int:
        """Read a number; 0 after the end of the file."""
        if self._position >= self._size:
            return 0
        data = self._read(self._position, MAX_ZINT_SIZE)
        value, after = self._read_kernel(data, 0, len(data))
        self._position += after if after > 0 else len(data)
        return int(value) if after > 0 else 0

    def read_count(self, limit: int, width: int = 1) -> int:
        """Read a number as the server's `int`."""
        return self._check_length(self.read_number() & 0xFFFFFFFF, limit, width)

    def skip_vector(self, width: int) -> None:
        """Skip a count and that many elements."""
        count = self.read_count(MAX_BYTES, width)
        self._position += width * count

    def skip_text(self) -> None:
        """Skip four bytes of length, and the text."""
        length = int.from_bytes(self._read(self._position, 4), "little") if self._position < self._size else 0
        self._position += 4 + self._check_length(
            length, _INT_MAX, 1
        )  # a text is allocated, and filled only with the bytes that exist

    def skip_numbers(self, count: int) -> None:
        """Skip `count` numbers."""
        for _ in range(count):
            if self._position >= self._size:
                return
            self.read_number()

    def skip_named_numbers(self, count: int) -> None:
        """Skip a text and `count` numbers."""
        self.skip_text()
        self.skip_numbers(count)

    def repeat_element(self, element: Callable[[], None]) -> None:
        """Read a count, and each element by itself."""
        for _ in range(self.read_count(MAX_COUNT)):
            if self._position >= self._size:
                return
            element()

    def _check_length(self, value: int, limit: int, width: int) -> int:
        if value * width > limit:
            raise _LengthError(f"a length of {value:,} at {self._position:#x}", _INT_MAX < value < _MINUS_ONE)
        return value


def find_parse_doubt(read: RangeReader, offset: int, size: int, version: int, id_size: int) -> ParseDoubt | None:
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
        return ParseDoubt(f"not checked: {_SETTINGS_TEXT}", False)
    reader = _UncheckedReader(read, offset + _BODY_AT, size, version)
    try:
        _parse_transaction(reader, kind, version, id_size)
    except _LengthError as error:
        text = (
            f"the damaged transaction at {offset:#x} has {error}: the server takes it as it is, before it looks at the "
        )
        if error.negative and kind == OldOp.COMMIT:  # Sphinx 2.2 survived one in an UPDATE
            return ParseDoubt(f"{text}checksum, and crashes", True)
        return ParseDoubt(f"not checked: {text}checksum, and may crash or read for very long", False)
    return None


def _parse_transaction(reader: _UncheckedReader, kind: int, version: int, id_size: int) -> None:
    if kind == OldOp.ADD_CACHE:
        reader.repeat_element(lambda: reader.skip_named_numbers(5))
        return
    reader.skip_numbers(1)
    if kind == OldOp.ADD_INDEX:
        reader.skip_text()
        return
    reader.skip_numbers(2)
    if kind == OldOp.COMMIT:
        _parse_commit(reader, version, id_size)
    elif kind == OldOp.UPDATE_ATTRS:
        reader.repeat_element(lambda: reader.skip_named_numbers(1))
        for width in (4, id_size, 4):
            reader.skip_vector(width)
    elif kind == OldOp.PQ_ADD:
        _parse_query(reader)
    elif kind == OldOp.PQ_DELETE:
        reader.repeat_element(lambda: reader.skip_numbers(1))
        reader.skip_text()


def _parse_commit(reader: _UncheckedReader, version: int, id_size: int) -> None:
    if reader.read_number() & 0xFFFFFFFF:
        reader.skip_vector(1)
        reader.repeat_element(lambda: reader.skip_numbers(2))
        for width in (1, 1, 4, 1):
            reader.skip_vector(width)
        if 3 <= version < 8:
            reader.skip_vector(4)
        if version >= 4:
            reader.skip_vector(1)
    reader.skip_vector(id_size)


def _parse_query(reader: _UncheckedReader) -> None:
    """Read a stored query: its filters and the nodes of their tree."""
    reader.skip_numbers(2)
    reader.skip_text()
    reader.skip_text()
    filters, nodes = reader.read_count(MAX_COUNT), reader.read_count(MAX_COUNT)
    for _ in range(filters):
        reader.skip_text()
        reader.skip_numbers(10)
        values, texts = reader.read_count(MAX_COUNT), reader.read_count(MAX_COUNT)
        reader.skip_numbers(values)
        for _ in range(texts):
            reader.skip_text()
    reader.skip_numbers(4 * nodes)
