"""Layout of the files of a format: location of frames, checksums, the batches of columns that a scan yields, and split
points.

Terms (half-open ranges, absolute file offsets unless said otherwise):
* *frame*: one link of the outer chain of a file (a Tarantool block, a Drizzle entry, a binlog event, a page).
* *row*: one link of the chain inside a frame's payload, where the format has one (Tarantool rows in a block).
* *record*: what `dump` prints one line for and `verify` counts: the row where there are rows, else the frame.
* *window*: the piece of the file in memory; *arena*: the memory with the rows (the window itself, or unpacked
payloads).

Split points are used to share a large file among readers, and to continue reading a growing file. At a split point,
nothing that began earlier is open: no transaction, and no record.

For a reflected CRC-32, a kernel `f` in the common convention (initial value and final xor all ones) computes any
variant with the same polynomial: `f(data, init ^ ones) ^ ones ^ xorout`.

A CRC is linear: flipping bits of the covered bytes changes the computed value by an amount that depends only on which
bits were flipped and how far they are from the end, not on the data, the initial value or the final xor. The change
made by one bit is `x**(32 + k) mod P`, where k counts the bits processed after it; a bit flipped in the stored value is
`x**k` with k < 32. So the *syndrome* `stored ^ computed` of one flipped bit is a power of x, and finding the bit is a
discrete logarithm in a range of `8 * length` exponents: baby steps and giant steps, about the square root of the range.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from math import isqrt
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
from construct import Construct
from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.format_api.schema_fields import UInt8s, kernel
from binlogtool.limits import MIB, Limits

__all__ = ["blake2b"]


# --- Conversion of scanner columns to Python integers ---


def to_int_list(column: Any, start: int = 0, stop: int | None = None) -> list[int]:
    """Return a part of a column as a list of Python integers, for any kind of column."""
    part = column[start:stop]
    return part.tolist() if hasattr(part, "tolist") else list(part)


# --- File layouts of a format, and what the engine reads with them ---

Column = Sequence[int]
"""Signed 64-bit integers, one per frame or row: memory that a scanner fills, or a list.

