"""Data classes: Record, read options, and Selection (by position, time, object, type, transaction)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import msgspec
from msgspec.structs import replace

from binlogtool.errors import UsageError, name_os_errors
from binlogtool.findings import Finding
from binlogtool.format_api.format import DecodedRecords, Hints, LongValue
from binlogtool.format_api.row_output_interfaces import join_schema_files
from binlogtool.limits import KIB, MIB, Limits, parse_size, shorten

if TYPE_CHECKING:
    from datetime import datetime

    from binlogtool.format_api.row_output_interfaces import EventRows


# --- Records as values ---


class RecordChecksum(NamedTuple):
    """The checksum of a record's frame. ok: None = the file stores no checksum here ("not computed")."""

    algorithm: str
    stored: int
    computed: int
    ok: bool | None


class InnerPosition(NamedTuple):
    """Position of a record in its own (unpacked) address space, in bytes."""

    offset: int
    size: int


class FileFinding(NamedTuple):
    """A finding about a file, such as damage, in file order with the records."""

    file: str
    finding: Finding


class FollowLoss(NamedTuple):
    """Part of a followed file that can no longer be read. status: exit status of a command for it."""

    file: str
    reason: str
    status: int


class SqlFragment(NamedTuple):
    """Part of a script, with the records of a file that it was made of. offset: offset of the last record.

    data: valid until the next part is requested.
    """

    file: str
    record: Sequence[int]
    offset: tuple[int]
    data: bytes | memoryview


class RowBatch(NamedTuple):
    """Table rows of many consecutive records.

    Args:
        record: number in the file of the batch's first record.
        base: file offset of the batch's window.
        end: file offset of the end of the last record.
        row_marks: a byte for each row, in the order of the log, 0 for rows that a condition rules out; None = no
            condition.
    """

    file: str
    format: str
    record: int
    base: int
    end: int
    rows: EventRows
    row_marks: bytes | None = None


class ScriptSummary(NamedTuple):
    """Content of a finished script. row_changes: None = not counted. is_empty: it contains nothing from the log."""

    row_changes: int | None
    is_empty: bool


class ScriptText(NamedTuple):
    """Part of a script that belongs to no record. end: the summary of the script, set for its last part."""

    data: bytes
    end: ScriptSummary | None = None


class RecordBlock(DecodedRecords, frozen=True, kw_only=True):
    """Consecutive selected records of one file.

    Args:
        raw: the record's bytes in its own address space.
        long_values: placeholder -> long value extracted from the bodies (`core.decode_batches`).
    """

    file: str
    format: str
    inner: Sequence[InnerPosition | None]
    checksum: Sequence[RecordChecksum | None]
    raw: Sequence[bytes] | None = None
    long_values: Mapping[str, LongValue] = {}

    def __iter__(self) -> Iterator[Record]:
        return (self.record_at(i) for i in range(len(self.record)))

    def part(self, start: int, stop: int) -> RecordBlock:
        """Return the records `[start, stop)` of this block as a separate block."""
        cut = slice(start, stop)
        return replace(
            self,
            record=self.record[cut],
            offset=self.offset[cut],
            size=self.size[cut],
            inner=self.inner[cut],
            envelope=self.envelope.part(start, stop),
            checksum=self.checksum[cut],
            bodies=self.bodies[cut],
            extras=self.extras[cut] if self.extras else None,
            findings={i - start: found for i, found in self.findings.items() if start <= i < stop},
            raw=self.raw[cut] if self.raw else None,
        )

    def record_at(self, index: int) -> Record:
        """Return record number `index` of this block."""
        e = self.envelope
        return Record(
            self.file, self.format, self.record[index], self.offset[index], self.size[index], self.inner[index],
            e.type[index], e.seq[index],
            e.time[index], e.object[index], e.origin[index], e.txn[index], self.checksum[index],
            self.bodies[index] if self.bodies else None,
            self.extras[index] if self.extras else None, self.findings.get(index, ()),
            self.raw[index] if self.raw else None,
        )  # fmt: skip


