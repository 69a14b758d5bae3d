"""Detect a binlog file and read its layout from its header; decode transactions: operation, TID, table, time and body.

Source: `docs/spec/manticore.md#directory`, `#binlogmeta`, `#log-file`, `#versions`.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any

import msgspec
from construct import Const, Construct, ConstructError, Struct
from msgspec.structs import replace

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
    CRC32,
    Batch,
    EveryFrameSplitFinder,
    FrameLevel,
    KernelCompiler,
    LogFileLayout,
    SplitPoint,
    make_split_point,
    to_int_list,
)
from binlogtool.format_api.row_output_interfaces import RecordTableRows, TableColumn, TableReader, TableRow, TableSchema
from binlogtool.format_api.schema_fields import WideVarint, decode_text
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.payload_kernels import LAST_LOW_VERSION, read_zint
from binlogtool.formats.manticore.schema import FIRST_VERSION, LAST_VERSION, OldOp, Op, PayloadOp
from binlogtool.limits import MIB, Limits

# --- Proof of an ADD_CACHE that has no checksum ---


def is_cache_proven_by_fields(frame: bytes, context: Any) -> bool:
    """Return whether an ADD_CACHE without a checksum (0) is proven by its fields: all are as a writer makes them."""
    try:
        parsed = schema.FRAME.parse(frame)
        if parsed.op != Op.ADD_CACHE:
            return False
        cache = schema.CACHE.parse(parsed.body)
    except (ConstructError, OverflowError):
        return False
    return not isinstance(cache.count, WideVarint) and all(_is_plausible(entry) for entry in cache.tables)


def _is_plausible(entry: Any) -> bool:
    numbers = (entry.name.length, entry.min_tid, entry.max_tid, entry.flushed_tid)
    return (
        entry.name.length > 0 and entry.min_tid <= entry.max_tid and not any(isinstance(n, WideVarint) for n in numbers)
    )


# --- Detection and layout of one file ---

META_NAMES = ("binlog.meta", "binlog.meta.new")
MAX_META_SIZE = 4096
"""Maximum number of bytes of a meta file that are read: enough for at least a thousand files."""

VERIFIED_VERSIONS = frozenset({4, 5, 7, 14, 15, 16})
"""Versions that were tested with files of a real server."""

OLD_NUMBER_WIDTH = 3
"""Number of digits in file names up to version 14; later versions have four unless configured otherwise."""

LOG_NAME = re.compile(r"binlog\.(\d{1,18})")
_MAX_FRAME_SIZE = 512 * MIB
_NOT_A_TABLE_LOG = "cluster seqno file, not a table binlog"


class MetaContext(msgspec.Struct):
    """Content of `binlog.meta`, as far as it can be read.

    Attributes:
        setting: number of digits in file names (version 15 and later), or the 64-bit flag.
        numbers: file numbers in replay order.
        whole: the list is complete.
        cut: the list is incomplete only because just the first bytes were read.
    """

    version: int | None = None
    setting: int | None = None
    count: int | None = None
    numbers: tuple[int, ...] = ()
    whole: bool = False
    cut: bool = False
    leftover: bool = False

    @property
    def file_number_digits(self) -> int:
        """Number of digits in file names."""
        has_setting = self.version is not None and self.version >= schema.NEW_FRAME_VERSION and self.setting is not None
        return min(max(self.setting or 1, 1), 18) if has_setting else 3 if self.version is not None else 4

    def log_name(self, number: int) -> str:
        """Return the name of the log file with this number."""
        return f"binlog.{number:0{self.file_number_digits}d}"


class ManticoreLogContext(msgspec.Struct):
    """Facts about one log file.

    Attributes:
        number: number in the file's name, or None.
        max_memory: see `Limits`.
        names: names of the tables defined so far, by id.
        described: number of the first record that was not searched for names.
        declared: tables that the validator has seen so far.
        actions: offset of a damaged range -> what a starting server does there ("refuse", "drop", "delete").
        id_size: size of a document id in bytes, in versions 2 to 14.
        ids_proven: a transaction parses only with ids of this size.
        listed: numbers of the files that binlog.meta beside it lists; None = there is none, or it is damaged.
    """

    version: int
    number: int | None
    max_memory: int = Limits().max_memory
    header: str = "whole"
    names: dict[int, bytes] = msgspec.field(default_factory=dict)
    described: int = 0
    declared: int = 0
    actions: dict[int, str] = msgspec.field(default_factory=dict)
    id_size: int = schema.ID64_SIZE
    ids_proven: bool = False
    listed: tuple[int, ...] | None = None

    @property
    def has_new_frames(self) -> bool:
        """True if the file has frames of version 15 or later."""
        return self.version >= schema.NEW_FRAME_VERSION

    @property
    def ops(self) -> Any:
        """Enumeration of the operations of its version."""
        return schema.Op if self.has_new_frames else schema.OldOp


META_REST_LEVEL = FrameLevel(Struct("rest" / Const(b"SPLI")), (), None, 4, 4, name="rest")
TORN_HEADER_LEVEL = FrameLevel(schema.LOG_HEADER, (), None, schema.HEADER_SIZE, schema.HEADER_SIZE, name="header")


def fork_context(context: Any) -> Any:
    """Copy a context: the copy has the same table names, but names that either learns later are not shared."""
    return replace(context, names=dict(context.names)) if isinstance(context, ManticoreLogContext) else context


def create_frame_level(version: int, id_size: int = schema.ID64_SIZE) -> FrameLevel:
    """Create the frame level of a version. id_size: size of a document id in bytes."""
    is_new = version >= schema.NEW_FRAME_VERSION
    return FrameLevel(
        name="txn",
        schema=schema.get_frame_schema(version, id_size),
        columns=schema.FRAME_COLUMNS if is_new else schema.OLD_FRAME_COLUMNS,
        sync=schema.TXN_START_PATTERN if is_new else schema.TXN_PATTERN,
        min_size=10,
        max_size=_MAX_FRAME_SIZE,
        prove=is_cache_proven_by_fields if is_new else None,
        checksum=CRC32,
        stored="check.crc32" if is_new else "crc32",
        covered=("covered_start", "covered_end"),
        trailing=len(schema.TXN_PATTERN),
    )


# -- detection ---------------------------------------------------------------------------------------------------------


def detect(head: FileHead) -> FormatMatch:
    """Match a file by its magic, a file without its head by its records, or an empty file by its name."""
    data, name = head.data, head.name.rsplit("/", 1)[-1]
    if data[:4] == b"SPLI":
        return FormatMatch(100, "starts with SPLI")
    if data[:4] == b"SPBL":
        return FormatMatch(100, "starts with SPBL")
    has_log_name = name in META_NAMES or LOG_NAME.fullmatch(name) is not None
    if data.find(schema.TXN_PATTERN, 0, 64) >= 0 and has_valid_transaction(data):
        return FormatMatch(70, "no SPBL at the start; a transaction with the right checksum follows")
    if has_log_name and len(data) < schema.HEADER_SIZE and b"SPBL".startswith(data[:4]):
        return FormatMatch(20, "named like a log of Manticore or Sphinx, and empty" if not data else "a torn header")
    if name in META_NAMES:
        return FormatMatch(30, "only the file name fits")
    return FormatMatch(0, "neither SPLI nor SPBL at the start")


def get_log_stem(name: str) -> str | None:
    """Return "" for the name of a log file (a directory has one log); None for other names."""
    return "" if name in META_NAMES or LOG_NAME.fullmatch(name) else None


def has_valid_transaction(data: bytes) -> bool:
    """Return whether these bytes contain a transaction, of any version, with a right checksum."""
    starts = [match.start() for match in re.finditer(schema.TXN_PATTERN, data)][:16]
    return any(starts_with_transaction(data[at:], version) for at in starts for version in (16, 14, 13, 5, 4))


def starts_with_transaction(data: bytes, version: int, id_size: int = schema.ID64_SIZE) -> bool:
    """Return whether these bytes start with a transaction of this version that has a right checksum.

    Args:
        id_size: size of a document id in bytes.
    """
    try:
        parsed = schema.get_frame_schema(version, id_size).parse(data)
    except (ConstructError, OverflowError):
        return False
    return bool((parsed.check if version >= schema.NEW_FRAME_VERSION else parsed).checksum.ok)


def infer_id_size(data: bytes, version: int, default: int = schema.ID64_SIZE) -> int:
    """Return the size of a document id: the only size with which some transaction parses, else the default.

    Args:
        default: size stated by binlog.meta.
    """
    if version >= schema.NEW_FRAME_VERSION:
        return schema.ID64_SIZE
    ops = schema.OldOp.COMMIT.value, schema.OldOp.UPDATE_ATTRS.value
    starts = (found.start() for found in re.finditer(schema.TXN_PATTERN, data))
    for start in islice((at for at in starts if at + 4 < len(data) and data[at + 4] in ops), 16):
        sizes = [
            ids for ids in (schema.ID64_SIZE, schema.ID32_SIZE) if starts_with_transaction(data[start:], version, ids)
        ]
        if len(sizes) == 1:
            return sizes[0]
    return default


def _correct_flipped_version(data: bytes, version: int) -> int:
    """Return the version as which a file is read: one flipped bit in the head turns 5 into 4, and versions 2 to 4 write
    numbers in a different byte order from version 5.
    """
    first = data[schema.HEADER_SIZE :]
    if version > LAST_LOW_VERSION or first[:4] != schema.TXN_PATTERN or starts_with_transaction(first, version):
        return version
    return LAST_LOW_VERSION + 1 if starts_with_transaction(first, LAST_LOW_VERSION + 1) else version


def _read_meta(head: FileHead) -> bytes:
    """Read the meta file next to a log, or the first bytes of a longer one."""
    read = None if head.read_sibling is None else head.read_sibling(META_NAMES[0])
    try:
        return b"" if read is None else bytes(read(0, MAX_META_SIZE + 1))
    except OSError:
        return b""


def _get_stated_document_id_size(meta_bytes: bytes) -> int:
    """Return the size of document ids that a meta file states."""
    is_old = (
        len(meta_bytes) > 8
        and meta_bytes[:4] == b"SPLI"
        and int.from_bytes(meta_bytes[4:8], "little") < schema.NEW_FRAME_VERSION
    )
    return schema.ID32_SIZE if is_old and meta_bytes[8] != 1 else schema.ID64_SIZE


def _list_meta_file_numbers(meta_bytes: bytes) -> tuple[int, ...] | None:
    """Return the numbers of the files that a meta file lists; None if the list is not whole."""
    context, _ = parse_meta(meta_bytes[:MAX_META_SIZE], len(meta_bytes) <= MAX_META_SIZE)
    return context.numbers if context.whole else None


# -- layout ------------------------------------------------------------------------------------------------------------


def read_layout(head: FileHead, limits: Limits) -> LogFileLayout:
    """Read the layout of a meta file or a log file. Never raises: errors become findings."""
    name = head.name.rsplit("/", 1)[-1]
    if head.data[:4] == b"SPLI" or name in META_NAMES:
        data = head.data[:MAX_META_SIZE]
        context, findings = parse_meta(data, head.is_whole and len(head.data) <= MAX_META_SIZE)
        if name == "binlog.meta.new":
            context.leftover = True
            text = "left behind by an interrupted rewrite; the server ignores it"
            findings = [one.copy_with_severity(Severity.NOTE) for one in findings]
            findings.insert(
                0, make_finding("extra-member", 0, len(data), text, severity=Severity.NOTE, diagnosis="meta left-over")
            )
        variant = "binlog.meta" if context.version is None else f"binlog.meta v{context.version}"
        return LogFileLayout(
            variant, len(data), META_REST_LEVEL, schema.META, None, context, tuple(findings), has_records=False
        )
    return _read_log_layout(head, name, limits)


def parse_meta(data: bytes, is_whole_file: bool) -> tuple[MetaContext, list[Finding]]:
    """Parse a meta file; return its context and findings. is_whole_file: `data` is the whole file."""
    context = MetaContext()
    if data[:4] != b"SPLI":
        torn = b"SPLI".startswith(data[:4])
        text = f"the meta file ends after {len(data)} bytes" if torn else "the meta file does not start with SPLI"
        id_, diagnosis = ("bad-header", "meta torn") if torn else ("bad-magic", "meta magic bad")
        return context, [make_finding(id_, 0, min(len(data), 4), text, diagnosis=diagnosis, server="refuse")]
    if len(data) < 10:
        if is_whole_file and len(data) > 4 and data[4] < schema.NEW_FRAME_VERSION and not any(data[5:8]):
            context.version, context.setting, context.count = data[4], data[8] if len(data) > 8 else 0, 0
            context.whole = True  # up to version 14 the server reads missing bytes as 0: an empty list
        return context, [_report_torn_meta(len(data), "the meta file ends inside its head")]
    context.version, context.setting = int.from_bytes(data[4:8], "little"), data[8]
    context.count, position = _read_number(data, 9)
    findings = list(_check_meta_head(context))
    if context.count is None:
        if is_whole_file and context.version < schema.NEW_FRAME_VERSION and not any(byte & 0x7F for byte in data[9:]):
            context.count, context.whole = 0, True  # as above: the missing rest of the number is 0
        return context, [*findings, _report_torn_meta(len(data), "the number of files is cut off")]
    numbers: list[int] = []
    while len(numbers) < context.count:
        number, after = _read_number(data, position)
        if number is None:
            break
        numbers.append(number)
        position = after
    context.numbers, context.whole = tuple(numbers), len(numbers) == context.count
    context.cut = not context.whole and not is_whole_file
    return context, [*findings, *_check_meta_list(context, data, position, is_whole_file)]


def _read_number(data: bytes, position: int) -> tuple[int | None, int]:
    value, after = read_zint(data, position, len(data))
    return (None, position) if after < 0 else (value & (1 << 64) - 1, after)


def _report_torn_meta(size: int, text: str) -> Finding:
    return make_finding("bad-header", 0, size, text, diagnosis="meta torn")


def _check_meta_head(context: MetaContext) -> Iterator[Finding]:
    version, setting = context.version or 0, context.setting or 0
    if version == 0 and context.count == 0:
        text = "version 0 is not known; servers up to version 14 accept it, as the list is empty"
        yield make_finding(
            "unsupported-version", 4, 4, text, severity=Severity.WARNING, diagnosis="meta version unknown"
        )
    elif not schema.FIRST_VERSION <= version <= schema.LAST_VERSION:
        is_newer = version > schema.LAST_VERSION
        diagnosis = "meta version newer than known" if is_newer else "meta version unknown"
        text = f"version {version} is not known (known: {schema.FIRST_VERSION} to {schema.LAST_VERSION})"
        yield make_finding("unsupported-version", 4, 4, text, diagnosis=diagnosis, server="refuse")
    elif version >= schema.NEW_FRAME_VERSION and not 1 <= setting <= 9:
        yield make_finding(
            "bad-header", 8, 1, f"{setting} digits in file names; 1 to 9 are possible", diagnosis="meta digits"
        )
    elif version < schema.NEW_FRAME_VERSION and setting != 1:
        text = f"document ids of 32 bits ({setting}): current servers refuse them"
        yield make_finding("bad-header", 8, 1, text, severity=Severity.WARNING, diagnosis="meta id64")


def _check_meta_list(context: MetaContext, data: bytes, list_end: int, is_whole_file: bool) -> Iterator[Finding]:
    listed = len(context.numbers)
    if not context.whole and not is_whole_file:
        text = f"{context.count:,} files listed; only the {listed:,} in the first {len(data):,} bytes were read"
        yield make_finding("count-out-of-bounds", 9, len(data) - 9, text, diagnosis="meta too long", listed=listed)
    elif not context.whole:
        text = f"{context.count:,} files listed, {listed:,} numbers are present; the server reads the missing ones as 0"
        facts: dict[str, Any] = {"diagnosis": "meta torn in the file list", "listed": listed, "count": context.count}
        impossible = (context.count or 0) > listed + 1
        yield make_finding("count-out-of-bounds" if impossible else "bad-header", 0, len(data), text, **facts)
    elif list_end < len(data) or not is_whole_file:
        text = f"bytes after the list of {listed:,} files; the server ignores them"
        yield make_finding("unmapped-bytes", list_end, len(data) - list_end, text, diagnosis="trailing bytes")
    repeated = sorted({number for number in context.numbers if context.numbers.count(number) > 1})
    if repeated:
        severity = Severity.ERROR if (context.version or 0) >= schema.NEW_FRAME_VERSION else Severity.WARNING
        text = f"listed more than once: {', '.join(map(str, repeated[:10]))}"
        yield make_finding(
            "duplicate-sequence", 9, list_end - 9, text, severity=severity, diagnosis="file listed twice"
        )


def _read_log_layout(head: FileHead, name: str, limits: Limits) -> LogFileLayout:
    data = head.data
    matched = LOG_NAME.fullmatch(name)
    number = int(matched[1]) if matched else None
    version = int.from_bytes(data[4:8], "little") if len(data) >= schema.HEADER_SIZE else 0
    is_known = schema.FIRST_VERSION <= version <= schema.LAST_VERSION
    context = ManticoreLogContext(version if is_known else schema.LAST_VERSION, number, limits.max_memory)
    meta = _read_meta(head)
    context.listed = _list_meta_file_numbers(meta)
    variant = f"v{version}" + (" (Sphinx)" if version <= 5 else "")
    if head.is_whole and len(data) < schema.HEADER_SIZE:
        return _create_short_file_layout(data, context, len(matched[1]) if matched else 0)
    findings = list(_check_log_header(data, version, is_known))
    context.version = _correct_flipped_version(data, context.version)
    context.id_size = infer_id_size(data, context.version, _get_stated_document_id_size(meta))
    context.ids_proven = (
        context.id_size == schema.ID32_SIZE and infer_id_size(data, context.version) == schema.ID32_SIZE
    )
    level = create_frame_level(context.version, context.id_size)
    readable = _NOT_A_TABLE_LOG not in (one.facts.get("diagnosis") for one in findings)
    if head.size == schema.HEADER_SIZE and data[:4] == b"SPBL":
        findings.append(_report_empty_file("a header and no transaction", context))
    if data[:4] != b"SPBL":
        context.header = "bad magic"
    elif not is_known:
        variant, context.header = f"v{version}, read as v{context.version}", "version not known"
    return LogFileLayout(
        variant, schema.HEADER_SIZE, level, schema.LOG_HEADER, None, context, tuple(findings), readable
    )  # fmt: skip


def _create_short_file_layout(data: bytes, context: ManticoreLogContext, number_width: int) -> LogFileLayout:
    """Create the layout of a file that ends inside its header.

    Args:
        number_width: number of digits in its name, which tells old files from new ones without a version.
    """
    if number_width == OLD_NUMBER_WIDTH:
        context.version = schema.NEW_FRAME_VERSION - 1
    if data:
        context.header = "torn"
        context.version = data[4] if len(data) > 4 else context.version
        return LogFileLayout("torn header", 0, TORN_HEADER_LEVEL, context=context)
    context.header = "empty"
    note = _report_empty_file("nothing was written yet: the header reaches the disk with the first commit", context)
    return LogFileLayout("empty", 0, create_frame_level(context.version), context=context, findings=(note,))


def _report_empty_file(text: str, context: ManticoreLogContext) -> Finding:
    action = "delete" if context.has_new_frames else "replay"
    return make_finding("unclean-close", 0, 0, text, severity=Severity.NOTE, diagnosis="empty file", server=action)


def _check_log_header(data: bytes, version: int, is_known: bool) -> Iterator[Finding]:
    if data[:4] != b"SPBL":
        text = "the file does not start with SPBL; the server refuses to start"
        yield make_finding("bad-magic", 0, 4, text, diagnosis="file magic bad", server="refuse")
    elif version == 1 and data.find(schema.TXN_PATTERN) < 0:
        yield make_finding("unsupported-version", 4, 4, _NOT_A_TABLE_LOG, diagnosis=_NOT_A_TABLE_LOG)
        return
    if not is_known:
        text = f"version {version} is not known (known: {schema.FIRST_VERSION} to {schema.LAST_VERSION}); "
        text += f"read as version {schema.LAST_VERSION}"
        yield make_finding("unsupported-version", 4, 4, text, diagnosis="version not known", server="refuse")
        return
    if version not in VERIFIED_VERSIONS:
        text = f"version {version} is decoded by its description, without a file of a real server to compare with"
        yield make_finding("unsupported-version", 4, 4, text, severity=Severity.NOTE, diagnosis="best effort")
    first = data[schema.HEADER_SIZE :]
    if (
        first[:4] == schema.TXN_PATTERN
        and not starts_with_transaction(first, version)
        and not starts_with_transaction(first, version, infer_id_size(data, version))
    ):
        other = next(
            (
                v
                for v in (16, 14, 13, 5, 4)
                if get_frame_family(v) != get_frame_family(version) and starts_with_transaction(first, v)
            ),
            None,
        )
        if other is not None:
            text = f"the header says version {version}, the first transaction is one of version {other}"
            yield make_finding("bad-header", 4, 4, text, diagnosis="header version differs from content", content=other)


def get_frame_family(version: int) -> int:
    """Return a number that is equal for versions with the same frames."""
    return min(version, schema.NEW_FRAME_VERSION) if version != 6 else 5


# --- Layouts with native code ---


def list_compiled_layouts() -> list[LogFileLayout]:
    """Return one layout per version, and the layouts of files without records."""
    versions = range(FIRST_VERSION, LAST_VERSION + 1)
    logs = [
        LogFileLayout("", 0, create_frame_level(version), context=ManticoreLogContext(version, None))
        for version in versions
    ]
    return [*(LogFileLayout("", 0, level) for level in (META_REST_LEVEL, TORN_HEADER_LEVEL)), *logs]


# --- Decoded transactions ---

TYPE_NAMES: Mapping[int, str] = MappingProxyType(
    {op.value: op.name for op in Op} | {100 + op.value: op.name for op in OldOp if op.name not in Op.__members__}
)
"""Record types: operations of version 15 and later by number; those that only older versions have from 100 on."""

U64 = (1 << 64) - 1


def parse_table_id_and_name(context: ManticoreLogContext, add_index_body: bytes) -> tuple[int, bytes]:
    """Parse id and name of a table from the body of an ADD_INDEX."""
    parsed = (
        schema.ADD_INDEX
        if context.has_new_frames
        else schema.create_v2_to_v14_body_schema(context.version, OldOp.ADD_INDEX)
    ).parse(add_index_body)
    return int(parsed.id), bytes(parsed.name.text)


def describe_records(context: Any, batch: Batch, start: int, stop: int) -> EnvelopeColumns:
    """Describe transactions as envelope columns. A table is named by the last ADD_INDEX with its id before."""
    if not isinstance(context, ManticoreLogContext):
        return EnvelopeColumns([], [], [], [], [], [])
    frames, ops = batch.frames, context.ops
    kinds = to_int_list(frames["op"], start, stop)
    ids = [value & U64 for value in to_int_list(frames["body.id"], start, stop)]
    store_table_names(context, batch, stop)
    raw_names = [
        context.names.get(number) if kind != ops.ADD_CACHE else None for kind, number in zip(kinds, ids, strict=True)
    ]
    names = [None if name is None else name.decode("utf-8", "backslashreplace") for name in raw_names]
    has_tid = [kind != ops.ADD_INDEX and kind != ops.ADD_CACHE for kind in kinds]
    tids = to_int_list(frames["body.tid"], start, stop)
    seq = [tid & U64 if has else None for tid, has in zip(tids, has_tid, strict=True)]
    no_values: list[Any] = [None] * len(kinds)
    times = no_values if context.has_new_frames else _select_times(to_int_list(frames["body.time"], start, stop), kinds)
    return EnvelopeColumns([ops(kind).name for kind in kinds], seq, times, names, no_values, no_values)


def store_table_names(context: ManticoreLogContext, batch: Batch, stop: int) -> None:
    """Store the names in every ADD_INDEX of the batch before record `stop`, shown or not."""
    start = max(context.described - batch.first_record, 0)
    if start >= stop:
        return
    for index, kind in enumerate(to_int_list(batch.frames["op"], start, stop), start):
        if kind == context.ops.ADD_INDEX:
            number, name = parse_table_id_and_name(context, _read_body_bytes(batch, index))
            context.names.setdefault(number, name)
    context.described = batch.first_record + stop


def _select_times(times: list[int], kinds: list[int]) -> list[int | None]:
    return [None if kind == OldOp.ADD_CACHE else time for time, kind in zip(times, kinds, strict=True)]


def _read_body_bytes(batch: Batch, index: int) -> bytes:
    """Return the bytes after the op."""
    frames = batch.frames
    return bytes(batch.window[frames["covered_start"][index] + 1 : frames["covered_end"][index]])


def decode_bodies(
    context: Any, batch: Batch, start: int, stop: int, limits: Limits, *, with_stored_fields: bool = False
) -> list[Any]:
    """Decode one body per transaction.

    Args:
        with_stored_fields: include the stored fields of new documents, if the table stores fields.
    """
    return [_decode_body(context, batch, index, limits, with_stored_fields) for index in range(start, stop)]


def _decode_body(
    context: ManticoreLogContext, batch: Batch, index: int, limits: Limits, with_stored_fields: bool
) -> Any:
    op, data = int(batch.frames["op"][index]), batch.frame_bytes(index)
    if len(data) > limits.max_memory // MEMORY_FACTOR:
        return report_too_large(batch, index)
    try:
        body = schema.get_frame_schema(context.version, context.id_size).parse(data).body
        if op == context.ops.ADD_CACHE:
            return convert_containers_to_plain(
                (
                    schema.CACHE if context.has_new_frames else schema.create_v2_to_v14_cache_schema(context.version)
                ).parse(body)
            )
        if op == context.ops.ADD_INDEX:
            return convert_containers_to_plain(body)
        result = {key: convert_containers_to_plain(value) for key, value in body.items() if key not in _HIDDEN_KEYS}
        if not context.has_new_frames:
            return result | {
                "payload": decode_v2_to_v14_payload(
                    context, OldOp(op), body.payload, with_stored_fields=with_stored_fields
                )
            }
        payload = parse_exactly(schema.PAYLOAD, body.payload)
        return result | {
            "payload_op": PayloadOp(payload.op).name,
            "payload": _decode_payload(PayloadOp(payload.op).name, payload.body, with_stored_fields),
        }
    except (ConstructError, OverflowError) as error:
        return report_undecodable(batch, index, _format_error(error))


MEMORY_FACTOR = 16
"""Bytes of memory that a decoded transaction may use for each of its own bytes."""


def report_too_large(batch: Batch, index: int) -> Finding:
    """Report a valid transaction that is not decoded because of the memory that it would need."""
    low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
    message = f"{high - low:,} bytes are not decoded; raise --max-memory"
    return make_finding(
        "count-out-of-bounds", batch.base + low, high - low, message, record=batch.first_record + index,
        severity=Severity.NOTE, diagnosis="limit",
    )  # fmt: skip


def decode_v2_to_v14_payload(
    context: ManticoreLogContext, op: OldOp, data: bytes, *, with_stored_fields: bool = False
) -> Any:
    """Decode the payload of a transaction of versions 2 to 14. with_stored_fields: see `decode_bodies`."""
    if op is OldOp.RECONFIGURE:
        return bytes(data)
    payload = parse_exactly(schema.create_v2_to_v14_payload_schema(context.version, op, context.id_size), data)
    return _decode_payload(op.name, payload, with_stored_fields, context.id_size)


def _decode_payload(kind: str, payload: Any, with_stored_fields: bool, id_size: int = schema.ID64_SIZE) -> Any:
    if kind == OldOp.COMMIT.name:
        return _decode_commit(payload, with_stored_fields, id_size)
    return _decode_update(payload) if kind == OldOp.UPDATE_ATTRS.name else convert_containers_to_plain(payload)


def _format_error(error: Exception) -> str:
    """Return the last line of construct's message, shortened and without its path prefix."""
    return str(error).replace("Error in path (parsing)", "at").split("\n")[-1][:200] or type(error).__name__