Unsigned 64-bit fields keep their bit pattern: `value & U64` gives the number.
"""

U64 = (1 << 64) - 1

Kernel = Callable[..., Any]
"""Plain function over integers and integer arrays (see `schema_fields.kernel`) that runs as Python or native code."""

RangeReader = Callable[[int, int], bytes]
"""Function (offset, size) that reads the bytes `[offset, offset + size)` of a file, fewer at its end."""

BufferDecryptor = Callable[[int, memoryview], None]
"""Function (file offset, buffer) that decrypts a buffer of raw bytes in place."""


Decompressor = Callable[[memoryview, Limits], bytes | bytearray]
"""Function that unpacks one payload or raises `DecompressionError`; it must stop at `limits.max_inflate`."""


class FrameLevel(msgspec.Struct, frozen=True):
    """Outer chain of frames, which follow each other without gaps.

    Args:
        schema: schema of one frame, which can be compiled (see `binlogtool.schema.lower_frame_schema`).
        name: what the format calls a frame ("block", "entry"): the first part of every field path.
        columns: the schema's fields that the scanner emits, besides `offset`, `end` and `checksum` (1 right, 2 absent).
        sync: a bytes regular expression whose match can be the start of a frame; None = frames cannot be searched for.
        prove: for frames without a usable checksum: (bytes of exactly one frame, layout context) -> is it proven?
            Called for every frame whose `checksum` is 2 (not computed by the writer), and by resync also if the schema
            has no checksum at all (0). None = structure alone is no proof.
        observe: called with every run of good frames in file order, with the layout's context: the evidence that
            `prove` compares later frames with. Only the scan calls it, so that each file has one proof for all readers.
        end_mark: the bytes that close a file cleanly, instead of a frame; None = the format has none.
        align: frames start at multiples of this many bytes after the header (pages); 1 = anywhere.
        max_size: default limit of one frame in bytes (`--max record=SIZE` overrides it).
        min_size: smallest frame in bytes.
        length_field: the field with the size of a whole frame, if only integers precede it: resync skips frames that
            would be longer than the remaining bytes. None = there is no such field.
        checksum, stored, covered: the algorithm, and the columns with the stored value and with the start and end of
            the covered range, for `dump` and the search for a flipped bit. None where the format has no checksum.
        next_level: (bytes from a frame on that does not match (bounded), layout context) -> the level that applies from
            this frame on; None = the frame is damaged. All levels of a file have the same columns and the same
            `checksum`.
        annotated_schema: layout context -> the same schema for the annotated hexdump, with the knowledge of this file's
            context; None = `schema` itself. Built on demand, because it is large and each file of a set has one.
        select_annotated: (layout context, batch, frame) -> sets what `annotated_schema` knows to what was known at this
            frame; batch None = to the latest.
        trailing: a frame ends with its checksum, four little-endian bytes, which covers everything before it from this
            offset on; None = the checksum is elsewhere.
        claimed_offset: the first bytes of a frame -> its file offset according to the writer; None = not stored.
    """

    schema: Construct
    columns: tuple[str, ...]
    sync: bytes | None
    min_size: int
    max_size: int
    name: str = "frame"
    prove: Callable[[bytes, Any], bool] | None = None
    observe: Callable[[Any, Batch], None] | None = None
    end_mark: bytes | None = None
    align: int = 1
    checksum: Any = None
    stored: str | None = None
    covered: tuple[str, str] | None = None
    next_level: Callable[[bytes, Any], FrameLevel | None] | None = None
    annotated_schema: Callable[[Any], Construct] | None = None
    select_annotated: Callable[[Any, Batch | None, int], None] | None = None
    length_field: str | None = None
    claimed_offset: Callable[[bytes], int | None] | None = None
    trailing: int | None = None


class InnerLevel(msgspec.Struct, frozen=True):
    """Records inside some records: frames that contain, packed or not, another chain of frames.

    Args:
        selector, holders: the frame column, and its values that mark such a frame.
        start, end: the columns with the range of the packed bytes.
        unpack: function that returns the inner chain from the packed bytes.
        frame: the layout of that chain; its columns are those of the outer chain, so that the format's functions treat
            both alike. A chain must be tiled exactly.
    """

    frame: FrameLevel
    selector: str
    holders: frozenset[int]
    start: str
    end: str
    unpack: Decompressor


class RowLevel(msgspec.Struct, frozen=True):
    """Rows inside the payload of a frame; they fill `[frames[start], frames[end])`, packed or unpacked, without a gap.

    Args:
        selector, codecs: the frame column whose value selects the decompressor; values not in `codecs` = not
            compressed.
        framed: schema, with the same columns, of a row of which only the beginning is read: it gives the end of a row
            that does not match `schema`, so that later rows can be read; None = the rest of the payload is lost.
    """

    schema: Construct
    columns: tuple[str, ...]
    start: str
    end: str
    selector: str | None = None
    codecs: Mapping[int, Decompressor] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    framed: Construct | None = None


class LogFileLayout(msgspec.Struct, frozen=True):
    """Layout of one file, according to its head.

    Args:
        variant: shown in reports, e.g. "XLOG 0.13".
        header: schema of the bytes `[0, frames_at)`; None when frames start at 0.
        context: the parsed header or whatever the format's other functions need; opaque to the engine.
        findings: findings about the header.
        readable: False = the frames cannot be walked (the header is too damaged).
        inner: layout of the records inside some frames.
        decrypt: for an encrypted file: reader of the raw file -> a function that decrypts a buffer in place. Offsets
            remain those of the file.
        encrypted_without_key: at most the frame boundaries can be read; the findings say what the user has to supply.
        make_assembler: for records that span several frames (pages): function that creates the assembler of one pass,
            with `compile` for its kernels. Not used if only frames are read.
        make_salvage_assembler: (context (`ReadRules.clone_context`), `compile`, `FrameCorrector`) -> the assembler of a
            pass that includes unproven frames.
        page_size: bytes of a page, for a file of pages.
        has_records: False = the file cannot contain records (such as a list of files).
        final: True if a server never continues writing after a record and the frame's end mark.
    """

    variant: str
    frames_at: int
    frame: FrameLevel
    header: Construct | None = None
    rows: RowLevel | None = None
    context: Any = None
    findings: tuple[Finding, ...] = ()
    readable: bool = True
    inner: InnerLevel | None = None
    decrypt: Callable[[RangeReader], BufferDecryptor] | None = None
    encrypted_without_key: bool = False
    make_assembler: Callable[[Callable[[Kernel], Kernel]], Assembler] | None = None
    make_salvage_assembler: Callable[[Any, Callable[[Kernel], Kernel], FrameCorrector], SalvageAssembler] | None = None
    page_size: int | None = None
    has_records: bool = True
    final: bool = False


class ColumnTable(msgspec.Struct, frozen=True):
    """Columns of `count` entries; a column may be longer than `count` (reused buffers), never shorter."""

    count: int
    columns: Mapping[str, Column]

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]


class ContainerPosition(NamedTuple):
    """Position of a record in the file, or of the record that contains it: offset, size in bytes, record number."""

    offset: int
    size: int
    record: int


class RecordPositions(NamedTuple):
    """File offset and size in bytes of each record, if an `Assembler` joined the records from several frames.

    record, start: for records inside such a record (offset and size are then those of the container): the number of the
    container, and the offset of its bytes in the window.
    """

    offset: Column
    size: Column
    record: Column | None = None
    start: Column | None = None


class Batch(msgspec.Struct, frozen=True):
    """Run of good frames (and their rows), valid only until the next batch is requested.

    Args:
        window: bytes of the file; frame positions count from its start; `base` is the file offset of `window[0]`.
        rows: None for formats without rows. Row columns: `span` = index of the frame, `offset`, `end` = range in
            `arena`.
        arena: `window` itself, or a buffer of unpacked and copied payloads when any frame of the batch is packed.
        span_starts: start of each frame's payload in `arena`.
        packed: for each frame, whether it was unpacked.
        first_record, first_frame: index in the file of the first record and frame of this batch.
        inner: index of a frame -> the batch of the records inside it (`InnerLevel`).
        container: for such an inner batch, the frame that contains it; the positions in the batch count from the start
            of the unpacked bytes.
        positions: positions of the records, if an `Assembler` made the batch.
    """

    base: int
    window: memoryview
    frames: ColumnTable
    arena: memoryview
    rows: ColumnTable | None
    span_starts: Column
    packed: Sequence[bool]
    first_record: int
    first_frame: int
    inner: Mapping[int, Batch] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    container: ContainerPosition | None = None
    positions: RecordPositions | None = None

    @property
    def records(self) -> ColumnTable:
        """The rows where the format has rows, else the frames."""
        return self.frames if self.rows is None else self.rows

    def record_bytes(self, index: int) -> bytes:
        """Return the bytes of one record in its own address space."""
        table = self.records
        return bytes(self.arena[table["offset"][index] : table["end"][index]])

    def frame_index(self, index: int) -> int:
        """Return the index, in this batch, of the frame that contains record `index`."""
        return index if self.rows is None else int(self.rows["span"][index])

    def frame_bytes(self, frame: int) -> bytes:
        """Return the bytes of one frame as stored in the file."""
        return bytes(self.window[self.frames["offset"][frame] : self.frames["end"][frame]])

    @property
    def is_inside(self) -> bool:
        """True if the records are inside other records."""
        return self.container is not None or (self.positions is not None and self.positions.record is not None)

    def container_position(self, index: int) -> ContainerPosition:
        """Return the position of a record's frame, or of the record that contains it."""
        if self.container is not None:
            return self.container
        if self.positions is not None:
            offset, size, record, _ = self.positions
            number = self.first_record + index if record is None else int(record[index])
            return ContainerPosition(int(offset[index]), int(size[index]), number)
        frame = self.frame_index(index)
        low, high = int(self.frames["offset"][frame]), int(self.frames["end"][frame])
        return ContainerPosition(self.base + low, high - low, self.first_record + index)

    def inner_offset(self, index: int) -> int:
        """Return the offset of a record in its container; -1 if it has no container."""
        if not self.is_inside:
            return -1
        start = None if self.positions is None else self.positions.start
        return int(self.records["offset"][index]) - (0 if start is None else int(start[index]))

    def record_numbers(self, start: int, stop: int) -> Sequence[int]:
        """Return the numbers in the file of the records `[start, stop)`; for one inside another, its container's."""
        if self.container is not None:
            return [self.container.record] * (stop - start)
        if self.positions is not None and self.positions.record is not None:
            return to_int_list(self.positions.record, start, stop)
        return range(self.first_record + start, self.first_record + stop)

    def copy_with_first_record(self, record_number: int) -> Batch:
        """Return the same batch with `record_number` as the number of its first record, or of their container."""
        holder, places = self.container, self.positions
        holder = None if holder is None else holder._replace(record=record_number)
        if places is not None and places.record is not None:
            places = places._replace(record=[record_number] * self.records.count)
        return replace(self, first_record=record_number, container=holder, positions=places)


