"""Compute the bytes of a repaired file (salvaged ranges, corrected bits, additions of the format), and verify them
before anything is written.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from binlogtool import formats
from binlogtool.core.damage_causes import measure_proven_frame_size
from binlogtool.core.open_file import (
    BytesSource,
    FileSource,
    LogFile,
    SiblingFiles,
    Source,
    find_format,
    make_reopening_reader,
    make_sibling_reader,
    open_file,
    read_range,
)
from binlogtool.core.record_and_selection_types import ReadOptions
from binlogtool.core.resolve_paths import LogGroup, resolve_path
from binlogtool.core.scan_file import DamagedRange, Scan
from binlogtool.findings import Finding, Severity
from binlogtool.format_api.format import (
    ByteEdit,
    FileFix,
    Format,
    FrameHeaderFix,
    Hints,
    ResultPiece,
    RewrittenFile,
    is_header_correction,
)
from binlogtool.format_api.layout import Batch, RangeReader
from binlogtool.limits import KIB, MIB, Limits
from binlogtool.repair.plan_types import CUTTABLE, FilePlan, RepairPolicy
from binlogtool.schema import backends
from binlogtool.schema.frame_scan_loop import Backend
from binlogtool.verification.verify_logs import (
    LogExamination,
    LogVerifyOptions,
    VerifiedMember,
    examine_log,
    verify_file,
)
from binlogtool.verification.verify_report import (
    FileReport,
    Report,
    SetReport,
    SkippedFiles,
    make_exception_of_failure,
    merge_reports,
    report_skipped_files,
)

# --- Files whose damage single flipped bits explain ---


class FlippedBit(NamedTuple):
    """A bit whose correction makes a stored checksum right. byte: offset in the file; bit: 0 is the lowest."""

    byte: int
    bit: int

    def __str__(self) -> str:
        return f"bit {self.bit} of byte {self.byte:#x}"

    @property
    def proof(self) -> dict[str, Any]:
        """The correction as a JSON value of a plan's proof."""
        text = f"{self} corrected; the stored checksum proves the bytes around it"
        return {"offset": self.byte, "message": text}

    def make_correcting_edit(self, read_bytes: RangeReader) -> ByteEdit:
        """Return the edit that corrects the bit."""
        old = read_bytes(self.byte, 1)
        return ByteEdit(self.byte, old, bytes(one ^ 1 << self.bit for one in old))


def get_flipped_bit(finding: Finding) -> FlippedBit | None:
    """Return the flipped bit that explains the damage of a finding; None if no single bit does."""
    facts = finding.facts
    cause = facts.get("cause")
    if cause == "flipped-bit":
        return FlippedBit(int(facts["cause_offset"]), int(facts["cause_bit"]))
    if cause is None and "flipped_byte" in facts:
        return FlippedBit(int(facts["flipped_byte"]), int(facts["flipped_bit"]))
    return None


def list_flipped_bits(findings: Iterable[Finding]) -> list[FlippedBit]:
    """Return the flipped bits that explain findings, without repetitions, in the order of the file."""
    return sorted({flip for one in findings if (flip := get_flipped_bit(one)) is not None})


def rewrite_with_corrected_bits(report: FileReport, name: str, read: RangeReader) -> RewrittenFile | None:
    """Return the rewritten file with every flipped bit corrected that a finding names; None if there is none.

    Args:
        name: The file's name within its log set.

    The caller must verify that the result has no damage.
    """
    flipped_bits = list_flipped_bits(report.findings)
    edits = [flip.make_correcting_edit(read) for flip in flipped_bits]
    if not edits:
        return None
    pieces = apply_edits((ResultPiece(0, report.size),), edits)
    proof = {"corrected": [flip.proof for flip in flipped_bits]}
    return RewrittenFile(name, "rewrite", pieces, report.durable_end, 0, proof)


# --- Salvage of a damaged file ---

MAX_SEARCHED_DAMAGE = 16 * MIB
"""Maximum bytes of a damaged range that is searched for frames with only a damaged header."""
MAX_CORRECTED_DAMAGE = 256 * KIB
"""Maximum bytes of a damaged range in which a flipped bit is corrected; in 1 of 2,048 ranges of this size, other damage
looks like one bit."""


