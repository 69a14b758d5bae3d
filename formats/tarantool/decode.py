"""Detect a journal file and read its layout from the text header; decode rows: envelope columns, bodies, split points.

Source: `docs/spec/tarantool.md#transactions`.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import EnvelopeColumns, FileHead, FormatMatch, RecordText, RowChanges, select_members
from binlogtool.format_api.layout import (
    CRC32C_RAW,
    U64,
    Batch,
    ColumnTable,
    EveryFrameSplitFinder,
    FrameLevel,
    KernelCompiler,
    LogFileLayout,
    RowLevel,
    SplitPoint,
    make_split_point,
    to_int_list,
)
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.tarantool import codes, schema
from binlogtool.formats.tarantool.codes import (
    HEADER_NAMES,
    MAX_SPACE_ID,
    SYSTEM_SPACES,
    TYPE_NAMES,
    VYLOG_KEYS,
    VYLOG_TYPES,
    BodyKey,
    FileKind,
    HeaderKey,
    RowFlag,
    RowType,
    SpaceNames,
    name_body_key,
)
from binlogtool.formats.tarantool.msgpack.decode_values import (
    InexactValueError,
    convert_if_exact,
    get_fast_decoder,
    to_python,
)
from binlogtool.formats.tarantool.msgpack.parse import ODD_SEEN, MpKind, MpNode, decode_value, get_max_nesting_depth
from binlogtool.formats.tarantool.rows import parse_rows
from binlogtool.formats.tarantool.rows.parse_rows import DUPLICATE_KEY, UNKNOWN_KEY
from binlogtool.formats.tarantool.schema import (
    HeaderLine,
    HeaderText,
    format_vclock,
    parse_header_lines,
    parse_uuid,
    parse_vclock,
    unpack_zstd,
)
from binlogtool.limits import MIB, Limits

# --- Detection and layout of one file (`docs/spec/tarantool.md#text-header`) ---

VERSIONS = ("0.12", "0.13")
TEMPORARY_PATTERNS = ("*.inprogress",)
"""Patterns of unfinished files, which the server renames when they are complete."""

UNUSABLE_VCLOCK_DIAGNOSES = ("bad_vclock", "vclock_name_mismatch", "unknown_header_key")
"""Diagnoses of a header whose VClock cannot be used."""

_FILE_NAME = re.compile(r"(\d+)\.(xlog|snap|vylog|run|index)(\.inprogress|\.corrupted)?")
_OPENED_NAME = re.compile(r"\d{20}\.(xlog|snap|vylog)")
"""Names of files that a server opens in its data directory, whatever they hold."""
_KINDS_NAMED_BY_VCLOCK = ("xlog", "snap", "vylog")
_HEADER_LINES = re.compile(
    rb"[^\n]{1,9}\n0\.1[23]\n|.{0,200}\n(?:VClock: \{|(?:Instance|Server): [0-9a-f]{8}-)", re.DOTALL
)

FRAME = FrameLevel(
    name="block",
    schema=schema.BLOCK,
    columns=("magic", "header.length", "header.crc32p", "header.crc32c", "header.end", "payload_start", "payload_end"),
    sync=codes.BLOCK_START_PATTERN,
    min_size=codes.FIXHEADER_SIZE,
    max_size=64 * MIB,
    end_mark=codes.END_MARK,
    checksum=CRC32C_RAW,
    stored="header.crc32c",
    covered=("payload_start", "payload_end"),
)

ROWS = RowLevel(
    schema=schema.ROW,
    columns=parse_rows.ROW_COLUMNS,
    start="payload_start",
    end="payload_end",
    selector="magic",
    codecs=MappingProxyType({codes.ZSTD_MAGIC: unpack_zstd}),
    framed=parse_rows.RowFrameConstruct(),
)


class TarantoolContext(msgspec.Struct):
    """Format-specific facts about one file.

    Attributes:
        kind: kind as which the file is validated; if name and first line contradict each other, that of the name.
        text: the header's lines.
        number: the digits of the name, or None.
        suffix: "", ".inprogress" or ".corrupted".
        has_valid_vclock: the VClock of the header can be used.
        spaces: names by space id; shared by all files of a log, and extended while records are described.
    """

    kind: FileKind | None
    text: HeaderText
    vclock: dict[int, int] = msgspec.field(default_factory=dict)
    prev_vclock: dict[int, int] | None = None
    instance: str | None = None
    version: str | None = None
    number: int | None = None
    suffix: str = ""
    has_valid_vclock: bool = True
    spaces: SpaceNames = msgspec.field(default_factory=SpaceNames)

    @property
    def signature(self) -> int:
        """Sum of all vclock components; the server names the file after it."""
        return sum(self.vclock.values())

    def add_space_names(self, exported_state: Any) -> None:
        """Add the names of a state (`decode.BlockSplitFinder.export_state`) if it is of the same instance."""
        if exported_state and exported_state["instance"] == self.instance:
            self.spaces.update({int(space): name for space, name in exported_state["names"].items()})

    def cap_severity_for_unread_file(self, raw_finding: Finding) -> Finding:
        """Lower the severity of a finding about a file that the server does not read."""
        ceiling = {".inprogress": Severity.NOTE, ".corrupted": Severity.WARNING}.get(self.suffix, Severity.ERROR)
        return raw_finding if raw_finding.severity <= ceiling else raw_finding.copy_with_severity(ceiling)


def fork_context(context: TarantoolContext) -> TarantoolContext:
    """Copy a context: the copy has the same space names, but names that either learns later are not shared."""
    spaces = SpaceNames()
    spaces.update(context.spaces)
    return replace(context, spaces=spaces)


def detect(head: FileHead) -> FormatMatch:
    """Match a file by its text header; a file whose header is lost still matches weakly by its name."""
    first, _, rest = head.data[:64].partition(b"\n")
    if first.decode("latin-1") in FileKind.__members__:
        is_known_version = rest[:5] in (b"0.12\n", b"0.13\n")
        return FormatMatch(
            100 if is_known_version else 95,
            f"starts with {first.decode()!r}" + (f" {rest[:4].decode()}" if is_known_version else ""),
        )
    if _HEADER_LINES.match(head.data[:300]):
        return FormatMatch(60, "has the lines of a Tarantool header, with an unknown type")
    if _FILE_NAME.fullmatch(head.name) or head.name.endswith((".xlog", ".vylog", ".xlog.inprogress")):
        torn = any(kind.encode().startswith(head.data) for kind in FileKind.__members__)
        is_ignored = head.name.endswith(
            (".inprogress", ".corrupted")
        )  # the server did not finish the file, or renamed it as corrupted
        is_log = torn or is_ignored or _OPENED_NAME.fullmatch(head.name)
        return FormatMatch(20 if is_log else 10, f"is named like a Tarantool file ({head.name})")
    return FormatMatch(0, "no Tarantool header")


def get_log_stem(name: str) -> str | None:
    """Return "" for a name made from a signature (all such files of a directory are one log); None for other names."""
    return "" if _FILE_NAME.fullmatch(name) else None


def read_layout(head: FileHead, limits: Limits) -> LogFileLayout:
    """Read the layout of a file from its header. Never raises: errors in the header become findings."""
    text = parse_header_lines(head.data)
    context = _read_context(head.name, text)
    key = f"tarantool.spaces.{context.instance}"  # several servers can be read at once
    if key not in head.shared and head.preceding is not None:
        context.add_space_names(head.preceding.compute_state("tarantool"))
    context.spaces = head.shared.setdefault(key, context.spaces)
    findings = list(_check_header(head, text, context))
    context.has_valid_vclock = not any(
        f.facts.get("diagnosis") in UNUSABLE_VCLOCK_DIAGNOSES and f.severity is Severity.ERROR for f in findings
    )
    first = text.lines[0].value[:9] if text.lines else "empty"
    version = text.lines[1].value[:9] if len(text.lines) > 1 else "?"
    readable = context.kind is not None and text.end is not None and version in VERSIONS
    return LogFileLayout(
        variant=f"{first} {version}" if context.kind else f"unknown ({first!r})",
        frames_at=text.end or 0,
        frame=FRAME,
        header=schema.HEADER,
        rows=ROWS,
        context=context,
        findings=tuple(map(context.cap_severity_for_unread_file, findings)) + tuple(_report_unread_file(context)),
        readable=readable,
        final=context.kind is FileKind.XLOG,  # the server reopens a log without rows, and a VYLOG
    )


def _read_context(name: str, text: HeaderText) -> TarantoolContext:
    """Create the context of a file from its name and header lines."""
    kind = text.lines[0].value if text.lines else ""
    context = TarantoolContext(FileKind(kind) if kind in FileKind.__members__ else None, text)
    matched = _FILE_NAME.fullmatch(name)
    if matched:
        context.number, context.suffix = int(matched[1]), matched[3] or ""
        context.kind = context.kind and FileKind(matched[2].upper())
    if text.end is None:
        return context
    instance, context.version = text.get_value("instance"), text.get_value("version")
    context.instance = None if instance is None else parse_uuid(instance) or instance
    for attribute in ("vclock", "prev_vclock"):
        value = text.get_value(attribute)
        if value is not None:
            try:
                setattr(context, attribute, parse_vclock(value))
            except ValueError:
                continue
    return context


def _report_unread_file(context: TarantoolContext) -> Iterator[Finding]:
    """Report a file that the server does not read."""
    if context.suffix == ".inprogress":
        text = "a file that the server did not finish writing; the server ignores it"
        yield make_finding("extra-member", 0, 0, text, diagnosis="inprogress_left")
    elif context.suffix == ".corrupted":
        text = "a file that the server set aside because it could not continue with it"
        yield make_finding("extra-member", 0, 0, text, diagnosis="corrupted_left")


def _check_header(head: FileHead, text: HeaderText, context: TarantoolContext) -> Iterator[Finding]:
    """Report everything that is wrong with a header."""
    yield from _check_type_and_version(text, context)
    if text.end is None:
        size = min(len(head.data), 1858)
        message = "the file is empty" if not head.data else "no empty line ends the header"
        yield make_finding("bad-header", 0, size, message, diagnosis="bad_header")
        return
    lost_vclock = text.get_line("vclock") is None and context.kind in (FileKind.XLOG, FileKind.SNAP, FileKind.VYLOG)
    suspects = [line for line in text.lines[2:] if line.key is None or line.name.startswith("unknown")]
    for line in text.lines[2:]:
        yield from _check_line(line, text, lost_vclock)
    if not (lost_vclock and suspects):
        yield from _check_name_against_vclock(head, text, context)


def _check_type_and_version(text: HeaderText, context: TarantoolContext) -> Iterator[Finding]:
    """Check the first two lines: type and format version."""
    if not text.lines:
        return
    first = text.lines[0]
    if context.kind is None and text.end is not None:
        message = f"type {first.value[:40]!r} is none of {', '.join(FileKind)}"
        yield make_finding("bad-header", 0, first.end, message, diagnosis="bad_header_type")
    if context.kind and first.value != context.kind:
        message = f"a file named .{context.kind.lower()} has the type {first.value}"
        yield make_finding("bad-header", 0, first.end, message, diagnosis="bad_header_type")
    if len(text.lines) > 1 and text.lines[1].value not in VERSIONS and text.end is not None:
        line = text.lines[1]
        message = f"format version {line.value[:40]!r}; supported: {' and '.join(VERSIONS)}"
        yield make_finding(
            "unsupported-version", line.start, line.end - line.start, message, diagnosis="bad_header_version"
        )


def _check_line(line: HeaderLine, text: HeaderText, lost_vclock: bool) -> Iterator[Finding]:
    """Check one `key: value` line."""
    place = (line.start, line.end - line.start)
    if line.key is None:
        yield make_finding("bad-header", *place, f"no colon in {line.value[:60]!r}", diagnosis="bad_header")
    elif line.name == "instance" and parse_uuid(line.value) is None:
        yield make_finding("bad-header", *place, f"{line.value[:60]!r} is no uuid", diagnosis="bad_uuid")
    elif line.name in ("vclock", "prev_vclock"):
        try:
            parse_vclock(line.value)
        except ValueError as error:
            yield make_finding("bad-header", *place, str(error)[:200], diagnosis="bad_vclock")
    elif line.name.startswith("unknown"):
        yield _report_unknown_key(line, text, lost_vclock)


def _report_unknown_key(line: HeaderLine, text: HeaderText, lost_vclock: bool) -> Finding:
    """Report an unknown key: a warning, as newer servers add keys; an error if the VClock line is missing."""
    facts: dict[str, Any] = {
        "diagnosis": "unknown_header_key",
        "key": line.key,
        "value": line.value[:200],
        "line_offset": line.start,
    }
    if lost_vclock:
        message = f"unknown key {line.key!r}, and there is no VClock"
        return make_finding("bad-header", line.start, line.end - line.start, message, **facts)
    message = f"unknown key {line.key!r} in the header (line at {line.start:#x})"
    return make_finding("bad-header", 0, text.end or 0, message, severity=Severity.WARNING, **facts)


def _check_name_against_vclock(head: FileHead, text: HeaderText, context: TarantoolContext) -> Iterator[Finding]:
    """Check the number in a file's name against the sum of its VClock."""
    matched = _FILE_NAME.fullmatch(head.name)
    line = text.get_line("vclock")
    if (
        not matched or matched[2] not in _KINDS_NAMED_BY_VCLOCK or any(_check_line(line, text, False))
        if line
        else not matched
    ):
        return
    assert matched is not None
    if line is None and matched[2] in _KINDS_NAMED_BY_VCLOCK:
        message = f"the header has no VClock, the name says {int(matched[1])}"
        yield make_finding("meta-mismatch", 0, text.end or 0, message, diagnosis="vclock_name_mismatch")
    elif line is not None and int(matched[1]) != context.signature:
        start, end = line.start, line.end
        message = (
            f"the name says {int(matched[1])}, the sum of VClock {format_vclock(context.vclock)} is {context.signature}"
        )
        yield make_finding(
            "meta-mismatch", start, end - start, message, diagnosis="vclock_name_mismatch", signature=context.signature
        )


