"""Write records in log order, or reversed: JSON lines, SQL scripts, raw bytes, files of a binary log."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.core import open_file as open_file_module
from binlogtool.core.json_text import finding_to_value
from binlogtool.core.open_log import LogReader, open_log
from binlogtool.core.record_blocks import LongValueWriter, SelectedEventGroup
from binlogtool.core.record_selection import (
    FileFinding,
    ReadOptions,
    RecordBlock,
    ScriptSummary,
    ScriptText,
    Selection,
    SqlFragment,
    is_partial,
    refuse_salvage,
    refuse_where,
)
from binlogtool.core.resolve_paths import find_logs_among
from binlogtool.errors import BinlogtoolError, InputOutputError, LimitError, UsageError
from binlogtool.export.envelopes.messages import MessageScript, message_script_factory
from binlogtool.export.envelopes.values import MessageLine
from binlogtool.export.manifest import (
    FindingTally,
    Manifest,
    ManifestCheck,
    ManifestInput,
    ManifestOutput,
    ProgressCallback,
    ProgressStep,
    hash_file,
)
from binlogtool.export.output_options import EnvelopeOptions
from binlogtool.export.sql_scripts import count_statements, record_texts, script_selection
from binlogtool.findings import STATEMENT_LEFT_OUT, Finding, Severity, make_finding
from binlogtool.format_api.field_types import MalformedError
from binlogtool.format_api.format import Hints
from binlogtool.format_api.outputs import ChangeReader, PortableEventGroup, PriorGtids, ScriptOptions
from binlogtool.formats.binlog_events.write_log import (
    DEFAULT_MAX_FILE_SIZE,
    BinlogWriter,
    GtidContinuity,
    TransactionDigest,
    parse_gtid,
    record_gtid,
)
from binlogtool.limits import Limits
from binlogtool.repair.verify import LogVerifyOptions, verify_paths

# --- Reverse spool ---

_MEMORY_BYTES = 4 << 20
_CHUNK_BYTES = 1 << 20


class ReverseSpool:
    """Context manager that reverses the order of pieces.

    folder: for the temporary file. memory_bytes: bytes kept in memory.
    """

    def __init__(self, folder: Path, memory_bytes: int = _MEMORY_BYTES) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 -- closed by __exit__
        self._memory_bytes = memory_bytes
        self._pending: list[bytes] = []
        self._size = 0
        self._segments: list[tuple[int, int]] = []

    def __enter__(self) -> ReverseSpool:
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self._file.close()

    def add(self, pieces: Iterable[bytes]) -> None:
        """Add pieces; each precedes all that were added before it."""
        for piece in pieces:
            self._pending.append(piece)
            self._size += len(piece)
            if self._size >= self._memory_bytes:
                self._spill()

    def _spill(self) -> None:
        start = self._file.tell()
        self._file.writelines(reversed(self._pending))
        self._segments.append((start, self._file.tell() - start))
        self._pending, self._size = [], 0

    def read(self) -> Iterator[bytes]:
        """Yield all bytes, the last piece first."""
        yield b"".join(reversed(self._pending))
        for start, size in reversed(self._segments):
            self._file.seek(start)
            for at in range(0, size, _CHUNK_BYTES):
                yield self._file.read(min(_CHUNK_BYTES, size - at))


# --- Log-shaped outputs ---

LineEncoder = Callable[[RecordBlock], bytes]
"""Encodes a block as lines, one per record, each with its line end."""

StreamPart = RecordBlock | SqlFragment | ScriptText | FileFinding


class StreamJob(msgspec.Struct):
    """One conversion to jsonl (`lines` encodes blocks, or `envelope` describes messages), raw, sql or flashback
    (`wording`).

    message_sink: receives the messages in place of the file.
    """

    to: str
    limits: Limits
    backend: str
    selection: Selection
    hints: Hints | None = None
    lines: LineEncoder | None = None
    wording: ScriptOptions = ScriptOptions()
    on_step: ProgressCallback | None = None
    envelope: EnvelopeOptions | None = None
    message_sink: Callable[[MessageLine], None] | None = None
    messages: list[MessageScript] = msgspec.field(default_factory=list)
    finding_tally: FindingTally = msgspec.field(default_factory=FindingTally)
    records_by_file: Counter[str] = msgspec.field(default_factory=Counter)
    raw_bytes: int = 0
    damaged: bool = False
    has_left_out: bool = False
    """True if an option left something out, which was reported as a finding."""
    script_ends: list[ScriptSummary] = msgspec.field(default_factory=list)
    remarks: tuple[str, ...] = ()
    """Names in the selection that the log does not have."""

    def write(self, format: str, inputs: list[ManifestInput], stage: Path) -> Manifest:
        """Write the file at `stage`, and read it back.

        Raises:
            InputOutputError: the file does not hold what was read.
            UsageError: the format has no such records.
        """
        files = [i.path for i in inputs]
        with (
            open_log(
                files, ReadOptions(format=format, limits=self.limits, backend=self.backend, hints=self.hints), LogReader
            ) as log,
            stage.open("xb") as out,
        ):
            chunks = self._encode_parts(self.account_parts(self.read_parts(log), inputs), stage.parent)
            digest = hashlib.sha256()
            for data in chunks:
                digest.update(data)
                out.write(data)
            if not self.damaged and self.finding_tally.errors <= int(self.has_left_out):
                self._check_names_exist(log)
        if self.wording.flashback:
            self.remarks += tuple(_remark_unread_logs(inputs))
        stopped = self.selection.on_damage == "stop" and self.finding_tally.errors > 0
        checks = () if stopped else tuple(self._check_output(stage, digest.hexdigest()))
        row_count = self._row_count
        output = ManifestOutput(stage.name, row_count, stage.stat().st_size)
        return self.build_manifest(inputs, (output,), checks, complete=not stopped)

    # -- writing -----------------------------------------------------------------------------------------------

    @property
    def _is_script(self) -> bool:
        return self.to in ("sql", "flashback")

    def _check_names_exist(self, log: LogReader) -> None:
        """Check that something was selected.

        Raises:
            UsageError: the selection names what the log does not have, or a script would be empty.
        """
        is_script, selected = (
            self._is_script,
            self.records_by_file.total() if self.envelope is None else self.message_count,
        )
        selected = sum(not one.is_empty for one in self.script_ends) if is_script else selected
        unmatched = log.find_unmatched(self.selection, selected)
        if not selected:
            unmatched.require_none()
            if is_script and not self.finding_tally.errors and (self.wording.flashback or is_partial(self.selection)):
                problem = "no row changes to reverse" if self.wording.flashback else "no statements for a script"
                reason = f" ({'; '.join(unmatched.absent)})" if unmatched.absent else ""
                raise UsageError(f"the selection has {problem}; nothing was written{reason}")
        self.remarks = (*unmatched.missing, *unmatched.absent)

    @property
    def row_changes(self) -> int | None:
        """Number of row changes in the scripts; None = they are not counted."""
        counts = [one.row_changes for one in self.script_ends if one.row_changes is not None]
        return sum(counts) if counts else None

    @property
    def message_count(self) -> int:
        """Number of messages written so far."""
        return sum(one.count for one in self.messages)

    def read_parts(self, log: Any) -> Iterator[StreamPart]:
        """Return the parts of the log that the target is made of."""
        if self._is_script:
            return iter(log.statements(script_selection(self.selection), self.wording))
        if self.to == "raw":
            refuse_salvage(self.selection, "a stream of raw bytes")
            return iter(log.blocks(self.selection, decode="frame", raw=True))
        if self.envelope is not None:
            create_messages = message_script_factory(self.envelope, self.selection, self.message_sink)

            def start_messages(changes: ChangeReader) -> MessageScript:
                self.messages.append(create_messages(changes))
                return self.messages[-1]

            return iter(log.change_messages(script_selection(self.selection), start_messages))
        return iter(log.blocks(self.selection))

    def account_parts(
        self, parts: Iterable[StreamPart], inputs: list[ManifestInput]
    ) -> Iterator[RecordBlock | SqlFragment | ScriptText]:
        """Yield the parts except damage, which is recorded for the manifest; count records and report progress."""
        before, total = _cumulative_sizes(inputs)
        for part in parts:
            if isinstance(part, FileFinding):
                self.finding_tally.add(part.file, finding_to_value(part.finding), damage=True)
                if part.finding.severity is Severity.ERROR:
                    self.has_left_out |= part.finding.id == STATEMENT_LEFT_OUT
                    self.damaged |= part.finding.id != STATEMENT_LEFT_OUT
                continue
            if isinstance(part, ScriptText) and part.end is not None:
                self.script_ends.append(part.end)
            if isinstance(part, SqlFragment):
                self.records_by_file[part.file] += len(part.record)
            if isinstance(part, RecordBlock) and len(part):
                self._count_block(part)
                if self.on_step is not None:
                    done = before[part.file] + int(part.offset[-1]) + int(part.size[-1])
                    self.on_step(ProgressStep("converting", done, total, self.records_by_file.total()))
            yield part

    def _count_block(self, block: RecordBlock) -> None:
        self.records_by_file[block.file] += len(block)
        for finding in (f for findings in block.findings.values() for f in findings):
            unwritten = (self._is_script or self.envelope is not None) and finding.severity is Severity.ERROR
            self.finding_tally.add(block.file, finding_to_value(finding), damage=unwritten)

    def _encode_parts(
        self, parts: Iterable[RecordBlock | SqlFragment | ScriptText], folder: Path
    ) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the file."""
        if not self.wording.flashback:
            filler = LongValueWriter()
            for part in parts:
                if isinstance(part, ScriptText | SqlFragment):
                    yield part.data
                else:
                    yield from filler.fill(self._encode_block(part), part.long_values)
            return
        with ReverseSpool(folder) as script:
            for part in parts:
                script.add([bytes(part.data)] if isinstance(part, ScriptText | SqlFragment) else record_texts(part))
            yield from script.read()

    def _encode_block(self, block: RecordBlock) -> bytes:
        if self.envelope is not None:
            return b"".join(body or b"" for body in block.bodies)
        if self.lines is not None:
            return self.lines(block)
        if self._is_script:
            return b"".join(record_texts(block))
        data = b"".join(block.raw or ())
        self.raw_bytes += sum(
            int(inner.size if inner else size) for size, inner in zip(block.size, block.inner, strict=True)
        )
        return data

    @property
    def _row_count(self) -> int:
        """Number of records; of a script its row changes if they are counted; of an envelope its messages."""
        records = self.records_by_file.total() if self.row_changes is None else self.row_changes
        return records if self.envelope is None else self.message_count

    # -- the proof -----------------------------------------------------------------------------------------------------

    def _check_output(self, stage: Path, digest: str) -> Iterator[ManifestCheck]:
        rows, size, digest_back = self.records_by_file.total(), stage.stat().st_size, hash_file(str(stage))
        if digest_back != digest:
            raise InputOutputError(f"{stage}: what was read back differs from what was written")
        if self.envelope is not None:
            lines, written = _count_lines(stage), self.message_count
            if lines != written:
                raise InputOutputError(f"{stage}: {lines:,} lines were found where {written:,} were written")
            yield ManifestCheck(
                "messages-in-equal-lines-out", f"{written:,} messages of {rows:,} records, {lines:,} lines"
            )
        elif self.to == "jsonl":
            lines = _count_lines(stage)
            if lines != rows:
                raise InputOutputError(f"{stage}: {lines:,} lines were found where {rows:,} were written")
            yield ManifestCheck(
                "rows-in-equal-rows-out", f"{rows:,} records read, {lines:,} lines counted in the output"
            )
        if self.to == "raw":
            if self.raw_bytes != size:
                raise InputOutputError(f"{stage}: {size:,} bytes were written for records of {self.raw_bytes:,}")
            yield ManifestCheck(
                "bytes-in-equal-bytes-out", f"{rows:,} records of {self.raw_bytes:,} bytes, {size:,} written"
            )
        if self._is_script:
            changes_text = "" if self.row_changes is None else f" with {self.row_changes:,} row changes"
            yield ManifestCheck(
                "statements-are-whole", f"{count_statements(stage):,} statements of {rows:,} records{changes_text}"
            )
        yield ManifestCheck("read-back-equal", f"sha256 {digest} of {size:,} bytes")

    def build_manifest(
        self,
        inputs: list[ManifestInput],
        outputs: tuple[ManifestOutput, ...],
        checks: tuple[ManifestCheck, ...],
        *,
        complete: bool,
    ) -> Manifest:
        """Build the manifest. complete: the output is published."""
        stopped = "options" if self.has_left_out else self.to if self.envelope is None else "envelope"
        details: dict[str, Any] = {} if self.envelope is None else {"envelope": self.envelope.envelope}
        details |= {} if complete or self.damaged else {"stopped_by": stopped}
        details |= {"remarks": list(self.remarks)} if self.remarks else {}
        details |= {} if self.row_changes is None else {"row_changes": self.row_changes}
        return Manifest(
            to="",
            output="",
            complete=complete,
            on_damage=self.selection.on_damage,
            inputs=tuple(replace(i, records=self.records_by_file[i.path]) for i in inputs),
            outputs=outputs,
            rows=self._row_count,
            damage=0,
            findings=tuple(self.finding_tally.listed),
            finding_counts=dict(self.finding_tally.counts),
            checks=checks,
            details=details,
        )


