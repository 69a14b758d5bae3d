"""Input files of a conversion, their division into tasks, and the manifest with row counts, findings and outputs."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import heapq
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import count
from os import PathLike
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from binlogtool._version import __version__
from binlogtool.core import open_file as open_file_module
from binlogtool.core.divide_file import WHOLE_FILE, FilePart, divide_file
from binlogtool.core.open_file import base_name, is_url, open_source, read_head
from binlogtool.core.open_log import LogReader, open_log
from binlogtool.core.record_and_selection_types import (
    FileFinding,
    ReadOptions,
    Selection,
    read_hints,
    require_valid_where,
)
from binlogtool.core.record_filter import extract_gtid_selection
from binlogtool.core.resolve_paths import resolve_logs
from binlogtool.errors import BinlogtoolError, InputOutputError, MissingExtraError, UsageError, name_os_errors
from binlogtool.findings import BEYOND_LIMITS, CHANGED_LATER, ENCRYPTED, NOT_REVERSIBLE, ROWS_DIVERGE, Severity
from binlogtool.format_api.encode_json import pick_members
from binlogtool.format_api.format import FileHead, Hints
from binlogtool.limits import MIB, Limits, parse_size

# --- Spark job health ---

_GROUP_NUMBERS = count(1)
_NORMAL_REMOVAL = "killed by driver"
"""Removal reason of an executor that is no longer needed."""
NATIVE_BACKEND = "native"


class SparkJobStats:
    """Statistics of the Spark jobs of one command.

    tried_again: number of retried tasks. lost: messages about lost executors. engines: backends that the executors
      used.
    """

    def __init__(self) -> None:
        self._start_time = time.time()
        self._groups: list[str] = []
        self.retried_tasks = 0
        self.lost_executors: tuple[str, ...] = ()
        self.backends: set[str] = set()

    def create_job_group_name(self) -> str:
        """Return the name of a new Spark job group for this command."""
        self._groups.append(f"binlogtool-{next(_GROUP_NUMBERS)}")
        return self._groups[-1]

    def update(self, context: Any) -> None:
        """Update the statistics from Spark's status."""
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(job) for group in self._groups for job in tracker.getJobIdsForGroup(group)]
        stages = {stage for job in jobs if job for stage in job.stageIds}
        self.retried_tasks = sum(info.numFailedTasks for info in map(tracker.getStageInfo, stages) if info)
        with contextlib.suppress(Exception):  # not all versions of Spark have this interface
            self.lost_executors = tuple(self._find_lost_executors(context))

    def _find_lost_executors(self, context: Any) -> Iterator[str]:
        executors = context._jsc.sc().statusStore().executorList(False)
        for executor in (executors.apply(i) for i in range(executors.size())):
            if not executor.isActive() and executor.removeTime().get().getTime() / 1000 >= self._start_time:
                reason = executor.removeReason().get() if executor.removeReason().isDefined() else "no reason is known"
                if _NORMAL_REMOVAL not in reason:
                    yield f"executor {executor.id()} on {executor.hostPort()}: {_to_single_line(reason)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics as JSON values."""
        return {"tried_again": self.retried_tasks, "lost": list(self.lost_executors), "engines": sorted(self.backends)}


def describe_job_stats(value: dict[str, Any]) -> Iterator[str]:
    """Yield messages about retried tasks, lost executors and slow backends. value: from `SparkJobStats.to_dict`."""
    if value["tried_again"] or value["lost"]:
        tasks, lost = value["tried_again"], len(value["lost"])
        retried = "1 task was" if tasks == 1 else f"{tasks:,} tasks were" if tasks else "no task was"
        yield f"{retried} tried again; {lost or 'no'} executor{'s' * (lost != 1)} lost"
    yield from (f"lost {one}" for one in value["lost"])
    if slow_backends := [one for one in value["engines"] if one != NATIVE_BACKEND]:
        yield f"executors had no native code and read with {', '.join(slow_backends)}, which is slower"


def _to_single_line(text: str) -> str:
    return " ".join(text.split())


# --- Progress steps of a conversion, and the tally of its findings ---

MAX_LISTED_FINDINGS = 1000


class ProgressStep(NamedTuple):
    """One progress report of a conversion.

    stage: what is being done, as text. done, total: bytes. records: records so far (0 = unknown).
    """

    stage: str
    done: int
    total: int
    records: int = 0


ProgressCallback = Callable[[ProgressStep], None]