class Assembler(Protocol):
    """Assembler of records that span several frames; it receives the good frames of one file in order.

    Its batches have the joined bytes of the records as window, one frame per record, and `positions`; their columns are
    those that the format's functions expect. They are valid until the next batch is requested. A finding replaces
    records that cannot be joined although the frames are good.
    """

    @property
    def next_number(self) -> int:
        """The number of the next record."""

    def assemble(self, batch: Batch) -> Iterator[Batch | Finding]:
        """Yield the records that end in these frames; a record's number is its index among all records so far."""

    def skip_damage(self, start: int, end: int) -> Iterator[Batch | Finding]:
        """Note that `[start, end)` of the file was skipped: records that continue in it are lost.

        Yield the earlier records that waited for the end of such a record; the iterator must be consumed completely.
        """

    def finish(self) -> Iterator[Batch | Finding]:
        """Yield the records that are left at the end of the file."""


FrameCorrector = Callable[[bytes, int], tuple[bytes, Finding] | None]
"""Function (frame with a wrong checksum, its file offset) -> (corrected frame, why it is unproven); None = it cannot be
corrected."""

UnprovenRecords = tuple[Batch, tuple[Finding, ...]]
"""Records with parts in the same unproven frames, and why the frames are unproven."""


class SalvageAssembler(Protocol):
    """`Assembler` that also receives unproven frames.

    It returns only records with a part in unproven frames, if they are valid for their type.
    """

    def assemble_unproven(self, batch: Batch, reason: Finding | None = None) -> Iterator[UnprovenRecords]:
        """Yield the records that end in these frames. reason: why the frames are unproven; None = they are proven."""

    def skip_damage(self, start: int, end: int) -> Iterator[UnprovenRecords]:
        """Note a skipped range; see `Assembler`."""

    def finish(self) -> Iterator[UnprovenRecords]:
        """Yield the remaining records at the end of the file; see `Assembler`."""


