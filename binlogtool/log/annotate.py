"""The annotated bytes of one log file: header, frames, damage and tail as rows that leave out no byte."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from binlogtool.errors import LimitError, UsageError
from binlogtool.limits import Limits
from binlogtool.log.annotate_walk import Piece, Walk, Wanted
from binlogtool.log.filters import Position, parse_position
from binlogtool.log.open import LogFile, open_log
from binlogtool.log.scan import Scan
from binlogtool.schema import backends
from binlogtool.schema.annotation import Annotation, FieldRow, Space
from binlogtool.schema.trace import ROW_BYTES


def annotate(
    file: LogFile,
    *,
    record: int | None = None,
    at: int | str | None = None,
    field: str | None = None,
    damage_only: bool = False,
    context: int = 64,
    limits: Limits = Limits(),
    backend: str = "auto",
    live: bool = False,
) -> Annotation:
    """All rows of the asked part of a file, in file order.

    record: number of a record, from 0. at: a position as in cli.md 6.2 (`0x4f8`, `end-4KiB`, `record:5`, `seq:7`). For
    a record inside an unpacked payload only its own rows are kept of that payload.

    Raises:
        UsageError: there is no such record, position or field.
        LimitError: more rows than `limits.max_memory` holds (narrow it down, or use `pieces`).
    """
    wanted = Wanted(_place(record, at, file.size), field, damage_only, context)
    rows: list[FieldRow] = []
    spaces: list[Space] = []
    findings = list(file.layout.findings) if not wanted.one else []
    held = 0
    for piece in pieces(file, wanted, limits, backend=backend, live=live):
        rows += piece.rows
        spaces += piece.spaces
        findings += piece.findings
        held += sum(len(space.data) for space in piece.spaces)
        if len(rows) * ROW_BYTES + held > limits.max_memory:
            raise LimitError(f"{file.path}: more fields than the memory ceiling allows; ask for less, or for text")
    changed = file.source.changed()
    size = file.size if file.size is not None else file.window.end
    return Annotation(
        file.path, file.format.name, size, tuple(rows), tuple(spaces), (*findings, *([changed] if changed else ()))
    )


def annotate_path(
    path: str | os.PathLike[str],
    *,
    format: str = "auto",
    limits: Limits = Limits(),
    backend: str = "auto",
    record: int | None = None,
    at: int | str | None = None,
    field: str | None = None,
    damage_only: bool = False,
    context: int = 64,
    live: bool = False,
) -> Annotation:
    """`annotate` for one file; of a set, for the member that `at` names (`FILE:POS`).

    Raises:
        UsageError, UnknownFormatError, InputOutputError, LimitError.
    """
    with open_log(path, format=format, limits=limits, backend=backend) as log:
        files = log.files
        if len(files) > 1 and isinstance(at, str):
            named = parse_position(at, files[0].size).file
            files = tuple(file for file in files if named in (file.path, os.path.basename(file.path)))
        if len(files) != 1:
            raise UsageError(f"{os.fspath(path)}: name one file of the set")
        return annotate(
            files[0], record=record, at=at, field=field, damage_only=damage_only, context=context, limits=limits,
            backend=backend, live=live,
        )  # fmt: skip


def _place(record: int | None, at: int | str | None, size: int | None) -> Position | None:
    if record is not None:
        return Position("record", record)
    return parse_position(at, size) if isinstance(at, str) else None if at is None else Position("offset", at)


def pieces(
    file: LogFile, wanted: Wanted, limits: Limits, *, backend: str = "auto", live: bool = False
) -> Iterator[Piece]:
    """The asked part of a file piece by piece, in file order, with memory for one piece.

    Raises:
        UsageError: there is no such record, position or field.
        LimitError: a limit ended the scan early.
    """
    walk = Walk(file, wanted, limits, _scan(file, limits, backend, live))
    shown = 0
    for piece in walk.near_damage() if wanted.damage_only else walk.pieces():
        kept = piece if wanted.field is None else replace(piece, rows=_at_path(piece.rows, wanted.field))
        shown += len(kept.rows)
        if kept.rows:
            yield kept
    if walk.scan.incomplete:
        raise LimitError(f"{file.path}: {walk.scan.incomplete}")
    if not shown and (wanted.at is not None or wanted.field is not None):
        raise UsageError(f"{file.path}: {_nothing(wanted, walk.scan)}")


def _scan(file: LogFile, limits: Limits, backend: str, live: bool) -> Scan:
    rows = file.layout.rows is not None
    engine = backends.choose(backend, file.size, "rows" if rows else "checksum")
    window = file.window if file.size is None else None
    return Scan(file.source, file.format, file.layout, engine, limits, True, live, window)


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
    """The rows at or below a path, given in full or from the frame on."""
    return [row for row in rows if _below(row.path, path) or _below(row.path.partition(".")[2], path)]


def _below(row: str, path: str) -> bool:
    return row.startswith(path) and row[len(path) : len(path) + 1] in ("", ".", "[")
