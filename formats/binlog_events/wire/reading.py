"""A bounded reader of small structures: every length is checked against the bytes left before it is used."""

from __future__ import annotations

from binlogtool.formats.fields import MalformedError

_LENENC_WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}
_LENENC_NULL = 0xFB


class BoundedReader:
    """Reads `data[offset:end]` from front to back; every error is a `MalformedError`.

    Attributes:
        label: name of the structure in errors.
        offset: offset of the next byte.
    """

    __slots__ = ("data", "end", "label", "offset")

    def __init__(self, data: bytes, label: str, offset: int = 0, end: int | None = None) -> None:
        self.data = data
        self.label = label
        self.offset = offset
        self.end = len(data) if end is None else end

    @property
    def bytes_left(self) -> int:
        """Number of bytes not yet read."""
        return self.end - self.offset

    def skip_bytes(self, size: int, name: str) -> int:
        """Skip the next `size` bytes; returns their start."""
        start = self.offset
        if size > self.end - start:
            text = f"{self.label}: {name} of {size:,} bytes at byte {start:,}, only {self.end - start:,} are left"
            raise MalformedError(text)
        self.offset = start + size
        return start

    def read_bytes(self, size: int, name: str) -> bytes:
        """Read the next `size` bytes."""
        start = self.offset
        end = start + size
        if end > self.end:
            self.skip_bytes(size, name)  # raises
        self.offset = end
        return self.data[start:end]

    def sub_reader(self, size: int, name: str) -> BoundedReader:
        """Return a reader of the next `size` bytes, whose offsets count from the same start."""
        start = self.skip_bytes(size, name)
        return BoundedReader(self.data, f"{self.label}: {name}", start, self.offset)

    def read_uint(self, size: int, name: str) -> int:
        """Read a little-endian number of `size` bytes."""
        start = self.offset
        end = start + size
        if end > self.end:
            self.skip_bytes(size, name)  # raises
        self.offset = end
        return self.data[start] if size == 1 else int.from_bytes(self.data[start:end], "little")

    def read_lenenc(self, name: str = "a length-encoded number") -> int:
        """Read a length-encoded number: `<0xfb` itself; `0xfc` + 2, `0xfd` + 3, `0xfe` + 8 bytes."""
        first = self.read_uint(1, name)
        if first < _LENENC_NULL:
            return first
        width = _LENENC_WIDTHS.get(first)
        if width is None:
            raise MalformedError(f"{self.label}: {name} at byte {self.offset - 1:,} starts with 0x{first:02x}")
        return self.read_uint(width, name)

    def read_sized(self, name: str) -> bytes:
        """Read a length-encoded number and that many bytes."""
        return self.read_bytes(self.read_lenenc(f"the length of {name}"), name)