# --- Split points ---


class SplitPoint(NamedTuple):
    """Position in the file, and the number of frames before it in its batch."""

    offset: int
    frame_count: int


def make_split_point(batch: Batch, frame_count: int) -> SplitPoint | None:
    """Return the split point after the first `frame_count` frames of a batch; None if `frame_count` is 0."""
    return SplitPoint(batch.base + int(batch.frames["end"][frame_count - 1]), frame_count) if frame_count else None


KernelCompiler = Callable[[Kernel], Kernel]
"""Function that returns the fastest available callable for a kernel."""


class SplitFinder(Protocol):
    """Finder of split points in the batches of one file, from its start or from a split point; it belongs to one
    layout.

    layout: the layout to scan with: the file's own, or a layout that shows the split points.
    """

    layout: LogFileLayout

    def find_split_point(self, batch: Batch, compile_kernel: KernelCompiler) -> SplitPoint | None:
        """Return the last split point in this batch, or None; if frames hold rows, only the end of the batch counts."""

    def export_state(self) -> Any:
        """Return the state at the last split point, as plain JSON values."""

    def restore_state(self, state: Any, record: int) -> FrameLevel | None:
        """Restore exported state into the layout's context, for a reader that starts at that point with this record
        number.

        Return the frame level at that position, if it differs from the level at the beginning of the file
        (`FrameLevel.next_level`).
        """

    def skip_damage(self) -> None:
        """Note that a part of the file was skipped."""

    def export_state_for_next_file(self) -> Any:
        """Return the state that also holds in the next file (`ReadRules.carries_state`), as plain JSON values."""


class EveryFrameSplitFinder(msgspec.Struct):
    """Split finder for formats in which each frame can be read without earlier frames."""

    layout: LogFileLayout

    def find_split_point(self, batch: Batch, compile_kernel: KernelCompiler) -> SplitPoint | None:
        """Return the end of the batch."""
        return make_split_point(batch, batch.frames.count)

    def export_state(self) -> Any:
        """Return None: there is no state."""

    def restore_state(self, state: Any, record: int) -> None:
        """Ignore the state, which is not needed."""

    def skip_damage(self) -> None:
        """Ignore the damage: no state is needed."""

    def export_state_for_next_file(self) -> Any:
        """Return None: the next file does not continue this one."""


