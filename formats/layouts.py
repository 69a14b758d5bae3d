"""File layouts of a format, and what the engine reads with them: levels, layouts, batches of columns.

Terms (half-open ranges, absolute file offsets unless said otherwise):
* *frame*: one link of the outer chain of a file (a Tarantool block, a Drizzle entry, a binlog event, a page).
* *row*: one link of the chain inside a frame's payload, where the format has one (Tarantool rows in a block).
* *record*: what `dump` prints one line for and `verify` counts: the row where there are rows, else the frame.
* *window*: the piece of the file in memory; *arena*: the memory with the rows (the window itself, or unpacked
payloads).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec
from construct import Construct
from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.formats.columns import to_int_list
from binlogtool.limits import Limits

Column = Sequence[int]
"""Signed 64-bit integers, one per frame or row: a list (Python scanner) or memory (native scanner).

Unsigned 64-bit fields keep their bit pattern: `value & U64` gives the number.
"""

U64 = (1 << 64) - 1

Kernel = Callable[..., Any]
"""A plain function over integers and integer arrays (see `fields.kernel`): runs as it is, or as native code."""

RangeReader = Callable[[int, int], bytes]
"""The bytes `[offset, offset + size)` of a file, shorter at its end."""

BufferDecryptor = Callable[[int, memoryview], None]
"""Replaces the raw bytes in a buffer, which stand at this file offset, by the plain ones."""


class DecompressionError(Exception):
    """A payload cannot be unpacked. `finding_id`: compression-error or inflate-limit."""

    def __init__(self, finding_id: str, message: str) -> None:
        super().__init__(message)
        self.finding_id = finding_id


Decompressor = Callable[[memoryview, Limits], bytes | bytearray]
"""Unpacks one payload; raises `CodecError`. Must stop at `limits.max_inflate` while streaming."""


class FrameLevel(msgspec.Struct, frozen=True):
    """The outer chain of frames, which follow each other without gaps.

    Args:
        schema: one frame, lowerable (see `binlogtool.schema.lower`).
        name: what the format calls a frame ("block", "entry"): the first part of every field path.
        columns: the schema's fields that the scanner emits, beside `offset`, `end` and `checksum` (1 right, 2
            absent).
        sync: a bytes regular expression whose match can be the start of a frame; None = frames cannot be searched
            for.
        prove: for frames without a usable checksum: do these bytes (exactly one frame) form a frame beyond doubt?
            Called for every frame whose `checksum` is 2 (not computed by the writer), and by resync also where the
            schema has no checksum at all (0). None = structure alone is no proof.
        observe: called with every run of good frames in file order, with the layout's context: the evidence that
            `prove` compares later frames with. Only the scan calls it, so that each file has one proof for all
            readers.
        end_mark: the bytes that close a file cleanly in place of a frame; None = the format has none.
        align: frames start at multiples of this many bytes after the header (pages); 1 = anywhere.
        max_size: default limit of one frame in bytes (`--max-record` overrides it).
        min_size: smallest frame in bytes.
        length_field: the field with the size of a whole frame, if only integers precede it: resync skips frames that
            would be longer than the remaining bytes. None = no single field has it.
        checksum, stored, covered: the algorithm, and the columns with the stored value and with the start and end of
            the covered range, for `dump` and the search for a flipped bit. None where the format has no checksum.
        next_level: bytes from a frame on that does not fit (bounded), layout context -> the level that applies from
            this
            frame on, or None: the frame is damaged. All levels of a file have the same columns and the same
            `checksum`.
        annotated_schema: layout context -> the same schema for the annotated hexdump, with the knowledge of this
            file's
            context; None = `schema` itself. Built on demand: it is large, and a set has as many as files.
        trailing: a frame ends with its checksum, four little-endian bytes, which covers everything before it from
            this
            offset on; None = it is elsewhere.
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
    length_field: str | None = None
    claimed_offset: Callable[[bytes], int | None] | None = None
    trailing: int | None = None


class InnerLevel(msgspec.Struct, frozen=True):
    """Records inside some records: frames that hold, packed or not, a chain of frames of their own.

    Args:
        selector, holders: the frame column, and its values that mean such a frame.
        start, end: the columns with the range of the packed bytes.
        unpack: returns the inner chain of them.
        frame: the layout of that chain; its columns are those of the outer chain, so that the format's functions
            treat
            both alike. A chain must be tiled exactly.
    """

    frame: FrameLevel
    selector: str
    holders: frozenset[int]
    start: str
    end: str
    unpack: Decompressor


class RowLevel(msgspec.Struct, frozen=True):
    """The chain inside a frame's payload. Rows tile `[frames[start], frames[end])` (or its unpacked form) exactly.

    Args:
        selector, codecs: the frame column whose value selects the decompressor; values not in `codecs` = not
            compressed.
        framed: a row of which only the beginning is understood, with the same columns: it gives the end of a row that
            does not fit `schema`, so that the rows after it are read; None = the rest of the payload is lost.
    """

    schema: Construct
    columns: tuple[str, ...]
    start: str
    end: str
    selector: str | None = None
    codecs: Mapping[int, Decompressor] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    framed: Construct | None = None


