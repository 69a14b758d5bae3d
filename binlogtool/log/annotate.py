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
from binlogtool.log.annotate_choice import Wanted
from binlogtool.log.annotate_walk import Walk
from binlogtool.log.how import How
from binlogtool.log.open import Log, open_log
from binlogtool.log.opened_file import LogFile
from binlogtool.log.places import Position, by_gtid, named, parse_position
from binlogtool.log.scan import Scan
from binlogtool.log.select import Selection
from binlogtool.schema import backends
from binlogtool.schema.annotation import Annotation, FieldRow, Piece, Space
from binlogtool.schema.trace import ROW_BYTES


class Request(msgspec.Struct, frozen=True):
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
        texts = [text for text in (self.at, *selected) if isinstance(text, str) and not by_gtid(text)]
        return next((name for name, _ in map(named, texts) if name is not None), None)

    def wanted(self, size: int | None, page: int | None) -> Wanted:
        """Resolve the request for a file of this size, with pages of this size (None = it has none).

        Raises:
            UsageError: the position is invalid.
        """
        place = parse_position(self.at, size, page) if isinstance(self.at, str) else None
        if self.record is not None:
            place = Position("record", self.record)
        elif isinstance(self.at, int):
            place = Position("offset", self.at)
        if self.length is not None:
            place = place or Position("offset", 0)
            if place.kind != "offset":
                raise UsageError(f"a length counts from an offset, not from {place.kind}:{place.value}")
        return Wanted(place, self.length or 1, self.field, self.damage_only, self.context, self.selection)


_ALL = Request()


class Annotated(msgspec.Struct, frozen=True):
    """The annotated part of one file, piece by piece in file order, with memory for one piece.

    `pieces` can be consumed once. Pieces without rows have findings only: about the whole file, and about damage
    between selected records. Iteration may raise UsageError (there is no such record, position or field) and
    LimitError
    (a limit ended the scan).
    """

    log_file: LogFile
    pieces: Iterator[Piece]

    @property
    def file(self) -> str:
        """Path of the file."""
        return self.log_file.path

    @property
    def size(self) -> int | None:
        """Size of the file in bytes; None for a stream, whose size is known after it was read."""
        return self.log_file.size

    def whole(self, limits: Limits = Limits()) -> Annotation:
        """Return all pieces as one annotation.

        Raises:
            UsageError: there is no such record, position or field.
            LimitError: more rows than `limits.max_memory` holds, or a limit ended the scan.
        """
        file, held = self.log_file, 0
        rows: list[FieldRow] = []
        spaces: list[Space] = []
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


def annotated(
    file: LogFile,
    request: Request = _ALL,
    *,
    limits: Limits = Limits(),
    backend: str = "auto",
    live: bool = False,
    folds: bool = False,
) -> Annotated:
    """Annotate one open file. folds: a row may stand for several (`schema.trace_shapes.Folded`)."""
    return Annotated(file, _pieces(file, request, limits, backend=backend, live=live, folds=folds))


def annotated_log(
    log: Log,
    *,
    limits: Limits = Limits(),
    backend: str = "auto",
    live: bool = False,
    folds: bool = False,
    **asked: Any,
) -> Annotated:
    """Annotate the file of a log, or the member that `at` names (`FILE:POS`).

    Args:
        folds: rows may stand for several, as the fast hexdump takes them.
        request_options: members of `AnnotateRequest`.

    Raises:
        UsageError: the log has several files and none is named, or the request contradicts itself.
    """
    request = Request(**asked)
    return annotated(_member(log, request), request, limits=limits, backend=backend, live=live, folds=folds)


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
    with open_log(path, How(format, limits, backend, hints), Log) as log:
        return annotated_log(log, limits=limits, backend=backend, **options).whole(limits)


def _member(log: Log, request: Request) -> LogFile:
    files = log.files
    if len(files) > 1 and request.file is not None:
        files = tuple(file for file in files if request.file in (file.path, os.path.basename(file.path)))
    if len(files) != 1:
        raise UsageError("name one file of the set")
    return files[0]


def _pieces(
    file: LogFile, request: Request, limits: Limits, *, backend: str, live: bool, folds: bool
) -> Iterator[Piece]:
    wanted = request.wanted(file.size, file.layout.page)
    if file.layout.findings and not wanted.one:
        yield Piece(0, 0, [], (), file.layout.findings)
    walk = walk_of(file, wanted, limits, backend, live=live)
    walk.folds = folds and wanted.field is None and not wanted.damage_only
    shown = 0
    for piece in walk.near_damage() if wanted.damage_only else walk.pieces():
        kept = piece if wanted.field is None else replace(piece, rows=_at_path(piece.rows, wanted.field))
        shown += len(kept.rows)
        if kept.rows or not piece.rows:
            yield kept
    if walk.scan.incomplete:
        raise LimitError(f"{file.path}: {walk.scan.incomplete}")
    if not shown and (wanted.at is not None or wanted.field is not None):
        raise UsageError(f"{file.path}: {_nothing(wanted, walk.scan)}")
    if changed := file.changed():
        yield Piece(0, 0, [], (), (changed,))


def walk_of(file: LogFile, wanted: Wanted, limits: Limits, backend: str, *, live: bool = False) -> Walk:
    """Create the walker of one pass over a file, with these memory bounds."""
    limits = _held_twice(limits)
    return Walk(file, wanted, limits, _scan(file, limits, backend, live))


def _held_twice(limits: Limits) -> Limits:
    """Bound unpacked payloads to a quarter of the memory: they are in memory twice, with their rows."""
    return replace(limits, max_inflate=min(limits.max_inflate, limits.max_memory // 4))


def _scan(file: LogFile, limits: Limits, backend: str, live: bool) -> Scan:
    """Create a scan of the frames; records that span several of them are not joined."""
    engine = backends.choose(backend)
    window = file.window if file.size is None else None
    layout = replace(file.layout, assemble=None)
    return Scan(file.source, file.format, layout, engine, limits, True, live, window)


def _nothing(wanted: Wanted, scan: Scan) -> str:
    if wanted.field is not None:
        return f"no field {wanted.field!r} there"
    assert wanted.at is not None
    if wanted.at.kind == "record":
        return f"no record {wanted.at.value}; there are {scan.records:,}"
    if wanted.at.kind == "offset":
        return f"nothing at {wanted.at.value:#x}; the file has {scan.end:,} bytes"
    return f"no record with {wanted.at.kind} {wanted.at.value}"


def _at_path(rows: list[FieldRow], path: str) -> list[FieldRow]:
    """Return the rows at or below a path, given in full or from the frame on."""
    return [row for row in rows if _below(row.path, path) or _below(row.path.partition(".")[2], path)]


def _below(row: str, path: str) -> bool:
    return row.startswith(path) and row[len(path) : len(path) + 1] in ("", ".", "[")