def parse_exactly(payload_schema: Construct, data: bytes) -> Any:
    """Parse a payload that must be consumed to the last byte.

    Raises:
        ConstructError: the payload is malformed, or bytes are left over.
    """
    from construct import StreamError, Struct, Tell

    parsed = Struct("value" / payload_schema, "end" / Tell).parse(data)
    if parsed.end != len(data):
        raise StreamError(f"{len(data) - parsed.end} bytes of the payload are left over")
    return parsed.value


def report_undecodable(batch: Batch, index: int, reason: str) -> Finding:
    """Report a transaction with a right checksum whose payload does not fit its op."""
    low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
    return make_finding(
        "payload-undecodable", batch.base + low, high - low, reason, record=batch.first_record + index,
        diagnosis="payload does not parse", server="refuse",
    )  # fmt: skip


_HIDDEN_KEYS = frozenset({"_io", "payload"})


def convert_containers_to_plain(value: Any) -> Any:
    """Convert containers and lists of the schema to plain dicts and lists."""
    if isinstance(value, dict):
        if value.keys() - {"_io"} == {"length", "text"}:
            return decode_text(value["text"])
        return {key: convert_containers_to_plain(item) for key, item in value.items() if key != "_io"}
    if isinstance(value, list | array):
        return [convert_containers_to_plain(item) for item in value]
    return int(value) if isinstance(value, int) else value


