"""Encode the records of a log as lines of change messages (`format_api.row_output_interfaces.ScriptWriter`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool._version import __version__
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.export.envelopes.canal import CanalEncoder
from binlogtool.export.envelopes.convert_values import ChangeMessage
from binlogtool.export.envelopes.debezium import DebeziumEncoder
from binlogtool.export.envelopes.debezium_from_cells import DebeziumRowEncoder
from binlogtool.export.envelopes.maxwell import MaxwellEncoder
from binlogtool.export.output_options import EnvelopeOptions, TypedRowOptions, describe_other_table
from binlogtool.export.sql_script_output import refuse_record_filters
from binlogtool.findings import STATEMENT_LEFT_OUT, Finding, Severity, make_finding
from binlogtool.format_api.encode_json import encode_json
from binlogtool.format_api.format import BodyWithFindings
from binlogtool.format_api.layout import Batch, FlatRecords, Kernel
from binlogtool.format_api.row_output_interfaces import (
    UNFINISHED_TRANSACTION,
    ChangeEvent,
    ChangeReader,
    ChangeRows,
    TableSchema,
    make_database_table,
)
from binlogtool.format_api.row_output_interfaces import SqlTable as Changed
from binlogtool.limits import Limits

MessageEncoder = DebeziumEncoder | MaxwellEncoder | CanalEncoder


class ChangeMessageWriter(msgspec.Struct):
    """Script writer that makes the change messages of a log.

    table_options: the tables whose messages are written. row_encoder: encodes many rows at once; None = changes one by
    one. count: number of messages so far. message_sink: receives them in place of the text.
    """

    changes: ChangeReader
    encoder: MessageEncoder
    table_options: TypedRowOptions
    row_encoder: DebeziumRowEncoder | None = None
    count: int = 0
    stop_finding: Finding | None = None
    has_open_transaction: bool = False
    message_sink: Callable[[ChangeMessage], None] | None = None
    _remarked_tables: set[str] = msgspec.field(default_factory=set)
    _selected_by_table: dict[str, bool] = msgspec.field(default_factory=dict)

    def make_record_texts(
        self, context: Any, batch: Batch, start: int, stop: int, limits: Limits
    ) -> list[bytes | BodyWithFindings]:
        """Return the lines for each record; see `format_api.row_output_interfaces.ScriptWriter`."""
        lines = list[bytes | BodyWithFindings]()
        for content in self.changes.read_records(context, batch, start, stop, limits):
            data = b"".join(self._encode_lines(content.changes))
            findings = tuple(filter(self.table_options.is_finding_about_selected_table, content.findings))
            findings = (
                findings
                if content.about is None
                else self._replace_findings_of_unselected_table(_to_table(content.about), findings)
            )
            lines.append(BodyWithFindings(data, findings) if findings else data)
        return lines

    def _replace_findings_of_unselected_table(
        self, table: TableSchema, findings: tuple[Finding, ...]
    ) -> tuple[Finding, ...]:
        """Return the findings about unlogged changes of a table; for tables that are not selected, a single note."""
        if not findings or self.table_options.may_select_ignoring_case(table):
            return findings
        is_new = table.name not in self._remarked_tables
        self._remarked_tables.add(table.name)
        note = replace(
            findings[0], id=STATEMENT_LEFT_OUT, severity=Severity.NOTE, message=describe_other_table(table.name)
        )
        notes = tuple(one for one in findings if one.severity is Severity.NOTE)
        return (note, *notes) if is_new else notes

    def _encode_lines(self, changes: Iterable[ChangeEvent]) -> Iterator[bytes]:
        return self._write_messages(self.encoder.encode_changes(filter(self._is_selected, changes)))

    def _write_messages(self, messages: Iterable[ChangeMessage]) -> Iterator[bytes]:
        for message in messages:
            self.count += 1
            if self.message_sink is None:
                yield (message[0] if isinstance(message[0], bytes) else encode_json(message[0])) + b"\n"
            else:
                self.message_sink(message)

    def _is_selected(self, change: ChangeEvent) -> bool:
        return change.table is None or self._is_table_selected(change.table)

    def _is_table_selected(self, table: Changed) -> bool:
        answer = self._selected_by_table.get(table.full_name)
        if answer is None:
            answer = self._selected_by_table[table.full_name] = self.table_options.is_selected(_to_table(table))
        return answer

    def write_until_unsupported(
        self,
        context: Any,
        batch: Batch | FlatRecords,
        start: int,
        stop: int,
        limits: Limits,
        compile_: Callable[[Kernel], Kernel],
    ) -> tuple[bytes | memoryview, int]:
        """Return the lines for as many of the first records as can be encoded at once, and the next record.

        See `format_api.row_output_interfaces.ScriptWriter`.
        """
        encoder = self.row_encoder
        if encoder is None or not isinstance(batch, Batch):
            return b"", start

        def encode(rows: ChangeRows) -> bytes | None:
            return encoder.encode_rows(rows, self._is_table_selected, limits)

        before = encoder.message_count
        data, reached = self.changes.encode_rows_until_unsupported(
            context, batch, start, stop, limits, compile_, encode
        )
        self.count += encoder.message_count - before
        return data, reached

    def note_unselected_records(self, context: Any, batch: Batch, start: int, stop: int, limits: Limits) -> None:
        """Do nothing: a skipped record gives no message."""

    @property
    def row_changes(self) -> int:
        """Number of messages; see `format_api.row_output_interfaces.ScriptWriter`."""
        return self.count

    @property
    def is_empty(self) -> bool:
        """True if no message was written; see `format_api.row_output_interfaces.ScriptWriter`."""
        return not self.count

    def write_text_for_gap(self, what: str = "") -> bytes:
        """Return the messages held back when records are lost; see `format_api.row_output_interfaces.ScriptWriter`."""
        self.changes.note_missing_records()
        return b"".join(self._write_messages(self.encoder.release_uncommitted_messages()))

    def finish(self) -> bytes:
        """Return the messages held back at the end of the log; see `format_api.row_output_interfaces.ScriptWriter`."""
        return b"".join(self._write_messages(self.encoder.release_uncommitted_messages()))

    def final_findings(self) -> Sequence[Finding]:
        """Return a finding about a transaction without end; see `format_api.row_output_interfaces.ScriptWriter`."""
        if not self.count or not (name := self.changes.open_transaction):
            return ()
        text = UNFINISHED_TRANSACTION.format(name)
        return (make_finding("incomplete-transaction", None, 0, text, severity=Severity.WARNING),)


def make_change_message_writer_factory(
    options: EnvelopeOptions, selection: Selection, message_sink: Callable[[ChangeMessage], None] | None = None
) -> Callable[[ChangeReader], ChangeMessageWriter]:
    """Return the function that creates the message writer of a log (`core.open_log.LogReader.change_messages`).

    message_sink: see `ChangeMessageWriter`.

    Raises:
        UsageError: the options contradict each other or the selection.
    """
    options.refuse_invalid_options()
    refuse_record_filters(selection, "messages need whole transactions")
    table_options = TypedRowOptions(selection.objects, selection.exclude_objects)
    return lambda changes: ChangeMessageWriter(
        changes,
        _create_encoder(options, keeps_changes=message_sink is not None),
        table_options,
        _create_row_encoder(options) if message_sink is None else None,
        message_sink=message_sink,
    )


def _to_table(changed: Changed) -> TableSchema:
    return make_database_table(changed.database, changed.name, ())


def _create_encoder(options: EnvelopeOptions, *, keeps_changes: bool) -> MessageEncoder:
    if options.envelope == "maxwell":
        return MaxwellEncoder(keeps_changes)
    return CanalEncoder() if options.envelope == "canal" else DebeziumEncoder(options, __version__)


def _create_row_encoder(options: EnvelopeOptions) -> DebeziumRowEncoder | None:
    """Return the encoder for many rows at once; None if the messages need data that rows lack."""
    needs_changes = options.provide_transaction_metadata or options.include_query
    return None if options.envelope != "debezium" or needs_changes else DebeziumRowEncoder(options, __version__)