# --- Layouts with native code ---


def list_compiled_layouts() -> list[LogFileLayout]:
    """Return one layout per kind of file."""
    header_text = HeaderText([], None)
    return [
        LogFileLayout(kind.name, 0, FRAME, rows=ROWS, context=TarantoolContext(kind, header_text)) for kind in FileKind
    ]


# --- Decoded rows ---

BOX_SPACE_ID = 280
"""Id of the space `_space`, whose rows name the other spaces: [id, owner, name, …]."""

HAS_TIME = 1 << HeaderKey.TIMESTAMP
HAS_TSN = 1 << HeaderKey.TSN
SPACE_AND_TUPLE_KEYS = 1 << BodyKey.SPACE_ID | 1 << BodyKey.TUPLE
END_SECONDS = 253402300800
"""9999-12-31T24:00:00Z, exclusive: times from here on, and before year 1, cannot be shown."""

_MIN_SECONDS = -62135596800

_YEAR_2004, _YEAR_2038 = 0x41D << 52, 0x41E << 52
"""Bit patterns of 2**30 and 2**31 seconds as doubles; all doubles between them have the same exponent."""

T = TypeVar("T")
_MAX_CACHED_BODIES, _MAX_CACHED_BODY_SIZE = 256, 1024
"""Maximum number and size of cached bodies; a snapshot of a new server has about a hundred rows."""