class SalvagedContent(NamedTuple):
    """Provable content of a file.

    Attributes:
        pieces: Header, good frames and, if the file has one, the end mark; a single empty piece if there are none of
            these.
        left_out: The ranges that are left out, as JSON values.
        holes: Number of left-out ranges with good frames after them.
        fixed_frames: The frames whose header was corrected, as JSON values.
        flipped_bits: The flipped bits in the pieces, which are to be corrected.
    """

    pieces: tuple[ResultPiece, ...] = ()
    left_out: tuple[dict[str, Any], ...] = ()
    holes: int = 0
    fixed_frames: tuple[dict[str, Any], ...] = ()
    flipped_bits: tuple[FlippedBit, ...] = ()


def build_salvaged_content(
    file: LogFile, limits: Limits, backend: str, *, correct_bits: bool = False
) -> SalvagedContent:
    """Salvage a file in one pass. correct_bits: correct flipped bits where a checksum is then right."""
    chosen_backend = backends.choose_backend(backend)
    scan = Scan(file.source, file.format, file.layout, chosen_backend, limits, causes=correct_bits)
    builder = _SalvagedContentBuilder(file, chosen_backend if correct_bits else None)
    for segment in scan.segments():
        if isinstance(segment, DamagedRange):
            builder.add_provable_frames_of_damage(segment)
        else:
            builder.add_frames(segment)
    holes = sum(one["offset"] < builder.last_frame_start for one in builder.left_out)
    end_mark = file.layout.frame.end_mark
    if scan.closed and end_mark:
        builder.add_end_mark(end_mark)
    pieces = tuple(p for p in builder.pieces if p.size) or (ResultPiece(0, 0),)
    return SalvagedContent(
        pieces,
        tuple(builder.left_out),
        holes,
        tuple(builder.fixed_frames),
        tuple(builder.flipped_bits),
    )


class _SalvagedContentBuilder:
    """Builder of the content of a salvaged file. last_frame_start: offset of the last kept frame in the file."""

    def __init__(self, file: LogFile, backend: Backend | None) -> None:
        self.pieces = [ResultPiece(0, file.layout.frames_at)]
        self.left_out: list[dict[str, Any]] = []
        self.fixed_frames: list[dict[str, Any]] = []
        self.flipped_bits: list[FlippedBit] = []
        self.last_frame_start = 0
        self._file = file
        frame = file.layout.frame
        self._scanner = None if backend is None else backend.make_scanner(frame.schema, frame.columns, 1)

    def add_frames(self, batch: Batch) -> None:
        """Keep the good frames of a batch."""
        offsets, ends = batch.frames["offset"], batch.frames["end"]
        for index in range(batch.frames.count):
            self._keep_range(batch.base + int(offsets[index]), batch.base + int(ends[index]))

    def add_provable_frames_of_damage(self, damage: DamagedRange) -> None:
        """Keep the provable frames of a damaged range; leave out the rest."""
        position = self._keep_corrected_frames(damage)
        for frame in self._find_provable_frames(damage) if position == damage.start else ():
            start, end = damage.start + frame.start, damage.start + frame.end
            if start > position:
                self.left_out.append(_describe_omission(damage, position, start))
            self.pieces.append(ResultPiece(data=frame.head))
            self._keep_range(start + len(frame.head), end)
            text = "a new header; everything after it is proven by the stored checksum"
            self.fixed_frames.append({"offset": start, "length": end - start, "message": text})
            position = end
        if position < damage.end:
            self.left_out.append(_describe_omission(damage, position, damage.end))

    def add_end_mark(self, end_mark: bytes) -> None:
        """Append the end mark: as bytes of the file if it directly follows the last frame, else as new bytes."""
        last = self.pieces[-1]
        if last.is_original and read_range(self._file.source, last.end, len(end_mark)) == end_mark:
            self.pieces[-1] = ResultPiece(last.start, last.end + len(end_mark))
        else:
            self.pieces.append(ResultPiece(data=end_mark))

    def _keep_corrected_frames(self, damage: DamagedRange) -> int:
        """Keep the frames at the start of a damaged range that one corrected bit makes whole; return where they end."""
        flip, size = next(iter(list_flipped_bits(damage.findings)), None), damage.end - damage.start
        if self._scanner is None or flip is None or damage.payload:
            return damage.start
        if not 0 <= flip.byte - damage.start < size <= MAX_CORRECTED_DAMAGE:
            return damage.start
        data = bytearray(read_range(self._file.source, damage.start, size))
        data[flip.byte - damage.start] ^= 1 << flip.bit
        position = 0
        while frame_size := measure_proven_frame_size(self._scanner, data[position:]):
            self._keep_range(damage.start + position, damage.start + position + frame_size)
            position += frame_size
        if position:
            self.flipped_bits.append(flip)
        return damage.start + position

    def _find_provable_frames(self, damage: DamagedRange) -> Iterable[FrameHeaderFix]:
        find_frames = self._file.format.repair.fix_frames
        if find_frames is None or damage.payload or damage.end - damage.start > MAX_SEARCHED_DAMAGE:
            return ()
        return find_frames(self._file.layout, read_range(self._file.source, damage.start, damage.end - damage.start))

    def _keep_range(self, start: int, end: int) -> None:
        before = self.pieces[-1]
        if before.is_original and before.end == start:
            self.pieces[-1] = ResultPiece(before.start, end)
        else:
            self.pieces.append(ResultPiece(start, end))
        self.last_frame_start = start