# --- Flat view of a batch ---

_MAX_RUN_BYTES = MIB
"""Maximum unpacked bytes of one run, unless a single record has more."""


class BatchPart(NamedTuple):
    """The records `[first, stop)` of a batch. run_index: index of the first record in its run."""

    batch: Batch
    first: int
    stop: int
    run_index: int


class FlatRecords(msgspec.Struct, frozen=True):
    """Run of records, counted from 0, whether they are inside other records or not. batch: the outermost batch."""

    batch: Batch
    parts: Sequence[BatchPart]

    @property
    def count(self) -> int:
        """Number of records."""
        last = self.parts[-1]
        return last.run_index + last.stop - last.first

    def find_part(self, index: int) -> BatchPart:
        """Return the part that contains a record."""
        return self.parts[bisect_right(self.parts, index, key=_run_index) - 1]

    def copy_column(self, name: str) -> memoryview:
        """Return a column of the frames of all parts as 64-bit integers; a copy."""
        pieces: list[Any] = [batch.frames[name][first:stop] for batch, first, stop, _ in self.parts]
        whole = bytearray().join(array("q", piece) if isinstance(piece, list) else piece for piece in pieces)
        return memoryview(whole).cast("q")

    def record_numbers(self, start: int, stop: int) -> list[int]:
        """Return the numbers in the file of the records `[start, stop)`; for one inside another, its container's."""
        numbers = list[int]()
        for batch, first, last, at in self.parts:
            low, high = max(start, at) - at + first, min(stop, at + last - first) - at + first
            numbers += batch.record_numbers(low, max(low, high))
        return numbers


def _run_index(part: BatchPart) -> int:
    return part.run_index


def wrap_batch(batch: Batch) -> FlatRecords:
    """Return a batch without inner records as one run."""
    return FlatRecords(batch, [BatchPart(batch, 0, batch.frames.count, 0)])


def flatten_batch(batch: Batch) -> Iterator[FlatRecords]:
    """Yield all records of a batch, including inner records, in runs with bounded memory."""
    parts, reached, at, size = list[BatchPart](), 0, 0, 0
    for holder, inner in batch.inner.items():
        parts.append(BatchPart(batch, reached, holder + 1, at))
        at += holder + 1 - reached
        reached = holder + 1
        if inner.frames.count:
            parts.append(BatchPart(inner, 0, inner.frames.count, at))
            at += inner.frames.count
        size += len(inner.window)
        if size >= _MAX_RUN_BYTES:
            yield FlatRecords(batch, parts)
            parts, at, size = [], 0, 0
    if reached < batch.frames.count:
        parts.append(BatchPart(batch, reached, batch.frames.count, at))
    if parts:
        yield FlatRecords(batch, parts)


# --- Zeroed integer buffers for scan columns ---

_MIN_MMAP_BYTES = 1 << 17
"""Minimum size of a buffer that is mapped: a bytearray would write all its zeros, even if a small file needs few."""


def zeroed_int64(count: int) -> memoryview[int]:
    """Return a buffer of `count` 64-bit integers, all 0; a large one is mapped, so that pages are allocated when used.

    Raises:
        MemoryError: the system has no more memory.
    """
    size = 8 * count
    if size < _MIN_MMAP_BYTES:
        return memoryview(bytearray(size)).cast("q")
    try:
        return memoryview(mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)).cast("q")
    except OSError as error:
        raise MemoryError(f"not enough memory for {size:,} bytes") from error


# --- `blake2b` from its own extension module ---

try:
    from _blake2 import blake2b
except ImportError:  # interpreters without this module
    from hashlib import blake2b


# --- Checksums ---

Buffer = bytes | bytearray | memoryview
_ONES = 0xFFFFFFFF
CHECK_INPUT = b"123456789"


def _load_crc32() -> Callable[[Any, int], int]:
    try:
        from isal import isal_zlib
    except ImportError:  # no wheel for this machine: use the slower standard library
        return zlib.crc32
    kernel: Callable[[Any, int], int] = isal_zlib.crc32
    return kernel