_MANTISSA_MASK = (1 << 52) - 1
_IMPLIED_BIT = 15625 << 52


def bits_to_doubles(bits: list[int]) -> list[float]:
    """Convert 64-bit patterns to the doubles that they encode."""
    return array("d", array("q", bits).tobytes()).tolist()


def to_microseconds(seconds: float) -> int | None:
    """Convert seconds to the nearest microsecond, ties to even, without loss; None if out of range."""
    if not _MIN_SECONDS <= seconds < END_SECONDS:
        return None
    whole = int(seconds)
    return whole * 1_000_000 + round((seconds - whole) * 1_000_000)


# -- describe ----------------------------------------------------------------------------------------------------------


def describe_records(context: TarantoolContext, batch: Batch, start: int, stop: int) -> EnvelopeColumns:
    """Describe rows `[start, stop)` of a batch as envelope columns.

    Learns space names from the `_space` rows among them.
    """
    table = batch.records
    lsn, replica = to_int_list(table["lsn"], start, stop), to_int_list(table["replica_id"], start, stop)
    return EnvelopeColumns(
        type=[TYPE_NAMES[t] for t in to_int_list(table["type"], start, stop)],
        seq=to_unsigned(lsn),
        time=_decode_times_in_microseconds(table, start, stop),
        object=_get_space_names_of_rows(context, batch, start, stop),
        origin=to_unsigned(replica),
        txn=_format_transaction_ids(context, table, start, stop, lsn, replica),
    )