def _describe_omission(damage: DamagedRange, start: int, end: int) -> dict[str, Any]:
    first = damage.findings[0] if damage.findings else None
    return {
        "offset": start,
        "length": end - start,
        "id": first.id if first else "damaged-range",
        "message": first.message if first else "nothing provable",
    }


# --- Logs of a repair ---


class ExaminedLog(NamedTuple):
    """A log with its results of `verify`."""

    log: LogGroup
    examination: LogExamination


class ExaminedPath(NamedTuple):
    """The logs that a path names, and the files of a directory that are not logs."""

    logs: list[ExaminedLog]
    skipped: tuple[SkippedFiles, ...]

    @property
    def report(self) -> Report:
        """Report on all logs of the path."""
        return replace(merge_reports(one.examination.report for one in self.logs), skipped=self.skipped)


class LogExaminer(ReadOptions, frozen=True):
    """Read options, and the methods that examine logs with them."""

    @classmethod
    def from_read_options(cls, read_options: ReadOptions) -> LogExaminer:
        """Create an examiner from read options."""
        return cls(read_options.format, read_options.limits, read_options.backend, read_options.hints)

    @property
    def verify_options(self) -> LogVerifyOptions:
        """The options for `verify`."""
        return LogVerifyOptions(limits=self.limits, backend=self.backend, hints=self.hints or Hints())

    def examine_path(self, path: str) -> ExaminedPath:
        """Verify the logs that a path names. Raises BinlogtoolError: the path cannot be read."""
        resolved = resolve_path(path, self.format)
        examined_logs = [ExaminedLog(log, examine_log(log, self.verify_options)) for log in resolved.groups]
        for failure in (one for log in examined_logs for one in log.examination.failures):
            raise make_exception_of_failure(failure)
        return ExaminedPath(examined_logs, report_skipped_files(path, resolved.skipped).skipped)

    def make_report(self, path: str) -> Report:
        """Verify the logs that a path names; return one report."""
        return self.examine_path(path).report

    def get_format(self, name: str) -> Format:
        """Return the format of this name, in the variant that the user chose."""
        return formats.load_format(name) if self.format == "auto" else find_format(self.format)


def make_raw_reader(path: str) -> RangeReader:
    """Return a function that reads the bytes of a file.

    It opens the file for each read because a log may have thousands.
    """
    return make_reopening_reader(os.path.realpath(path))


def is_same_path(left: str, right: str) -> bool:
    """Return True if two paths name the same file."""
    return os.path.realpath(left) == os.path.realpath(right)


# --- Bytes of a repaired file ---


class PlannedContent(NamedTuple):
    """The planned bytes of a file.

    Attributes:
        pieces: The pieces of the result; empty if the file does not change.
        cut_bytes: Number of bytes of the file that are neither kept nor replaced.
        salvaged: The salvaged content; None if the plan is no salvage.
        reasons: Why the result must not be written.
    """

    pieces: tuple[ResultPiece, ...] = ()
    cut_bytes: int = 0
    notes: tuple[str, ...] = ()
    salvaged: SalvagedContent = SalvagedContent()
    reasons: tuple[str, ...] = ()


