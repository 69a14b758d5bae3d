"""The Drizzle transaction log: a sequence of entries, each a protobuf message with a CRC-32."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from itertools import islice

from binlogtool.findings import make_finding
from binlogtool.format_api.format import (
    FileHead,
    Format,
    FormatMatch,
    LogFileRules,
    OutputRules,
    ReadRules,
    RepairRules,
    ValidationRules,
)
from binlogtool.format_api.layout import CRC32, EveryFrameSplitFinder, FrameLevel, LogFileLayout
from binlogtool.format_api.lazy_import import LazyMapping, LazyRef
from binlogtool.format_api.replay_rules import ReplayRules
from binlogtool.format_api.row_output_interfaces import TableSupport
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.drizzle import FILE_PATTERNS
from binlogtool.formats.drizzle.decode import (
    TYPE_NAMES,
    StatementTableReader,
    decode_bodies,
    decode_timestamp_units,
    describe_records,
    make_record_text,
)
from binlogtool.formats.drizzle.explain_damage import ENTRY_PATTERN
from binlogtool.formats.drizzle.schema import (
    CATALOG,
    ENTRY,
    ENVELOPE_SIZE,
    MAX_MESSAGE_SIZE,
    EntryType,
    FieldToken,
    MessageConstruct,
    WireType,
    read_fields,
)
from binlogtool.formats.drizzle.validate import create_validator, is_proven_entry
from binlogtool.limits import MIB, Limits

# --- Detection and layout of a transaction log ---

VARIANT = "transaction log (October 2009 to March 2012)"
OLD_VARIANT = "no entry type: pre-October-2009 layout?"

_HEADER_SIZE = 8
_MAX_TRIES = 256
_TYPE_BYTES = tuple(int(kind).to_bytes(4, "little")[:size] for kind in EntryType for size in (1, 2, 3, 4))
_ROTATED_NAME = re.compile(r"(.+)\.\d+", re.DOTALL)

FRAME = FrameLevel(
    name="entry",
    schema=ENTRY,
    columns=("type", "length", "message_start", "message_end", "crc32"),
    sync=ENTRY_PATTERN,
    min_size=ENVELOPE_SIZE + 1,
    max_size=64 * MIB,
    prove=is_proven_entry,
    checksum=CRC32,
    stored="crc32",
    covered=("message_start", "message_end"),
)
"""Frame level of entries. The server splits transactions at 1 MiB (at most 128 KiB more), but never a single row."""


def read_layout(head: FileHead, limits: Limits) -> LogFileLayout:
    """Return the layout: entries from offset 0. Layouts of 2009 are reported as unreadable."""
    if not _is_entry_header(head.data) and _is_layout_without_entry_type(head.data):
        unsupported = make_finding(
            "unsupported-version", 0, min(len(head.data), _HEADER_SIZE), OLD_VARIANT, diagnosis=OLD_VARIANT
        )
        return LogFileLayout(OLD_VARIANT, 0, FRAME, findings=(unsupported,), readable=False)
    return LogFileLayout(VARIANT, 0, FRAME)


def get_log_stem(name: str) -> str:
    """Return the name of a log without the number of its rotated part."""
    rotated = _ROTATED_NAME.fullmatch(name)
    return rotated[1] if rotated else name


def detect(head: FileHead) -> FormatMatch:
    """Match a file by its first entry, else by its name or by any entry that its checksum proves."""
    data = head.data
    base = head.name.rsplit("/", 1)[-1]
    if not data:
        has_log_name = any(fnmatchcase(base, pattern) for pattern in FILE_PATTERNS)
        return FormatMatch(20 if has_log_name else 0, "empty, and named like a log" if has_log_name else "empty file")
    if _is_entry_header(data):
        return _match_first_entry(data)
    if _is_layout_without_entry_type(data):
        return FormatMatch(55, OLD_VARIANT)
    if _has_proven_entry(data):
        return FormatMatch(60, "damaged at the start; an entry with the right checksum follows")
    if head.is_whole and len(data) <= ENVELOPE_SIZE and data[:4] in _TYPE_BYTES:
        return FormatMatch(20, "a torn entry header")
    has_default_name = base == FILE_PATTERNS[0]
    return FormatMatch(
        10 if has_default_name else 0,
        "only the file name fits" if has_default_name else "no entry type 1 or 2 at the start",
    )


def _match_first_entry(data: bytes) -> FormatMatch:
    length = _read_u32(data, 4)
    message = data[_HEADER_SIZE : _HEADER_SIZE + length]
    if len(data) >= ENVELOPE_SIZE + length and _read_u32(data, _HEADER_SIZE + length) == CRC32(message):
        return FormatMatch(100, "first entry has the right checksum")
    if _read_u32(data, 0) == EntryType.TRANSACTION and starts_with_context(message):
        return FormatMatch(85, "first entry starts a Transaction message")
    if _has_proven_entry(data):
        return FormatMatch(60, "the first entry is damaged; an entry with the right checksum follows")
    return FormatMatch(0, "an entry type, but no Transaction message after it")


def _is_entry_header(data: bytes) -> bool:
    has_known_type = len(data) >= _HEADER_SIZE and _read_u32(data, 0) in EntryType.__members__.values()
    return has_known_type and 0 < _read_u32(data, 4) <= MAX_MESSAGE_SIZE


def starts_with_context(message: bytes) -> bool:
    """Return whether these bytes, possibly truncated, start with a TransactionContext."""
    try:
        context = next(iter(read_fields(message, 0, len(message), 1)), None)
        return context is not None and _is_context(message, context)
    except MalformedError:
        return False


def _is_context(message: bytes, field: FieldToken) -> bool:
    if field.number != 1 or field.wire is not WireType.LENGTH_DELIMITED:
        return False
    inner = list(islice(read_fields(message, field.value_start, field.end, 1), 8))
    return {1, 2, 3, 4} <= {token.number for token in inner if token.wire is WireType.VARINT}


def _is_layout_without_entry_type(data: bytes) -> bool:
    """Return whether a length of 8 or 4 bytes without a type precedes a message with a context, and no checksum is
    right.
    """
    for width in (8, 4):
        length = int.from_bytes(data[:width], "little")
        if 0 < length <= MAX_MESSAGE_SIZE and starts_with_context(data[width : width + length]):
            return not _has_proven_entry(data)
    return False


def _has_proven_entry(data: bytes) -> bool:
    for match in islice(re.compile(ENTRY_PATTERN).finditer(data), _MAX_TRIES):
        start = match.start() + _HEADER_SIZE
        stop = start + _read_u32(data, match.start() + 4)
        if start < stop <= len(data) - 4 and _read_u32(data, stop) == CRC32(memoryview(data)[start:stop]):
            return True
    return False


def _read_u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


# --- Layouts with native code ---


def list_compiled_layouts() -> list[LogFileLayout]:
    """Return the layout of readable logs."""
    return [LogFileLayout(VARIANT, 0, FRAME)]


FORMAT = Format(
    name="drizzle",
    title="Drizzle transaction log",
    files=LogFileRules(
        patterns=FILE_PATTERNS,
        name_stem=get_log_stem,
        log_patterns=("transaction.log", "transaction.log.[0-9]*"),
    ),
    reading=ReadRules(
        detect=detect,
        layout=read_layout,
        schemas={"entry": ENTRY} | {name: MessageConstruct(CATALOG, name) for name in CATALOG.messages},
        split_finder=lambda layout: EveryFrameSplitFinder(layout) if layout.readable else None,
        compiled_layouts=LazyRef("drizzle.format:list_compiled_layouts"),
    ),
    validation=ValidationRules(
        validator=create_validator,
        explain_damage=LazyRef("drizzle.explain_damage:explain_damage"),
        is_closed_end_proven=lambda _facts: False,
    ),
    output=OutputRules(
        types=TYPE_NAMES,
        decode_envelopes=describe_records,
        decode_bodies=decode_bodies,
        decode_extras=decode_timestamp_units,
        extra_names=("timestamp_unit",),
        json_line=LazyRef("drizzle.json_line_kernels:create_json_line"),
        start_record_text=lambda: make_record_text,
        sequence_name="transaction",
    ),
    tables=TableSupport(StatementTableReader),
    repair=RepairRules(transactions="whole_transactions_end"),
    replay=ReplayRules(
        begin=LazyRef("drizzle.replay:DrizzleReplayer"),
        reasons=LazyMapping("drizzle.replay:REASONS"),
        effects=LazyRef("drizzle.replay:DrizzleEffectReader"),
        patch=LazyRef("drizzle.replay:apply_patch"),
        force="continues after what the reader cannot read, at the next provable entry; the server's own reader has "
        "no such option",
    ),
    references=(
        "Drizzle server 7.0 and 7.1, plugin/transaction_log: transaction_log.cc, transaction_log_reader.cc, "
        "utilities/transaction_reader.cc",
        "Drizzle server, drizzled/message/transaction.proto, table.proto, schema.proto, engine.proto",
        "Drizzle server, drizzled/replication_services.cc, drizzled/transaction_services.cc (segments, rollback)",
        "Protocol Buffers documentation: Encoding",
    ),
)
