"""Read the rows of one file, using the table definitions in earlier files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from msgspec.structs import replace

from binlogtool.core import open_file as open_file_module
from binlogtool.core.divide_file import WHOLE_FILE, FilePart
from binlogtool.core.open_log import LogReader
from binlogtool.core.record_and_selection_types import FileFinding, RecordBlock, RowBatch, Selection
from binlogtool.errors import BinlogtoolError
from binlogtool.export import records_to_arrow
from binlogtool.export.incremental_positions import carried_order, carried_state_group_key, is_damage
from binlogtool.export.manifest import ReadRequest, TaskFile, TaskPiece, resolve_format
from binlogtool.export.records_to_arrow import RecordRowReader
from binlogtool.export.typed_columns import read_older_table_definitions, table_rules
from binlogtool.findings import Finding, make_finding
from binlogtool.format_api.format import Format, Hints
from binlogtool.format_api.row_output_interfaces import TableSchema

# --- Table definitions from earlier files ---


def add_carried_states(request: ReadRequest) -> ReadRequest:
    """Return the request with the state that earlier files carry over to each member, found in one pass over the files'
    statements.

    Only for formats whose files are not self-contained.
    """
    history_numbers: dict[str, int] = {}
    earlier: dict[str, int] = {}
    for log in _group_by_log(request.members):
        for path, history in _compute_carried_states(log, request):
            earlier[path] = history_numbers.setdefault(history, len(history_numbers))
    members = tuple(replace(one, earlier=earlier.get(one.path)) for one in request.members)
    return replace(request, members=members, histories=tuple(history_numbers))


def _group_by_log(members: Sequence[TaskFile]) -> list[list[TaskFile]]:
    """Return the members of each log with several members, in log order."""
    logs: dict[str, list[TaskFile]] = {}
    for member in members:
        if not member.trouble and _carries_state(member):
            logs.setdefault(carried_state_group_key(member.path), []).append(member)
    return [sorted(log, key=lambda one: carried_order(one.path)) for log in logs.values() if len(log) > 1]


def _carries_state(member: TaskFile) -> bool:
    with contextlib.suppress(BinlogtoolError):
        return open_file_module.find_format(resolve_format(member.path, member.format)).reading.carries_state
    return False


def _compute_carried_states(members: Sequence[TaskFile], request: ReadRequest) -> Iterator[tuple[str, str]]:
    """Yield (path, carried state) of the members to which earlier files carry state over."""
    files: list[tuple[str, str, Format | None]] = [
        (one.path, one.path, open_file_module.find_format(resolve_format(one.path, one.format))) for one in members
    ]
    log = LogReader(files, request.limits, request.backend, request.hints or Hints())
    with contextlib.closing(log):
        for number, member in enumerate(members):
            with contextlib.suppress(BinlogtoolError):
                history = log.export_state_from_earlier_files(number)
                if history is not None:
                    yield member.path, history


class PlacedDefinition(NamedTuple):
    """A table that a record describes. file: index of its member. offset: of the record."""

    file: int
    offset: int
    table: TableSchema


def read_definitions(request: ReadRequest) -> list[PlacedDefinition]:
    """Return the tables that records describe for later records of their log, in order; one pass over these records.

    Only for formats whose rows need them: older files of the directories are read, too.
    """
    members = request.members
    rules = [table_rules(one.path, one.format) for one in members]
    if not any(one is not None and one.older for one in rules):
        return []
    older = read_older_table_definitions([(one.path, one.format) for one in members], request.read_options())
    definitions = [PlacedDefinition(-1, 0, table) for table in older]
    for number, (member, rule) in enumerate(zip(members, rules, strict=True)):
        if rule is None or not rule.older or member.trouble:
            continue
        tables = tuple({one.table.ids: one.table for one in definitions}.values())
        selection = Selection(types=rule.types, objects=rule.objects)
        with request.open_member(member) as log:
            for block in log.table_rows(selection, known_tables=tables):
                if isinstance(block, RecordBlock):
                    definitions += [
                        PlacedDefinition(number, int(offset), table)
                        for offset, content in zip(block.offset, block.bodies, strict=True)
                        for table in content.described
                    ]
    return definitions


def select_tables_before_piece(
    definitions: Sequence[PlacedDefinition], request: ReadRequest, piece: TaskPiece
) -> tuple[TableSchema, ...]:
    """Return the table definitions that precede a piece in the log."""
    start = 0 if piece.part.start is None else piece.part.start.offset
    position = (request.members.index(piece.member), start)
    return tuple({one.table.ids: one.table for one in definitions if (one.file, one.offset) < position}.values())


# --- One file as Arrow batches ---


def read_file_rows(
    member: TaskFile,
    request: ReadRequest,
    part: FilePart = WHOLE_FILE,
    reader: RecordRowReader = records_to_arrow.DEFAULT_LAYOUT,
    is_file_closed: Callable[[], bool] = bool,
    on_finding_without_row: Callable[[Finding], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file. Errors that end the work (an unreadable file, a limit) also become DAMAGE rows.

    Args:
        is_file_closed: returns True if the file is closed, see `is_damage`.
        on_finding_without_row: receives findings that no row represents.
    """

    def on_finding(item: FileFinding) -> bool:
        damage = is_damage(item.finding, is_file_closed)
        if not damage and on_finding_without_row is not None:
            on_finding_without_row(item.finding)
        return damage

    format_ = member.format
    if member.trouble:
        yield reader.build_damage_batch(member.name, format_, make_finding("input-unreadable", None, 0, member.trouble))
        return
    try:
        with request.open_member(member) as log:
            format_ = log.files[0].format.name
            yield from reader.read_batches(log, member.name, member.selection or request.selection, part, on_finding)
    except BinlogtoolError as error:
        changed_finding = make_finding("changed-while-read", None, 0, f"was readable before, but not now: {error}")
        yield reader.build_damage_batch(member.name, format_, changed_finding)


def iter_tables(log: LogReader, selection: Selection) -> Iterator[TableSchema]:
    """Yield the tables that the selected records describe."""
    for part in log.row_batches(selection, is_selected=lambda _: False):
        if not isinstance(part, FileFinding):
            for content in (part.rows,) if isinstance(part, RowBatch) else filter(None, part.bodies):
                yield from content.described