class WeightedProgress:
    """Reporter of consecutive stages as parts of the whole work; the reported amount never decreases.

    Args:
        report: receives the combined steps.
        weights: stages in order, each with its share of the whole work.
        total: bytes of the whole work.
    """

    def __init__(self, report: ProgressCallback, weights: Mapping[str, float], total: int) -> None:
        self._report = report
        self._total = total
        self._stage_ranges: dict[str, tuple[float, float]] = {}
        begin = 0.0
        for stage, weight in weights.items():
            self._stage_ranges[stage] = (begin, weight)
            begin += weight
        self._reported_bytes = 0

    def __call__(self, step: ProgressStep) -> None:
        """Report a step of one stage; a stage without a weight only changes the stage name."""
        begin, weight = self._stage_ranges.get(step.stage, (0.0, 0.0))
        done = begin + weight * (min(1.0, step.done / step.total) if step.total else 0.0)
        self._reported_bytes = max(self._reported_bytes, int(done * self._total))
        self._report(ProgressStep(step.stage, self._reported_bytes, self._total, step.records))


class FindingTally(msgspec.Struct):
    """Findings as JSON objects that name their file: all are counted, the first MAX_LISTED_FINDINGS are kept.

    damage_rows: number of findings about bytes that could not be read. errors: number of those that stop a conversion.
    diverging_tables: tables with a `rows-diverge` finding. has_records: this part of the log has records; then a
    transaction that is open at the end of an earlier part is not open at the end of the log.
    """

    listed: list[Mapping[str, Any]] = msgspec.field(default_factory=list)
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    damage_rows: int = 0
    errors: int = 0
    diverging_tables: set[str] = msgspec.field(default_factory=set)
    has_records: bool = False

    def add(self, file: str, finding: Mapping[str, Any], *, damage: bool) -> None:
        """Count one finding. damage: True if it is about bytes that could not be read, not about a record."""
        self.counts[finding["id"]] += 1
        if finding["id"] == ROWS_DIVERGE and "table" in finding["facts"]:
            self.diverging_tables.add(finding["facts"]["table"])
        self.damage_rows += damage
        self.errors += damage and (finding["severity"] == Severity.ERROR.label or finding["id"] == ENCRYPTED)
        if len(self.listed) < MAX_LISTED_FINDINGS:
            self.listed.append({"file": file, **finding})

    def stops_conversion(self, selection: Selection) -> bool:
        """Return True if the findings stop a conversion."""
        return self.errors > 0 and selection.on_damage == "stop"

    def build_manifest(self, selection: Selection, **members: Any) -> Manifest:
        """Return the manifest of a conversion with these findings; `convert` sets the names of the output."""
        defaults = {
            "to": "", "output": "", "complete": not self.stops_conversion(selection), "on_damage": selection.on_damage,
            "inputs": (), "outputs": (), "rows": 0, "damage": 0, "findings": tuple(self.listed),
            "finding_counts": dict(self.counts),
        }  # fmt: skip
        return Manifest(**{**defaults, **members})

    def merge(self, other: FindingTally) -> None:
        """Add the counts and findings of the next part of the log."""
        if other.has_records:
            self._drop_open_transaction_finding()
        self.has_records |= other.has_records
        self.counts += other.counts
        self.damage_rows += other.damage_rows
        self.errors += other.errors
        self.diverging_tables |= other.diverging_tables
        self.listed += other.listed[: MAX_LISTED_FINDINGS - len(self.listed)]

    def _drop_open_transaction_finding(self) -> None:
        """Drop the finding about a transaction that is open at the end: more records follow."""
        kept = [one for one in self.listed if one["id"] != "incomplete-transaction" or one["offset"] is not None]
        self.counts["incomplete-transaction"] -= len(self.listed) - len(kept)
        self.listed = kept


# --- The manifest of a conversion ---

SCHEMA = "binlogtool/manifest/1"


class ManifestInput(msgspec.Struct, frozen=True):
    """One input file. size: bytes; records: number of its records that were converted.

    trouble: why the file could not be read; format and sha256 are then "".
    """

    path: str
    format: str
    size: int
    sha256: str
    records: int
    trouble: str = ""


class ManifestOutput(msgspec.Struct, frozen=True):
    """One output file: path relative to the output, number of rows, size in bytes, and hash."""

    path: str
    rows: int
    size: int
    sha256: str = ""


class ManifestCheck(msgspec.Struct, frozen=True):
    """A property that was checked on the finished output, with its figures."""

    name: str
    detail: str


