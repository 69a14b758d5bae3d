"""Export the records of a log as one table (`Format.tables`): action, key and data of each record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat

import msgspec

from binlogtool.findings import Finding
from binlogtool.format_api.format import BodyWithFindings
from binlogtool.format_api.layout import Batch
from binlogtool.format_api.tables_and_changes import RecordTableRows, TableColumn, TableRow, TableSchema, TableSupport
from binlogtool.formats.eblob.decode import decode_bodies, describe_records
from binlogtool.formats.eblob.layout import EblobFileContext
from binlogtool.limits import Limits

RECORDS_TABLE = TableSchema(
    "records",
    (
        TableColumn("key", "string"),
        TableColumn("action", "string"),
        TableColumn("target_offset", "bigint"),
        TableColumn("data", "binary"),
    ),
)
"""key: hexadecimal. action: kind of the record. target_offset: byte offset of the data in the unsorted blob."""


class EblobRecordTables(msgspec.Struct):
    """A `TableReader` of records, each of which is a row. is_selected: rows are selected."""

    is_selected: bool = True

    def read_records(
        self, context: EblobFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordTableRows]:
        """Yield the rows of each of these records; to be consumed in order."""
        if not self.is_selected:
            yield from repeat(RecordTableRows(described=(RECORDS_TABLE,)), stop - start)
            return
        envelope = describe_records(context, batch, start, stop)
        decoded_bodies = decode_bodies(context, batch, start, stop, limits)
        for kind, key, body in zip(envelope.type, envelope.object, decoded_bodies, strict=True):
            if isinstance(body, Finding):
                yield RecordTableRows(findings=(body,))
                continue
            body, findings = body if isinstance(body, BodyWithFindings) else (body, ())
            image = {"key": key, "action": kind, "target_offset": body.get("target_offset"), "data": body.get("data")}
            yield RecordTableRows((TableRow(RECORDS_TABLE, kind, None, image),), findings, (RECORDS_TABLE,))

    def add_known_tables(self, tables: Iterable[TableSchema]) -> None:
        """Ignore known tables: the table is always the same."""

    def limit_to(self, is_selected: Callable[[TableSchema], bool]) -> None:
        """Allow the reader to leave out the rows of other tables; their descriptions are still reported."""
        self.is_selected = is_selected(RECORDS_TABLE)

    def note_gap(self) -> None:
        """Ignore the gap: each record is independent."""


def make_record_tables() -> TableSupport:
    """Create the description of the table of records."""
    return TableSupport(EblobRecordTables, transactions=False)
