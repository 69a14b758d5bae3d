"""Export the records of a log as one table (`Format.tables`): action, key and data of each record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat

import msgspec

from binlogtool.findings import Finding
from binlogtool.formats.described import Noted
from binlogtool.formats.eblob.layout.layout import Log
from binlogtool.formats.eblob.meaning import bodies, describe
from binlogtool.formats.layouts import Batch
from binlogtool.formats.tables import Column, Row, Table, Tables, Told
from binlogtool.limits import Limits

RECORDS = Table(
    "records",
    (
        Column("key", "string"),
        Column("action", "string"),
        Column("target_offset", "bigint"),
        Column("data", "binary"),
    ),
)
"""key: hexadecimal. action: the kind of the record. target_offset: where in the unsorted blob the data went, bytes."""


class RecordTables(msgspec.Struct):
    """`formats.tables.TableReader` of records, each of which is a row.

    Attributes:
        is_selected: rows are selected.
    """

    told: bool = True

    def records(self, context: Log, batch: Batch, start: int, stop: int, limits: Limits) -> Iterator[Told]:
        """See `formats.tables.TableReader`."""
        if not self.told:
            yield from repeat(Told(described=(RECORDS,)), stop - start)
            return
        envelope = describe(context, batch, start, stop)
        made = bodies(context, batch, start, stop, limits)
        for kind, key, body in zip(envelope.type, envelope.object, made, strict=True):
            if isinstance(body, Finding):
                yield Told(findings=(body,))
                continue
            body, found = body if isinstance(body, Noted) else (body, ())
            image = {"key": key, "action": kind, "target_offset": body.get("target_offset"), "data": body.get("data")}
            yield Told((Row(RECORDS, kind, None, image),), found, (RECORDS,))

    def know(self, tables: Iterable[Table]) -> None:
        """Do nothing: the table is always the same."""

    def only(self, wants: Callable[[Table], bool]) -> None:
        """See `formats.tables.TableReader`."""
        self.told = wants(RECORDS)

    def lost(self) -> None:
        """Do nothing: each record is independent."""


def tables() -> Tables:
    """See `formats.base.Format.tables`."""
    return Tables(RecordTables, transactions=False)