class Manifest(msgspec.Struct, frozen=True):
    """Account of one conversion (JSON schema binlogtool/manifest/1).

    complete: False = damage stopped it and nothing was published: no outputs, no rows. rows: number of rows in the
    output.
    damage: number of rows for bytes that could not be read. findings: JSON objects with their file. finding_counts:
    exact, even if `findings` was truncated. details: additional facts that depend on `to`.
    """

    to: str
    output: str
    complete: bool
    on_damage: str
    inputs: tuple[ManifestInput, ...]
    outputs: tuple[ManifestOutput, ...]
    rows: int
    damage: int
    findings: tuple[Mapping[str, Any], ...]
    finding_counts: Mapping[str, int] = msgspec.field(default_factory=dict)
    checks: tuple[ManifestCheck, ...] = ()
    details: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """Exit status of `convert`.

        0 = the output is published and accounts for all input. 1 = damage stopped the conversion, some input could not
        be read, records have rows that no table holds (`on_damage` stop), reversed rows were changed
        later, or a statement removed rows that a flashback cannot restore. 6 = a key is missing, or content is beyond a
        limit (`on_damage` stop).
        """
        if ENCRYPTED in self.finding_counts or (self.undecoded and self.on_damage == "stop"):
            return 6
        lost = self.details.get("append", {}).get("lost") or self.details.get("unreadable")
        lost = lost or any("packed_size" in finding["facts"] for finding in self.findings)
        missing = lost or (self.details.get("untold") and self.on_damage == "stop")
        incomplete = missing or not self.finding_counts.keys().isdisjoint((CHANGED_LATER, NOT_REVERSIBLE))
        return 1 if incomplete or not self.complete else 0

    @property
    def undecoded(self) -> int:
        """Number of records whose content was not decoded because of a limit of this program."""
        return sum(self.finding_counts.get(one, 0) for one in BEYOND_LIMITS)

    @property
    def spark_messages(self) -> tuple[str, ...]:
        """Messages about the Spark job: retried tasks, lost executors."""
        return tuple(describe_job_stats(self.details["spark"])) if "spark" in self.details else ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "schema": SCHEMA,
            "tool": {"name": "binlogtool", "version": __version__},
            "status": "complete" if self.complete else "stopped",
            "to": self.to,
            "output": self.output if self.complete else None,
            "on_damage": self.on_damage,
            "inputs": [pick_members(i, "path", "format", "size", "sha256", "records") for i in self.inputs],
            "outputs": [pick_members(o, "path", "rows", "size", "sha256") for o in self.outputs],
            "rows": self.rows,
            "damage_rows": self.damage,
            "findings": [dict(f) for f in self.findings],
            "finding_counts": dict(self.finding_counts),
            "checks": [pick_members(c, "name", "detail") for c in self.checks],
            **({"details": dict(self.details)} if self.details else {}),
        }


# --- Input files of a request ---

FileStamp = tuple[int, int, int, int]

_NEEDS_FILES = "convert needs regular files, which it reads twice; save the log to a file first"


def find_inputs(paths: Iterable[str | PathLike[str]], format: str, *, lenient: bool = False) -> list[ManifestInput]:
    """Return every input file once, without `sha256` and `records`; directories give their members in log order.

    lenient: a file that cannot be read becomes an input with its `trouble`.

    Raises:
        UsageError: a path is standard input, a file is named twice, or there is no path.
        UnknownFormatError, InputOutputError.
    """
    inputs = [one for path in paths for one in _expand_path(os.fspath(path), format, lenient=lenient)]
    if not inputs:
        raise UsageError("name at least one file or directory")
    duplicates = [path for path, times in Counter(one.path for one in inputs).items() if times > 1]
    if duplicates:
        raise UsageError(f"{min(duplicates)} is named twice")
    return inputs


def _expand_path(path: str, format: str, *, lenient: bool) -> list[ManifestInput]:
    if path == "-":
        raise UsageError(f"standard input: {_NEEDS_FILES}")
    return [_describe_input(name, known, lenient=lenient) for name, known in list_files(path, format)]


def list_files(path: str, format: str) -> list[tuple[str, str]]:
    """Return (file, format) for each file that a path names, in log order; format "auto" = not detected yet.

    Raises:
        UnknownFormatError, InputOutputError, UsageError.
    """
    return [
        (log.member_path(name), format if log.format is None else log.format.spec)
        for log in resolve_logs(path, format)
        for name in log.names
    ]