def _decode_commit(payload: Any, with_stored_fields: bool, id_size: int) -> dict[str, Any]:
    result: dict[str, Any] = {"rows": int(payload.rows)}
    if payload.segment is not None:
        result["segment"] = _summarize_segment(payload.segment, int(payload.rows), id_size)
        store = payload.segment.get("docstore")
        if with_stored_fields and store is not None:
            result["segment"]["fields"] = [_split_stored_fields(bytes(each.data)) for each in store.documents]
    return result | {"killed": list(payload.killed)}


def _split_stored_fields(data: bytes) -> list[bytes]:
    """Split a document into its stored fields, in the order of the table's schema; [] if the bytes are not such a list.

    Source: `docs/spec/manticore.md#rt-commit`.
    """
    fields, position = list[bytes](), 0
    while position < len(data):
        size, position = read_zint(data, position, len(data))
        if position < 0 or not 0 <= size <= len(data) - position:
            return []
        fields.append(data[position : position + size])
        position += size
    return fields


def _summarize_segment(segment: Any, rows: int, id_size: int) -> dict[str, Any]:
    """Decode a segment to sizes and small parts (`docs/spec/manticore.md#inside-an-rt-commit`)."""
    result: dict[str, Any] = {}
    for key, value in segment.items():
        if isinstance(value, bytes):
            result[f"{key}_bytes"] = len(value)
        elif key == "row_data":
            result |= _decode_row_document_ids(value, rows, id_size)
        elif key == "mva":
            result["mva_words"] = len(value)
        elif key == "docstore" and value is not None:
            result[key] = {"count": int(value.count), "bytes": sum(len(each.data) for each in value.documents)}
        elif key != "_io" and value is not None:
            result[key] = convert_containers_to_plain(value)
    return result