def _load_crc32c() -> Callable[[Any, int], int]:
    """Load the kernel from the extension module: importing its package looks up a version, which takes 20 ms."""
    name = "crc32c._crc32c"
    package = find_spec("crc32c")
    spec = PathFinder.find_spec(name, package.submodule_search_locations) if package is not None else None
    if name in sys.modules or spec is None or spec.loader is None:
        import crc32c

        return crc32c.crc32c
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel: Callable[[Any, int], int] = module.crc32c
    return kernel


_KERNEL_LOADERS: dict[int, Callable[[], Callable[[Any, int], int]]] = {
    0x104C11DB7: _load_crc32,
    0x11EDC6F41: _load_crc32c,
}


class Checksum(msgspec.Struct, frozen=True, dict=True):
    """Reflected 32-bit CRC, parameters as in the Rocksoft model: `init` = initial register, `xorout` = final XOR.

    check: value for the ASCII string "123456789".
    """

    name: str
    poly: int
    init: int
    xorout: int
    check: int

    @cached_property
    def reference(self) -> Callable[[Buffer], int]:
        """The reference implementation, crcmod: slow, and only used in checks."""
        import crcmod

        function = crcmod.mkCrcFun(self.poly, initCrc=self.init ^ self.xorout, xorOut=self.xorout, rev=True)
        if function(CHECK_INPUT) != self.check:
            raise AssertionError(f"the check value of {self.name} disagrees with its definition")
        return lambda data: int(function(bytes(data)))

    @cached_property
    def kernel(self) -> Callable[[Any, int], int]:
        """The kernel in the common convention, `f(data, start)`; `start` and `final` adapt it to this checksum."""
        kernel = _KERNEL_LOADERS[self.poly]()
        if not kernel(CHECK_INPUT, self.start) ^ self.final == self.check:
            raise AssertionError(f"checksum kernel of {self.name} disagrees with its definition")
        return kernel

    @property
    def start(self) -> int:
        """The start value for the kernel."""
        return self.init ^ _ONES

    @property
    def final(self) -> int:
        """The value to xor the kernel's result with."""
        return self.xorout ^ _ONES

    def __call__(self, data: Buffer) -> int:
        """Return the checksum of `data`."""
        return self.kernel(data, self.start) ^ self.final


CRC32 = Checksum("crc32", 0x104C11DB7, _ONES, _ONES, 0xCBF43926)
"""zlib's CRC-32 (Drizzle, Manticore, MySQL)."""

CRC32C = Checksum("crc32c", 0x11EDC6F41, _ONES, _ONES, 0xE3069283)
"""CRC-32C, Castagnoli (InnoDB pages)."""

CRC32C_RAW = Checksum("crc32c", 0x11EDC6F41, 0, 0, 0x58E3FA20)
"""CRC-32C with initial value 0 and no final xor (Tarantool, docs/spec/tarantool.md#blocks)."""


# --- Flipped bit that explains a checksum mismatch ---

MAX_LENGTH = (2**31 - 1 - 32) // 8
"""Longest covered range, in bytes, within which two different bits never share a syndrome.

The powers of x repeat after 2**31 - 1 bits for the Castagnoli polynomial (2**32 - 1 for CRC-32).
"""

_ONE = 1 << 31
"""The polynomial 1 in a reflected register: the highest power of x is bit 0."""

_MAX_BABY_STEPS = 1 << 16


class BitFlip(msgspec.Struct, frozen=True):
    """One flipped bit.

    Args:
        byte: offset in the covered range, or, for the stored value, index of its byte, least significant first.
        bit: 0 = least significant bit of that byte.
    """

    where: Literal["data", "stored"]
    byte: int
    bit: int