def to_unsigned(values: list[int]) -> list[Any]:
    """Convert signed 64-bit patterns to unsigned numbers."""
    return [value & U64 for value in values] if values and min(values) < 0 else values


def _decode_times_in_microseconds(table: ColumnTable, start: int, stop: int) -> list[int | None]:
    """Decode the timestamps of rows `[start, stop)` to microseconds; None for a row without one."""
    bits = to_int_list(table["timestamp"], start, stop)
    masks = set(keys := to_int_list(table["header_keys"], start, stop))
    if min(bits) >= _YEAR_2004 and max(bits) < _YEAR_2038 and all(mask & HAS_TIME for mask in masks):
        # value = (2**52 + fraction) * 2**-22 seconds, and 10**6 = 15625 * 2**6: integers throughout
        return [(exact := (b & _MANTISSA_MASK) * 15625 + _IMPLIED_BIT) + 0x7FFF + (exact >> 16 & 1) >> 16 for b in bits]
    times_by_bits = {b: to_microseconds(seconds) for b, seconds in zip(bits, bits_to_doubles(bits), strict=True)}
    return [times_by_bits[b] if key & HAS_TIME else None for b, key in zip(bits, keys, strict=True)]


def _format_transaction_ids(
    context: TarantoolContext, table: ColumnTable, start: int, stop: int, lsn: list[int], replica: list[int]
) -> list[str | int | None]:
    """Format the transaction id "replica:tsn" of each row; None for rows of files other than logs."""
    if context.kind is not FileKind.XLOG:
        return [None] * (stop - start)
    difference = to_int_list(table["tsn"], start, stop)
    tsn = [n - d & U64 for n, d in zip(lsn, difference, strict=True)] if any(difference) else to_unsigned(lsn)
    replicas = set(replica)
    if len(replicas) > 1:
        return [f"{r & U64}:{t}" for r, t in zip(replica, tsn, strict=True)]
    prefix = "".join(f"{r & U64}:" for r in replicas)
    names = {t: prefix + str(t) for t in set(tsn)}
    return [names[t] for t in tsn]


