"""Write records in log order, or reversed, as JSON lines, SQL scripts or raw bytes."""

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
from binlogtool.core.decode_batches import LongValueWriter
from binlogtool.core.divide_file import WHOLE_FILE, FilePart
from binlogtool.core.open_log import LogReader, open_log
from binlogtool.core.record_and_selection_types import (
    FileFinding,
    RecordBlock,
    ScriptSummary,
    ScriptText,
    SqlFragment,
    is_partial,
    refuse_salvage,
)
from binlogtool.core.record_filter import RecordRange
from binlogtool.core.resolve_paths import find_logs_among
from binlogtool.errors import BinlogtoolError, InputOutputError, UsageError
from binlogtool.export.envelopes.convert_values import ChangeMessage
from binlogtool.export.envelopes.encode_change_messages import ChangeMessageWriter, make_change_message_writer_factory
from binlogtool.export.manifest import (
    FindingTally,
    Manifest,
    ManifestCheck,
    ManifestInput,
    ManifestOutput,
    ProgressCallback,
    ProgressStep,
    ReadRequest,
)
from binlogtool.export.output_options import EnvelopeOptions
from binlogtool.export.sql_script_output import count_statements, record_texts, script_selection
from binlogtool.findings import NOT_REVERSIBLE, STATEMENT_LEFT_OUT, Finding, Severity, finding_to_value
from binlogtool.format_api.layout import CRC32
from binlogtool.format_api.row_output_interfaces import ChangeReader, ScriptOptions

# --- Reverse spool ---

_MEMORY_BYTES = 4 << 20
_CHUNK_BYTES = 1 << 20


