"""Apply a --where condition to records by compiled code and to row changes; report columns that no table has.

Compiled code writes the members of each record that the condition names as a JSON line; equal lines are evaluated once.
Records that it cannot write, nested values and values without an exact JSON form are evaluated by Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from binlogtool.core.decode_batches import BlockDecoder, read_member_columns
from binlogtool.core.record_and_selection_types import RecordBlock, Selection
from binlogtool.core.record_filter import MAX_GAP, RecordFilter, join_marked_runs
from binlogtool.errors import UsageError, format_name_suggestions, join_names
from binlogtool.format_api.encode_json import to_json_bytes
from binlogtool.format_api.format import BodyWithFindings, JsonLine
from binlogtool.query.conditions import parse_timestamp
from binlogtool.query.evaluate import ColumnValues, Condition, compile_condition, to_timestamps
from binlogtool.schema.json_line_codegen import MemberListWriter

if TYPE_CHECKING:
    from binlogtool.format_api.layout import Batch
    from binlogtool.format_api.row_output_interfaces import ScriptOptions
    from binlogtool.schema.json_body_codegen import BatchAddresses

# --- Rows of a script selected by a condition ---


class RowCondition(msgspec.Struct):
    """The row condition of one script; set the members of records before requesting their statements.

    text: its expression. found: it was true for some row.
    """

    text: str
    condition: Condition
    found: bool = False
    _start: int = 0
    _members: ColumnValues = msgspec.field(default_factory=dict)
    _marks: Sequence[bool] = ()

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the condition refers to."""
        return self.condition.columns

    def add_to_script_options(self, options: ScriptOptions) -> ScriptOptions:
        """Return the script options with this condition; tables that it rules out are skipped altogether."""
        includes_table, can_match_object = options.includes_table, self.condition.can_match_object
        return replace(
            options,
            row_filter=self,
            includes_table=lambda name: (includes_table is None or includes_table(name)) and can_match_object(name),
        )

    def set_record_members(self, start: int, stop: int, members: ColumnValues) -> None:
        """Store the member columns of records `[start, stop)`, and mark those whose members allow a match."""
        self._start, self._members = start, members
        self._marks = self.condition.mark_possible_matches(members, stop - start)

    def set_block_members(self, block: RecordBlock) -> None:
        """Set the members of the next records: those of a block, counted from 0."""
        envelope, names = block.envelope, self.condition.members
        block_columns = {
            "offset": block.offset,
            "size": block.size,
            "record": block.record,
            "time": to_timestamps(envelope.time),
        }
        self.set_record_members(
            0,
            len(block),
            {name: block_columns[name] if name in block_columns else getattr(envelope, name) for name in names},
        )

    def select_rows(self, index: int, body: Callable[[], Any]) -> bool | Sequence[bool]:
        """Return for each row of a record whether it is selected; see `RowFilter.select_rows`."""
        at = index - self._start
        if not self._marks[at] or not self.condition.needs_body:
            self.found = self.found or self._marks[at]
            return self._marks[at]
        members = {name: column[at] for name, column in self._members.items()}
        marks = self.condition.mark_matching_rows(members, body())
        self.found = self.found or True in marks
        return marks


def make_row_condition(text: str) -> RowCondition:
    """Create a row condition from its text. Raises UsageError: it is invalid; the message names the column."""
    return RowCondition(text, compile_condition(text))


# --- Columns in a condition that no table of a log has ---

_UNNAMED_COLUMN = "@1"


class ConditionColumnChecker:
    """Compare the columns that a condition names with those that the tables of a log have.

    Only formats with row images describe columns; for other formats the comparison has no result. table: the only table
    whose columns are added; "" = there may be others.
    """

    def __init__(self, condition: str, table: str = "") -> None:
        self._condition_columns, self._table_columns = compile_condition(condition).columns, set[str]()
        self._table = table

    @property
    def missing_columns(self) -> frozenset[str]:
        """Columns of the condition that were found in no table so far."""
        return self._condition_columns - self._table_columns

    def add_columns(self, names: Iterable[str]) -> None:
        """Add the columns of a table."""
        self._table_columns.update(names)

    def read_table_definitions(
        self, decoder: BlockDecoder, batch: Batch, _record_filter: RecordFilter | None = None
    ) -> Iterator[RecordBlock]:
        """Yield those records of a batch that describe tables, fully decoded (a `core.open_log.BatchReader`)."""
        table_support = decoder.format.tables
        if table_support is None or decoder.format.output.start_changes is None or not self.missing_columns:
            return
        plain_decoder = replace(decoder, decode="full", raw=False, script=None, row_condition=None, reader=None)
        for block in plain_decoder.decode_batch(batch, RecordFilter(Selection(types=table_support.types))):
            for body in block.bodies:
                self.add_columns(_iter_column_names(body))
            yield block

    def collect_columns_of_batch(self, decoder: BlockDecoder, batch: Batch) -> None:
        """Track the columns of a batch while a stream is read."""
        for _ in self.read_table_definitions(decoder, batch):
            pass

    @property
    def unknown_message(self) -> str | None:
        """Message about a column that no table has; None = all columns were found, or no table is known."""
        return (
            _make_unknown_column_message(min(self.missing_columns), self._table_columns, self._table)
            if self.missing_columns and self._table_columns
            else None
        )

    def require_columns_exist(self) -> None:
        """Check that each column of the condition is in some table. Raises UsageError: a column is in no table."""
        if self.unknown_message is not None:
            raise UsageError(self.unknown_message)