def check_columns_exist(files: Sequence[str], where: str | None, read_options: ReadOptions) -> None:
    """Check that each column of a condition exists in some table; for a condition that selected nothing.

    Raises:
        UsageError: no table has such a column.
    """
    if where is not None and files:
        with open_log(files, read_options, LogReader) as log:
            log.require_columns(where)


def check_names_exist(files: Sequence[str], selection: Selection, read_options: ReadOptions) -> None:
    """Check that the names in a selection exist in these files; for a selection that selected nothing.

    Raises:
        UsageError: a name does not exist.
    """
    if files:
        with open_log(files, read_options, LogReader) as log:
            log.find_unmatched_names(selection, 0).refuse_missing_names()


def find_broken_links(paths: Iterable[str], selection: Selection, options: ReadOptions) -> Iterator[FileFinding]:
    """Yield where the files of a log do not follow each other; files that cannot be read are reported by others."""
    local_paths = [path for path in paths if not is_url(path)]
    if len(local_paths) > 1:
        with contextlib.suppress(InputOutputError), open_log(local_paths, options, LogReader) as log:
            yield from log.find_broken_links(selection)


def _describe_input(path: str, format: str, *, lenient: bool) -> ManifestInput:
    if not is_url(path) and os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(f"{path}: {_NEEDS_FILES}")
    try:
        return ManifestInput(path, resolve_format(path, format), read_stamp(path)[0], "", 0)
    except InputOutputError as error:
        if not lenient or isinstance(error, MissingExtraError):
            raise
        return ManifestInput(path, "", 0, "", 0, str(error))


def resolve_format(path: str, format: str) -> str:
    """Return the name of a file's format. format: the name given by the user, or "auto" to detect it.

    Raises:
        UnknownFormatError, InputOutputError, UsageError.
    """
    if format != "auto":
        return open_file_module.find_format(format).spec
    source = open_source(path)
    try:
        head = FileHead(read_head(source), base_name(path), source.size)
        return open_file_module.detect_source_format(source, head).name
    finally:
        source.close()


def absolute_path(path: str) -> str:
    """Return an absolute path, which is valid in other processes too; URLs are unchanged."""
    return path if is_url(path) else os.path.abspath(path)


def read_stamp(path: str) -> FileStamp:
    """Return values that change when the file changes: size, modification time in ns, device, inode (0 if unknown)."""
    if is_url(path):
        from binlogtool.core.remote_files import read_remote_stamp

        return read_remote_stamp(path)
    with name_os_errors(path, "cannot be read"):
        stat = os.stat(path)
    return stat.st_size, stat.st_mtime_ns, stat.st_dev, stat.st_ino


def hash_file(path: str) -> str:
    """Return the SHA-256 of a file's bytes as stored, as hexadecimal text."""
    if is_url(path):
        from binlogtool.core.remote_files import hash_remote_file

        return hash_remote_file(path)
    with name_os_errors(path, "cannot be read"), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- Distribution of files among tasks by size ---

T = TypeVar("T")

GROUPS_PER_CORE = 4
"""Tasks per core; several, to keep all cores busy although some tasks take longer than others."""