class Record(msgspec.Struct, frozen=True):
    """One record.

    Args:
        record: index in the file, counting provable records from 0.
        offset, size: bytes of the file (of the container, for records inside a packed frame: then `inner` has the
            position).
        time: microseconds since 1970-01-01 UTC.
        seq, object, origin, txn: sequence number, affected object, server id and transaction, where the format has
            them.
        raw: the record's bytes in its own address space.
    """

    file: str
    format: str
    record: int
    offset: int
    size: int
    inner: InnerPosition | None
    type: str
    seq: int | None
    time: int | None
    object: str | None
    origin: int | None
    txn: str | int | None
    checksum: RecordChecksum | None
    body: Any = None
    extras: Mapping[str, Any] | None = None
    findings: tuple[Finding, ...] = ()
    raw: bytes | None = None

    @property
    def when(self) -> datetime | None:
        """`time` as a datetime in UTC; None if there is no time, or if it is out of range for a `datetime`."""
        from datetime import UTC, datetime, timedelta

        try:
            return None if self.time is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.time)
        except OverflowError:
            return None


# --- Read options ---

if TYPE_CHECKING:

    class ReadOptionArguments(TypedDict, total=False):
        """Keyword arguments of a call that become the members of `ReadOptions`."""

        format: str
        limits: Limits
        backend: str
        hints: Hints | None


class ReadOptions(msgspec.Struct, frozen=True):
    """Options for reading logs.

    Args:
        format: a format name, or "auto".
        backend: "auto", "native" or "python".
        hints: information that the logs do not contain themselves (`binlogtool.read_hints`).
    """

    format: str = "auto"
    limits: Limits = Limits()
    backend: str = "auto"
    hints: Hints | None = None


# --- Reading of the files that supply what a log does not contain ---

Path = str | os.PathLike[str]

MAX_SCHEMA_BYTES = 64 * MIB
MAX_KEYFILE_BYTES = 16 * MIB
"""Size limit of a keyring; MariaDB's key files have at most 1 MiB."""
MAX_SECRET_BYTES = 4 * KIB


def read_hints(
    *,
    schema: Path | Sequence[Path] | None,
    keyfile: Path | None,
    keyfile_secret: Path | None,
    level: str | None = None,
    redo: Path | None = None,
) -> Hints:
    """Read the files for `binlogtool.read_hints`.

    Raises:
        InputOutputError: a file cannot be read.
        UsageError: a file is larger than a file of its kind can be.
    """
    paths = (schema,) if isinstance(schema, str | os.PathLike) else tuple(schema or ())
    statements = [(os.fspath(path), _read_schema(path)) for path in dict.fromkeys(paths)]
    return Hints(
        keyfile=_read_file_up_to(keyfile, MAX_KEYFILE_BYTES, "for a key file"),
        keyfile_secret=_read_file_up_to(keyfile_secret, MAX_SECRET_BYTES, "for the secret of a key file"),
        schema=(join_schema_files(statements) if len(statements) > 1 else statements[0][1]) if statements else None,
        level=level,
        redo=None if redo is None else os.fspath(redo),
        keyfile_name=None if keyfile is None else os.fspath(keyfile),
    )


def _read_schema(path: Path) -> str:
    data = _read_file_up_to(path, MAX_SCHEMA_BYTES, "for CREATE TABLE statements (`mysqldump --no-data` writes them)")
    if b"\0" in (data or b""):
        raise UsageError(
            f"--schema {os.fspath(path)}: the file has zero bytes; it is no text of CREATE TABLE statements"
        )
    return (data or b"").decode("utf-8", "backslashreplace")


