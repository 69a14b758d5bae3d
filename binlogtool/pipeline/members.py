"""Read one file as Arrow batches, for the data source and for its streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from msgspec.structs import replace

from binlogtool.errors import BinlogtoolError
from binlogtool.findings import Finding, make_finding
from binlogtool.formats.detecting import Hints
from binlogtool.log.how import ReadOptions
from binlogtool.log.open import LogReader, open_log
from binlogtool.log.parts import WHOLE_FILE, FilePart
from binlogtool.log.records import FileFinding, RecordBlock
from binlogtool.pipeline import rows
from binlogtool.pipeline.closing import is_damage
from binlogtool.pipeline.making import RowBuilder, read_row_parts
from binlogtool.pipeline.notes import write_notes
from binlogtool.pipeline.request import ReadRequest
from binlogtool.pipeline.tasks import TaskFile


def read_member(
    member: TaskFile,
    request: ReadRequest,
    hints: Hints | None = None,
    part: FilePart = WHOLE_FILE,
    builder: RowBuilder = rows.DEFAULT_LAYOUT,
    is_file_closed: Callable[[], bool] = bool,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file. Errors that end the work (an unreadable file, a limit) become a DAMAGE row as well.

    is_file_closed: returns True if the file is closed, see `is_damage`.
    """
    format_, notes = member.format, list[Finding]()
    if member.trouble:
        yield builder.build_damage_batch(
            member.name, format_, make_finding("input-unreadable", None, 0, member.trouble)
        )
        return
    try:
        with open_member(member, request, hints) as log:
            format_ = log.files[0].format.name
            for item in read_row_parts(log, member.name, member.selection or request.selection, part, builder):
                if isinstance(item, RecordBlock):
                    yield from builder.build_batches(replace(item, file=member.name))
                elif not isinstance(item, FileFinding):
                    yield item
                elif is_damage(item.finding, is_file_closed):
                    yield builder.build_damage_batch(member.name, format_, item.finding)
                else:
                    notes.append(item.finding)
    except BinlogtoolError as error:
        changed_finding = make_finding("changed-while-read", None, 0, f"readable before, not now: {error}")
        yield builder.build_damage_batch(member.name, format_, changed_finding)
    if notes and request.notes is not None:
        write_notes(request.notes, rows.printable_path(member.name), repr(part), notes)


def open_member(member: TaskFile, request: ReadRequest, hints: Hints | None) -> LogReader:
    """Open the log of one file, as the request specifies."""
    member_hints = request.member_hints(member, hints)
    return open_log(
        member.path,
        ReadOptions(format=member.format, limits=request.limits, backend=request.backend, hints=member_hints),
        LogReader,
    )