def _decode_row_document_ids(words: array[int], row_count: int, id_size: int) -> dict[str, Any]:
    """Decode the document ids of row_count: dwords 0 and 1 of a row, or dword 0 alone if an id has 4 bytes.

    Source: `docs/spec/manticore.md#rows`.
    """
    stride = len(words) // row_count if row_count <= len(words) else 0
    result: dict[str, Any] = {"row_words": len(words), "stride": stride}
    if id_size == schema.ID32_SIZE and stride >= 1 and stride * row_count == len(words):
        result["docids"] = list(words[::stride])
    elif stride >= 2 and stride * row_count == len(words):
        pairs = (words[at : at + 2] for at in range(0, len(words), stride))
        result["docids"] = [struct.unpack("<q", struct.pack("<2I", *pair))[0] for pair in pairs]
    return result


SCALAR_TYPES = {1: "integer", 2: "timestamp", 4: "bool", 5: "float", 6: "bigint", 7: "string"}
VECTOR_TYPES = {0x40000001: "mva32", 0x40000002: "mva64", 15: "float_vector", 16: "float_vector_array"}
"""Attribute types (docs/spec/manticore.md#update-of-attributes), in the order of their numbers."""
_MISSING = object()


def _decode_update(payload: Any) -> dict[str, Any]:
    result = {key: convert_containers_to_plain(value) for key, value in payload.items() if key != "_io"}
    for attribute in result["attributes"]:
        kind = attribute["type"]
        attribute["type_name"] = SCALAR_TYPES.get(kind) or VECTOR_TYPES.get(kind) or str(kind)
    documents = list(_decode_updated_documents(payload))
    if all(document is not None for document in documents):
        result["documents"] = documents
    return result


