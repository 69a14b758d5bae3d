"""Encode the records of a log as lines of change messages (`formats.scripting.Script`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from binlogtool import __version__
from binlogtool.errors import UsageError
from binlogtool.findings import LEFT_OUT, Finding, Severity
from binlogtool.formats.changes import Change, Changes
from binlogtool.formats.changes import Table as Changed
from binlogtool.formats.described import Noted
from binlogtool.formats.layouts import Batch, Kernel
from binlogtool.formats.tables import Table, in_database
from binlogtool.limits import Limits
from binlogtool.log.select import Selection
from binlogtool.pipeline.envelopes.canal import Canal
from binlogtool.pipeline.envelopes.debezium import Debezium
from binlogtool.pipeline.envelopes.maxwell import Maxwell
from binlogtool.pipeline.envelopes.values import Line
from binlogtool.pipeline.envelopes.wishes import Options
from binlogtool.pipeline.typed.wishes import Wishes, of_another
from binlogtool.pipeline.writers.scripts import SINGLE


class Envelope(Protocol):
    """Encodes changes as messages, in their order."""

    def lines(self, changes: Iterable[Change]) -> Iterator[Line]:
        """Yield the messages for the changes of a record."""

    def rest(self) -> Iterator[Line]:
        """Yield the messages that were held back for the end of a transaction that does not come."""


class Messages(msgspec.Struct):
    """Messages of a log.

    wishes: the tables whose messages are written. count: number of messages so far. take: receives them in place of
      the text.
    """

    changes: Changes
    envelope: Envelope
    wishes: Wishes
    count: int = 0
    stopped: Finding | None = None
    take: Callable[[Line], None] | None = None
    _said: set[str] = msgspec.field(default_factory=set)
    _chosen: dict[str, bool] = msgspec.field(default_factory=dict)

    def records(self, context: Any, batch: Batch, start: int, stop: int, limits: Limits) -> list[bytes | Noted]:
        """Return the lines for each record; see `formats.scripting.Script`."""
        made = list[bytes | Noted]()
        for told in self.changes.records(context, batch, start, stop, limits):
            data = b"".join(self._lines(told.changes))
            found = tuple(filter(self.wishes.concerns, told.findings))
            found = found if told.about is None else self._of(_table(told.about), found)
            made.append(Noted(data, found) if found else data)
        return made

    def _of(self, table: Table, found: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """Return the findings about unlogged changes of a table; if it is not selected, as a note, once."""
        if not found or self.wishes.may_want(table):
            return found
        is_new = table.name not in self._said
        self._said.add(table.name)
        note = replace(found[0], id=LEFT_OUT, severity=Severity.NOTE, message=of_another(table.name))
        notes = tuple(one for one in found if one.severity is Severity.NOTE)
        return (note, *notes) if is_new else notes

    def _lines(self, changes: Iterable[Change]) -> Iterator[bytes]:
        return self._counted(self.envelope.lines(filter(self._is_chosen, changes)))

    def _counted(self, messages: Iterable[Line]) -> Iterator[bytes]:
        for line in messages:
            self.count += 1
            if self.take is None:
                yield line[0] + b"\n"
            else:
                self.take(line)

    def _is_chosen(self, change: Change) -> bool:
        if change.table is None:
            return True
        name = change.table.full_name
        known = self._chosen.get(name)
        if known is None:
            known = self._chosen[name] = self.wishes.wants(_table(change.table))
        return known

    def quick(
        self, context: Any, batch: Batch, start: int, stop: int, compile_: Callable[[Kernel], Kernel]
    ) -> tuple[bytes | memoryview, int]:
        """Return nothing: no compiled code writes messages."""
        return b"", start

    def pass_by(self, context: Any, batch: Batch, start: int, stop: int, limits: Limits) -> None:
        """Ignore skipped records."""

    @property
    def row_changes(self) -> int:
        """Number of messages; see `formats.scripting.Script`."""
        return self.count

    @property
    def is_empty(self) -> bool:
        """True if no message was written; see `formats.scripting.Script`."""
        return not self.count

    def lost(self, what: str = "") -> bytes:
        """Handle lost records: return the messages held back; see `formats.scripting.Script`."""
        self.changes.lost()
        return b"".join(self._counted(self.envelope.rest()))

    def end(self) -> bytes:
        """Return the messages held back at the end of the log; see `formats.scripting.Script`."""
        return b"".join(self._counted(self.envelope.rest()))

    def remarks(self) -> Sequence[Finding]:
        """Return no remarks; see `formats.scripting.Script`."""
        return ()


def beginning(
    options: Options, selection: Selection, take: Callable[[Line], None] | None = None
) -> Callable[[Changes], Messages]:
    """Return the function that creates the messages of a log (`log.open.Log.messages`). take: see `MessageScript`.

    Raises:
        UsageError: the options contradict each other, or the selection.
    """
    options.check()
    given = [name for name in SINGLE if getattr(selection, name)]
    if given:
        raise UsageError(f"--{given[0].rstrip('s')} chooses single records, but messages are of whole transactions")
    wanted = Wishes(selection.objects, selection.exclude_objects)
    return lambda changes: Messages(changes, _envelope(options, keeps=take is not None), wanted, take=take)


def _table(changed: Changed) -> Table:
    return in_database(changed.database, changed.name, ())


def _envelope(options: Options, *, keeps: bool) -> Envelope:
    if options.envelope == "maxwell":
        return Maxwell(keeps)
    return Canal() if options.envelope == "canal" else Debezium(options, __version__)
