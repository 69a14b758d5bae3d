"""Read one file as Arrow batches, for the data source and for its streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from msgspec.structs import replace

from binlogtool.errors import BinlogtoolError
from binlogtool.findings import Finding, finding
from binlogtool.formats.detecting import Hints
from binlogtool.log.open import Log
from binlogtool.log.parts import WHOLE, Part
from binlogtool.log.records import Block, Trouble
from binlogtool.pipeline import rows
from binlogtool.pipeline.closing import is_damage
from binlogtool.pipeline.making import Maker, made_of
from binlogtool.pipeline.notes import put
from binlogtool.pipeline.request import Request
from binlogtool.pipeline.tasks import Member


def read_member(
    member: Member,
    request: Request,
    hints: Hints | None = None,
    part: Part = WHOLE,
    maker: Maker = rows.ALL,
    closed: Callable[[], bool] = bool,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file. Errors that end the work (an unreadable file, a limit) become a DAMAGE row as well.

    closed: returns True if the file is closed, see `is_damage`.
    """
    format_, notes = member.format, list[Finding]()
    if member.trouble:
        yield maker.damage(member.name, format_, finding("input-unreadable", None, 0, member.trouble))
        return
    try:
        with open_member(member, request, hints) as log:
            format_ = log.files[0].format.name
            for one in made_of(log, member.name, member.selection or request.selection, part, maker):
                if isinstance(one, Block):
                    yield from maker.batches(replace(one, file=member.name))
                elif not isinstance(one, Trouble):
                    yield one
                elif is_damage(one.finding, closed):
                    yield maker.damage(member.name, format_, one.finding)
                else:
                    notes.append(one.finding)
    except BinlogtoolError as error:
        found = finding("changed-while-read", None, 0, f"readable before, not now: {error}")
        yield maker.damage(member.name, format_, found)
    if notes and request.notes is not None:
        put(request.notes, rows.file_name(member.name), repr(part), notes)


def open_member(member: Member, request: Request, hints: Hints | None) -> Log:
    """Open the log of one file, as the request specifies."""
    import binlogtool

    own = request.hints_of(member, hints)
    return binlogtool.open(member.path, format=member.format, limits=request.limits, backend=request.backend, hints=own)