class LogFileLayout(msgspec.Struct, frozen=True):
    """How one file is laid out, according to its head.

    Args:
        variant: shown in reports, e.g. "XLOG 0.13".
        header: schema of the bytes `[0, frames_at)`; None when frames start at 0.
        context: the parsed header or whatever the format's other functions need; opaque to the engine.
        findings: about the header.
        readable: False = the frames cannot be walked (the header is too damaged).
        inner: records inside some frames.
        decrypt: for an encrypted file: reader of the raw file -> a function that decrypts a buffer in place. All
            offsets stay those of the file.
        encrypted_without_key: at most the frame boundaries can be read; the findings say what the user has to supply.
        make_assembler: for records that span several frames (pages): creates the assembler of one pass, with
            `compile`
            for its kernels. Not used where only frames are read.
        make_salvage_assembler: context (`ReadRules.clone_context`), `compile`, `FrameCorrector` -> the same for a
            pass
            that includes unproven frames.
        page_size: in bytes, for a file that is made of pages.
        has_records: False = the file cannot hold any (a list of files).
        final: a server never continues after a record and the frame's end mark.
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
    """File offset and size in bytes of each record, where an `Assembler` joined the records from several frames.

    record, start: for records inside such records, whose offset and size these are: the number of the container, and
    the offset in the window where its bytes begin.
    """

    offset: Column
    size: Column
    record: Column | None = None
    start: Column | None = None


class Batch(msgspec.Struct, frozen=True):
    """A run of good frames (and their rows), valid only until the next one is requested.

    Args:
        window: bytes of the file; frame positions count from its start; `base` is the file offset of `window[0]`.
        rows: None for formats without rows. Row columns: `span` = index of the frame, `offset`, `end` = range in
            `arena`.
        arena: `window` itself, or a buffer of unpacked and copied payloads when any frame of the batch is packed.
        span_starts: start of each frame's payload in `arena`.
        packed: for each frame, whether it was unpacked.
        first_record, first_frame: index in the file of the first record and frame of this batch.
        inner: by index of the frame, the batch of the records inside it (`InnerLevel`).
        container: of such a batch, the frame that contains it; its own positions count from the start of the unpacked
            bytes.
        positions: positions of the records, where an `Assembler` made the batch.
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
        """Return the index, in this batch, of the frame that holds record `index`."""
        return index if self.rows is None else int(self.rows["span"][index])

    def frame_bytes(self, frame: int) -> bytes:
        """Return the bytes of one frame as stored in the file."""
        return bytes(self.window[self.frames["offset"][frame] : self.frames["end"][frame]])

    @property
    def is_inside(self) -> bool:
        """True if the records are inside others."""
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
        """Return the offset of a record in the one that contains it; -1 if it is in none."""
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

    def with_first_record(self, record: int) -> Batch:
        """Return the same batch with `record` as number of its first record, or of the one that contains them all."""
        holder, places = self.container, self.positions
        holder = None if holder is None else holder._replace(record=record)
        if places is not None and places.record is not None:
            places = places._replace(record=[record] * self.records.count)
        return replace(self, first_record=record, container=holder, positions=places)


class Assembler(Protocol):
    """Join records that span several frames; sees the good frames of one file in order.

    The batches that it makes have the joined bytes of the records as window, one frame per record, and `positions`;
    their columns are what the format's own functions expect. They are valid until the next one is requested. A finding
    stands for records that cannot be joined although the frames are good.
    """

    @property
    def next_number(self) -> int:
        """The number of the next record."""

    def feed(self, batch: Batch) -> Iterator[Batch | Finding]:
        """Yield the records that end in these frames; a record number is its index among all records made so far."""

    def skip_damage(self, start: int, end: int) -> Iterator[Batch | Finding]:
        """Note that `[start, end)` of the file was skipped: records that continue there are lost.

        Yields the earlier records that wait for the end of such a record; to be consumed completely.
        """

    def finish(self) -> Iterator[Batch | Finding]:
        """Yield what is left at the end of the file."""


FrameCorrector = Callable[[bytes, int], tuple[bytes, Finding] | None]
"""A frame with a wrong checksum, and its file offset -> the frame as it would be right, and why it is unproven; None:
more is wrong with it."""

UnprovenRecords = tuple[Batch, tuple[Finding, ...]]
"""Records that have a part in unproven frames, all in the same ones, and why."""


class SalvageAssembler(Protocol):
    """An `Assembler` that also gets unproven frames; it returns only the records with a part in them that are valid
    for
    their type.
    """

    def feed(self, batch: Batch, reason: Finding | None = None) -> Iterator[UnprovenRecords]:
        """Yield the records that end in these frames. reason: why these are unproven; None = they are proven."""

    def skip_damage(self, start: int, end: int) -> Iterator[UnprovenRecords]:
        """Note a skipped range; see `Assembler`."""

    def finish(self) -> Iterator[UnprovenRecords]:
        """Yield what is left at the end of the file; see `Assembler`."""