def locate_bit_flip(
    checksum: Checksum, stored: int, computed: int, length: int, *, often: bool = False
) -> BitFlip | None:
    """Return the single flipped bit, in `length` covered bytes or the stored value, that explains a mismatch, or None.

    None also for equal values and for ranges longer than MAX_LENGTH, where the answer would be ambiguous. Any damage of
    exactly one bit is found. Random damage of more bits looks like one bit with probability (8 * length + 32) / 2**32:
    5.7e-7 for 300 bytes, 3.1 % for 16 MiB. Time grows with the square root of `length`; at most 2**16 values are held.

    Args:
        often: many ranges will be checked: compute all these values in advance, so that 8 KiB take one lookup.
    """
    syndrome = stored ^ computed
    if syndrome.bit_count() == 1:
        bit = syndrome.bit_length() - 1
        return BitFlip("stored", bit // 8, bit % 8)
    if syndrome == 0 or length > MAX_LENGTH:
        return None
    stride = _MAX_BABY_STEPS if often else min(_MAX_BABY_STEPS, 1 << isqrt(8 * length).bit_length())
    bits_after = _find_exponent(_reflect_polynomial(checksum.poly), syndrome, 8 * length, stride)
    return None if bits_after is None else BitFlip("data", length - 1 - bits_after // 8, 7 - bits_after % 8)


def _find_exponent(poly: int, syndrome: int, bits: int, stride: int) -> int | None:
    """Return the k in [0, bits) with `x**(32 + k) mod P` = syndrome, or None."""
    powers, back = _build_steps(poly, stride)
    for giant in range(0, bits, stride):
        small = powers.get(syndrome)
        if small is not None:
            return giant + small if giant + small < bits else None
        a, b, c, d = syndrome.to_bytes(4, "little")
        syndrome = back[0][a] ^ back[1][b] ^ back[2][c] ^ back[3][d]
    return None


@lru_cache(maxsize=8)
def _build_steps(poly: int, stride: int) -> tuple[dict[int, int], tuple[list[int], ...]]:
    """Return the baby steps `{x**(32 + k): k}` for k < stride, and the giant step back, `x**-stride`, as tables."""
    powers, value = {}, poly
    for k in range(stride):
        powers[value] = k
        value = value >> 1 ^ (poly if value & 1 else 0)
    return powers, _build_product_tables(poly, _inverse_power(poly, stride))


def _build_product_tables(poly: int, factor: int) -> tuple[list[int], ...]:
    """Return the products of a factor with each value of each byte of a register, least significant byte first."""
    shifted = [factor]
    for _ in range(31):
        shifted.append(shifted[-1] >> 1 ^ (poly if shifted[-1] & 1 else 0))
    tables = []
    for low in range(0, 32, 8):
        table = [0]
        for bit in range(low, low + 8):
            table += [value ^ shifted[31 - bit] for value in table]
        tables.append(table)
    return tuple(tables)


def _inverse_power(poly: int, count: int) -> int:
    """Return `x**-count mod P`."""
    value = _ONE
    for _ in range(count):
        value = ((value ^ poly) << 1 | 1) if value & _ONE else value << 1
    return value


def _multiply(poly: int, a: int, b: int) -> int:
    """Return `a * b mod P`, both reflected."""
    result = 0
    while a:
        if a & _ONE:
            result ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (poly if b & 1 else 0)
    return result


def _reflect_polynomial(poly: int) -> int:
    """Return the register form (lowest power in the highest bit) of a polynomial in crcmod's convention."""
    return int(f"{poly & 0xFFFFFFFF:032b}"[::-1], 2)


def undo_zero_bytes_in_crc_register(poly: int, register: int, count: int) -> int:
    """Return the register that becomes this one after `count` zero bytes. poly: in crcmod's convention."""
    factor, base, bits = _ONE, _inverse_power(_reflect_polynomial(poly), 1), 8 * count
    while bits:
        if bits & 1:
            factor = _multiply(_reflect_polynomial(poly), factor, base)
        base = _multiply(_reflect_polynomial(poly), base, base)
        bits >>= 1
    return _multiply(_reflect_polynomial(poly), register, factor)


def advance_crc_register(poly: int, register: int, byte: int) -> int:
    """Return the register (no initial value, no final xor) after one more byte. poly: in crcmod's convention."""
    return register >> 8 ^ _build_byte_table(poly)[(register ^ byte) & 0xFF]


@lru_cache(maxsize=4)
def _build_byte_table(poly: int) -> tuple[int, ...]:
    """Return the table for one step: the contribution of each value of the register's low byte."""
    reflected, values = _reflect_polynomial(poly), []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (reflected if value & 1 else 0)
        values.append(value)
    return tuple(values)


# --- Kernel for zlib's CRC-32 ---


@kernel(native="crc32_bytes")
def compute_crc32(buf: UInt8s, pos: int, limit: int) -> int:
    """Return the CRC-32 of `buf[pos:limit]`."""
    return zlib.crc32(bytes(buf[pos:limit]))