def plan_content(
    report: FileReport,
    keep_size: int,
    format_: Format,
    policy: RepairPolicy,
    limits: Limits,
    backend: str,
    hints: Hints,
) -> PlannedContent:
    """Plan the bytes of one file. keep_size: offset of a plain cut."""
    pieces = (ResultPiece(0, keep_size),)
    plain_cut = PlannedContent(pieces, report.size - keep_size) if keep_size != report.size else PlannedContent()
    if not (policy.fix_meta or policy.write_close_marker or policy.salvage):
        return plain_cut
    only_bits = report.durable_end is None  # without a durable end, nothing may be left out
    if only_bits and not policy.correct_bits:
        return plain_cut
    file = open_file(report.path, os.path.basename(report.path), format_, limits, hints=hints)
    try:
        notes: list[str] = []
        salvaged, edits = SalvagedContent(pieces), list[ByteEdit]()
        if policy.salvage and report.findings:
            salvaged = build_salvaged_content(file, limits, backend, correct_bits=policy.correct_bits)
            if only_bits and (salvaged.left_out or not salvaged.flipped_bits):
                return plain_cut
            header_flips = list_flipped_bits(filter(is_header_correction, report.findings))
            edits += [
                flip.make_correcting_edit(make_raw_reader(file.path))
                for flip in (*header_flips, *salvaged.flipped_bits)
            ]
        new_heads = (p.size for p in salvaged.pieces[:-1] if p.data is not None)
        cut_bytes = report.size - sum(p.size for p in salvaged.pieces if p.is_original) - sum(new_heads)
        if policy.fix_meta:
            header_edits = plan_header_edits(file)
            edits += header_edits
            notes += [file.format.repair.edits_note] if header_edits else []
        result = apply_edits(salvaged.pieces, edits)
        if policy.write_close_marker and not _ends_with_end_mark(result, report, file):
            result += _make_end_mark(file)
        reasons = _explain_no_salvaged_copy(file) if salvaged.left_out else ()
        if result == (ResultPiece(0, report.size),):
            return PlannedContent((), 0, tuple(notes), salvaged, reasons)
        return PlannedContent(result, cut_bytes, tuple(notes), salvaged, reasons)
    finally:
        file.source.close()


def _explain_no_salvaged_copy(file: LogFile) -> tuple[str, ...]:
    why = file.format.repair.explain_salvage_obstacle(file.layout)
    return () if why is None else (f"{file.path}: cannot be salvaged: {why}",)


def plan_header_edits(file: LogFile) -> tuple[ByteEdit, ...]:
    """Return the edits that `--fix-meta` makes in the file itself."""
    if file.format.repair.head_edits is None:
        return ()
    return tuple(file.format.repair.head_edits(file.layout, make_raw_reader(file.path)))


def collect_file_fixes(log: LogGroup) -> tuple[FileFix, ...]:
    """Return the corrections by `--fix-meta` of files without records, such as the list of files, of a log's directory.

    Raises:
        InputOutputError.
    """
    make_fixes = None if log.format is None else log.format.repair.fix_files
    return (
        () if make_fixes is None else tuple(make_fixes(log.names, lambda name: make_raw_reader(log.member_path(name))))
    )


def apply_edits(pieces: tuple[ResultPiece, ...], edits: Iterable[ByteEdit]) -> tuple[ResultPiece, ...]:
    """Return the pieces with some bytes of the original replaced; edits of bytes that are not kept are dropped."""
    remaining = deque(sorted(edits))
    edited: list[ResultPiece] = []
    for piece in pieces:
        position = piece.start
        while piece.is_original and remaining and remaining[0].offset < piece.end:
            edit = remaining.popleft()
            end = edit.offset + len(edit.new)
            if position <= edit.offset and end <= piece.end:
                edited += [ResultPiece(position, edit.offset), ResultPiece(data=edit.new)]
                position = end
        edited.append(ResultPiece(position, piece.end) if piece.is_original else piece)
    return tuple(one for one in edited if one.size) or pieces


def _ends_with_end_mark(pieces: tuple[ResultPiece, ...], report: FileReport, file: LogFile) -> bool:
    """Return True if the result already ends with the end mark."""
    mark = file.layout.frame.end_mark
    last = pieces[-1]
    if mark is None or last.data is not None:
        return last.data == mark
    return make_raw_reader(report.path)(max(0, last.end - len(mark)), len(mark)) == mark and bool(report.closed)


def _make_end_mark(file: LogFile) -> tuple[ResultPiece, ...]:
    close_mark = file.format.repair.close_mark
    mark = None if close_mark is None else close_mark(file.layout)
    return () if mark is None else (ResultPiece(data=mark),)


# --- Verification of a result before it is written ---