def _remark_unread_logs(inputs: Sequence[ManifestInput]) -> Iterator[str]:
    """Yield a remark if the last input belongs to a set whose later logs are not among the inputs."""
    path = os.path.abspath(inputs[-1].path)
    folder, base = os.path.dirname(path), os.path.splitext(path)[0]
    try:
        names = [name for name in os.listdir(folder) if os.path.splitext(os.path.join(folder, name))[0] == base]
        logs = (
            find_logs_among(folder, sorted(names), open_file_module.find_format(inputs[-1].format)).logs
            if names[1:]
            else []
        )
    except (BinlogtoolError, OSError):
        return
    input_paths = {os.path.abspath(one.path) for one in inputs}
    for log in logs:
        paths = [os.path.abspath(os.path.join(log.directory, name)) for name in log.names]
        later = [one for one in paths[paths.index(path) + 1 :] if one not in input_paths] if path in paths else []
        if later:
            more = f" and {len(later) - 1:,} more" if later[1:] else ""
            text = f"not checked: whether the selected rows were changed again in {os.path.basename(later[0])}{more}"
            yield f"{text}; also name the later logs, or the directory"


def _cumulative_sizes(inputs: list[ManifestInput]) -> tuple[dict[str, int], int]:
    """Return the number of bytes before each file, and the total."""
    before, total = dict[str, int](), 0
    for input_ in inputs:
        before[input_.path] = total
        total += input_.size
    return before, total


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))