def _get_space_names_of_rows(context: TarantoolContext, batch: Batch, start: int, stop: int) -> list[str | None]:
    """Name the space of each row; learn names from the `_space` rows on the way."""
    spaces = to_int_list(batch.records["space_id"], start, stop)
    names = context.spaces
    distinct = set(spaces)
    if BOX_SPACE_ID not in distinct:
        names_by_space = {space: names[space] for space in distinct}
        return [names_by_space[space] for space in spaces]
    result = []
    for index, space in enumerate(spaces, start):
        if space == BOX_SPACE_ID:
            store_space_name_from_row(names, batch, index)
        result.append(names[space])
    return result


def store_space_name_from_row(space_names: SpaceNames, batch: Batch, index: int) -> int | None:
    """Store the id and name from a row of `_space`; return the id, or None if the row sets no name."""
    body = read_body_bytes(batch, index)
    definition = None if body is None else _decode_space_id_and_name(body, int(batch.records["type"][index]))
    if definition is None:
        return None
    space, name = definition
    space_names[space] = name
    return space


def cache_results_for_short_bodies(function: Callable[..., T]) -> Callable[..., T]:
    """Decorate a function of a body to cache its results for short bodies (snapshots of one server repeat them)."""
    cached = lru_cache(_MAX_CACHED_BODIES)(function)

    def call_cached(body: bytes, *arguments: int) -> T:
        return cached(body, *arguments) if len(body) <= _MAX_CACHED_BODY_SIZE else function(body, *arguments)

    return call_cached


@cache_results_for_short_bodies
def _decode_space_id_and_name(body_bytes: bytes, row_type: int) -> tuple[int, str] | None:
    """Decode the id and name of a space from the body of a `_space` row; None if it sets no name."""
    body = decode_tree(body_bytes)
    if body is None:
        return None
    key, values, base = (
        None if node is None else to_python(node)
        for node in map(body.get, (BodyKey.KEY, BodyKey.TUPLE, BodyKey.INDEX_BASE))
    )
    if not isinstance(values, list):
        return None
    if row_type in (RowType.INSERT, RowType.REPLACE):
        return _check_space_name(values[0], values[2]) if len(values) > 2 else None
    if row_type == RowType.UPDATE and isinstance(key, list) and len(key) == 1:
        name_fields = (2 + (base if type(base) is int else 0), "name")
        for operation in values:
            if (
                isinstance(operation, list)
                and len(operation) == 3
                and operation[0] == "="
                and operation[1] in name_fields
            ):
                return _check_space_name(key[0], operation[2])
    return None


def _check_space_name(space: Any, name: Any) -> tuple[int, str] | None:
    """Return id and name if they have the right types and the id is below 2^31, as for the server; else None."""
    return (space, name) if type(space) is int and 0 <= space <= MAX_SPACE_ID and type(name) is str else None


def read_body_bytes(batch: Batch, index: int) -> bytes | None:
    """Read the stored bytes of a row's body; None for a row without one."""
    start, end = int(batch.records["body"][index]), int(batch.records["end"][index])
    return bytes(batch.arena[start:end]) if start >= 0 else None