def _iter_column_names(body: Any) -> Iterator[str]:
    columns: Any = body.get("columns") if isinstance(body, dict) else None
    for number, column in enumerate(columns if isinstance(columns, list) else (), 1):
        yield column.get("name") or f"@{number}"


def _make_unknown_column_message(column_name: str, table_columns: set[str], table: str) -> str:
    """Return the message that no table has this column, with similar names or all columns."""
    nameless = _UNNAMED_COLUMN in table_columns
    listed = f"; {'it has' if table else 'they have'} {join_names(sorted(table_columns))}"
    suggestion = format_name_suggestions(column_name, table_columns) or listed
    if nameless:
        suggestion += (
            " (some columns have no names in the log: supply them with --schema FILE.sql, or use "
            "the position: after.`@1`)"
        )
    return f"--where: {f'{table} has no' if table else 'no table of the log has a'} column {column_name}{suggestion}"


# --- Conditions evaluated by compiled code ---

_SCALAR_TYPES = frozenset({str, int, float, bool, type(None)})


class CompiledCondition:
    """A condition on the records of one file; created by `compile_condition_if_supported`."""

    def __init__(self, condition: Condition, decoder: BlockDecoder) -> None:
        self._condition = condition
        self._decoder = decoder
        self._batch: Batch | None = None
        self._is_supported = False
        self._candidate_cache: tuple[int, list[bool], bool] = 0, [], False

    @cached_property
    def _queries(self) -> tuple[_CompiledQuery | None, _CompiledQuery] | None:
        """Compiled queries: on members only (None = pointless), and on the whole condition; None = not supported."""
        make_line, decoder, condition = self._decoder.format.output.json_line, self._decoder, self._condition
        line = None if make_line is None else make_line(decoder.layout.context)
        if line is None or line.depth > decoder.limits.max_depth:
            return None
        has_member_query = condition.members and condition.paths
        return _CompiledQuery(condition, decoder, line, early=True) if has_member_query else None, _CompiledQuery(
            condition, decoder, line
        )

    def prepare_if_supported(self, batch: Batch) -> bool:
        """Return True if compiled code supports the batch; `evaluate` then applies to it. Call in file order."""
        if batch is not self._batch:
            is_supported = self._queries is not None and not batch.inner and batch.container is None
            self._batch, self._candidate_cache = batch, (0, [], False)
            self._is_supported = is_supported and all(
                one.prepare_if_supported(batch) for one in self._queries or () if one is not None
            )
        return self._is_supported

    def evaluate_until_refused(self, start: int, stop: int) -> tuple[list[bool], bool]:
        """Return (truth value of each record from `start` on, True if compiled code refuses the record after them).

        The list may end early, before a refused record; if no record is refused, it has at least one item.
        """
        assert self._queries is not None
        member_query, full_query = self._queries
        if member_query is None:
            return full_query.evaluate_until_refused(start, stop)
        marks, refused = self._evaluate_member_query(member_query, start, stop)
        for low, high in join_marked_runs(marks, MAX_GAP):
            return ([False] * low, False) if low else full_query.evaluate_until_refused(start, start + high)
        return marks, refused

    def evaluate_rows_until_refused(self, start: int, stop: int) -> tuple[list[Sequence[bool]], bool]:
        """Return as `evaluate`, but for each record the truth values of its rows; a single value applies to all."""
        assert self._queries is not None
        member_query, full_query = self._queries
        if member_query is None:
            return full_query.evaluate_rows_until_refused(start, stop)
        marks, refused = self._evaluate_member_query(member_query, start, stop)
        for low, high in join_marked_runs(marks, MAX_GAP):
            return ([(False,)] * low, False) if low else full_query.evaluate_rows_until_refused(start, start + high)
        return [(one,) for one in marks], refused

    def _evaluate_member_query(self, member_query: _CompiledQuery, start: int, stop: int) -> tuple[list[bool], bool]:
        """Return (for each record, whether its envelope members allow a match; True if the next record is refused);
        cached.
        """
        first, marks, refused = self._candidate_cache
        if not first <= start < first + len(marks):
            first, (marks, refused) = start, member_query.evaluate_until_refused(start, stop)
            self._candidate_cache = first, marks, refused
        return marks[start - first : stop - first], refused and first + len(marks) <= stop


