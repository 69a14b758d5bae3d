"""Bounded field types. Each is a construct class (parse, build, trace) that also names its scan kernel.

A *kernel* is a plain module-level function over integers: it indexes `buf` (bytes or a uint8 array), calls only other
kernels, uses only literals and the constants below, and never loops without consuming a byte. The Python scanner calls
it as it is; the numba scanner copies its source into a generated module and compiles it. Values are int64: the bit
pattern of unsigned 64-bit fields.

    scalar kernel   read(buf, p, n) -> (value, next)
    record kernel   read(buf, p, n, table, out, at) -> next      writes len(columns) values to out[at:]

`n` is the end of what may be read; `next` < 0 says why there is no value: SHORT or MALFORMED.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from construct import Construct, ConstructError, Subconstruct, evaluate, stream_read, stream_seek, stream_tell

SHORT = -1
MALFORMED = -2

F = TypeVar("F", bound=Callable[..., Any])


def kernel(*uses: Callable[..., Any]) -> Callable[[F], F]:
    """Marks a function as a kernel and names the kernels that it calls."""

    def mark(function: F) -> F:
        function.__dict__["kernel_uses"] = uses
        return function

    return mark


class MalformedError(ConstructError):  # type: ignore[misc]
    """The bytes are not a value of this field type; `finding_id` says which kind of wrong."""

    def __init__(self, message: str, path: str | None = None, finding_id: str = "payload-undecodable") -> None:
        super().__init__(message, path=path)
        self.finding_id = finding_id


@dataclass(frozen=True, slots=True)
class ScalarKernel:
    """How a field type is scanned: one value."""

    read: Callable[..., tuple[int, int]]


@dataclass(frozen=True, slots=True)
class RecordKernel:
    """How a field type is scanned: several named values, driven by a constant table of integers.

    columns: names relative to the field (`lsn` becomes `header.lsn` for a field called header).
    """

    read: Callable[..., int]
    columns: tuple[str, ...]
    table: tuple[int, ...] = ()


class Verified(NamedTuple):
    """The value of a checksum node. ok is None where the stored value means "not computed"."""

    algorithm: str
    stored: int
    computed: int
    ok: bool | None
    start: int
    end: int


class CrcCheck(Construct):  # type: ignore[misc]
    """Zero bytes wide: compares a stored checksum with the bytes `[start, end)` of the same stream.

    start, end: expressions that give stream positions (`Tell` fields). absent: a stored value that means "not computed"
    unless the computed value is the same. Never raises on a mismatch: its value says it (`Verified`).
    """

    def __init__(self, checksum: Any, stored: Any, start: Any, end: Any, absent: int | None = None) -> None:
        super().__init__()
        self.checksum = checksum
        self.stored = stored
        self.start = start
        self.end = end
        self.absent = absent

    def _parse(self, stream: Any, context: Any, path: str) -> Verified:
        start, end = evaluate(self.start, context), evaluate(self.end, context)
        stored = evaluate(self.stored, context)
        here = stream_tell(stream, path)
        stream_seek(stream, start, 0, path)
        computed = self.checksum(stream_read(stream, end - start, path))
        stream_seek(stream, here, 0, path)
        ok = None if stored == self.absent and computed != stored else computed == stored
        return Verified(self.checksum.name, stored, computed, ok, start, end)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        return obj

    def _sizeof(self, context: Any, path: str) -> int:
        return 0


class Magic(Subconstruct):  # type: ignore[misc]
    """An integer that must be one of a few named constants; its value is the integer."""

    def __init__(self, subcon: Construct, **names: int) -> None:
        super().__init__(subcon)
        self.names = {value: name for name, value in names.items()}

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        value = int(self.subcon._parsereport(stream, context, path))
        if value not in self.names:
            width = 2 * self.subcon.sizeof()
            expected = " or ".join(f"{known:0{width}x}" for known in self.names)
            raise MalformedError(f"magic is {value:0{width}x}, expected {expected}", path, "bad-magic")
        return value


class Expanded(Subconstruct):  # type: ignore[misc]
    """A sized field whose bytes have a schema of their own.

    The scanner and plain parsing see `subcon` (its bytes); the annotated parse goes on into `detail`, over exactly
    these bytes. `space` names a codec (a construct with `decode(bytes, limits)`) when the bytes must be unpacked first.
    """

    def __init__(self, subcon: Construct, detail: Construct) -> None:
        super().__init__(subcon)
        self.detail = detail


class Unpacked(Subconstruct):  # type: ignore[misc]
    """Inside `Expanded`: the rest of the bytes is packed; `subcon` describes the unpacked bytes, a new address space.

    codec: `formats.base.Codec`.
    """

    def __init__(self, subcon: Construct, codec: Any, name: str) -> None:
        super().__init__(subcon)
        self.codec = codec
        self.codec_name = name