# --- Transactions copied to a MariaDB log ---

CHANGED_FIELDS = "event_size, end_log_pos and checksum are those of the new files"
_EVENT_FILTERS = ("types", "objects", "exclude_objects")
_MAX_LISTED_GTIDS = 1000


class BinlogJob(msgspec.Struct):
    """One conversion to a binary log.

    limit: bytes of a file (see `BinlogWriter`); None = the servers' default.
    allow_rule_breaks: also write transactions that break the log's rules, if the input itself is not damaged.
    """

    limits: Limits
    backend: str
    selection: Selection
    hints: Hints | None = None
    limit: int | None = None
    allow_rule_breaks: bool = False
    finding_tally: FindingTally = msgspec.field(default_factory=FindingTally)
    written_groups: Counter[str] = msgspec.field(default_factory=Counter)
    group_digest: TransactionDigest = msgspec.field(default_factory=TransactionDigest)
    excluded_groups: int = 0
    continuity: GtidContinuity = msgspec.field(default_factory=GtidContinuity)

    def __post_init__(self) -> None:
        self.hints = None if self.hints is None else replace(self.hints, level=None, redo=None, objects=False)

    def write(self, inputs: list[ManifestInput], paths: list[str], format: str, folder: Path, base: str) -> Manifest:
        """Write the files into `folder`, read them back and compare.

        Raises:
            UsageError: the inputs are not such a log.
            InputOutputError: what was read back differs.
        """
        stop = self.selection.on_damage == "stop"
        if stop:
            self._verify_inputs(paths, format)
        if stop and self.finding_tally.errors:
            return self._build_manifest(inputs, BinlogWriter(folder, base), ())
        folder.mkdir()
        writer = BinlogWriter(folder, base, self.limit or DEFAULT_MAX_FILE_SIZE)
        try:
            self._copy_transactions(inputs, format, writer, stop)
        except BaseException:
            writer.abandon()
            raise
        if stop and self.finding_tally.errors:
            writer.abandon()
            return self._build_manifest(inputs, writer, ())
        writer.close()
        return self._build_manifest(inputs, writer, tuple(self._read_back(writer)))

    # -- input and output ----------------------------------------------------------------------------------------------

    def _verify_inputs(self, paths: list[str], format: str) -> None:
        """Verify the input log, and record its findings, before anything is copied."""
        for path, finding_ in self._verify_log(paths, format, self.hints):
            self._record_finding(path, finding_)

    def _verify_log(
        self, paths: Sequence[str | Path], format: str, hints: Hints | None
    ) -> Iterator[tuple[str, Finding]]:
        """Run `verify`, and yield each finding with the file or directory that it is about."""
        read_options = ReadOptions(format=format, limits=self.limits, backend=self.backend, hints=hints)
        options = LogVerifyOptions.from_read_options(
            read_options, depth="set", live=self.selection.live, expect_closed=False
        )
        report = verify_paths(paths, format, options)
        for failure in report.failures:
            raise InputOutputError(f"{failure.path}: {failure.message}")
        if report.incomplete:
            raise LimitError("the time limit ended the verification of the log early")
        for file in report.files:
            yield from ((file.path, found) for found in file.findings)
        for log in report.sets:
            yield from ((log.path, found) for found in log.findings)

    def _record_finding(self, file: str, finding_: Finding) -> None:
        self.finding_tally.add(file, finding_to_value(finding_), damage=finding_.severity is Severity.ERROR)

    def _copy_transactions(self, inputs: list[ManifestInput], format: str, writer: BinlogWriter, stop: bool) -> None:
        files = [i.path for i in inputs]
        with open_log(
            files, ReadOptions(format=format, limits=self.limits, backend=self.backend, hints=self.hints), LogReader
        ) as log:
            for part in log.event_groups(self.selection):
                if isinstance(part, SelectedEventGroup):
                    self._process_part(part, writer)
                elif not stop:
                    self._record_finding(*part)
                if isinstance(part, FileFinding) and part.finding.severity is Severity.ERROR and part.finding.length:
                    self.continuity.note_damage()
                if stop and self.finding_tally.errors:
                    return
            if not self.written_groups.total():
                log.find_unmatched(self.selection, 0).require_none()

    def _process_part(self, source_part: SelectedEventGroup, writer: BinlogWriter) -> None:
        part = source_part.part
        if isinstance(part, Finding):
            self._record_incomplete_transaction(source_part.file, part)
        elif isinstance(part, PriorGtids):
            was_unknown = self.continuity.state is None
            for finding_ in self.continuity.check_state(part):
                self._record_finding(source_part.file, finding_)
            if was_unknown and self.continuity.state is not None:
                writer.state = dict(self.continuity.state)
        else:
            self.continuity.add_transaction(part)
            if source_part.selected:
                self._write_transaction(source_part.file, part, writer)
            else:
                self._skip_transaction(part, writer)

    def _record_incomplete_transaction(self, file: str, finding_: Finding) -> None:
        """Record a transaction that is not complete, and its GTID if it is known."""
        self._record_finding(file, finding_)
        gtid = finding_.facts.get("gtid")
        if isinstance(gtid, str):
            self.continuity.note_unread(gtid)
        else:
            self.continuity.note_damage()

    def _write_transaction(self, file: str, bundle: PortableEventGroup, writer: BinlogWriter) -> None:
        try:
            writer.add(bundle)
        except MalformedError as error:
            text = f"{bundle.type}: {error.args[0]}"
            self._record_finding(
                file, make_finding(error.finding_id, bundle.offset, bundle.size, text, record=bundle.record)
            )
            return
        before = self.group_digest.bundles
        self.group_digest.add(bundle)
        self.written_groups[file] += self.group_digest.bundles - before

    def _skip_transaction(self, bundle: PortableEventGroup, writer: BinlogWriter) -> None:
        """Count an unselected transaction; those before the first selected one enter the writer's GTID state."""
        self.excluded_groups += 1
        if bundle.txn is not None and not self.group_digest.bundles:
            record_gtid(writer.state, *parse_gtid(bundle.txn))

    # -- the proof -----------------------------------------------------------------------------------------------------

    def _read_back(self, writer: BinlogWriter) -> Iterator[ManifestCheck]:
        """Read the new files back, and yield the checks that they passed.

        Raises:
            InputOutputError: they do not hold what was read.
        """
        paths, digest_back = [str(writer.folder / one.name) for one in writer.written], TransactionDigest()
        with open_log(
            paths, ReadOptions(format="mysql-binlog", limits=self.limits, backend=self.backend), LogReader
        ) as log:
            for part in log.event_groups(Selection(on_damage="stop")):
                content = part.finding if isinstance(part, FileFinding) else part.part
                if isinstance(content, Finding):
                    raise InputOutputError(f"{part.file}: read back: {content.message}")
                if isinstance(content, PortableEventGroup):
                    digest_back.add(content)
        if digest_back != self.group_digest:
            text = f"{digest_back.bundles:,} groups of {digest_back.events:,} events"
            raise InputOutputError(
                f"{text} were read back, but {self.group_digest.bundles:,} of {self.group_digest.events:,} were read"
            )
        excluded = f"; excluded by the selection: {self.excluded_groups:,}" if self.excluded_groups else ""
        yield ManifestCheck(
            "groups-in-equal-groups-out",
            f"{self.group_digest.bundles:,} read, {digest_back.bundles:,} read back{excluded}",
        )
        yield ManifestCheck("gtids-in-equal-gtids-out", ", ".join(self.group_digest.gtids.to_texts()) or "none")
        yield ManifestCheck(
            "event-bodies-equal", f"sha256 {digest_back.sha256} of {digest_back.events:,} events; {CHANGED_FIELDS}"
        )
        yield self._verify_output(writer)

    def _verify_output(self, writer: BinlogWriter) -> ManifestCheck:
        """Verify the new log like any other; faults of the old log that were copied are reported again."""
        counts = Counter[Severity]()
        for path, finding_ in self._verify_log([writer.folder], "mysql-binlog", None):
            counts[finding_.severity] += 1
            if finding_.severity is not Severity.NOTE:
                is_rule_break = finding_.severity is Severity.ERROR and not self.allow_rule_breaks
                self.finding_tally.add(os.path.basename(path), finding_to_value(finding_), damage=is_rule_break)
        words = (f"{severity.label}s {counts[severity]}" for severity in sorted(Severity, reverse=True))
        return ManifestCheck("verified", ", ".join(words))

    def _build_manifest(
        self, inputs: list[ManifestInput], writer: BinlogWriter, checks: tuple[ManifestCheck, ...]
    ) -> Manifest:
        complete = not (self.finding_tally.errors and self.selection.on_damage == "stop")
        ranges = self.group_digest.gtids.to_texts()
        details = {
            "gtids": ranges[:_MAX_LISTED_GTIDS],
            "gtids_left_out": self.continuity.list_lost()[:_MAX_LISTED_GTIDS],
            "server_version": writer.server_version,
            "changed": CHANGED_FIELDS,
        }
        if not complete:
            details["stopped_by"] = "result" if checks else "input"
        return Manifest(
            to="",
            output="",
            complete=complete,
            on_damage=self.selection.on_damage,
            inputs=tuple(replace(i, records=self.written_groups[i.path]) for i in inputs),
            outputs=tuple(ManifestOutput(one.name, one.bundles, one.size) for one in writer.written),
            rows=self.group_digest.bundles,
            damage=0,
            findings=tuple(self.finding_tally.listed),
            finding_counts=dict(self.finding_tally.counts),
            checks=checks,
            details=details,
        )