class _CompiledQuery:
    """A compiled condition, or (early) the part of it that depends on members only."""

    def __init__(self, condition: Condition, decoder: BlockDecoder, line: JsonLine, *, early: bool = False) -> None:
        paths = () if early else condition.paths
        self._members = condition.members
        self._match = condition.mark_possible_matches if early else condition.evaluate_columns
        self._column_names: dict[Any, str] = {path: f"c{i}" for i, path in enumerate(paths)}
        rows_only = all(path[0] != "body" for path in paths)
        body = line.body if line.narrow is None or early else line.narrow(condition.columns, rows_only)
        names = self._members | {"object"} | ({"body"} if paths else set())  # refuses records that define objects
        self._picker = MemberListWriter(line, decoder.layout, to_json_bytes, names, body)
        self._decoder: Any = msgspec.json.Decoder(_make_json_line_type(self._picker.order, self._column_names))
        self._prepared: BatchAddresses | None = None

    def prepare_if_supported(self, batch: Batch) -> bool:
        """Prepare a batch; see `CompiledCondition.prepare_if_supported`."""
        self._prepared = self._picker.prepare_batch(batch)
        return self._prepared is not None

    def evaluate_until_refused(self, start: int, stop: int) -> tuple[list[bool], bool]:
        """Return truth values of records; see `CompiledCondition.evaluate_until_refused`."""
        truths, refused = self.evaluate_rows_until_refused(start, stop)
        return [True in one for one in truths], refused

    def evaluate_rows_until_refused(self, start: int, stop: int) -> tuple[list[Sequence[bool]], bool]:
        """Return truth values of rows; see `CompiledCondition.evaluate_rows_until_refused`."""
        assert self._prepared is not None
        data, reached, refused = self._picker.write(self._prepared, start, stop)
        truths = self._evaluate_lines(bytes(data).split(b"\n")[:-1]) if reached > start else []
        return ([], True) if truths is None else (truths, refused)

    def _evaluate_lines(self, lines: list[bytes]) -> list[Sequence[bool]] | None:
        """Return the truth values of each line's rows; None = Python must evaluate them."""
        distinct_lines = dict.fromkeys(lines)
        truths = self._evaluate_joined_json_lines(b"\n".join(distinct_lines))
        if truths is None or len(distinct_lines) == len(lines):
            return truths
        truth_by_line = dict(zip(distinct_lines, truths, strict=True))
        return [truth_by_line[line] for line in lines]

    def _evaluate_joined_json_lines(self, joined_lines: bytes) -> list[Sequence[bool]] | None:
        """Return the truth values of the rows of each of these different JSON lines; None = Python must evaluate
        them.
        """
        try:
            lines = self._decoder.decode_lines(joined_lines)
        except msgspec.DecodeError:
            return None
        columns = {name: [getattr(line, name) for line in lines] for name in self._members}
        if "time" in columns:
            moments = {text: None if text is None else parse_timestamp(text) for text in set(columns["time"])}
            columns["time"] = [moments[text] for text in columns["time"]]
        if not self._column_names:
            return [(truth,) for truth in self._match(columns, len(lines))]
        rows = [line.body.rows or (line.body,) for line in lines]
        counts = list(map(len, rows))
        columns_of_rows = self._row_columns(
            list(chain.from_iterable(rows)), list(_repeat_values([line.body for line in lines], counts))
        )
        if columns_of_rows is None:
            return None
        columns_of_rows |= {name: list(_repeat_values(column, counts)) for name, column in columns.items()}
        truths = self._match(columns_of_rows, sum(counts))
        if len(truths) == len(lines):
            return [(truth,) for truth in truths]
        remaining = iter(truths)
        return [tuple(islice(remaining, count)) for count in counts]

    def _row_columns(self, rows: list[Any], bodies: list[Any]) -> dict[Any, Sequence[Any]] | None:
        """Return the columns of the rows and of their bodies; None = some values have no exact JSON form."""
        columns: dict[Any, Sequence[Any]] = {}
        for path, name in self._column_names.items():
            is_body = path[0] == "body"
            values = columns[path] = list(
                map(attrgetter(name if is_body else f"{path[0]}.{name}"), bodies if is_body else rows)
            )
            kinds = set(map(type, values))
            if not kinds <= _SCALAR_TYPES or (float in kinds and not kinds <= {float, type(None)}):
                return None
        return columns