def decode_body_tree(batch: Batch, index: int) -> MpNode | None:
    """Decode the body of a row to a tree; None for a row without one, or nested too deep."""
    data = read_body_bytes(batch, index)
    return None if data is None else decode_tree(data)


def decode_tree(data: bytes) -> MpNode | None:
    """Decode a body to a tree; None if it is malformed or nested deeper than 64 levels."""
    try:
        return decode_value(data, 0, len(data), 64)
    except MalformedError:
        return None


# -- bodies ------------------------------------------------------------------------------------------------------------


def decode_bodies(context: TarantoolContext, batch: Batch, start: int, stop: int, limits: Limits) -> list[Any]:
    """Decode the body of each row, with the names of its keys.

    Returns:
        One entry per row: {} for a row without a body, a `Finding` for a body that cannot be shown.
    """
    table = batch.records
    depth = get_max_nesting_depth(limits)
    keys, shapes = to_int_list(table["body_keys"], start, stop), to_int_list(table["shape"], start, stop)
    result = None
    if set(keys) == {SPACE_AND_TUPLE_KEYS} and max(shapes) < depth << 8 and not any(map(ODD_SEEN.__and__, set(shapes))):
        result = _decode_space_and_tuple_bodies(batch, start, stop)
    if result is None:
        result = _decode_bodies_one_by_one(batch, start, stop, keys, shapes, depth)
    return [_add_vylog_field_names(body) for body in result] if context.kind is FileKind.VYLOG else result


def _decode_space_and_tuple_bodies(batch: Batch, start: int, stop: int) -> list[Any] | None:
    """Decode bodies that are all {space_id, tuple} with plain values; None if a body is not."""
    table, decode_fast = batch.records, get_fast_decoder()
    spaces, tuples = to_unsigned(to_int_list(table["space_id"], start, stop)), to_int_list(table["tuple"], start, stop)
    ends = to_int_list(table["end"], start, stop)
    first = min(tuples)
    if first < 0:
        return None
    data = bytes(batch.arena[first : max(ends)])
    try:
        return [
            {"space_id": space, "tuple": decode_fast(data[at - first : end - first])}
            for space, at, end in zip(spaces, tuples, ends, strict=True)
        ]
    except Exception:
        return None


def _decode_bodies_one_by_one(
    batch: Batch, start: int, stop: int, keys: list[int], shapes: list[int], max_depth: int
) -> list[Any]:
    """Decode bodies one by one: with msgspec if its result is exact, else as a tree."""
    table, arena, decode_fast = batch.records, batch.arena, get_fast_decoder()
    body_at, ends = to_int_list(table["body"], start, stop), to_int_list(table["end"], start, stop)
    result: list[Any] = []
    for i, (position, end, row_type, shape) in enumerate(
        zip(body_at, ends, to_int_list(table["type"], start, stop), shapes, strict=True)
    ):
        try:
            if shape & ODD_SEEN or position < 0 or keys[i] & (DUPLICATE_KEY | UNKNOWN_KEY):
                raise InexactValueError
            body = decode_fast(arena[position:end])
            names = _create_key_names(row_type if row_type in TYPE_NAMES else 0)
            named = {names[key]: value for key, value in body.items()}
            if shape >= max_depth << 8:
                named = convert_if_exact(named, (shape >> 32) + len(body), max_depth + 1)
            result.append(named)
        except Exception:
            result.append(_decode_body_via_tree(batch, start + i, max_depth))
    return result


def find_too_deep_rows(batch: Batch, max_depth: int) -> Iterator[Finding]:
    """Report rows whose bodies `decode_bodies` does not show because they are nested too deep."""
    table = batch.records
    shapes = table["shape"][: table.count]
    if not table.count or max(shapes) < max_depth << _NESTED_SHIFT:
        return
    for i, shape in enumerate(shapes):
        if (shape >> _NESTED_SHIFT & _NESTED_MASK) >= max_depth:
            (body,) = _decode_bodies_one_by_one(batch, i, i + 1, [int(table["body_keys"][i])], [shape], max_depth)
            if isinstance(body, Finding) and body.id == "nesting-too-deep":
                yield body


_NESTED_SHIFT, _NESTED_MASK = 8, (1 << 24) - 1
"""Bit position and mask, in the column `shape`, of the number of arrays and maps."""


