"""Detect an eblob binlog, its dialect and its layout; decode records: kind, key, target, group, body, split points.

See docs/spec/eblob.md#other-dialects, #file-header, #records and #validation.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import islice, repeat
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from construct import Construct

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import (
    BodyWithFindings,
    EnvelopeColumns,
    FileHead,
    FormatMatch,
    RecordText,
    RowChanges,
    select_members,
)
from binlogtool.format_api.layout import (
    Batch,
    EveryFrameSplitFinder,
    FrameLevel,
    KernelCompiler,
    LogFileLayout,
    SplitFinder,
    SplitPoint,
    make_split_point,
    to_int_list,
)
from binlogtool.format_api.row_output_interfaces import RecordTableRows, TableColumn, TableReader, TableRow, TableSchema
from binlogtool.format_api.schema_fields import make_unpacker
from binlogtool.formats.eblob import FILE_PATTERNS, schema
from binlogtool.formats.eblob.classify_overwrites_and_removals import (
    EblobRecord,
    EblobRecordKind,
    find_preceding_records,
    iter_classified_records,
    remember_last_records,
)
from binlogtool.formats.eblob.schema import (
    CONTROL,
    HASH_SIZE,
    HEADER_SIZE,
    MAGIC,
    MAX_SIZE,
    PACKED_MAGIC,
    RECORD,
    RECORD_A0,
    RECORD_HEADER_SIZE,
    RECORD_P,
    TARGET,
    TARGET_BE,
    TARGET_SIZE,
    VERSION,
    WRITE_CONTROL,
    WRITE_CONTROL_SIZE,
    ControlFlag,
    HeaderFlag,
    RawType,
    UpdateType,
)
from binlogtool.limits import MIB, Limits

# --- Dialects with the same magic and version ---

ReadRange = Callable[[int, int], bytes]
"""Function that returns the bytes `[offset, offset + size)` of the file, fewer at its end."""

MAX_CHAIN_RECORDS = 1024
"""Maximum number of records that are followed to distinguish the dialects."""

_RULED_BYTES = 34
"""Number of bytes of a record header that its rules cover."""

_B_TYPES: Mapping[int, str] = MappingProxyType({1: "RAW_DATA"})
_SIZE_PATTERN = rb".{6}\0\0"
_ZERO_PATTERN = rb"\0{8}"
_TYPE_PATTERN = rb"[\x01-\x04]\0{7}"


class EblobDialect(msgspec.Struct, frozen=True):
    """One layout of the log.

    Attributes:
        name: the part after `--format eblob:`.
        record_header_size: size of a record header.
        parse_length: returns the size of metadata and data from a record header; None if it is not a header.
        sync: pattern of a record header, for at most 64 bytes.
        is_grouped: its records are those of a data-sort as specified, so they can be grouped and validated together.
    """

    name: str
    title: str
    schema: Construct
    header: Construct
    frames_at: int
    record_header_size: int
    types: Mapping[int, str]
    sync: bytes
    parse_length: Callable[[bytes], int | None]
    is_grouped: bool = False
    byte_order: str = "little"


def _make_meta_plus_data_length_parser(
    struct_byte_order: str, types: Mapping[int, str]
) -> Callable[[bytes], int | None]:
    unpack = struct.Struct(f"{struct_byte_order}QQQQ").unpack_from

    def parse_length(head: bytes) -> int | None:
        record_type, meta_size, data_size, flags = unpack(head)
        fits = record_type in types and not flags and meta_size <= MAX_SIZE and data_size <= MAX_SIZE
        return meta_size + data_size if fits else None

    return parse_length


def _parse_length_including_metadata(head: bytes) -> int | None:
    record_type, size, meta_size, flags = struct.unpack_from("<QQQQ", head)
    fits = record_type in _UPDATE_TYPES and not flags and meta_size <= size <= MAX_SIZE
    return int(size) if fits else None


def _parse_origin_length(head: bytes) -> int | None:
    record_type, size, flags = struct.unpack_from("<QQQ", head)
    return int(size) if record_type in _UPDATE_TYPES and not flags and size <= MAX_SIZE else None


def _parse_packed_length(head: bytes) -> int | None:
    record_type, _, size, flags = struct.unpack_from("<HQQQ", head)
    return int(size) if record_type in _PACKED_TYPES and flags < 1 << 16 and size <= MAX_SIZE else None


def _type_names(kinds: Any) -> Mapping[int, str]:
    return MappingProxyType({kind.value: kind.name for kind in kinds})


_RAW_TYPES = _type_names(RawType)
_UPDATE_TYPES = _type_names(UpdateType)
_PACKED_TYPES: Mapping[int, str] = MappingProxyType({number: f"TYPE_{number}" for number in (1, 2, 3)})


def _make_aligned_dialect(
    name: str, title: str, schema_: Construct, types: Mapping[int, str], sync: bytes, length: Any, **options: Any
) -> EblobDialect:
    """Create a dialect with the 256-byte header."""
    header = options.pop("header", schema.HEADER)
    return EblobDialect(
        name, title, schema_, header, schema.HEADER_SIZE, RECORD_HEADER_SIZE, types, sync, length, **options
    )


def _make_packed_dialect(
    name: str, title: str, schema_: Construct, header: Construct, frames_at: int, record_header_size: int
) -> EblobDialect:
    sync = rb"[\x01-\x03]\0.{8}" + _SIZE_PATTERN + rb".{2}\0{6}"
    return EblobDialect(
        name, title, schema_, header, frames_at, record_header_size, _PACKED_TYPES, sync, _parse_packed_length
    )


DIALECT_B = _make_aligned_dialect(
    "b", "B, final (December 2012 to July 2013)", schema.RECORD, _B_TYPES,
    rb"\x01\0{7}" + _SIZE_PATTERN * 2 + _ZERO_PATTERN, _make_meta_plus_data_length_parser("<", _B_TYPES),
    is_grouped=True,
)  # fmt: skip
DIALECT_B4 = _make_aligned_dialect(
    "b4", "B with types 1 to 4 (22 to 24 December 2012)", schema.RECORD_B4, _RAW_TYPES,
    _TYPE_PATTERN + _SIZE_PATTERN * 2 + _ZERO_PATTERN, _make_meta_plus_data_length_parser("<", _RAW_TYPES),
)  # fmt: skip
DIALECT_A = _make_aligned_dialect(
    "a", "A, size includes metadata (October to December 2012)", schema.RECORD_A, _UPDATE_TYPES,
    rb"[\x01-\x03]\0{7}" + _SIZE_PATTERN * 2 + _ZERO_PATTERN, _parse_length_including_metadata,
)  # fmt: skip
DIALECT_A0 = _make_aligned_dialect(
    "a0", "A0, with origin (23 October 2012)", schema.RECORD_A0, _UPDATE_TYPES,
    rb"[\x01-\x03]\0{7}" + _SIZE_PATTERN + _ZERO_PATTERN, _parse_origin_length,
)  # fmt: skip
DIALECT_B_BE = _make_aligned_dialect(
    "b-be", "B, final, written by a big-endian machine", schema.RECORD_BE, _B_TYPES,
    rb"\0{7}\x01" + rb"\0\0.{6}" * 2 + _ZERO_PATTERN, _make_meta_plus_data_length_parser(">", _B_TYPES),
    header=schema.HEADER_BE, byte_order="big", is_grouped=True,
)  # fmt: skip
DIALECT_P = _make_packed_dialect(
    "p", "P, packed, 255-byte header (October 2012)", schema.RECORD_P, schema.HEADER_PACKED,
    schema.PACKED_HEADER_SIZE, schema.PACKED_RECORD_HEADER_SIZE,
)  # fmt: skip
DIALECT_P_FIRST = _make_packed_dialect(
    "p-257", "P, packed, 257-byte header (October 2012)", schema.RECORD_P, schema.HEADER_PACKED_FIRST,
    schema.FIRST_PACKED_HEADER_SIZE, schema.PACKED_RECORD_HEADER_SIZE,
)  # fmt: skip
DIALECT_P_STAMPED = _make_packed_dialect(
    "p-ts", "P, packed, 255-byte header, with time stamps (October 2012)", schema.RECORD_P_STAMPED,
    schema.HEADER_PACKED, schema.PACKED_HEADER_SIZE, schema.STAMPED_RECORD_HEADER_SIZE,
)  # fmt: skip
DIALECT_P_STAMPED_FIRST = _make_packed_dialect(
    "p-ts-257", "P, packed, 257-byte header, with time stamps (October 2012)", schema.RECORD_P_STAMPED,
    schema.HEADER_PACKED_FIRST, schema.FIRST_PACKED_HEADER_SIZE, schema.STAMPED_RECORD_HEADER_SIZE,
)  # fmt: skip

DIALECTS: Mapping[str, EblobDialect] = MappingProxyType(
    {
        one.name: one
        for one in (
            DIALECT_B,
            DIALECT_B4,
            DIALECT_A,
            DIALECT_A0,
            DIALECT_B_BE,
            DIALECT_P,
            DIALECT_P_FIRST,
            DIALECT_P_STAMPED,
            DIALECT_P_STAMPED_FIRST,
        )
    }
)
PACKED_DIALECTS = (DIALECT_P, DIALECT_P_FIRST, DIALECT_P_STAMPED, DIALECT_P_STAMPED_FIRST)


class RecordChain(msgspec.Struct, frozen=True, order=True):
    """Chain of records that is found by a dialect's rule, and how far it leads.

    Attributes:
        complete: it leads to the end of the file, to zeros, or as far as it was followed.
        links: number of records.
        fits: nothing contradicts the rule (the last record may be torn).
        plain: no metadata and no data anywhere, so all rules with this record header agree.
        b4_records: number of records of a type that dialect b lacks.
    """

    complete: bool
    links: int
    fits: bool
    plain: bool = True
    b4_records: int = 0


def follow_record_headers(
    dialect: EblobDialect, read_range: ReadRange, file_size: int | None, offset: int
) -> RecordChain:
    """Follow record headers from `offset`.

    Args:
        file_size: size of the file; None = unknown, then reading stops at the end of the readable bytes.
    """
    b4_records, is_plain = 0, True
    for links in range(MAX_CHAIN_RECORDS):
        if offset == file_size:
            return RecordChain(True, links, True, is_plain, b4_records)
        head = read_range(offset, dialect.record_header_size)
        if len(head) < dialect.record_header_size:
            fits = len(head) < _RULED_BYTES or dialect.parse_length(head) is not None or not any(head)
            return RecordChain(file_size is None or not any(head), links, fits, is_plain, b4_records)
        if not any(head):
            return RecordChain(True, links, True, is_plain, b4_records)
        length = dialect.parse_length(head)
        if length is None:
            return RecordChain(False, links, False, is_plain, b4_records)
        offset += dialect.record_header_size + length
        if file_size is not None and offset > file_size:
            return RecordChain(False, links, True, is_plain, b4_records)
        is_plain = is_plain and not length
        b4_records += int.from_bytes(head[:2], "little") not in _B_TYPES and dialect.name == "b4"
    return RecordChain(True, MAX_CHAIN_RECORDS, True, is_plain, b4_records)


class DialectChoice(msgspec.Struct, frozen=True):
    """Dialect that fits the file.

    Attributes:
        doubt: other dialects that would fit; None = certain, or the choice does not matter.
        links: number of records of its chain.
    """

    dialect: EblobDialect
    doubt: str | None
    links: int


def choose_dialect(
    candidates: tuple[EblobDialect, ...], read_range: ReadRange, file_size: int | None, start_offsets: Iterator[int]
) -> DialectChoice:
    """Choose the dialect whose chain leads furthest, from the first start at which exactly one does.

    See docs/spec/eblob.md#other-dialects.

    Args:
        candidates: the preferred one first.
        start_offsets: offsets to try; one in the middle of the file counts if at least two records follow.
    """
    first: DialectChoice | None = None
    for number, start in enumerate(start_offsets):
        chains = [
            (follow_record_headers(one, read_range, file_size, start or one.frames_at), one) for one in candidates
        ]
        best = max(chain for chain, _ in chains)
        choice = _make_choice(best, [(chain, one) for chain, one in chains if _is_rival(chain, best)])
        if choice.doubt is None and (number == 0 or best.links > 1):
            return choice
        first = first or choice
        if best.complete:
            break
    assert first is not None
    return first


def _is_rival(chain: RecordChain, best: RecordChain) -> bool:
    """Return whether a chain is as good as the best one, or differs from it only by a torn last record."""
    is_equal = (chain.complete, chain.links, chain.fits) == (best.complete, best.links, best.fits)
    return is_equal or (best.complete and chain.fits and 0 < best.links <= chain.links and not chain.plain)


def _make_choice(best: RecordChain, fitting: list[tuple[RecordChain, EblobDialect]]) -> DialectChoice:
    """Choose the first dialect with the best chain; the other ones are its rivals."""
    dialect = next(one for chain, one in fitting if chain.complete == best.complete)
    others = ", ".join(f"{one.name} ({one.title})" for _, one in fitting if one is not dialect)
    if not others or (best.complete and all(chain.plain for chain, _ in fitting)):
        return DialectChoice(dialect, None, best.links)  # without content the dialects are the same
    if best.complete:
        return DialectChoice(dialect, f"the chain of records fits {dialect.name} and also {others}", best.links)
    doubt = f"no dialect leads from the first record to the end; besides {dialect.name} it could be {others}"
    return DialectChoice(dialect, doubt, best.links)


# --- Detection, dialects and the file header ---

SCAN_COLUMNS = ("type", "meta_size", "data_size", "pad_bits")
"""Columns of a scan; dialects with a single type have no `type`."""


_ALIGNED_DIALECTS = (DIALECT_B4, DIALECT_A, DIALECT_A0)
"""Dialects with the 256-byte header. b4 includes b, which has the same layout."""

_MAX_STARTS = 16
_FREEZE_FLAG = 8
"""Fourth flag bit: used from 2 to 5 November 2012, in dialect a (docs/spec/eblob.md#file-header)."""


class UnreadableHeader(NamedTuple):
    """Offset where a record should begin but does not: the bytes of a record header, and its diagnosis."""

    offset: int
    head: bytes
    diagnosis: str


class EblobFileContext(msgspec.Struct):
    """Context of the records of one file.

    Attributes:
        flags: flags of the file header.
        last_records: last records of a batch, by the number of the record after them, because a group may begin in one
            batch and end in the next (`eblob.classify_overwrites_and_removals`).
        unreadable_header: the last offset without a record that was classified (`explain_damage`).
    """

    dialect: EblobDialect
    flags: int = 0
    last_records: dict[int, tuple[EblobRecord, ...]] = msgspec.field(default_factory=dict)
    unreadable_header: UnreadableHeader | None = None

    @property
    def is_preallocated(self) -> bool:
        """True if the header says that space is preallocated."""
        return bool(self.flags & HeaderFlag.PREALLOCATE)


def get_log_stem(name: str) -> str:
    """Return the name with all numbers set to 0: binlogs of the blobs of one base differ only in numbers."""
    return re.sub(r"\d+", "0", name)


def read_layout(head: FileHead, limits: Limits, variant: str | None = None) -> LogFileLayout:
    """Determine the dialect, and report problems of the header. variant: dialect that the user named."""
    dialect, findings, is_readable = _detect_dialect(head, variant)
    check_header = _check_packed_header if dialect in PACKED_DIALECTS else _check_header
    findings = [*check_header(head, dialect), *findings]
    flags = _read_flags(head.data, dialect)
    return LogFileLayout(
        variant=dialect.title,
        frames_at=dialect.frames_at,
        frame=make_frame_level(dialect),
        header=dialect.header,
        context=EblobFileContext(dialect, flags),
        findings=tuple(findings),
        readable=is_readable and len(head.data) >= dialect.frames_at,
    )


def make_frame_level(dialect: EblobDialect) -> FrameLevel:
    """Return the frame level of a dialect's records."""
    return FrameLevel(
        name="record",
        schema=dialect.schema,
        columns=SCAN_COLUMNS[1:] if dialect.is_grouped else SCAN_COLUMNS,
        sync=dialect.sync,
        min_size=dialect.record_header_size,
        max_size=1024 * MIB,
        prove=is_proven_record,
    )


def is_proven_record(frame: bytes, context: EblobFileContext) -> bool:
    """Return whether bytes that fit the schema are certainly a record: the padding must also be zero.

    See docs/spec/eblob.md#resynchronization.
    """
    return context.dialect.record_header_size < RECORD_HEADER_SIZE or not any(frame[96:RECORD_HEADER_SIZE])


def make_range_reader(head: FileHead) -> ReadRange:
    """Return a function that reads bytes of the file, from its head and, if possible, from the rest."""

    def read(offset: int, size: int) -> bytes:
        if offset + size <= len(head.data) or head.is_whole or head.peek is None:
            return head.data[offset : offset + size]
        return head.peek(offset, size)

    return read


def _detect_dialect(head: FileHead, variant: str | None) -> tuple[EblobDialect, list[Finding], bool]:
    """Return (dialect, findings about the choice, whether records can be walked)."""
    if variant is not None:
        return DIALECTS[variant], [], True
    is_packed = head.data.startswith(PACKED_MAGIC[:2])
    candidates = (
        PACKED_DIALECTS
        if is_packed
        else (DIALECT_B_BE, *_ALIGNED_DIALECTS)
        if (head.data[8:10] == VERSION.to_bytes(2, "big"))
        else (*_ALIGNED_DIALECTS, DIALECT_B_BE)
    )
    readable_size = head.size if head.peek is not None or head.is_whole else None
    choice = choose_dialect(candidates, make_range_reader(head), readable_size, _iter_chain_starts(head.data))
    dialect, doubt = choice.dialect, choice.doubt
    if dialect is DIALECT_B4:
        dialect, b4_doubt = _choose_b_or_b4(head, readable_size)
        doubt = doubt or b4_doubt
    findings = [_report_doubt(head, doubt, dialect)] if doubt else []
    return dialect, findings, _has_magic(head.data) or is_packed or choice.links > 0


def _choose_b_or_b4(head: FileHead, file_size: int | None) -> tuple[EblobDialect, str | None]:
    """Choose b4 only if several records have a type that b lacks; a single one is more likely a damaged record of b."""
    b4_records = follow_record_headers(DIALECT_B4, make_range_reader(head), file_size, DIALECT_B4.frames_at).b4_records
    if b4_records > 1:
        return DIALECT_B4, None
    return (
        DIALECT_B,
        "one record has a type that only exists in b4; it is damaged, or the log is of dialect b4"
        if b4_records
        else None,
    )


def _report_doubt(head: FileHead, reason: str, dialect: EblobDialect) -> Finding:
    text = (
        f"the dialect is not certain: {reason}; read as {dialect.name}; choose another one with --format eblob:DIALECT"
    )
    facts: dict[str, Any] = {"diagnosis": "dialect not certain", "dialect": dialect.name}
    return make_finding("bad-header", 0, min(len(head.data), HEADER_SIZE), text, severity=Severity.WARNING, **facts)


def _iter_chain_starts(data: bytes) -> Iterator[int]:
    """Yield offsets where a chain may start: the first record (0 = default), then apparent headers."""
    yield 0
    pattern = re.compile(DIALECT_B4.sync + rb"|[\x01-\x03]\0{7}.{6}\0\0\0{8}", re.DOTALL)
    yield from (match.start() for match in islice(pattern.finditer(data, HEADER_SIZE + 1), _MAX_STARTS))


def _has_magic(data: bytes) -> bool:
    return data.startswith(MAGIC)


def _read_flags(data: bytes, dialect: EblobDialect) -> int:
    start = 7 if dialect in PACKED_DIALECTS else 16
    byte_order: Any = dialect.byte_order
    return int.from_bytes(data[start : start + 8], byte_order)


def _check_header(head: FileHead, dialect: EblobDialect) -> list[Finding]:
    """Yield findings about the 256-byte header, each with the offset of its field."""
    data = head.data
    if len(data) < HEADER_SIZE:
        return [_report_short_file(len(data), HEADER_SIZE)]
    findings = []
    if not _has_magic(data):
        first_difference = next(i for i in range(8) if data[i] != MAGIC[i])
        offset = first_difference if first_difference == 7 else 0
        findings.append(_make_finding("bad-magic", offset, 8 - offset, "bad magic", f"magic is {data[:8].hex(' ')}"))
    findings += _check_version(data, dialect)
    unknown_flags = _read_flags(data, dialect) & ~(_known_flags(dialect))
    if unknown_flags:
        text = f"flags {_read_flags(data, dialect):#x}: {unknown_flags:#x} is unknown; eblob rejects the file"
        findings.append(_make_finding("bad-header", 16, 8, "unknown header flags", text))
    return [*findings, *_check_padding(data, ((10, 16), (24, HEADER_SIZE)))]


def _known_flags(dialect: EblobDialect) -> int:
    final = sum(flag.value for flag in HeaderFlag)
    return final if dialect.is_grouped else final | _FREEZE_FLAG


def _check_version(data: bytes, dialect: EblobDialect) -> list[Finding]:
    byte_order: Any = dialect.byte_order
    version = int.from_bytes(data[8:10], byte_order)
    if version == VERSION and dialect.byte_order == "little":
        return []
    if version == VERSION:
        text = "written by a big-endian machine (version reads as 0x0100); a little-endian eblob rejects the file"
        return [
            make_finding(
                "unsupported-version", 8, 2, text, severity=Severity.WARNING,
                diagnosis="written by a big-endian machine (version reads as 0x0100)",
            )
        ]  # fmt: skip
    return [
        _make_finding("unsupported-version", 8, 2, "unsupported version", f"version is {version}, known is {VERSION}")
    ]


def _check_packed_header(head: FileHead, dialect: EblobDialect) -> list[Finding]:
    """Return findings about the header of dialect p, which has no gaps."""
    data = head.data
    if len(data) < dialect.frames_at:
        return [_report_short_file(len(data), dialect.frames_at)]
    findings = []
    if not data.startswith(PACKED_MAGIC):
        findings.append(_make_finding("bad-magic", 0, 5, "bad magic", f"magic is {data[:5].hex(' ')}"))
    version = int.from_bytes(data[5:7], "little")
    if version != VERSION:
        findings.append(
            _make_finding(
                "unsupported-version", 5, 2, "unsupported version", f"version is {version}, known is {VERSION}"
            )
        )
    return [*findings, *_check_padding(data, ((15, dialect.frames_at),))]


def _make_finding(finding_id: str, offset: int, length: int, diagnosis: str, text: str) -> Finding:
    return make_finding(finding_id, offset, length, f"{diagnosis}: {text}", diagnosis=diagnosis)


def _report_short_file(size: int, header_size: int) -> Finding:
    diagnosis = "file shorter than its header" if size else "empty file"
    return make_finding(
        "bad-header",
        size,
        0,
        f"{diagnosis}: {size} of {header_size} bytes; eblob does not open it",
        diagnosis=diagnosis,
    )


def _check_padding(data: bytes, ranges: tuple[tuple[int, int], ...]) -> list[Finding]:
    """Report reserved header bytes that are not zero: eblob writes 0 and never checks them."""
    nonzero = [i for start, end in ranges for i in range(start, end) if data[i]]
    if not nonzero:
        return []
    text = f"{len(nonzero)} reserved bytes of the header are not zero; eblob ignores them"
    return [
        make_finding(
            "reserved-bits-set", nonzero[0], nonzero[-1] + 1 - nonzero[0], text,
            diagnosis="reserved header bytes not zero (warning)",
        )
    ]  # fmt: skip


def detect_format(head: FileHead) -> FormatMatch:
    """Detect the format by the magic, else by the name and a chain of records after a damaged header."""
    data = head.data
    has_log_name = any(fnmatchcase(head.name.rsplit("/", 1)[-1], pattern) for pattern in FILE_PATTERNS)
    if data.startswith((MAGIC, PACKED_MAGIC)):
        return FormatMatch(100, "the magic of an eblob binlog")
    if not data:
        return FormatMatch(
            15 if has_log_name else 0, "empty, and named like a binlog" if has_log_name else "empty file"
        )
    if data[: len(MAGIC) - 1] == MAGIC[:-1]:
        return FormatMatch(70, "the magic of an eblob binlog, damaged")
    if len(data) < 8 and MAGIC.startswith(data):
        return FormatMatch(30, "the magic of an eblob binlog, torn")
    choice = choose_dialect(
        _ALIGNED_DIALECTS, make_range_reader(head), head.size if head.is_whole else None, iter((0,))
    )
    if choice.links > 1:
        return FormatMatch(60, f"a damaged header, and {choice.links} records after it")
    return FormatMatch(
        10 if has_log_name else 0, "only the file name fits" if has_log_name else "no magic of an eblob binlog"
    )


# --- Layouts with native code ---


def list_compiled_layouts() -> list[LogFileLayout]:
    """Return one layout for each dialect."""
    return [
        LogFileLayout(one.title, one.frames_at, make_frame_level(one), context=EblobFileContext(one))
        for one in DIALECTS.values()
    ]


# --- Decoded records ---

OTHER_DIALECT_TYPES = ("UPDATE", "REMOVE_ALL", "RAW_INDEX", "RAW_DATA")
"""Type names that only the dialects before the final one have."""

KIND_NAMES: Mapping[int, str] = MappingProxyType(
    {kind.value: kind.name for kind in EblobRecordKind} | dict(enumerate(OTHER_DIALECT_TYPES, len(EblobRecordKind) + 1))
)
"""Names of record kinds. The file does not store these codes: see help.md."""

RAW_DATA_TYPE = 1
"""The only type of the final dialect."""

_unpack_control = make_unpacker(CONTROL, "key", "flags", "data_size", "disk_size", "position")
_unpack_wide_key = make_unpacker(RECORD, "key")
_unpack_packed_key = make_unpacker(RECORD_P, "key")
_unpack_origin = make_unpacker(RECORD_A0, "origin")
_unpack_target = {"little": make_unpacker(TARGET, "target_offset"), "big": make_unpacker(TARGET_BE, "target_offset")}


def list_records(context: EblobFileContext, batch: Batch, start: int, stop: int) -> list[EblobRecord]:
    """Return the records `[start, stop)` of a batch of a grouped dialect; keeps what the next batch needs."""
    byte_order = context.dialect.byte_order
    remember_last_records(batch, context.last_records, byte_order)
    return list(
        iter_classified_records(
            batch, start, stop, find_preceding_records(batch, start, context.last_records, byte_order), byte_order
        )
    )


def describe_records(context: EblobFileContext, batch: Batch, start: int, stop: int) -> EnvelopeColumns:
    """Return the envelope columns: seq = number of the record, object = its key, txn = first record of its group."""
    no_values: list[Any] = [None] * (stop - start)
    numbers: list[int | None] = list(range(batch.first_record + start, batch.first_record + stop))
    if context.dialect.is_grouped:
        batch_records = list_records(context, batch, start, stop)
        groups: list[str | int | None] = [record.group for record in batch_records]
        keys: list[str | None] = [record.key.hex() for record in batch_records]
        return EnvelopeColumns(
            [record.kind.name for record in batch_records], numbers, no_values, keys, no_values, groups
        )
    names = type_names(context.dialect)
    types = [names[kind] for kind in to_int_list(batch.frames["type"], start, stop)]
    key = _choose_key_reader(context.dialect)
    offsets = to_int_list(batch.frames["offset"], start, stop)
    return EnvelopeColumns(types, numbers, no_values, [key(batch.window, at) for at in offsets], no_values, no_values)


def type_names(dialect: EblobDialect) -> Mapping[int, str]:
    """Return the names of type numbers as shown, for dialects that store a type.

    In dialect p a number had several meanings over time, so all are shown as RECORD.
    """
    dialect_types = dialect.types
    return {
        number: EblobRecordKind.RECORD.name if name.startswith("TYPE_") else name
        for number, name in dialect_types.items()
    }


def _choose_key_reader(dialect: EblobDialect) -> Callable[[memoryview, int], str]:
    return _read_wide_key if dialect.record_header_size == RECORD_HEADER_SIZE else _read_packed_key


def _read_wide_key(window: memoryview, record_at: int) -> str:
    key: bytes = _unpack_wide_key(window, record_at)[0]
    return key.hex()


def _read_packed_key(window: memoryview, record_at: int) -> str:
    return str(_unpack_packed_key(window, record_at)[0])


def decode_bodies(context: EblobFileContext, batch: Batch, start: int, stop: int, limits: Limits) -> list[Any]:
    """Decode one body per record: sizes, target offset, and the data (decoded if the kind is known)."""
    columns = [to_int_list(batch.frames[name], start, stop) for name in ("offset", "end", "meta_size")]
    if context.dialect.is_grouped:
        types, batch_records = [RAW_DATA_TYPE] * (stop - start), [*list_records(context, batch, start, stop)]
        rows = zip(types, *columns, batch_records, strict=True)
    else:
        rows = zip(to_int_list(batch.frames["type"], start, stop), *columns, [None] * (stop - start), strict=True)
    return [
        _decode_body(context.dialect, kind, batch.window[at:end], meta_size, record)
        for kind, at, end, meta_size, record in rows
    ]


def _decode_body(
    dialect: EblobDialect, record_type: int, raw: memoryview, meta_size: int, record: EblobRecord | None
) -> dict[str, Any]:
    data_at = dialect.record_header_size + meta_size
    data = bytes(raw[data_at:])
    body: dict[str, Any] = {"type": record_type, "meta_size": meta_size, "data_size": len(data)}
    body |= _decode_metadata(dialect, bytes(raw[dialect.record_header_size : data_at]))
    if dialect.name == "a0":
        body["origin"] = _unpack_origin(raw)[0]
    if record is not None and record.kind is EblobRecordKind.FOOTER:
        relative_offset = record.target - record.record_start
        hash_ = data[:HASH_SIZE].hex()
        return body | {"relative_offset": relative_offset, "sha512": hash_, "record_start": record.record_start}
    if record is not None and record.kind is EblobRecordKind.CONTROL:
        return body | {"relative_offset": 0} | decode_control(data)
    if record is not None and record.kind is EblobRecordKind.REMOVE:
        return body | {"flags": list_flag_names(ControlFlag.REMOVE)}
    return body | {"data": data}


def _decode_metadata(dialect: EblobDialect, raw: bytes) -> dict[str, Any]:
    if not raw:
        return {}
    if len(raw) == TARGET_SIZE:
        return {"target_offset": _unpack_target[dialect.byte_order](raw)[0]}
    if len(raw) == WRITE_CONTROL_SIZE and dialect.name == "a":
        parsed = WRITE_CONTROL.parse(raw)
        return {"write_control": {name: v for name, v in parsed.items() if name not in ("_io", "padding")}}
    return {"metadata": raw}


def decode_control(data: bytes) -> dict[str, Any]:
    """Decode the members of an eblob_disk_control."""
    key, flags, data_size, disk_size, position = _unpack_control(data)
    return {
        "control": {
            "key": key.hex(),
            "flags": list_flag_names(flags),
            "data_size": data_size,
            "disk_size": disk_size,
            "position": position,
        }
    }


def list_flag_names(flags: int) -> list[str]:
    """Return the names of the flags that are set; unknown flags as one number."""
    known_flags = [flag for flag in ControlFlag if flags & flag]
    rest = flags & ~sum(flag.value for flag in known_flags)
    return [str(flag.name) for flag in known_flags] + ([hex(rest)] if rest else [])


# --- Split points ---


def make_split_point_finder(layout: LogFileLayout) -> SplitFinder | None:
    """Create the finder of split points; None if the file has no readable records."""
    if not layout.readable:
        return None
    return EblobSplitFinder(layout) if layout.context.dialect.is_grouped else EveryFrameSplitFinder(layout)


class EblobSplitFinder(EveryFrameSplitFinder):
    """Finds split points of grouped dialects; see `SplitFinder`."""

    _last_records: tuple[EblobRecord, ...] = ()

    def find_split_point(self, batch: Batch, compile_kernel: KernelCompiler) -> SplitPoint | None:
        """Return the end of all records so far, even inside a group."""
        context = self.layout.context
        remember_last_records(batch, context.last_records, context.dialect.byte_order)
        self._last_records = context.last_records.get(batch.first_record + batch.frames.count, ())
        return make_split_point(batch, batch.frames.count)

    def export_state(self) -> list[list[Any]]:
        """Return the last records for JSON, with the key as hexadecimal text."""
        return [[*record._replace(key=record.key.hex())] for record in self._last_records]  # type: ignore[arg-type]

    def restore_state(self, state: Any, record: int) -> None:
        """Restore the records before record `record`."""
        self.layout.context.last_records[record] = tuple(map(_restore_record, state))


def _restore_record(values: list[Any]) -> EblobRecord:
    restored = EblobRecord(*values)
    return restored._replace(
        kind=EblobRecordKind(restored.kind), key=bytes.fromhex(values[EblobRecord._fields.index("key")])
    )


# --- Text for people ---

_HIDDEN = frozenset({"type", "meta_size", "data_size", "data", "control", "write_control", "sha512"})
_CONTROL_MEMBERS = ("size", "offset", "data_offset", "flags", "disk_size", "position")


def make_record_text(_type_name: str, body: Mapping[str, Any], everything: bool) -> RecordText:
    """Return the content of a record as `dump` shows it to people."""
    members = select_members(body, frozenset({"data"}) if everything else _HIDDEN)
    control = body.get("write_control", body.get("control"))
    if isinstance(control, Mapping) and not everything:
        members |= {name: control[name] for name in _CONTROL_MEMBERS if control.get(name)}
    data = body.get("data")
    return RecordText(members, changes=(RowChanges(({"after": {"data": data}},)),) if data else ())


# --- Table rows ---

RECORDS_TABLE = TableSchema(
    "records",
    (
        TableColumn("key", "string"),
        TableColumn("action", "string"),
        TableColumn("target_offset", "bigint"),
        TableColumn("data", "binary"),
    ),
)
"""key: hexadecimal. action: kind of the record. target_offset: byte offset of the data in the unsorted blob."""


class EblobRecordTableReader(msgspec.Struct, TableReader):
    """Table reader in which each record is a row. is_selected: rows are selected."""

    is_selected: bool = True

    def read_records(
        self, context: EblobFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordTableRows]:
        """Yield the rows of each of these records; to be consumed in order."""
        if not self.is_selected:
            yield from repeat(RecordTableRows(described=(RECORDS_TABLE,)), stop - start)
            return
        envelope = describe_records(context, batch, start, stop)
        decoded_bodies = decode_bodies(context, batch, start, stop, limits)
        for kind, key, body in zip(envelope.type, envelope.object, decoded_bodies, strict=True):
            if isinstance(body, Finding):
                yield RecordTableRows(findings=(body,))
                continue
            body, findings = body if isinstance(body, BodyWithFindings) else (body, ())
            image = {"key": key, "action": kind, "target_offset": body.get("target_offset"), "data": body.get("data")}
            yield RecordTableRows((TableRow(RECORDS_TABLE, kind, None, image),), findings, (RECORDS_TABLE,))

    def limit_to_tables(self, is_selected: Callable[[TableSchema], bool]) -> None:
        """Allow the reader to leave out the rows of other tables; their descriptions are still reported."""
        self.is_selected = is_selected(RECORDS_TABLE)