class CompiledRowCondition:
    """A condition on the rows of records, by compiled code where possible (`core.decode_batches.RowMatcher`)."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._decoder: BlockDecoder | None = None
        self._compiled: CompiledCondition | None = None

    def mark_matching_rows(
        self, decoder: BlockDecoder, batch: Batch, record_indexes: Sequence[int], row_counts: Sequence[int]
    ) -> bytes:
        """Return a byte for each row of these records, 0 where the condition is not true."""
        if decoder is not self._decoder:
            self._decoder, self._compiled = decoder, compile_condition_if_supported(decoder, self._condition)
        compiled, marks, number = self._compiled, bytearray(), 0
        is_supported = compiled is not None and compiled.prepare_if_supported(batch)
        at = record_indexes[0] if record_indexes else 0
        while number < len(record_indexes):
            if is_supported:
                assert compiled is not None
                truths, refused = compiled.evaluate_rows_until_refused(at, record_indexes[-1] + 1)
                first, at = at, at + len(truths)
                while number < len(record_indexes) and record_indexes[number] < at:
                    _add_row_marks(marks, truths[record_indexes[number] - first], row_counts[number])
                    number += 1
                if truths and not refused:
                    continue
            if number < len(record_indexes) and (record_indexes[number] == at or not is_supported):
                at = record_indexes[number]
                _add_row_marks(marks, self._match_rows_in_python(decoder, batch, at), row_counts[number])
                number += 1
            at += 1
        return bytes(marks)

    def _match_rows_in_python(self, decoder: BlockDecoder, batch: Batch, record_index: int) -> Sequence[bool]:
        """Decode one record in Python, and return the truth values of its rows."""
        condition, output, context = self._condition, decoder.format.output, decoder.layout.context
        envelope = decoder.decode_envelopes(batch, record_index, record_index + 1)
        columns = read_member_columns(
            condition.members, decoder.layout, batch, record_index, record_index + 1, envelope
        )
        if not condition.needs_body:
            return condition.mark_possible_matches(columns, 1)
        (body,) = output.decode_bodies(
            context, batch, record_index, record_index + 1, replace(decoder.limits, max_whole=None)
        )
        body = body.body if isinstance(body, BodyWithFindings) else body
        return condition.mark_matching_rows({name: column[0] for name, column in columns.items()}, body)


def _add_row_marks(marks: bytearray, truths: Sequence[bool], count: int) -> None:
    marks += bytes(truths) if len(truths) == count else bytes(truths[:1]) * count


def compile_condition_if_supported(decoder: BlockDecoder, condition: Condition | None) -> CompiledCondition | None:
    """Compile a condition; None = there is none, or it needs more of bodies than columns and plain members."""
    if condition is None or not condition.is_simple or not (condition.members or condition.paths):
        return None
    return CompiledCondition(condition, decoder)


def _make_json_line_type(member_order: Sequence[str], column_names: Mapping[Any, str]) -> type[msgspec.Struct]:
    """Return the type of a line with these members and columns; a missing row image has NULL in all columns."""
    members: list[Any] = [
        (name, Any) if name != "body" else (name, _make_json_body_type(column_names)) for name in member_order
    ]
    return _make_struct_type("line", members, array_like=True)


def _make_json_body_type(column_names: Mapping[Any, str]) -> type[msgspec.Struct]:
    """Return the struct type that decodes a body: its rows, images and own columns."""
    fields: dict[str, list[Any]] = {}
    for path, name in column_names.items():
        fields.setdefault(path[0], []).append((name, Any, msgspec.field(name=path[1], default=None)))
    body_fields = fields.pop("body", [])
    images = {side: _make_struct_type(side, columns) for side, columns in fields.items()}
    sides: list[Any] = [(side, image, image()) for side, image in images.items()]
    rows: Any = ("rows", list[_make_struct_type("row", sides)], msgspec.field(default_factory=list))  # type: ignore[misc]
    return _make_struct_type("body", [rows, *sides, *body_fields])


def _make_struct_type(name: str, fields: list[Any], *, array_like: bool = False) -> type[msgspec.Struct]:
    """Create a struct type without garbage collection: there are many instances, and none refers to itself."""
    return msgspec.defstruct(name, fields, frozen=True, gc=False, array_like=array_like)


def _repeat_values(values: Sequence[Any], counts: Sequence[int]) -> Iterator[Any]:
    return chain.from_iterable(map(repeat, values, counts))
