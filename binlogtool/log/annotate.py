"""Annotated bytes of one log file: header, frames, damage and tail as rows that leave out no byte."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.errors import LimitError, UsageError
from binlogtool.findings import Finding
from binlogtool.formats.detecting import Hints
from binlogtool.limits import Limits
from binlogtool.log.annotate_choice import AnnotationTarget
from binlogtool.log.annotate_walk import AnnotationWalker
from binlogtool.log.how import ReadOptions
from binlogtool.log.open import LogReader, open_log
from binlogtool.log.opened_file import LogFile
from binlogtool.log.places import LogPosition, is_gtid_position, parse_position, split_file_prefix
from binlogtool.log.scan import Scan
from binlogtool.log.select import Selection
from binlogtool.schema import backends
from binlogtool.schema.annotation import AddressSpace, AnnotatedPiece, Annotation, FieldRow
from binlogtool.schema.trace import ROW_BYTES


class AnnotateRequest(msgspec.Struct, frozen=True):
    """The part of one file to annotate; without arguments the whole file, from the header on.

    Args:
        record: number of a record, from 0.
        at: a position (`0x4f8`, `end-4KiB`, `record:5`, `seq:7`).
        length: with `at` as an offset (none = 0): all parts that overlap so many bytes from there on.
        selection: only the frames that hold selected records; of an unpacked payload only the rows of these records.
        field: only rows at or below this path, with or without the frame.
        damage_only: damaged ranges with `context` bytes of fields around them.
    """

    record: int | None = None
    at: int | str | None = None
    length: int | None = None
    field: str | None = None
    damage_only: bool = False
    context: int = 64
    selection: Selection | None = None

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.record, self.at, self.selection)) > 1:
            raise UsageError("a record, a position and a selection of records exclude each other")
        if self.length is not None and (self.record is not None or self.selection is not None or self.length < 1):
            raise UsageError("a length of at least one byte goes with a position alone")
        if self.selection is not None and self.selection.tail is not None:
            raise UsageError("the last records cannot be annotated; name their positions")

    @property
    def file(self) -> str | None:
        """The file that a position of the request names."""
        selected = () if self.selection is None else (self.selection.start, self.selection.stop)
        texts = [text for text in (self.at, *selected) if isinstance(text, str) and not is_gtid_position(text)]
        return next((name for name, _ in map(split_file_prefix, texts) if name is not None), None)

    def resolve(self, size: int | None, page: int | None) -> AnnotationTarget:
        """Resolve the request for a file of this size, with pages of this size (None = it has none).

        Raises:
            UsageError: the position is invalid.
        """
        place = parse_position(self.at, size, page) if isinstance(self.at, str) else None
        if self.record is not None:
            place = LogPosition("record", self.record)
        elif isinstance(self.at, int):
            place = LogPosition("offset", self.at)
        if self.length is not None:
            place = place or LogPosition("offset", 0)
            if place.kind != "offset":
                raise UsageError(f"a length counts from an offset, not from {place.kind}:{place.value}")
        return AnnotationTarget(place, self.length or 1, self.field, self.damage_only, self.context, self.selection)


_WHOLE_FILE = AnnotateRequest()


class LogAnnotation(msgspec.Struct, frozen=True):
    """The annotated part of one file, piece by piece in file order, with memory for one piece.

    `pieces` can be consumed once. Pieces without rows have findings only: about the whole file, and about damage
    between selected records. Iteration may raise UsageError (there is no such record, position or field) and LimitError
    (a limit ended the scan).
    """

    log_file: LogFile
    pieces: Iterator[AnnotatedPiece]

    @property
    def file(self) -> str:
        """Path of the file."""
        return self.log_file.path

    @property
    def size(self) -> int | None:
        """Size of the file in bytes; None for a stream, whose size is known after it was read."""
        return self.log_file.size

    def to_annotation(self, limits: Limits = Limits()) -> Annotation:
        """Return all pieces as one annotation.

        Raises:
            UsageError: there is no such record, position or field.
            LimitError: more rows than `limits.max_memory` holds, or a limit ended the scan.
        """
        file, held = self.log_file, 0
        rows: list[FieldRow] = []
        spaces: list[AddressSpace] = []
        findings: list[Finding] = []
        for piece in self.pieces:
            rows += piece.rows
            spaces += piece.spaces
            findings += piece.findings
            held += sum(len(space.data) for space in piece.spaces)
            if len(rows) * ROW_BYTES + held > limits.max_memory:
                raise LimitError(f"{file.path}: more fields than the memory ceiling allows; ask for less, or for text")
        size = file.size if file.size is not None else file.window.end
        return Annotation(file.path, file.format.name, size, tuple(rows), tuple(spaces), tuple(findings))


def annotate_file(
    file: LogFile,
    request: AnnotateRequest = _WHOLE_FILE,
    *,
    limits: Limits = Limits(),
    backend: str = "auto",
    live: bool = False,
    folds: bool = False,
) -> LogAnnotation:
    """Annotate one open file. folds: a row may stand for several (`schema.trace_shapes.FoldedRow`)."""
    return LogAnnotation(file, _iter_pieces(file, request, limits, backend=backend, live=live, folds=folds))


def annotate_log(
    log: LogReader,
    *,
    limits: Limits = Limits(),
    backend: str = "auto",
    live: bool = False,
    folds: bool = False,
    **request_options: Any,
) -> LogAnnotation:
    """Annotate the file of a log, or the member that `at` names (`FILE:POS`).

    Args:
        folds: rows may stand for several, as the fast hexdump takes them.
        request_options: members of `AnnotateRequest`.

    Raises:
        UsageError: the log has several files and none is named, or the request contradicts itself.
    """
    request = AnnotateRequest(**request_options)
    return annotate_file(_select_file(log, request), request, limits=limits, backend=backend, live=live, folds=folds)


def annotate_path(
    path: str | os.PathLike[str],
    *,
    format: str = "auto",
    limits: Limits = Limits(),
    backend: str = "auto",
    hints: Hints | None = None,
    **options: Any,
) -> Annotation:
    """Return all rows of a part of one file, in file order; options as in `annotate_log`.

    Raises:
        UsageError, UnknownFormatError, InputOutputError, LimitError.
    """
    with open_log(path, ReadOptions(format, limits, backend, hints), LogReader) as log:
        return annotate_log(log, limits=limits, backend=backend, **options).to_annotation(limits)


def _select_file(log: LogReader, request: AnnotateRequest) -> LogFile:
    files = log.files
    if len(files) > 1 and request.file is not None:
        files = tuple(file for file in files if request.file in (file.path, os.path.basename(file.path)))
    if len(files) != 1:
        raise UsageError("name one file of the set")
    return files[0]


def _iter_pieces(
    file: LogFile, request: AnnotateRequest, limits: Limits, *, backend: str, live: bool, folds: bool
) -> Iterator[AnnotatedPiece]:
    target = request.resolve(file.size, file.layout.page_size)
    if file.layout.findings and not target.is_single:
        yield AnnotatedPiece(0, 0, [], (), file.layout.findings)
    walk = make_walker(file, target, limits, backend, live=live)
    walk.folds = folds and target.field is None and not target.damage_only
    row_count = 0
    for piece in walk.iter_near_damage() if target.damage_only else walk.iter_pieces():
        selected = piece if target.field is None else replace(piece, rows=_select_path(piece.rows, target.field))
        row_count += len(selected.rows)
        if selected.rows or not piece.rows:
            yield selected
    if walk.scan.incomplete:
        raise LimitError(f"{file.path}: {walk.scan.incomplete}")
    if not row_count and (target.at is not None or target.field is not None):
        raise UsageError(f"{file.path}: {_describe_missing(target, walk.scan)}")
    if changed := file.find_change():
        yield AnnotatedPiece(0, 0, [], (), (changed,))


def make_walker(
    file: LogFile, target: AnnotationTarget, limits: Limits, backend: str, *, live: bool = False
) -> AnnotationWalker:
    """Create the walker of one pass over a file, with these memory bounds."""
    limits = _limit_inflate(limits)
    return AnnotationWalker(file, target, limits, _make_scan(file, limits, backend, live))


def _limit_inflate(limits: Limits) -> Limits:
    """Bound unpacked payloads to a quarter of the memory: they are in memory twice, with their rows."""
    return replace(limits, max_inflate=min(limits.max_inflate, limits.max_memory // 4))


def _make_scan(file: LogFile, limits: Limits, backend: str, live: bool) -> Scan:
    """Create a scan of the frames; records that span several of them are not joined."""
    engine = backends.choose_backend(backend)
    window = file.window if file.size is None else None
    layout = replace(file.layout, make_assembler=None)
    return Scan(file.source, file.format, layout, engine, limits, True, live, window)


def _describe_missing(target: AnnotationTarget, scan: Scan) -> str:
    if target.field is not None:
        return f"no field {target.field!r} there"
    assert target.at is not None
    if target.at.kind == "record":
        return f"no record {target.at.value}; there are {scan.records:,}"
    if target.at.kind == "offset":
        return f"nothing at {target.at.value:#x}; the file has {scan.end:,} bytes"
    return f"no record with {target.at.kind} {target.at.value}"


def _select_path(rows: list[FieldRow], path: str) -> list[FieldRow]:
    """Return the rows at or below a path, given in full or from the frame on."""
    return [row for row in rows if _is_at_or_below(row.path, path) or _is_at_or_below(row.path.partition(".")[2], path)]


def _is_at_or_below(row: str, path: str) -> bool:
    return row.startswith(path) and row[len(path) : len(path) + 1] in ("", ".", "[")