def _decode_body_via_tree(batch: Batch, index: int, max_depth: int) -> Any:
    """Decode one body as a tree; return a `Finding` about the error if it is malformed."""
    table = batch.records
    start, end = int(table["body"][index]), int(table["end"][index])
    if start < 0:
        return {}
    try:
        body = decode_value(bytes(batch.arena[start:end]), 0, end - start, max_depth + 1)
    except MalformedError as error:
        frame = batch.frame_index(index)
        offset = batch.base + int(batch.frames["offset"][frame])
        size = int(batch.frames["end"][frame] - batch.frames["offset"][frame])
        record = batch.first_record + index
        return make_finding(error.finding_id, offset, size, f"body of the row: {error.args[0]}", record=record)
    return name_body_keys(int(table["type"][index]), body)


def name_body_keys(row_type: int, body: MpNode) -> dict[str, Any]:
    """Convert a body map to a dict with named keys; a repeated key gets `#2`, `#3` … after its name."""
    result: dict[str, Any] = {}
    for key, value in body.value:
        name = unique = name_body_key(row_type, key.value if key.kind is MpKind.UINT else to_python(key))
        times = 1
        while unique in result:
            times += 1
            unique = f"{name}#{times}"
        result[unique] = to_python(value)
    return result


class _BodyKeyNames(dict[int, str]):
    """Names of the body keys of one row type; the name of an unknown key is made from its number and not stored."""

    def __init__(self, row_type: int) -> None:
        super().__init__((key, name_body_key(row_type, key)) for key in range(0x60))

    def __missing__(self, key: int) -> str:
        return f"key_0x{key:02x}"


@cache
def _create_key_names(row_type: int) -> _BodyKeyNames:
    return _BodyKeyNames(row_type)


_VYLOG_KEY_NAMES = {str(key): name for key, name in VYLOG_KEYS.items()}


def _add_vylog_field_names(body: Any) -> Any:
    """Add the names of type and keys to a record of the vinyl metadata log, next to the stored tuple."""
    if isinstance(body, Finding):
        return body
    record = body.get("tuple")
    if not isinstance(record, list) or not record or type(record[0]) is not int:
        return body
    keys = record[1] if len(record) > 1 and isinstance(record[1], dict) else {}
    named = {_VYLOG_KEY_NAMES.get(key, key): value for key, value in keys.items()}
    return {**body, "record": VYLOG_TYPES.get(record[0], str(record[0])), "fields": named}


# -- headers -----------------------------------------------------------------------------------------------------------

_HEADER_COLUMNS = (
    HeaderKey.TYPE,
    HeaderKey.REPLICA_ID,
    HeaderKey.LSN,
    HeaderKey.TIMESTAMP,
    HeaderKey.TSN,
    HeaderKey.FLAGS,
)
_SINGLE_ROW_KEYS = 0b0000011101
"""Header keys type, replica_id, lsn, timestamp: a row with only these keys is a transaction by itself."""
_MIDDLE_ROW_KEYS = _SINGLE_ROW_KEYS | HAS_TSN
_LAST_ROW_KEYS = _MIDDLE_ROW_KEYS | 1 << HeaderKey.FLAGS


def decode_row_headers(
    context: TarantoolContext, batch: Batch, start: int, stop: int
) -> list[Mapping[str, Any] | None]:
    """Decode row headers to {"header": …}: the stored keys with their exact values.

    `tsn` is computed from the stored difference.
    """
    table = batch.records
    columns = {key: to_unsigned(to_int_list(table[HEADER_NAMES[key]], start, stop)) for key in _HEADER_COLUMNS}
    columns[HeaderKey.TIMESTAMP] = bits_to_doubles(to_int_list(table["timestamp"], start, stop))
    lsns = columns[HeaderKey.LSN]
    columns[HeaderKey.TSN] = [n - d & U64 for n, d in zip(lsns, columns[HeaderKey.TSN], strict=True)]
    masks = to_int_list(table["header_keys"], start, stop)
    rows = zip(masks, *(columns[key] for key in _HEADER_COLUMNS), strict=True)
    result: list[Any] = [
        {"header": {"type": kind, "replica_id": replica, "lsn": lsn, "timestamp": time}}
        if mask == _SINGLE_ROW_KEYS
        else {"header": {"type": kind, "replica_id": replica, "lsn": lsn, "timestamp": time, "tsn": tsn}}
        if mask == _MIDDLE_ROW_KEYS
        else {
            "header": {"type": kind, "replica_id": replica, "lsn": lsn, "timestamp": time, "tsn": tsn, "flags": flags}
        }
        if mask == _LAST_ROW_KEYS
        else mask
        for mask, kind, replica, lsn, time, tsn, flags in rows
    ]
    if not {_SINGLE_ROW_KEYS, _MIDDLE_ROW_KEYS, _LAST_ROW_KEYS}.issuperset(masks):
        columns[HeaderKey.GROUP_ID] = to_unsigned(to_int_list(table["group_id"], start, stop))
        for i, mask in enumerate(result):
            if type(mask) is int:
                stored = [key for key in sorted(columns) if mask >> key & 1]
                result[i] = {"header": {HEADER_NAMES[key]: columns[key][i] for key in stored}}
    return result