def _decode_updated_documents(payload: Any) -> Iterator[dict[str, Any] | None]:
    """Yield the new values of each document; None if the pool lacks bytes that the attributes need.

    Source: `docs/spec/manticore.md#update-of-attributes`.
    """
    offsets = payload.row_offsets or array("I", bytes(4 * len(payload.docids)))
    if len(offsets) != len(payload.docids):
        yield None
        return
    for docid, position in zip(payload.docids, offsets, strict=True):
        values = {}
        for attribute in payload.attributes:
            value, position = _decode_value(int(attribute.type), payload.pool, position, payload.get("blobs", b""))
            if value is _MISSING:
                yield None
                return
            values[attribute.name.text.decode("utf-8", "backslashreplace")] = value
        yield {"docid": docid, "values": values}


def _decode_value(attribute_type: int, pool: array[int], position: int, blobs: bytes) -> tuple[Any, int]:
    if attribute_type in VECTOR_TYPES:
        if position >= len(pool) or pool[position] > len(pool) - position - 1:
            return _MISSING, position
        stop = position + 1 + pool[position]
        return _decode_vector(attribute_type, pool[position + 1 : stop]), stop
    width = 2 if attribute_type in (6, 7) else 1
    if attribute_type not in SCALAR_TYPES or position + width > len(pool):
        return _MISSING, position
    words = pool[position : position + width]
    if attribute_type == 7:
        start, length = words
        return (decode_text(blobs[start : start + length]) if start + length <= len(blobs) else _MISSING), position + 2
    layouts = {5: ("<I", "<f"), 6: ("<2I", "<q")}
    if attribute_type not in layouts:
        return words[0], position + 1
    source, target = layouts[attribute_type]
    return struct.unpack(target, struct.pack(source, *words))[0], position + width