def _read_file_up_to(path: Path | None, max_bytes: int, purpose: str) -> bytes | None:
    if path is None:
        return None
    name = os.fspath(path)
    with name_os_errors(name), open(name, "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise UsageError(f"{name}: more than {max_bytes:,} bytes, too large {purpose}")
    return data


# --- Selection of records ---


class Selection(msgspec.Struct, frozen=True):
    """The records to read; all options must match.

    Args:
        start, stop: positions as in `--start-position` and `--stop-position`.
        start_time, stop_time: microseconds since 1970-01-01 UTC; start is inclusive, stop exclusive.
        skip, limit, tail: of the records that match all else, leave out the first, end after this number, keep the
            last.
        whole: paths of files in which a `stop` that names no file is ignored.
        once: apply times once, as scripts need it: select all records from the first record at start_time to the first
            record at stop_time, whatever their times.
        where: a condition (`core.apply_where`) on the records that match the other options; skip, limit and tail count
            the records for which it is true.
        statements: with objects: "also" = select statements that name them, too; "only" = select instead the statements
            that change their rows; "" = statements have no object.
    """

    start: str | None = None
    stop: str | None = None
    start_time: int | None = None
    stop_time: int | None = None
    skip: int = 0
    limit: int | None = None
    tail: int | None = None
    types: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    exclude_objects: tuple[str, ...] = ()
    origins: tuple[int, ...] = ()
    exclude_origins: tuple[int, ...] = ()
    include_gtids: str | None = None
    exclude_gtids: str | None = None
    xid: str | None = None
    on_damage: str = "skip"
    live: bool = False
    whole: frozenset[str] = frozenset()
    once: bool = False
    where: str | None = None
    statements: str = ""

    @property
    def is_bounded_by_gtids(self) -> bool:
        """True if GTIDs decide where the selection begins or ends, or what it leaves out."""
        return is_gtid_position(self.start) or is_gtid_position(self.stop) or bool(self.exclude_gtids)


def refuse_salvage(selection: Selection, output_name: str) -> None:
    """Raise UsageError if salvaged records are requested, for outputs that cannot mark unproven records."""
    if selection.on_damage == "salvage":
        raise UsageError(f"--on-damage salvage: {output_name} cannot mark unproven records; use --on-damage skip")


def require_valid_where(text: str) -> None:
    """Check a condition (`Selection.where`). Raises UsageError: it is invalid; the message names the column."""
    from binlogtool.query.evaluate import compile_condition

    compile_condition(text)


def refuse_where(selection: Selection, output_name: str) -> None:
    """Check that the selection has no condition, for outputs that consist of whole transactions.

    Raises:
        UsageError: the selection has a condition, which selects single records.
    """
    if selection.where is not None:
        raise UsageError(
            f"--where: a condition chooses single records, but whole transactions are needed for {output_name}"
        )


def is_partial(selection: Selection) -> bool:
    """Return True if the selection leaves out anything of a log."""
    return replace(selection, on_damage="", live=False, whole=frozenset(), once=False, statements="") != Selection(
        on_damage=""
    )


def can_miss_later_changes(selection: Selection) -> bool:
    """Return True if the selection may leave out later records of the same objects."""
    options = selection
    limiting_options = (
        options.include_gtids,
        options.exclude_gtids,
        options.xid,
        options.stop,
        options.stop_time,
        options.where,
    )
    return bool(options.origins or options.exclude_origins) or any(one is not None for one in limiting_options)


def describe_rounded_time_bounds(selection: Selection, *, has_whole_seconds: bool) -> list[str]:
    """Describe what fractions of seconds in a selection mean for a log whose times have none."""
    times = (("start", selection.start_time), ("stop", selection.stop_time))
    fractions = [(name, time) for name, time in times if time is not None and time % 1_000_000]
    if not has_whole_seconds:
        return []
    return [
        f"--{name}-datetime: the times of the events are whole seconds, those of commits have fractions; "
        f"the selection {'begins' if name == 'start' else 'ends'} at "
        f"{format_time((time // 1_000_000 + 1) * 1_000_000)}"
        for name, time in fractions
    ]


def format_time(microseconds: int) -> str:
    """Return a time as dump prints it, or epoch seconds if it is out of range."""
    from datetime import UTC, datetime, timedelta

    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    except OverflowError:
        return f"{microseconds // 1_000_000} s"
    return moment.isoformat().replace("+00:00", "Z")


def remove_position_bounds(selection: Selection) -> Selection:
    """Return the selection without the options that let a reader skip parts of a file."""
    return replace(selection, start=None, stop=None, include_gtids=None)


def add_selection_hints(selection: Selection, hints: Hints | None, *, needs_statements: bool = False) -> Hints | None:
    """Return the hints for a selection: object patterns need the level at which records have an object.

    needs_statements: statements are requested.
    """
    if not (selection.objects or selection.exclude_objects or selection.where or needs_statements):
        return hints
    return replace(hints or Hints(), objects=True)


# --- Positions ---

_NUMBERED_KINDS = ("record", "seq", "page")
_GTID = "gtid:"
_STOP_AT_START = "0"
"""The stop position that selects no record at all."""


class LogPosition(msgspec.Struct, frozen=True):
    """One parsed position: kind (offset, record or seq) and number; file restricts it to a member of a set."""

    kind: str
    value: int
    file: str | None = None


def parse_position(text: str, size: int | None, page_size: int | None = None) -> LogPosition:
    """Parse `1272`, `0x4f8`, `end-4KiB`, `record:N`, `page:N`, `seq:N` or `FILE:POS`; `gtid:…` is parsed elsewhere.

    Args:
        size: bytes of the file, None for a stream.
        page_size: bytes of one page; None = the file has no pages.

    Raises:
        UsageError: the text is not a position, or counts from the end of a stream.
    """
    if is_gtid_position(text):
        raise UsageError(f"position {text!r}: a GTID can only start or stop a selection")
    file, position = split_file_prefix(text)
    kind, colon, number = position.partition(":")
    if not colon:
        return LogPosition("offset", _parse_offset(position, size), file)
    if kind != "page":
        return LogPosition(kind, _parse_number(number, text), file)
    if page_size is None:
        raise UsageError(f"position {text!r}: this file has no pages")
    return LogPosition("offset", _parse_number(number, text) * page_size, file)


def split_file_prefix(text: str) -> tuple[str | None, str]:
    """Split a position into the file that it names (None = no file) and the position in the file."""
    head, _, rest = text.rpartition(":")
    file, _, kind = head.rpartition(":")
    if kind in _NUMBERED_KINDS:
        return file or None, f"{kind}:{rest}"
    return head or None, rest


def is_gtid_position(position: str | None) -> bool:
    """Return True for a GTID position."""
    return position is not None and position.startswith(_GTID)


def is_sequence_position(position: str | None) -> bool:
    """Return True for a sequence number position."""
    return position is not None and not is_gtid_position(position) and split_file_prefix(position)[1].startswith("seq:")


def _parse_number(text: str, position_text: str) -> int:
    try:
        number = int(text, 0)
    except ValueError:
        raise UsageError(f"position {shorten(position_text)!r}: {shorten(text)!r} is not a number") from None
    if not 0 <= number < 1 << 64:
        raise UsageError(f"position {shorten(position_text)!r}: the number does not fit into 64 bits")
    return number


def _parse_offset(text: str, size: int | None) -> int:
    _refuse_bare_gtid(text)
    if text != "end" and not text.startswith("end-"):
        try:
            return parse_size(text)
        except UsageError:
            raise UsageError(
                f"{shorten(text)!r} is not a position; write an offset such as 4096, 0x1000 or end-4KiB, record:N, "
                f"seq:N, gtid:GTID or FILE:POSITION"
            ) from None
    if size is None:
        raise UsageError(f"position {text!r}: the end of a stream is not known")
    return max(0, size - parse_size(text[4:] or 0))


_BARE_GTIDS = re.compile(r"(\d+-\d+-\d+|[\da-fA-F]{8}(-[\da-fA-F]{4}){3}-[\da-fA-F]{12}:\S+)(,.*)?")


def _refuse_bare_gtid(text: str) -> None:
    """Raise UsageError for a position that is a GTID without its prefix."""
    if _BARE_GTIDS.fullmatch(text):
        raise UsageError(f"position {shorten(text)!r} is neither an offset nor a file; did you mean gtid:{text}?")


# -- several files -----------------------------------------------------------------------------------------------------


def _always(_number: int) -> bool:
    return True


def limit_selection_to_files(
    selection: Selection, paths: Sequence[str], holds_records: Callable[[int], bool] = _always
) -> list[Selection]:
    """Return the part of a selection that applies to each file of a log; positions no longer name a file.

    A position without a file applies to the first file for `start` and to the last for `stop`, as in the servers' own
    tools; a sequence number or GTID applies to all. Files after the stop position get no entry.

    Args:
        holds_records: whether the file with this number can hold records; an index file, for instance, cannot.

    Raises:
        UsageError: a position names a file that does not exist (except with `live`: it may appear), or an ambiguous
            name.
    """
    _refuse_bare_gtid(selection.start or "")
    _refuse_bare_gtid(selection.stop or "")
    first = _find_file_number_of_position(selection.start, paths, holds_records, last=False)
    last = _find_file_number_of_position(selection.stop, paths, holds_records, last=True)
    if not selection.live:
        _require_file(selection.start, first)
        _require_file(selection.stop, last)
    if None not in (selection.start_time, selection.stop_time) and selection.start_time > selection.stop_time:  # type: ignore[operator]
        raise UsageError("--start-datetime is after --stop-datetime: nothing is selected")
    if _is_start_after_stop(selection, first, last):
        raise UsageError(
            f"--start-position {selection.start} is after --stop-position {selection.stop}: nothing is selected"
        )
    end = len(paths) if last is None or last == _NO_SUCH_FILE else last + 1
    return [_limit_to_file(selection, path, number, first, last) for number, path in enumerate(paths[:end])]


def _is_start_after_stop(selection: Selection, first: int | None, last: int | None) -> bool:
    """Return whether the selection is empty because its start is after its stop. first, last: numbers of their files.

    Positions that count from the end of a file, and GTIDs of several sources, are not compared.
    """
    start, stop = selection.start, selection.stop
    if start is None or stop is None:
        return False
    if is_gtid_position(start) and is_gtid_position(stop):
        gtids = [_SINGLE_GTID.fullmatch(one) for one in (start, stop)]
        return None not in gtids and gtids[0][1] == gtids[1][1] and int(gtids[0][2]) > int(gtids[1][2])  # type: ignore[index]
    if first is None or last is None or _NO_SUCH_FILE in (first, last):
        return False
    if first != last:
        return first > last
    texts = [split_file_prefix(one)[1] for one in (start, stop)]
    if any(one.startswith("end") for one in texts) or len({one.rpartition(":")[0] for one in texts}) > 1:
        return False
    return parse_position(texts[0], None, 1).value > parse_position(texts[1], None, 1).value


_SINGLE_GTID = re.compile(r"gtid:(\d+-\d+-|[\da-fA-F-]{36}:(?:\w+:)?)(\d{1,20})")


_NO_SUCH_FILE = -1


def _find_file_number_of_position(
    position_text: str | None, paths: Sequence[str], holds_records: Callable[[int], bool], *, last: bool
) -> int | None:
    """Return the number of the only file to which a position applies; None = all files; `_NO_SUCH_FILE` = no file."""
    if position_text is None or is_gtid_position(position_text):
        return None
    name, position = split_file_prefix(position_text)
    step = -1 if last else 1
    if name is not None:
        return (_find_file_numbers_by_name(position_text, name, paths) or [_NO_SUCH_FILE])[::step][0]
    if position.startswith("seq:"):
        return None
    numbers = range(len(paths))[::step]
    return next((number for number in numbers if len(paths) == 1 or holds_records(number)), 0)


def _find_file_numbers_by_name(text: str, name: str, paths: Sequence[str]) -> list[int]:
    """Return the numbers of the files with this path, otherwise of those with this name."""
    for names in (list(paths), [os.path.basename(path) for path in paths]):
        numbers = [number for number, one in enumerate(names) if one == name]
        if len({paths[number] for number in numbers}) > 1:
            raise UsageError(f"position {text!r}: several files have this name; write the path")
        if numbers:
            return numbers
    return []


def _require_file(text: str | None, file: int | None) -> None:
    if file == _NO_SUCH_FILE:
        _refuse_bare_gtid(text or "")
        raise UsageError(f"position {text!r}: no file of that name is in this log")


def _limit_to_file(
    selection: Selection, path: str, number: int, first_file_number: int | None, last_file_number: int | None
) -> Selection:
    start = selection.start if first_file_number in (None, number) else None
    stop = selection.stop if last_file_number in (None, number) else None
    if first_file_number is not None and (number < first_file_number or first_file_number == _NO_SUCH_FILE):
        start, stop = None, _STOP_AT_START
    if path in selection.whole:
        stop = None
    limits = _strip_file(start), _strip_file(stop)
    if limits == (selection.start, selection.stop):
        return selection  # thousands of files share it
    return replace(selection, start=limits[0], stop=limits[1])


def select_nothing(selection: Selection) -> Selection:
    """Return the selection for a file after the last one with selected records."""
    return replace(selection, start=None, stop=_STOP_AT_START)


def is_empty_selection(file_selection: Selection) -> bool:
    """Return whether a part of a selection (`limit_selection_to_files`) selects no record of its file."""
    return file_selection.stop == _STOP_AT_START


def _strip_file(text: str | None) -> str | None:
    return text if text is None or is_gtid_position(text) else split_file_prefix(text)[1]