class PiecesSource(Source):
    """Read-only source of a planned result, made of pieces."""

    def __init__(self, path: str, pieces: tuple[ResultPiece, ...]) -> None:
        self.name = path
        self.size: int | None = sum(p.size for p in pieces)
        self._file = (
            FileSource(os.path.realpath(path)) if any(p.is_original for p in pieces) else BytesSource(path, b"")
        )
        self._pieces = pieces

    def read_at(self, offset: int, view: memoryview) -> int:
        """Fill `view` from `offset`; return the number of bytes."""
        filled = piece_start = 0
        for piece in self._pieces:
            skip = offset + filled - piece_start
            if 0 <= skip < piece.size and filled < len(view):
                filled += self._read_piece(piece, skip, view[filled : filled + piece.size - skip])
            piece_start += piece.size
        return filled

    def _read_piece(self, piece: ResultPiece, skip: int, view: memoryview) -> int:
        if piece.is_original:
            return self._file.read_at(piece.start + skip, view)
        if piece.data is None:
            view[:] = bytes(len(view))
            return len(view)
        part = piece.data[skip : skip + len(view)]
        view[: len(part)] = part
        return len(part)

    def find_change_or_cut(self) -> Finding | None:
        """Return a finding if the underlying file changed while it was read."""
        return self._file.find_change_or_cut()

    def close(self) -> None:
        """Close the underlying file."""
        self._file.close()


def verify_planned_file(
    path: str, pieces: tuple[ResultPiece, ...], format_: Format, limits: Limits, backend: str, hints: Hints
) -> VerifiedMember:
    """Verify the planned result of one file on its own."""
    source = PiecesSource(path, pieces)
    file = open_file(path, os.path.basename(path), format_, limits, source, hints=hints)
    try:
        return verify_file(file, LogVerifyOptions(limits=limits, backend=backend, hints=hints))
    finally:
        file.source.close()


def verify_planned_log(
    group: LogGroup,
    results: Mapping[str, tuple[ResultPiece, ...] | None],
    options: LogVerifyOptions,
    verified: Mapping[str, VerifiedMember] = MappingProxyType({}),
) -> LogExamination:
    """Verify a whole log as it would be after the repair.

    Args:
        results: The pieces of each file that changes or is new, by path; None = the file is removed.
        verified: Name -> file that was already verified; unchanged files of these are not read again.
    """
    assert group.format is not None

    def read_sibling(path: str, name: str) -> RangeReader | None:
        sibling = os.path.join(os.path.dirname(path), os.path.basename(name))
        if sibling not in results:
            return make_sibling_reader(path, name)
        pieces = results[sibling]
        return None if pieces is None else partial(read_planned_range, sibling, pieces)

    def open_planned(
        path: str, name: str, format_: Format | None, limits: Limits, siblings: SiblingFiles, hints: Hints
    ) -> LogFile:
        pieces = results.get(path)
        source = None if pieces is None else PiecesSource(path, pieces)
        return open_file(
            path, name, format_, limits, source, replace(siblings, read_sibling=partial(read_sibling, path)), hints
        )

    remaining = [name for name in group.names if results.get(group.member_path(name), ()) is not None]
    present_paths = {group.member_path(name) for name in group.names}
    new_names = [os.path.relpath(path, group.path) for path in results if path not in present_paths]
    names = (group.format.files.sort_names or sorted)([*remaining, *new_names]) if new_names else remaining
    reusable = {name: one for name, one in verified.items() if group.member_path(name) not in results}
    return examine_log(replace(group, names=tuple(names)), options, open_planned, reusable)


def read_planned_range(path: str, pieces: tuple[ResultPiece, ...], offset: int, size: int) -> bytes:
    """Return the bytes `[offset, offset + size)` of a planned result."""
    source = PiecesSource(path, pieces)
    try:
        return read_range(source, offset, size)
    finally:
        source.close()


def list_unclean_findings(report: FileReport, *, salvage: bool = False, allow_open_end: bool = False) -> list[str]:
    """Return as texts the findings that forbid a result: errors, and ends that would have to be cut again.

    Args:
        salvage: Records may be missing, as in a salvaged log.
        allow_open_end: The log may end as a crash leaves it, or continue in the next file, because its end was not cut.
    """
    min_severity = Severity.WARNING if allow_open_end else Severity.NOTE
    unclean = [
        f for f in report.findings if f.severity is Severity.ERROR or (f.id in CUTTABLE and f.severity >= min_severity)
    ]
    return [f"{f.id}: {f.message}" for f in unclean if not (salvage and f.id == "gap-in-sequence")]


# --- Comparison of a log with its plan ---