def _decode_vector(attribute_type: int, words: array[int]) -> list[Any]:
    data = struct.pack(f"<{len(words)}I", *words)
    if attribute_type in (15, 16):
        return list(struct.unpack(f"<{len(words)}f", data))
    return list(struct.unpack(f"<{len(words) // 2}q", data[: len(words) // 2 * 8]))


# --- Split points ---


def make_split_point_finder(layout: LogFileLayout) -> TransactionSplitFinder | None:
    """Create the split-point finder of a log file; None for a meta file."""
    context = layout.context
    return (
        TransactionSplitFinder(layout, context)
        if layout.readable and isinstance(context, ManticoreLogContext)
        else None
    )


class TransactionSplitFinder(EveryFrameSplitFinder):
    """Split points of one file: every border between transactions (implements `format_api.layout.SplitFinder`)."""

    context: ManticoreLogContext

    def find_split_point(self, batch: Batch, compile_kernel: KernelCompiler) -> SplitPoint | None:
        """Return the border after the last transaction of a batch; learn the table names in it."""
        store_table_names(self.context, batch, batch.frames.count)
        return make_split_point(batch, batch.frames.count)

    def export_state(self) -> dict[str, str]:
        """Return the table names, in hexadecimal, by table id (as text)."""
        return {str(number): name.hex() for number, name in self.context.names.items()}

    def restore_state(self, state: Any, record: int) -> None:
        """Restore the table names that were known at the border."""
        self.context.names.update({int(number): bytes.fromhex(name) for number, name in state.items()})
        self.context.described = record


# --- Text for people ---

_HIDDEN = frozenset({"id", "tid", "time", "name", "uSize", "payload", "payload_op", "count"})
_SHOWN_ELSEWHERE = frozenset({"killed", "documents", "new", "del_ids", "del_tags", "query"})
_QUERY_MEMBERS = ("id", "query", "tags", "filters", "tree")


def _name_documents(numbers: Sequence[Any]) -> dict[str, Any]:
    return {"document": numbers[0]} if len(numbers) == 1 else {"documents": numbers}


def make_record_text(_type_name: str, body: Mapping[str, Any], everything: bool) -> RecordText:
    """Return the content of a transaction as `dump` shows it to people."""
    payload = body.get("payload")
    members = select_members(body, frozenset({"payload"}) if everything else _HIDDEN)
    if not isinstance(payload, Mapping):
        return RecordText(members)
    if everything:
        members |= select_members(payload, _SHOWN_ELSEWHERE)
    note = body.get("payload_op", "")
    rows: list[dict[str, Any]] = []
    segment = payload.get("segment")
    documents = segment.get("docids", ()) if isinstance(segment, Mapping) else ()
    removed = [one for one in payload.get("killed", ()) if one not in set(documents)]
    for side, numbers in (("after", documents), ("key", removed)):
        rows += [{side: _name_documents(numbers), "count": len(numbers)}] if numbers else []
    for document in payload.get("documents", ()):
        rows.append({"key": {"document": document.get("docid")}, "after": document.get("values")})
    queries = payload.get("new", (payload,) if "query" in payload else ())
    rows += [{"after": {name: query[name] for name in _QUERY_MEMBERS if query.get(name)}} for query in queries]
    rows += [{"key": {"id": one}} for one in payload.get("del_ids", ())]
    rows += [{"key": {"tags": one}} for one in payload.get("del_tags", ())]
    return RecordText(members, note if isinstance(note, str) else "", (RowChanges(rows),) if rows else ())


# --- Table rows ---

ID_COLUMN = "id"
_MAX_FIELDS = 256
"""Maximum number of fields of a table."""
_COLUMN_TYPES = {"integer": "bigint", "timestamp": "bigint", "bool": "bigint", "bigint": "bigint", "float": "float"}
"""Column types of attributes; all others are text, and lists are JSON."""


class DocumentTableReader(msgspec.Struct, TableReader):
    """Table reader over the transactions of a log. tables: tables by name, with all attributes seen so far."""

    tables: dict[str, TableSchema] = msgspec.field(default_factory=dict)

    def read_records(
        self, context: Any, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordTableRows]:
        """Yield the rows of each of these records; to be consumed in order."""
        names = describe_records(context, batch, start, stop).object
        for name, body in zip(
            names, decode_bodies(context, batch, start, stop, limits, with_stored_fields=True), strict=True
        ):
            if isinstance(body, Finding):
                yield RecordTableRows(findings=(body,))
                continue
            body, findings = body if isinstance(body, BodyWithFindings) else (body, ())
            rows = list(self._decode_rows(name, body)) if name is not None and "payload" in body else []
            yield RecordTableRows(
                rows, findings, () if name is None else (self._get_or_extend_table(name),), ends=bool(rows)
            )

    def _get_or_extend_table(self, name: str, attributes: Iterable[Mapping[str, Any]] = ()) -> TableSchema:
        """Return a table, extended by attributes that it does not have yet."""
        table = self.tables.get(name) or TableSchema(
            name, (TableColumn(ID_COLUMN, "bigint"),), (ID_COLUMN,), is_partial=True
        )
        present_names = {column.name for column in table.columns}
        new_columns = {
            one["name"]: TableColumn(one["name"], _COLUMN_TYPES.get(one["type_name"], "string"))
            for one in attributes
            if isinstance(one.get("name"), str) and one["name"] not in present_names
        }
        if new_columns or name not in self.tables:
            table = self.tables[name] = replace(table, columns=(*table.columns, *new_columns.values()))
        return table

    def _decode_rows(self, name: str, body: Mapping[str, Any]) -> Iterator[TableRow]:
        payload = body["payload"]
        kind = str(body.get("payload_op", ""))
        if not isinstance(payload, Mapping):
            return
        if "documents" in payload:
            table = self._get_or_extend_table(name, payload["attributes"])
            for item in payload["documents"]:
                yield TableRow(table, "UPDATE", None, {ID_COLUMN: item["docid"], **item["values"]})
            return
        segment = payload.get("segment") or {}
        if "killed" not in payload or (payload.get("rows") and "docids" not in segment):
            yield TableRow(self._get_or_extend_table(name), kind, None, None, operations=payload)
            return
        ids, fields = segment.get("docids", ()), segment.get("fields", ())
        documents = dict(zip(ids, fields, strict=True)) if len(ids) == len(fields) else {}
        names = [f"@{n}" for n in range(1, 1 + min(max(map(len, documents.values()), default=0), _MAX_FIELDS))]
        table = self._get_or_extend_table(name, [{"name": one, "type_name": "string"} for one in names])
        added = {one: dict(zip(names, map(decode_text, documents.get(one, ())), strict=False)) for one in ids}
        yield from self._create_commit_rows(table, added, payload["killed"])

    @staticmethod
    def _create_commit_rows(
        table: TableSchema, added: Mapping[int, Mapping[str, Any]], killed: Iterable[int]
    ) -> Iterator[TableRow]:
        """Yield the rows of a commit. A document that is deleted and added in one transaction is replaced."""
        deleted = dict.fromkeys(killed)
        for docid in deleted:
            if docid not in added:
                yield TableRow(table, "DELETE", {ID_COLUMN: docid}, None)
        for docid, fields in added.items():
            yield TableRow(table, "REPLACE" if docid in deleted else "INSERT", None, {ID_COLUMN: docid, **fields})