_TRANSACTION_KEYS = HAS_TSN | 1 << HeaderKey.FLAGS | 1 << HeaderKey.GROUP_ID
_LOCAL_GROUP = 1


def read_commit_and_local_flags(
    _context: TarantoolContext, batch: Batch, start: int, stop: int
) -> list[Mapping[str, Any] | None] | None:
    """Read the place of each row in its transaction: {commit, flags, local} (`ReplayRules.decode_extras`).

    Returns:
        None if every row is a transaction by itself; else one entry per row, None for such a row. commit: the row ends
        its transaction (a row without a transaction number always does). local: the row is of the local group.
    """
    table = batch.records
    masks = to_int_list(table["header_keys"], start, stop)
    if not any(mask & _TRANSACTION_KEYS for mask in masks):
        return None
    columns = [to_int_list(table[name], start, stop) for name in ("flags", "group_id")]
    return [
        {
            "commit": not mask & HAS_TSN or bool(flags & RowFlag.COMMIT),
            "flags": flags if mask >> HeaderKey.FLAGS & 1 else 0,
            "local": bool(mask >> HeaderKey.GROUP_ID & 1 and group == _LOCAL_GROUP),
        }
        if mask & _TRANSACTION_KEYS
        else None
        for mask, flags, group in zip(masks, *columns, strict=True)
    ]


# --- Split points ---


def make_split_point_finder(layout: LogFileLayout) -> BlockSplitFinder | None:
    """Create the split-point finder of a file; None if its blocks cannot be read."""
    return (
        BlockSplitFinder(layout, layout.context)
        if layout.readable and isinstance(layout.context, TarantoolContext)
        else None
    )


class BlockSplitFinder(EveryFrameSplitFinder):
    """Split points of one file: every border between blocks (implements `format_api.layout.SplitFinder`)."""

    context: TarantoolContext

    def find_split_point(self, batch: Batch, compile_kernel: KernelCompiler) -> SplitPoint | None:
        """Return the border after the last block of a batch, and store the space names that the batch defines."""
        spaces = to_int_list(batch.records["space_id"], 0, batch.records.count)
        if BOX_SPACE_ID in set(spaces):
            for index, space in enumerate(spaces):
                if space == BOX_SPACE_ID:
                    store_space_name_from_row(self.context.spaces, batch, index)
        return make_split_point(batch, batch.frames.count)

    def export_state(self) -> dict[str, Any]:
        """Return the instance, and the names of its user spaces by space id (as text)."""
        spaces = self.context.spaces.items()
        names = {str(space): name for space, name in spaces if name and SYSTEM_SPACES.get(space) != name}
        return {"instance": self.context.instance, "names": names}

    def restore_state(self, state: Any, record: int) -> None:
        """Restore the space names that were known at the border."""
        self.context.add_space_names(state)

    def export_state_for_next_file(self) -> dict[str, Any]:
        """Return the same names: a later file may use spaces that this one, or a snapshot, defines."""
        return self.export_state()


# --- Text for people ---

_SHOWN_ELSEWHERE = frozenset({"tuple", "key", "ops"})
_HIDDEN = frozenset({"space_id", "index_base", "bloom_filter", "row_index", *_SHOWN_ELSEWHERE})


def make_record_text(type_name: str, body: Mapping[str, Any], everything: bool) -> RecordText:
    """Return the content of a row as `dump` shows it to people."""
    members = select_members(body, _SHOWN_ELSEWHERE if everything else _HIDDEN)
    row: dict[str, Any]
    if type_name == "UPDATE":
        row = {"key": body.get("key"), "operations": body.get("tuple")}
    elif type_name == "UPSERT":
        row = {"key": body.get("tuple"), "operations": body.get("ops")}
    elif type_name == "DELETE":
        row = {"key": body.get("key")}
    elif "tuple" in body:
        row = {"after": body["tuple"]}
    else:
        return RecordText(members, is_noise=type_name == "ROWINDEX")
    return RecordText(members, changes=(RowChanges((row,)),))