class ReverseSpool:
    """Spool that reverses the order of pieces of bytes; a context manager.

    folder: directory of the temporary file. memory_bytes: maximum number of bytes kept in memory.
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
        """Add pieces; in the output, each precedes all pieces that were added before it."""
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

    def read_in_reverse_order(self) -> Iterator[bytes]:
        """Yield all bytes, the last piece first."""
        yield b"".join(reversed(self._pending))
        for start, size in reversed(self._segments):
            self._file.seek(start)
            for at in range(0, size, _CHUNK_BYTES):
                yield self._file.read(min(_CHUNK_BYTES, size - at))


# --- Log-shaped outputs ---

LineEncoder = Callable[[RecordBlock], bytes]
"""Function that encodes a block as lines, one per record, each with its line end."""

CompiledLines = Callable[
    [Iterable[RecordRange | RecordBlock | FileFinding]], Iterator[SqlFragment | RecordBlock | FileFinding]
]
"""Function that replaces record ranges by finished lines, or by blocks for `LineEncoder`."""

StreamPart = RecordBlock | SqlFragment | ScriptText | FileFinding


class StreamJob(msgspec.Struct):
    """Job that writes one file: jsonl (`lines` encodes blocks, or `envelope` describes messages), raw, sql or flashback
    (`wording`).

    message_sink: receives the messages, instead of the file. on_read: receives each file with the end of what was read.
    is_damage: returns True if a finding about bytes means that they could not be read as they should be; None = all do.
    generation: first member of each record's line; None = there is no such member.
    """

    to: str
    request: ReadRequest
    lines: LineEncoder | None = None
    wording: ScriptOptions = ScriptOptions()
    on_step: ProgressCallback | None = None
    envelope: EnvelopeOptions | None = None
    compiled_lines: CompiledLines | None = None
    message_sink: Callable[[ChangeMessage], None] | None = None
    on_read: Callable[[str, int], None] | None = None
    is_damage: Callable[[Finding], bool] | None = None
    generation: int | None = None
    messages: list[ChangeMessageWriter] = msgspec.field(default_factory=list)
    other_message_count: int = 0
    """Number of messages that other jobs wrote to the file."""
    finding_tally: FindingTally = msgspec.field(default_factory=FindingTally)
    records_by_file: Counter[str] = msgspec.field(default_factory=Counter)
    raw_bytes: int = 0
    damaged: bool = False
    has_left_out: bool = False
    """True if an option left statements out, which was reported as a finding."""
    script_ends: list[ScriptSummary] = msgspec.field(default_factory=list)
    remarks: tuple[str, ...] = ()
    """Remarks about names in the selection that the log does not contain."""

    def write(self, format: str, inputs: list[ManifestInput], stage: Path) -> Manifest:
        """Write the file at `stage`, and read it back.

        Raises:
            InputOutputError: the file does not contain the records that were read.
            UsageError: the format has no records for this output form.
        """
        files = [i.path for i in inputs]
        with open_log(files, self.request.read_options(format), LogReader) as log, stage.open("xb") as out:
            chunks = self.encode_parts(self.count_parts_and_drop_damage(self.read_parts(log), inputs), stage.parent)
            checksum = 0
            for data in chunks:
                checksum = CRC32.kernel(data, checksum)
                out.write(data)
            self.require_selection_not_empty(log)
        if self.wording.flashback:
            self.remarks += tuple(_remark_unnamed_later_logs(inputs))
        return self.verify_output_and_build_manifest(inputs, stage, checksum)

    def verify_output_and_build_manifest(
        self, inputs: list[ManifestInput], output_path: Path, expected_crc32: int
    ) -> Manifest:
        """Read the file back, unless damage stopped the work, and build the manifest. expected_crc32: CRC-32 of its
        bytes.

        Raises:
            InputOutputError: the file does not contain the records that were read.
        """
        if self.finding_tally.stops_conversion(self.request.selection):
            return self.build_manifest(inputs, (), (), complete=False)
        found = summarize_file_content(output_path)
        checks = tuple(self._compare_read_back_content(found, expected_crc32))
        output = ManifestOutput(output_path.name, self.row_count, found.size, found.sha256)
        return self.build_manifest(inputs, (output,), checks, complete=True)

    # -- writing -----------------------------------------------------------------------------------------------

    @property
    def _is_script(self) -> bool:
        return self.to in ("sql", "flashback")

    def require_selection_not_empty(self, log: LogReader) -> None:
        """Check that the selection selected anything, unless there was damage.

        Raises:
            UsageError: names in the selection do not exist in the log, or a script would be empty.
        """
        if self.damaged or self.finding_tally.errors > int(self.has_left_out):
            return
        is_script, selected = (
            self._is_script,
            self.records_by_file.total() if self.envelope is None else self.message_count,
        )
        selected = sum(not one.is_empty for one in self.script_ends) if is_script else selected
        unmatched = log.find_unmatched_names(self.request.selection, selected)
        if is_script:
            unmatched.refuse_unmatched_gtids()
        if not selected:
            lost = [one["message"] for one in self.finding_tally.listed if one["id"] == NOT_REVERSIBLE]
            if not lost:
                unmatched.refuse_missing_names()
            if (
                is_script
                and not self.finding_tally.errors
                and (self.wording.flashback or is_partial(self.request.selection))
            ):
                problem = "no row changes to reverse" if self.wording.flashback else "no statements for a script"
                reason = f" ({'; '.join((*unmatched.absent, *lost))})" if unmatched.absent or lost else ""
                raise UsageError(f"the selection has {problem}; nothing was written{reason}")
        self.remarks = (*unmatched.missing, *unmatched.absent)
        if self.to == "jsonl" and self.envelope is None and self.request.selection.objects and selected:
            self.remarks += (
                (
                    "this output has records; for rows with the table's columns use `binlogtool rows -O jsonl` "
                    "or --to json"
                ),
            )

    @property
    def row_changes(self) -> int | None:
        """Number of row changes in the scripts; None = not counted."""
        counts = [one.row_changes for one in self.script_ends if one.row_changes is not None]
        return sum(counts) if counts else None

    @property
    def message_count(self) -> int:
        """Number of messages written so far."""
        return self.other_message_count + sum(one.count for one in self.messages)

    def read_parts(self, log: Any, part: FilePart = WHOLE_FILE) -> Iterator[StreamPart]:
        """Read the parts of the log that are written to the target. part: range of the only file (records and messages
        only).
        """
        if self._is_script:
            return iter(log.statements(script_selection(self.request.selection), self.wording))
        if self.to == "raw":
            refuse_salvage(self.request.selection, "a stream of raw bytes")
            return iter(log.blocks(self.request.selection, decode="frame", raw=True))
        if self.envelope is not None:
            create_messages = make_change_message_writer_factory(
                self.envelope, self.request.selection, self.message_sink
            )

            def start_messages(changes: ChangeReader) -> ChangeMessageWriter:
                self.messages.append(create_messages(changes))
                return self.messages[-1]

            return iter(log.change_messages(script_selection(self.request.selection), start_messages, part=part))
        if self.compiled_lines is not None:
            return self.compiled_lines(log.record_ranges(self.request.selection, part=part))
        return iter(log.blocks(self.request.selection, part=part))

    def count_parts_and_drop_damage(
        self, parts: Iterable[StreamPart], inputs: list[ManifestInput]
    ) -> Iterator[RecordBlock | SqlFragment | ScriptText]:
        """Yield all parts except damage, which is recorded for the manifest; count records and report progress."""
        before, total = _bytes_before_each_file(inputs)
        for part in parts:
            if isinstance(part, FileFinding):
                damage = self.is_damage is None or self.is_damage(part.finding)
                self.finding_tally.add(part.file, finding_to_value(part.finding), damage=damage)
                if part.finding.severity is Severity.ERROR:
                    self.has_left_out |= part.finding.id == STATEMENT_LEFT_OUT
                    self.damaged |= part.finding.id != STATEMENT_LEFT_OUT
                continue
            if isinstance(part, ScriptText) and part.end is not None:
                self.script_ends.append(part.end)
            if isinstance(part, SqlFragment):
                self._count_records(part.file, len(part.record))
                if self.on_read is not None and part.offset:
                    self.on_read(part.file, int(part.offset[-1]))
                if self.on_step is not None and not self._is_script:
                    done = before[part.file] + part.offset[0]
                    self.on_step(ProgressStep("converting", done, total, self.records_by_file.total()))
            if isinstance(part, RecordBlock) and len(part):
                self._count_block(part)
                if self.on_read is not None:
                    self.on_read(part.file, int(part.offset[-1]) + int(part.size[-1]))
                if self.on_step is not None:
                    done = before[part.file] + int(part.offset[-1]) + int(part.size[-1])
                    self.on_step(ProgressStep("converting", done, total, self.records_by_file.total()))
            yield part

    def _count_records(self, file: str, count: int) -> None:
        self.records_by_file[file] += count
        self.finding_tally.has_records = True

    def _count_block(self, block: RecordBlock) -> None:
        self._count_records(block.file, len(block))
        for finding in (f for findings in block.findings.values() for f in findings):
            unwritten = (self._is_script or self.envelope is not None) and finding.severity is Severity.ERROR
            self.finding_tally.add(block.file, finding_to_value(finding), damage=unwritten)

    def encode_parts(
        self, parts: Iterable[RecordBlock | SqlFragment | ScriptText], folder: Path
    ) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the file. folder: for a temporary file."""
        if not self.wording.flashback:
            filler = LongValueWriter()
            for part in parts:
                if isinstance(part, ScriptText | SqlFragment):
                    yield self._add_generation(part.data)
                else:
                    yield from filler.fill_placeholders(
                        bytes(self._add_generation(self.encode_block(part))), part.long_values
                    )
            return
        with ReverseSpool(folder) as script:
            for part in parts:
                script.add([bytes(part.data)] if isinstance(part, ScriptText | SqlFragment) else record_texts(part))
            yield from script.read_in_reverse_order()

    def _add_generation(self, lines: bytes | memoryview) -> bytes | memoryview:
        if self.generation is None:
            return lines
        start = b'{"generation":%d,' % self.generation
        return b"".join(start + one[1:] for one in bytes(lines).splitlines(keepends=True))

    def encode_block(self, block: RecordBlock) -> bytes:
        """Return the text of a block, with placeholders of long values."""
        if self.envelope is not None:
            return b"".join(body or b"" for body in block.bodies)
        if self.lines is not None:
            return self.lines(block)
        if self._is_script:
            return b"".join(record_texts(block))
        data = b"".join(block.raw or ())
        self.raw_bytes += len(data)  # without headers of the chunks that a record consists of, which its size includes
        return data

    @property
    def row_count(self) -> int:
        """Number of records; for a script, of row changes if they are counted; for an envelope, of messages."""
        records = self.records_by_file.total() if self.row_changes is None else self.row_changes
        return records if self.envelope is None else self.message_count

    # -- the proof -----------------------------------------------------------------------------------------------------

    def _compare_read_back_content(
        self, read_back_content: FileContent, expected_crc32: int
    ) -> Iterator[ManifestCheck]:
        """Yield the checks of the file. read_back_content: the file as read back.

        expected_crc32: CRC-32 of the written bytes.
        """
        stage, rows, size, lines = (
            read_back_content.path,
            self.records_by_file.total(),
            read_back_content.size,
            read_back_content.lines,
        )
        if read_back_content.checksum != expected_crc32:
            raise InputOutputError(f"{stage}: what was read back differs from what was written")
        if self.envelope is not None:
            written = self.message_count
            if lines != written:
                raise InputOutputError(f"{stage}: {lines:,} lines were found where {written:,} were written")
            yield ManifestCheck(
                "messages-in-equal-lines-out", f"{written:,} messages of {rows:,} records, {lines:,} lines"
            )
        elif self.to == "jsonl":
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
        yield ManifestCheck("read-back-equal", f"sha256 {read_back_content.sha256} of {size:,} bytes")

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
        stopped += "-skip-ddl" if stopped == "flashback" and self.wording.skip_ddl else ""
        details: dict[str, Any] = {} if self.envelope is None else {"envelope": self.envelope.envelope}
        details |= {} if complete or self.damaged else {"stopped_by": stopped}
        details |= {"remarks": list(self.remarks)} if self.remarks else {}
        details |= {} if self.row_changes is None else {"row_changes": self.row_changes}
        return self.finding_tally.build_manifest(
            self.request.selection,
            complete=complete,
            inputs=tuple(replace(i, records=self.records_by_file[i.path]) for i in inputs),
            outputs=outputs,
            rows=self.row_count,
            checks=checks,
            details=details,
        )


def _remark_unnamed_later_logs(inputs: Sequence[ManifestInput]) -> Iterator[str]:
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


def _bytes_before_each_file(inputs: list[ManifestInput]) -> tuple[dict[str, int], int]:
    """Return the number of bytes before each file (name -> bytes), and the total."""
    before, total = dict[str, int](), 0
    for input_ in inputs:
        before[input_.path] = total
        total += input_.size
    return before, total


class FileContent(msgspec.Struct, frozen=True):
    """Facts about the bytes of a file. checksum: CRC-32. lines: number of line ends."""

    path: Path
    size: int
    checksum: int
    sha256: str
    lines: int


def summarize_file_content(path: Path) -> FileContent:
    """Read a finished file in one pass, and return the facts about its content."""
    size = checksum = lines = 0
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            size += len(data)
            checksum = CRC32.kernel(data, checksum)
            digest.update(data)
            lines += data.count(b"\n")
    return FileContent(path, size, checksum, digest.hexdigest(), lines)