def balance_indexes_by_size(sizes: Sequence[int], max_groups: int) -> list[list[int]]:
    """Distribute indexes of `sizes` over at most `max_groups` max_groups: largest first, each to the group with the
    fewest bytes.
    """
    count = min(max_groups, len(sizes))
    shares: list[list[int]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        load, number = heapq.heappop(loads)
        shares[number].append(i)
        heapq.heappush(loads, (load + sizes[i] + 1, number))
    return [sorted(share) for share in shares]


def pack_consecutive_by_size(items: Sequence[T], sizes: Sequence[int], max_groups: int) -> list[tuple[T, ...]]:
    """Distribute items over at most `max_groups` groups with similar totals, keeping their order."""
    shares: list[list[T]] = [[] for _ in range(max(1, max_groups))]
    total, before = sum(sizes), 0
    for item, size in zip(items, sizes, strict=True):
        middle = before + size / 2
        shares[min(int(middle * len(shares) / max(1, total)), len(shares) - 1)].append(item)
        before += size
    return [tuple(share) for share in shares if share]


# --- Tasks of a Spark job ---

SPLIT_SIZE = 64 * MIB


class TaskFile(msgspec.Struct, frozen=True):
    """One input file of a Spark job.

    Args:
        path: path to open.
        name: file name in the rows.
        size: bytes.
        selection: the part of the request's selection for this file, if positions make it different.
        trouble: why the file is unreadable.
        earlier: index of its carried state in `ReadRequest.histories`.
    """

    path: str
    name: str
    format: str
    size: int
    selection: Selection | None = None
    trouble: str = ""
    earlier: int | None = None


class TaskPiece(msgspec.Struct, frozen=True):
    """Part of a file that a task reads."""

    member: TaskFile
    part: FilePart = WHOLE_FILE


def can_select_records_independently(selection: Selection) -> bool:
    """Return True if records can be selected independently of earlier records: no counting, no GTID filter."""
    counted = (selection.skip or None, selection.limit, selection.tail) != (None, None, None)
    return not counted and extract_gtid_selection(selection) is None


Parts = tuple[FilePart, ...]


def pack_tasks(
    members: Sequence[TaskFile], parts_by_member: Sequence[Parts | None], tasks: int
) -> list[tuple[TaskPiece, ...]]:
    """Return at most `tasks` tasks, each with its pieces, keeping the order of the request.

    parts_by_member: None = the file is not split.
    """
    pieces = [
        TaskPiece(one, part) for one, cut in zip(members, parts_by_member, strict=True) for part in cut or (WHOLE_FILE,)
    ]
    return pack_consecutive_by_size(pieces, list(map(piece_size, pieces)), tasks)


def piece_size(piece: TaskPiece) -> int:
    """Return the size of a piece in bytes."""
    start = 0 if piece.part.start is None else piece.part.start.offset
    return max(0, (piece.member.size if piece.part.end is None else piece.part.end) - start)


# --- Read request of a job ---

UNSIGNED_MODES = ("data", "decimal")


class ReadRequest(msgspec.Struct, frozen=True):
    """Files that a job reads, and the options for reading them.

    groups: maximum number of partitions for files that are not split. split_size: files larger than this many bytes are
    split. histories: state that earlier files carry over to members (`read_rows_of_one_file`), each as `Hints.earlier`.
    columns, payload: see `export.records_to_arrow.create_layout`. object: the one table or space whose typed rows are
    read (`read_one_table_as_arrow`). unsigned: "data" or "decimal", see `parse_data_source_options`. hints: of the
    user.
    """

    members: tuple[TaskFile, ...]
    groups: int = 8
    backend: str = "auto"
    limits: Limits = msgspec.field(default_factory=Limits)
    selection: Selection = msgspec.field(default_factory=Selection)
    split_size: int = SPLIT_SIZE
    columns: tuple[str, ...] = ()
    payload: str = "decoded"
    object: str | None = None
    unsigned: str = "data"
    histories: tuple[str, ...] = ()
    hints: Hints | None = None

    def read_options(self, format: str = "auto") -> ReadOptions:
        """Return the options for opening files of a format."""
        return ReadOptions(format=format, limits=self.limits, backend=self.backend, hints=self.hints)

    def with_hints(self, **values: Any) -> ReadRequest:
        """Return a copy with other values of some hints."""
        return replace(self, hints=replace(self.hints or Hints(), **values))

    def for_member(self, member: TaskFile) -> ReadRequest:
        """Return a copy with the state that earlier files carry over to one member."""
        return self if member.earlier is None else self.with_hints(earlier=self.histories[member.earlier])

    def open_member(self, member: TaskFile) -> LogReader:
        """Open one file as a log.

        Raises:
            BinlogtoolError: it cannot be read.
        """
        return open_log(member.path, self.for_member(member).read_options(member.format), LogReader)


def find_parts(member: TaskFile, size: int, request: ReadRequest) -> Parts:
    """Return the parts of one file; a file that cannot be opened is one part, whose reader reports the error."""
    try:
        with request.open_member(member) as log:
            return tuple(divide_file(log.make_scan(log.files[0]), size))
    except BinlogtoolError:
        return (WHOLE_FILE,)


def _parse_hints(options: Mapping[str, str]) -> Hints | None:
    """Return the hints in the options keyfile, keyfileSecret, schema and level; None without any.

    Raises:
        InputOutputError, UsageError: see `read_hints`.
    """
    values = [options.get(name) for name in ("schema", "keyfile", "keyfileSecret", "level")]
    objects = any(options.get(name) for name in ("object", "objects", "where"))
    if not any((*values, objects)):
        return None
    hints = read_hints(schema=values[0], keyfile=values[1], keyfile_secret=values[2], level=values[3])
    return replace(hints, objects=objects)


def parse_data_source_options(options: Mapping[str, str], *, finds_files: bool = True) -> ReadRequest:
    """Build the request of a query from its options. finds_files: also find the files that the paths name.

    Options: format: as `--format`. columns: names, separated by commas. payload: decoded, raw or none. splitSize: such
    as `64MiB`. object: the table or space whose typed rows are read. types, objects: names, separated by commas.
    startTime, stopTime: microseconds since 1970. unsigned: type of unsigned fields (Tarantool): data = bigint unless a
    record needs more, decimal = a type for every allowed value. where: a condition, as `--where`. engine: native,
    python or auto. maxRecord: bytes.

    Raises:
        UsageError: an option is unknown or has an invalid value, or no path was given.
        InputOutputError: a path does not exist.
    """
    _check_known_options(options)
    paths, unsigned = parse_load_paths(options), options.get("unsigned", "data")
    if unsigned not in UNSIGNED_MODES:
        raise UsageError(f"unsigned={unsigned}: choose one of {', '.join(UNSIGNED_MODES)}")
    existing_paths = [name for path in paths for name in _expand_pattern(path)] if finds_files else []
    members = tuple(
        member for name in existing_paths for member in list_task_files(name, options.get("format", "auto"))
    )
    max_record = options.get("maxRecord")
    times = [options.get(name) for name in ("startTime", "stopTime")]
    return ReadRequest(
        members,
        GROUPS_PER_CORE * (os.cpu_count() or 1),
        options.get("engine", "auto"),
        Limits() if max_record is None else Limits(max_record=parse_size(max_record)),
        Selection(
            start_time=None if times[0] is None else int(times[0]),
            stop_time=None if times[1] is None else int(times[1]),
            types=_split_names(options.get("types")),
            objects=_split_names(options.get("objects")),
            where=_check_where(options.get("where")),
        ),
        max(1, parse_size(options.get("splitSize", str(SPLIT_SIZE)))),
        _split_names(options.get("columns")),
        options.get("payload", "decoded"),
        options.get("object"),
        unsigned=unsigned,
        hints=_parse_hints(options),
    )


_OPTIONS = (
    "path", "paths", "format", "schema", "keyfile", "keyfileSecret", "level", "object", "objects", "types", "where",
    "startTime", "stopTime", "columns", "payload", "splitSize", "unsigned", "engine", "maxRecord", "pushdown",
    "maxFilesPerTrigger", "maxBytesPerTrigger", "checkpointLocation",
)  # fmt: skip
"""Options of the data source. Spark passes their names in lower case or as given."""


def _check_known_options(options: Mapping[str, str]) -> None:
    names_by_lower = {name.lower(): name for name in _OPTIONS}
    for name in options:
        if name.lower() in names_by_lower or "." in name or name.startswith("__"):
            continue
        suggestions = [names_by_lower[one] for one in get_close_matches(name.lower(), names_by_lower, 3)]
        hint = f"did you mean {' or '.join(suggestions)}?" if suggestions else f"options are {', '.join(_OPTIONS[1:])}"
        raise UsageError(f"there is no option {name!r}; {hint}")


def _expand_pattern(path: str) -> list[str]:
    """Return the paths that a path or a pattern names.

    Raises:
        InputOutputError: there is no such path.
    """
    if is_url(path) or os.path.lexists(path):
        return [path]
    matches = sorted(glob.glob(path)) if glob.has_magic(path) else []
    if not matches:
        problem = "no file matches this pattern" if glob.has_magic(path) else "no such file or directory"
        raise InputOutputError(f"{path}: {problem}")
    return matches


def _check_where(text: str | None) -> str | None:
    """Check a condition, and return its text; it is compiled again where records are read."""
    if text is not None:
        require_valid_where(text)
    return text


def _split_names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def parse_load_paths(options: Mapping[str, str]) -> list[str]:
    """Return the paths, one or several, that were passed to Spark's `load`.

    Raises:
        UsageError: no path was given.
    """
    if "paths" in options:
        return [str(path) for path in json.loads(options["paths"])]
    if not options.get("path"):
        raise UsageError("name at least one file or directory in load()")
    return [options["path"]]


def list_task_files(path: str, format: str) -> list[TaskFile]:
    """Return the files that a path names, including files that cannot be opened: they are read as DAMAGE rows."""
    members = []
    for name, format_name in list_files(path, format):
        try:
            source = open_source(name)
        except BinlogtoolError:
            members.append(TaskFile(name, name, format_name, 0))
            continue
        members.append(TaskFile(name, name, format_name, source.size or 0))
        source.close()
    return members