class PlanSnapshot(NamedTuple):
    """State of a log for the comparison with a plan.

    Attributes:
        files: The plan for each file.
        reasons: Why the plans must not be applied.
        reports: The reports of `verify` on the files.
    """

    files: Sequence[FilePlan]
    reasons: Sequence[str]
    reports: Sequence[FileReport]


def describe_differences_from_plan(before: PlanSnapshot, after: PlanSnapshot) -> list[str]:
    """Describe the differences between the plan `before`, which was applied, and the resulting log `after`."""
    changes = [file for file in before.files if file.action not in ("none", "remove")]
    differences = [text for text in after.reasons if text not in before.reasons]
    differences += [f"{file.path}: still has bytes to remove" for file in after.files if file.action != "none"]
    differences += _compare_record_counts(changes, after.files)
    differences += _describe_unclean_files({file.path: file for file in changes}, after.reports)
    return list(dict.fromkeys(differences))


def _compare_record_counts(changes: Iterable[FilePlan], after: Iterable[FilePlan]) -> Iterator[str]:
    now = {file.path: file for file in after}
    for file in changes:
        new_plan = now.get(file.path)
        if new_plan is None or "records" not in file.proof:
            continue
        if new_plan.proof["records"] != file.proof.get("records_kept", file.proof["records"]):
            yield f"{file.path}: other records than planned"


def _describe_unclean_files(changed: Mapping[str, FilePlan], reports: Iterable[FileReport]) -> Iterator[str]:
    for report in reports:
        file = changed.get(report.path)
        if file is not None:
            yield from (
                f"{report.path}: {text}" for text in list_unclean_findings(report, allow_open_end=file.corrects_bits)
            )


# --- Predicted result of `verify` after a plan ---


def predict_problems_after_plan(
    log: ExaminedLog, files: Sequence[FilePlan], predictions: Mapping[str, VerifiedMember], options: LogVerifyOptions
) -> Iterator[tuple[str, bool]]:
    """Yield a text for each problem of a log after the plan, with True if the problem already exists before it.

    Args:
        predictions: Path -> planned file that was already verified.
    """
    before = set(list_errors(log.examination))
    return ((text, text in before) for text in list_errors(_verify_log_after_plan(log, files, predictions, options)))


def predict_new_problems(
    log: ExaminedLog, file: FilePlan, predictions: Mapping[str, VerifiedMember], options: LogVerifyOptions
) -> list[str]:
    """Return reasons against the plan for a single file; damage in other files of its log set does not count."""
    before = set(list_errors(log.examination))
    after = list_errors(_verify_log_after_plan(log, [file], predictions, options))
    return [format_unclean(text) for text in after if text not in before or text.startswith(f"{file.path}: ")]


def _verify_log_after_plan(
    log: ExaminedLog, files: Sequence[FilePlan], predictions: Mapping[str, VerifiedMember], options: LogVerifyOptions
) -> LogExamination:
    """Verify the log as it would be after the plan; unchanged files are not read again."""
    changed = [file for file in files if file.action != "none"]
    names = {log.log.member_path(name): name for name in log.log.names} if changed else {}
    results = {
        file.path: None if file.action == "remove" else file.pieces
        for file in changed
        if (file.path in names or (file.made_like is not None and file.made_like in names))
    }
    if not results:
        return log.examination
    verified = dict(log.examination.standalone_by_name)
    for path in results:
        if path in predictions:
            verified[names[path]] = predictions[path].copy_with_name(names[path])
    return verify_planned_log(log.log, results, options, verified)


def list_errors(examination: LogExamination) -> list[str]:
    """Return all errors and failures of a log as texts."""
    set_reports = () if examination.set is None else (examination.set,)
    every: Iterable[FileReport | SetReport] = chain((one.report for one in examination.files), set_reports)
    failed = [f"{one.path}: {one.message}" for one in examination.failures]
    return [f"{one.path}: {describe_finding(f)}" for one in every for f in select_errors(one.findings)] + failed


def select_errors(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings that are errors."""
    return (one for one in findings if one.severity is Severity.ERROR)


def describe_finding(finding: Finding) -> str:
    """Return a finding as text for a reason."""
    return f"{finding.id}: {finding.message}"


def format_unclean(text: str) -> str:
    """Return the reason for refusing a result that would not be clean."""
    return f"the result would not be clean: {text}"


def format_unrepaired(text: str, remedy: str = "this command cannot repair it") -> str:
    """Return the reason for refusing a plan that leaves damage unrepaired."""
    return f"{text} ({remedy})"
