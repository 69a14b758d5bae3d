"""Detect files of the InnoDB binlog and create their layout; decode pages and records: envelope columns, bodies, split
points, and the parts of a file that can hold selected transactions.

See docs/spec/mariadb_innodb_binlog.md#header-page, #chunks-and-records and #gtid-position-search. A GTID state lists
the last sequence number of each (domain, server), and the numbers of a pair only grow. So the numbers between two
states are known, and parts without selected numbers are skipped. A part whose states cannot be read is never skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import msgspec
from construct import Construct
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import EnvelopeColumns, FileHead, FormatMatch, GtidSelection, JsonLine
from binlogtool.format_api.layout import (
    CRC32C,
    Assembler,
    Batch,
    FrameCorrector,
    FrameLevel,
    Kernel,
    KernelCompiler,
    LogFileLayout,
    SalvageAssembler,
    SplitPoint,
    make_split_point,
)
from binlogtool.format_api.lazy_import import LazyRef
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events import decode
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory, make_earlier_state_loader
from binlogtool.formats.binlog_events.gtid.gtid_sets import GtidSet, parse_gtid_position, parse_gtid_set
from binlogtool.formats.binlog_events.transactions.boundaries import is_possible_ddl
from binlogtool.formats.binlog_events.wire_format import EVENT_TYPE_NAMES as EVENT_TYPES
from binlogtool.formats.binlog_events.wire_format import (
    HEADER_SIZE,
    TYPE_AT,
    EventType,
    parse_format_description,
    read_event_size,
)
from binlogtool.formats.mariadb_innodb_binlog.event_groups import (
    DESCRIPTION_KEY,
    NO_GROUP_HEAD,
    CommitGroupReader,
    GroupEventDecoder,
    read_commit_head,
)
from binlogtool.formats.mariadb_innodb_binlog.records.join_chunks_to_records import RecordAssembler, column_slices
from binlogtool.formats.mariadb_innodb_binlog.records.parse_records import (
    BODY_READERS,
    ChunkJoinCodec,
    IbbPosition,
    PageStore,
    UnreadableError,
    parse_gtid_state,
)
from binlogtool.formats.mariadb_innodb_binlog.schema import (
    CHUNK_HEAD_SIZE,
    CRC_SIZE,
    DEFAULT_PAGE_SIZE_SHIFT,
    LAST_CHUNK_FLAG,
    MAGIC,
    MAGIC_BYTES,
    NESTABLE_TYPES,
    NO_FILE,
    PAGE_SIZE_SHIFTS,
    SCAN_COLUMNS,
    SHORT_HEADER_SIZE,
    TYPE_MASK,
    VERSION_MAJOR,
    IbbFileContext,
    IbbFileHeader,
    IbbRecordType,
    IbbScanSummary,
    file_number,
    header_page_construct,
    is_page_crc_right,
    is_short_header_crc_right,
    joined_page_construct,
    load_chunk_head,
    page_construct,
    parse_header,
)
from binlogtool.formats.mariadb_innodb_binlog.validate.log_set import DomainServer, state_numbers
from binlogtool.limits import MIB, Limits

DEFAULT_MAX_RECORD = 256 * MIB
"""Default limit for the size of one record, in bytes."""


def detect_format(head: FileHead) -> FormatMatch:
    """Detect the format by magic and CRC, or by the name if the file is damaged or empty."""
    data, has_log_name = head.data, file_number(head.name) is not None
    header = parse_header(data)
    if data.startswith(MAGIC_BYTES):
        return FormatMatch(100, "it starts with fe fe 0d 01")
    if header is not None and is_short_header_crc_right(data) and has_log_name:
        return FormatMatch(90, "a log's name, and the CRC of the header is right")
    if has_log_name and data and not any(data[:SHORT_HEADER_SIZE]):
        return FormatMatch(60, "a log's name, and zeros at the start, as in a preallocated file")
    if has_log_name and MAGIC_BYTES.startswith(data[:4]):
        return FormatMatch(30, "a log's name, and the beginning of its magic")
    if has_log_name:
        return FormatMatch(10, "a log's name")
    return FormatMatch(0, "neither magic nor name")


def make_layout(head: FileHead, limits: Limits) -> LogFileLayout:
    """Read the header and page size of a file, and report problems of the header."""
    data = head.data[:SHORT_HEADER_SIZE]
    empty = not any(data)
    header = None if empty else parse_header(data)
    is_trusted = header is not None and is_short_header_crc_right(data) and header.magic == MAGIC
    shift = _find_page_size_shift(head, header, is_trusted)
    name_number = file_number(head.name)
    context = IbbFileContext(
        number=header.file_no if name_number is None and is_trusted and header is not None else name_number,
        page_size=1 << shift,
        header=header if is_trusted else None,
        starts_with_zeros=empty,
        size=head.size,
        level=head.hints.level or "record",
        name=head.name,
        max_record=limits.max_record or DEFAULT_MAX_RECORD,
        max_group=limits.max_inflate,
        read=head.peek,
        open_sibling=head.read_sibling,
        shared=head.shared,
        hints=head.hints,
        redo=head.redo,
        earlier=make_earlier_state_loader(head, "mariadb-innodb-binlog", _is_next_file),
    )
    findings = [] if empty else list(_check_header(head, header, context, shift, is_trusted))
    if empty and not _has_data_after_leading_zeros(head, context):
        context.is_preallocated = True
        return _build_layout(context, 0, "held in reserve", findings)
    if empty:
        text = "the header page is zero, but data follows; readers consider the file empty"
        size = context.page_size if context.size is None else min(context.page_size, context.size)
        findings = [_make_finding("bad-header", 0, size, text, "header-lost")]
    if is_trusted and not findings:
        head.shared["mariadb-innodb-binlog.page_size"] = context.page_size
    return _build_layout(context, context.page_size, _variant_name(header if is_trusted else None), findings)


def _variant_name(header: IbbFileHeader | None) -> str:
    return "header damaged" if header is None else f"ibb {header.version_major}.{header.version_minor}"


def _build_layout(context: IbbFileContext, frames_at: int, variant: str, findings: list[Finding]) -> LogFileLayout:
    level = make_page_level(context.page_size)
    if context.size is not None and frames_at > context.size:
        frames_at = context.size
    header = header_page_construct(context.page_size)
    return LogFileLayout(
        variant,
        frames_at,
        level,
        header if frames_at else None,
        None,
        context,
        tuple(findings),
        make_assembler=_choose_assembler(context),
        make_salvage_assembler=_choose_salvage_assembler(context),
        page_size=context.page_size,
    )


def _choose_assembler(context: IbbFileContext) -> Callable[[Callable[[Kernel], Kernel]], Assembler] | None:
    """Return the factory of the assembler for the level that the user chose."""
    if context.level == "page":
        return None
    if context.level == "record":
        return partial(RecordAssembler, context)
    from binlogtool.formats.mariadb_innodb_binlog.event_groups import EventAssembler

    return partial(EventAssembler, context)


def _choose_salvage_assembler(
    context: IbbFileContext,
) -> Callable[[Any, Callable[[Kernel], Kernel], FrameCorrector], SalvageAssembler] | None:
    """Return the factory of the salvage reader for the level that the user chose."""
    if context.level == "page":
        return None
    class_name = "IbbSalvagedEvents" if context.level == "event" else "IbbSalvagedRecords"
    return LazyRef(f"mariadb_innodb_binlog.records.salvage:{class_name}")


def _is_next_file(before: str, name: str) -> bool:
    """Return whether a file is the next one of the same log."""
    numbers = file_number(before), file_number(name)
    return None not in numbers and numbers[0] + 1 == numbers[1]  # type: ignore[operator]


def fork_context(context: IbbFileContext) -> IbbFileContext:
    """Return an independent copy of a context."""
    events = None if context.events is None else context.events.fork()
    return replace(context, shared=dict(context.shared), events=events, scan_summary=IbbScanSummary())


@cache
def make_page_level(page_size: int) -> FrameLevel:
    """Return the frame level of data pages."""
    return FrameLevel(
        name="page",
        schema=page_construct(page_size),
        columns=SCAN_COLUMNS,
        sync=None,
        min_size=page_size,
        max_size=page_size,
        align=page_size,
        checksum=CRC32C,
        stored="crc32c",
        covered=("offset", "data_end"),
        annotated_schema=_annotated_page,
        prove=LazyRef("mariadb_innodb_binlog.records.salvage:is_whole_page"),
    )


def _annotated_page(context: IbbFileContext) -> Construct:
    return joined_page_construct(context.page_size, ChunkJoinCodec(context))


# -- page size ---------------------------------------------------------------------------------------------------------


def _find_page_size_shift(head: FileHead, header: IbbFileHeader | None, is_trusted: bool) -> int:
    """Return log2 of the page size: from the header, unless the pages contradict it."""
    shared_page_size: int | None = head.shared.get("mariadb-innodb-binlog.page_size")
    header_shift = header.page_size_shift if header is not None and header.page_size_shift in PAGE_SIZE_SHIFTS else None
    preferred = (
        header_shift
        if header_shift is not None
        else shared_page_size.bit_length() - 1
        if shared_page_size
        else DEFAULT_PAGE_SIZE_SHIFT
    )
    if (is_trusted and header_shift == DEFAULT_PAGE_SIZE_SHIFT) or _is_proven_page_size(head, preferred):
        return preferred
    others = (DEFAULT_PAGE_SIZE_SHIFT, *(shift for shift in PAGE_SIZE_SHIFTS if shift != DEFAULT_PAGE_SIZE_SHIFT))
    return next((shift for shift in others if _is_proven_page_size(head, shift)), preferred)


def _is_proven_page_size(head: FileHead, shift: int) -> bool:
    """Return whether the header page, or the page after it, ends with a right CRC for this page size.

    The first 512 bytes are no proof, because they always have their own CRC.
    """
    size = 1 << shift
    pages = [head.data[:size]] if head.peek is None else [head.peek(0, size), head.peek(size, size)]
    if size == SHORT_HEADER_SIZE:
        del pages[0]
    return any(len(one) == size and any(one) and is_page_crc_right(one) for one in pages)


# -- findings about the header -----------------------------------------------------------------------------------------


def _check_header(
    head: FileHead, header: IbbFileHeader | None, context: IbbFileContext, shift: int, is_trusted: bool
) -> Iterator[Finding]:
    if header is None or not is_trusted:
        yield _report_damaged_header(head, header)
        return
    if header.version_major > VERSION_MAJOR:
        text = f"version {header.version_major}.{header.version_minor}; {VERSION_MAJOR}.x is known"
        yield _make_finding("unsupported-version", 8, 4, text, "unsupported-version")
    if header.page_size_shift != shift or shift != DEFAULT_PAGE_SIZE_SHIFT:
        yield _report_page_size(header, shift)
    header_bytes = head.data[: 1 << shift] if head.peek is None else head.peek(0, 1 << shift)
    if len(header_bytes) == 1 << shift and not is_page_crc_right(header_bytes):
        text = (
            "the CRC of the header page is wrong, but that of its first 512 bytes is right; the unused part is damaged"
        )
        yield _make_finding("checksum-mismatch", 0, len(header_bytes), text, "header-tail-damaged", algorithm="crc32c")
    yield from _check_header_fields(header, context)


def _check_header_fields(header: IbbFileHeader, context: IbbFileContext) -> Iterator[Finding]:
    if context.number is not None and header.file_no != context.number:
        text = f"the header says file {header.file_no}, the name says {context.number}"
        yield _make_finding("meta-mismatch", 16, 8, text, "file-renamed", file_no=header.file_no)
    interval = header.diff_state_interval
    if interval & (interval - 1):
        yield _make_finding(
            "bad-header", 40, 8, f"diff_state_interval {interval} is not a power of two", "bad-interval"
        )
    for field_offset, name in ((48, "oob_ref_file_no"), (56, "xa_ref_file_no")):
        value = getattr(header, name)
        if value > header.file_no and value != NO_FILE:
            text = f"{name} {value} is a later file than {header.file_no}"
            yield _make_finding("bad-header", field_offset, 8, text, "bad-oob-ref")


def _report_damaged_header(head: FileHead, header: IbbFileHeader | None) -> Finding:
    if header is None:
        return _make_finding("bad-header", 0, len(head.data), f"a file of {len(head.data)} bytes", "header-damaged")
    if header.magic != MAGIC:
        text = f"magic is {header.magic:08x}, expected {MAGIC:08x}"
        return _make_finding("bad-magic", 0, 4, text, "header-damaged")
    text = "the CRC of the first 512 bytes is wrong; the server considers the file invalid and starts a new binlog"
    return _make_finding("bad-header", 0, min(SHORT_HEADER_SIZE, len(head.data)), text, "header-damaged")


def _report_page_size(header: IbbFileHeader, shift: int) -> Finding:
    field_text = f"page_size_shift {header.page_size_shift}"
    if header.page_size_shift == shift:
        text = f"{field_text}: pages of {1 << shift:,} bytes; servers support only {1 << DEFAULT_PAGE_SIZE_SHIFT:,}"
        return _make_finding("unsupported-version", 4, 4, text, "unsupported-page-size", Severity.NOTE)
    text = f"{field_text}, but the pages have {1 << shift:,} bytes"
    return _make_finding("unsupported-version", 4, 4, text, "unsupported-page-size")


def _has_data_after_leading_zeros(head: FileHead, context: IbbFileContext) -> bool:
    """Return whether a page with data follows zeros at the start of the file."""
    if head.peek is None or head.size is None:
        return any(head.data)
    size = context.page_size
    return any(any(head.peek(number * size, size)) for number in range(min(2, -(-head.size // size))))


def _make_finding(
    finding_id: str, offset: int, length: int, text: str, diagnosis: str, severity: Severity | None = None, **facts: Any
) -> Finding:
    return make_finding(finding_id, offset, length, text, severity=severity, diagnosis=diagnosis, **facts)


# --- Decoded pages and records ---

PAGE_TYPE = "PAGE"
RECORD_TYPE_NAMES = {int(kind): kind.name for kind in IbbRecordType}
DUMP_TYPES = {0: PAGE_TYPE, **RECORD_TYPE_NAMES} | {256 + code: name for code, name in EVENT_TYPES.items() if code}
"""Type names in `dump`: pages, page records, and, with `--level event`, events (256 + code)."""

_COMMIT = int(IbbRecordType.COMMIT)


def describe_records(context: IbbFileContext, batch: Batch, start: int, stop: int) -> EnvelopeColumns:
    """Return the envelope columns of pages, records or events."""
    if batch.is_inside:
        return decode.build_envelope_columns(context.events.context, batch, start, stop)
    count = stop - start
    if batch.positions is None:
        no_values: list[Any] = [None] * count
        return EnvelopeColumns([PAGE_TYPE] * count, no_values, no_values, no_values, no_values, no_values)
    codes, lows, highs = column_slices(batch, start, stop, "type_code", "offset", "end")
    heads = [
        read_commit_head(batch.window[low:high]) if code == _COMMIT else NO_GROUP_HEAD
        for code, low, high in zip(codes, lows, highs, strict=True)
    ]
    return EnvelopeColumns(
        type=[RECORD_TYPE_NAMES[code] for code in codes],
        seq=[None if head.gtid is None else head.gtid.seq_no for head in heads],
        time=[head.time for head in heads],
        object=[None] * count,
        origin=[head.server_id for head in heads],
        txn=[None if head.gtid is None else str(head.gtid) for head in heads],
    )


def decode_bodies(context: IbbFileContext, batch: Batch, start: int, stop: int, limits: Limits) -> list[Any]:
    """Decode one body per page, record or event; the entry is a `Finding` if a record does not match its type."""
    if batch.is_inside:
        return decode.decode_event_bodies(context.events.context, batch, start, stop, limits)
    if batch.positions is None:
        return [decode_page_body(context, batch, i) for i in range(start, stop)]
    names = ("type_code", "offset", "end", "chunks", "nested")
    results: list[Any] = []
    for i, (code, low, high, chunks, nested) in enumerate(
        zip(*column_slices(batch, start, stop, *names), strict=True), start
    ):
        try:
            body = BODY_READERS[code](batch.window[low:high])
        except MalformedError as error:
            results.append(_report_undecodable(batch, i, RECORD_TYPE_NAMES[code], error))
            continue
        results.append({**body, "chunks": chunks, "nested": bool(nested)})
    return results


def header_extras(context: IbbFileContext, batch: Batch, start: int, stop: int) -> list[Mapping[str, Any] | None]:
    """Return {"header": …} of each event; None for records and pages, which have no extras."""
    if batch.is_inside:
        return decode.decode_header_extras(context.events.context, batch, start, stop)
    return [None] * (stop - start)


def _report_undecodable(batch: Batch, index: int, name: str, error: MalformedError) -> Finding:
    assert batch.positions is not None
    place, size = int(batch.positions[0][index]), int(batch.positions[1][index])
    text = f"{name}: {error.args[0]}"
    return make_finding(error.finding_id, place, size, text, record=batch.first_record + index)


def decode_page_body(context: IbbFileContext, batch: Batch, index: int) -> dict[str, Any]:
    """Decode a page: its number in the file, the bytes in use, its chunks."""
    size = context.page_size
    low = int(batch.frames["offset"][index])
    page = batch.window[low : low + size]
    chunks, used, limit = [], 0, size - CRC_SIZE
    while used < limit - CHUNK_HEAD_SIZE and 0 < page[used] & TYPE_MASK <= max(IbbRecordType):
        code, length, data = load_chunk_head(page, used, limit)
        if not 0 < length <= limit - data:
            break
        chunks.append({"at": used, "type": _chunk_type_name(code), "bytes": length})
        used = data + length
    return {"page_no": (batch.base + low) // size, "used": used, "chunks": chunks}


def _chunk_type_name(byte: int) -> str:
    role = {LAST_CHUNK_FLAG: "", 0: "_FIRST", 0x80: "_MIDDLE"}.get(byte & ~TYPE_MASK, "_LAST")
    return RECORD_TYPE_NAMES[byte & TYPE_MASK] + role


# --- Split points ---

_UNKNOWN_STOP = 1 << 63
_FORMAT_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)
_GAP_CODE = -1


def make_split_point_finder(layout: LogFileLayout) -> PageSplitPoints | None:
    """Create the finder of split points; at level `event` it also walks the records to find where groups begin."""
    context = layout.context
    if not isinstance(context, IbbFileContext) or context.is_preallocated or not layout.readable:
        return None
    if context.level == "event":
        layout = replace(layout, make_assembler=partial(RecordAssembler, context))
    return PageSplitPoints(
        layout, context, _definitions=CarriedDefinitions(history=TableHistory(context.hints.schema, context.earlier))
    )


class CarriedDefinitions(msgspec.Struct):
    """FORMAT_DESCRIPTION and DDL statements that apply at the last split point, and those that came after it."""

    description: bytes = b""
    history: TableHistory = msgspec.field(default_factory=TableHistory)
    _pending: list[tuple[int, bytes]] = msgspec.field(default_factory=list)

    def collect_definition_events(self, event_bytes: bytes) -> None:
        """Add the events of a group."""
        offset = 0
        while len(event_bytes) - offset >= HEADER_SIZE:
            code, size = event_bytes[offset + TYPE_AT], read_event_size(event_bytes, offset)
            if not HEADER_SIZE <= size <= len(event_bytes) - offset:
                return self.add_gap()
            if code == EventType.QUERY_COMPRESSED or (
                code == EventType.QUERY and is_possible_ddl(event_bytes, offset + HEADER_SIZE, offset + size)
            ):
                self._pending.append((code, event_bytes[offset + HEADER_SIZE : offset + size]))
            elif code == _FORMAT_DESCRIPTION and _can_parse_format_description(event_bytes[offset : offset + size]):
                self._pending.append((code, event_bytes[offset : offset + size]))
            offset += size
        return None

    def add_gap(self) -> None:
        """Handle a gap: groups are missing, which may include DDL statements."""
        self._pending = [one for one in self._pending if one[0] == _FORMAT_DESCRIPTION] + [(_GAP_CODE, b"")]

    def apply_pending(self) -> None:
        """Apply the statements and descriptions that came after the last split point."""
        for code, data in self._pending:
            if code == _GAP_CODE:
                self.history.mark_definitions_assumed()
            elif code == _FORMAT_DESCRIPTION:
                self.description = data
            else:
                self.history.add_query_if_ddl(code, memoryview(data))
        self._pending.clear()

    def to_json_state(self) -> dict[str, Any]:
        """Return the definitions at the last split point in a form for JSON."""
        carried: dict[str, Any] = {"description": self.description.hex()} if self.description else {}
        if not self.history.is_empty and (declared := self.history.export_state()):
            carried["declared"] = declared
        return carried

    def restore_json_state(self, carried: dict[str, Any]) -> None:
        """Restore the state that `to_carried` returned."""
        self.history.import_state(carried.get("declared", ()))
        self.description = bytes.fromhex(carried.get("description", ""))


class PageSplitPoints(msgspec.Struct):
    """Finds pages where a file may be split; see `SplitFinder`.

    A record that continues over the start of a page belongs to the part before it, whose assembler reads the record to
    its end. If other records are nested in it, or it may be nested itself, the page is not a split point: a reader that
    starts there could not distinguish the records.
    """

    layout: LogFileLayout
    context: IbbFileContext
    _last_place: int = -1
    _last_stop: int = _UNKNOWN_STOP
    _is_unnested: bool = True
    _definitions: CarriedDefinitions = msgspec.field(default_factory=lambda: CarriedDefinitions())
    _groups: CommitGroupReader | None = None

    def find_split_point(self, batch: Batch, compile_kernel: KernelCompiler) -> SplitPoint | None:
        """Return the start of the last page in which a record begins, unless the record before has nested records."""
        if batch.positions is None:
            return make_split_point(batch, batch.frames.count)
        border, size = None, self.context.page_size
        columns = column_slices(batch, 0, batch.frames.count, "type_code", "place", "stop", "nested")
        for i, (type_code, place, stop, nested) in enumerate(zip(*columns, strict=True)):
            if nested:
                self._is_unnested = False
                continue
            page = place - place % size
            if page > self._last_place and (self._is_unnested or page >= self._last_stop):
                border = SplitPoint(page, i)
            self._last_place, self._last_stop, self._is_unnested = place, stop, type_code not in NESTABLE_TYPES
        if self.context.level == "event":
            self._collect_definitions(batch, None if border is None else border.frame_count)
        return border

    def _collect_definitions(self, batch: Batch, border_record: int | None) -> None:
        """Collect the FORMAT_DESCRIPTION events and DDL statements of the groups in a batch."""
        self._groups = self._groups or CommitGroupReader(self.context)
        for i, type_code in enumerate(batch.frames["type_code"][: batch.frames.count]):
            if i == border_record:
                self._definitions.apply_pending()
            if type_code == _COMMIT:
                group = self._groups.read_group(batch, i)
                if isinstance(group, Finding):
                    self._definitions.add_gap()
                else:
                    self._definitions.collect_definition_events(group.data)

    def export_state_for_next_file(self) -> Any:
        """Return the definitions of tables."""
        history = self._definitions.history
        return None if self.context.level != "event" or history.is_empty else history.export_state()

    def export_state(self) -> Any:
        """Return the definitions of events and tables that apply at the split point, for JSON."""
        return self._definitions.to_json_state() if self.context.level == "event" else None

    def restore_state(self, state: Any, record: int) -> None:
        """Resume from carried definitions; records are counted from `record`."""
        self.context.first_record = record
        if isinstance(state, str):  # written by a version that only carried the description
            state = {"description": state} if state else None
        if state:
            self._definitions.restore_json_state(state)
            self.context.declared = state.get("declared", ())
            if "description" in state:
                self.context.shared[DESCRIPTION_KEY] = parse_format_description(bytes.fromhex(state["description"]))

    def skip_damage(self) -> None:
        """Drop the state of the record before the damage."""
        self._last_place, self._last_stop, self._is_unnested = -1, _UNKNOWN_STOP, True
        self._definitions.add_gap()


def _can_parse_format_description(event: bytes) -> bool:
    """Return whether a FORMAT_DESCRIPTION can be parsed."""
    try:
        parse_format_description(event)
    except MalformedError:
        return False
    return True


# --- Parts of a file with selected groups ---

_MAX_NUMBER = 1 << 64

GtidState = Mapping[DomainServer, int]


class _GtidSelection(msgspec.Struct, frozen=True):
    """Selected GTIDs as intervals; `start`, `stop`: sequence numbers by domain."""

    start: Mapping[int, int] | None
    stop: Mapping[int, int] | None
    include: GtidSet | None

    def selects_between(self, before: GtidState, after: GtidState) -> bool:
        """Return whether any group after state `before`, up to state `after`, is selected."""
        return any(
            self._selects_any_sequence_number(pair, before.get(pair, 0), number) for pair, number in after.items()
        )

    def may_select_after(self, before: GtidState) -> bool:
        """Return whether a group after a state may be selected."""
        if self.include is None or self.include.domains:
            return True
        sources = (source.partition("-") for source in self.include.sources)
        known_pairs = ((int(domain), int(server)) for domain, _, server in sources if server.isdecimal())
        return any(self._selects_any_sequence_number(pair, before.get(pair, 0), _MAX_NUMBER) for pair in known_pairs)

    def _selects_any_sequence_number(self, domain_and_server: DomainServer, low: int, high: int) -> bool:
        """Return whether a number in `(low, high]` of this (domain, server) is selected."""
        domain, server = domain_and_server
        if self.start is not None and domain in self.start:
            low = max(low, self.start[domain])
        if self.stop is not None:
            high = min(high, self.stop.get(domain, -1))
        if low >= high:
            return False
        if self.include is None or domain in self.include.domains:
            return True
        intervals = self.include.sources.get(f"{domain}-{server}", ())
        return any(start <= high and stop > low + 1 for start, stop in intervals)


def _parse_selection(demand: GtidSelection) -> _GtidSelection:
    start, stop = (None if text is None else parse_gtid_position(text) for text in (demand.start, demand.stop))
    by_domain = [None if one is None else {int(line): number for line, number in one.items() if line.isdecimal()}
                 for one in (start, stop)]  # fmt: skip
    return _GtidSelection(
        by_domain[0], by_domain[1], None if demand.include is None else parse_gtid_set(demand.include)
    )


def find_selected_parts(context: IbbFileContext, demand: GtidSelection) -> list[tuple[int, int]] | None:
    """Return the parts `[start, end)` of a file that must be read, in order; None = the whole file.

    Raises:
        UsageError: the demand is not a valid position or set.
    """
    header, number, size = context.header, context.number, context.size
    if context.is_preallocated:
        return []
    if header is None or number is None or size is None or context.read is None or header.file_no != number:
        return None
    search = _StateSearch(context, PageStore(context), _parse_selection(demand), number)
    first = search.read_state_at_page(number, 1)
    if first is None:
        return None
    interval = header.diff_state_interval
    state_pages = list(range(interval, min(header.page_count, size // context.page_size), interval)) if interval else []
    parts = search.iter_parts_with_selected_groups(
        [1, *state_pages], first, search.read_state_at_page(number + 1, 1), size
    )
    return _join_adjacent_parts(parts)


def _join_adjacent_parts(parts: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in parts:
        if joined and joined[-1][1] == start:
            start = joined.pop()[0]
        joined.append((start, end))
    return joined


class _StateSearch(msgspec.Struct):
    """Reads the GTID states of one file."""

    context: IbbFileContext
    store: PageStore
    selection: _GtidSelection
    number: int

    def read_state_at_page(self, file_no: int, page_no: int) -> dict[DomainServer, int] | None:
        """Read the state stored at the start of a page; None if the page has no readable state."""
        position = IbbPosition(file_no, page_no * self.context.page_size)
        try:
            return state_numbers(
                parse_gtid_state(self.store.read_record(position, IbbRecordType.GTID_STATE, self.context.max_record))
            )
        except (UnreadableError, MalformedError):
            return None

    def iter_parts_with_selected_groups(
        self, state_pages: list[int], state_at_start: GtidState, state_at_end: GtidState | None, file_size: int
    ) -> Iterator[tuple[int, int]]:
        """Yield the parts between state pages that may hold selected groups.

        `state_at_end`: state after the file; None = unknown.
        """
        page_size = self.context.page_size
        pending: list[tuple[int, int, GtidState, GtidState | None]] = [
            (0, len(state_pages), state_at_start, state_at_end)
        ]
        while pending:
            low, high, before, after = pending.pop()
            if not (
                self.selection.may_select_after(before)
                if after is None
                else self.selection.selects_between(before, after)
            ):
                continue
            middle = (low + high) // 2
            between = self._complete_state_at_page(state_at_start, state_pages[middle]) if high - low > 1 else None
            if between is not None:
                pending.append((middle, high, between, after))
                pending.append((low, middle, before, between))
            elif high - low > 1 and self._is_empty_page(state_pages[middle]):
                pending.append((low, middle, before, after))  # the log ends before this page
            else:
                yield (
                    state_pages[low] * page_size,
                    state_pages[high] * page_size if high < len(state_pages) else file_size,
                )

    def _complete_state_at_page(self, state_at_start: GtidState, page_no: int) -> GtidState | None:
        """Return the complete state at a page_no: the state at the start of the file, with later changes."""
        changed = self.read_state_at_page(self.number, page_no)
        return None if changed is None else {**state_at_start, **changed}

    def _is_empty_page(self, page: int) -> bool:
        read, size = self.context.read, self.context.page_size
        return read is not None and not any(read(page * size, size))


# --- JSON lines by compiled code ---

_make_event_line = LazyRef("binlog_events.json_line_kernels:make_event_json_line")


def json_line(context: IbbFileContext) -> JsonLine | None:
    """Return the JSON line of events, which is the same as for classic binary logs; None for records and pages."""
    return None if context.events is None else _make_event_line(lambda: context.events.context, inside=True)


# --- Layouts with native code ---


def list_compiled_layouts() -> list[LogFileLayout]:
    """Return one layout for each page size, with events as records."""
    return [
        LogFileLayout("", 0, make_page_level(1 << shift), context=_make_event_level_context(1 << shift))
        for shift in PAGE_SIZE_SHIFTS
    ]


def _make_event_level_context(page_size: int) -> IbbFileContext:
    context = IbbFileContext(None, page_size, None, True, None, "event", "", 0, 0)
    context.events = GroupEventDecoder(context)
    return context
