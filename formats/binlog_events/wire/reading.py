"""A bounded reader of small structures: every length is checked against the bytes left before it is used."""

from __future__ import annotations

from binlogtool.formats.fields import MalformedError

_LENENC_WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}
_LENENC_NULL = 0xFB


class Reader:
    """Reads `data[offset:end]` from front to back; every error is a `MalformedError`.

    Attributes:
        label: name of the structure in errors.
        offset: offset of the next byte.
    """

    __slots__ = ("at", "data", "end", "what")

    def __init__(self, data: bytes, what: str, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.what = what
        self.at = at
        self.end = len(data) if end is None else end

    @property
    def left(self) -> int:
        """Number of bytes not yet read."""
        return self.end - self.at

    def claim(self, size: int, name: str) -> int:
        """Skip the next `size` bytes; returns their start."""
        start = self.at
        if size > self.end - start:
            text = f"{self.what}: {name} of {size:,} bytes at byte {start:,}, only {self.end - start:,} are left"
            raise MalformedError(text)
        self.at = start + size
        return start

    def take(self, size: int, name: str) -> bytes:
        """Read the next `size` bytes."""
        start = self.at
        end = start + size
        if end > self.end:
            self.claim(size, name)  # raises
        self.at = end
        return self.data[start:end]

    def part(self, size: int, name: str) -> Reader:
        """Return a reader of the next `size` bytes, whose offsets count from the same start."""
        start = self.claim(size, name)
        return Reader(self.data, f"{self.what}: {name}", start, self.at)

    def uint(self, size: int, name: str) -> int:
        """Read a little-endian number of `size` bytes."""
        start = self.at
        end = start + size
        if end > self.end:
            self.claim(size, name)  # raises
        self.at = end
        return self.data[start] if size == 1 else int.from_bytes(self.data[start:end], "little")

    def lenenc(self, name: str = "a length-encoded number") -> int:
        """Read a length-encoded number: `<0xfb` itself; `0xfc` + 2, `0xfd` + 3, `0xfe` + 8 bytes."""
        first = self.uint(1, name)
        if first < _LENENC_NULL:
            return first
        width = _LENENC_WIDTHS.get(first)
        if width is None:
            raise MalformedError(f"{self.what}: {name} at byte {self.at - 1:,} starts with 0x{first:02x}")
        return self.uint(width, name)

    def sized(self, name: str) -> bytes:
        """Read a length-encoded number and that many bytes."""
        return self.take(self.lenenc(f"the length of {name}"), name)