def check_log_selection(selection: Selection) -> None:
    """Check that a selection leaves whole transactions, as a log needs.

    Raises:
        UsageError: the selection chooses single events, or the last ones.
    """
    event_options = [name.rstrip("s").replace("_", "-") for name in _EVENT_FILTERS if getattr(selection, name)]
    if event_options:
        raise UsageError(f"--{event_options[0]} selects single events, but a log consists of whole transactions")
    if selection.tail is not None:
        raise UsageError("--tail cannot be used for a log; use --start-position")
    refuse_salvage(selection, "a log")
    refuse_where(selection, "a log")


def order_log_files(inputs: list[ManifestInput]) -> list[ManifestInput]:
    """Return the files of one log in the log's order.

    Raises:
        UsageError: they have different formats or directories, or the format has no transactions to copy.
    """
    if len({i.format for i in inputs}) > 1:
        raise UsageError("the inputs have different formats; name the files of one log")
    format_ = open_file_module.find_format(inputs[0].format)
    if format_.reading.event_groups is None:
        raise UsageError(f"the records of {format_.name} are not events of a server's binary log")
    folders = {os.path.dirname(os.path.abspath(i.path)) for i in inputs}
    if len(folders) > 1:
        raise UsageError("the inputs are in different directories; name the files of one log")
    by_name = {os.path.basename(i.path): i for i in inputs}
    order = format_.files.sort_names or sorted
    return [by_name[name] for name in order(list(by_name))]
