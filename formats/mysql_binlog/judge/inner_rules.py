"""Rules about the events inside of a TRANSACTION_PAYLOAD: one complete transaction with its own table maps.

Source: docs/spec/mysql-mariadb-binlog.md#11-invariants-for-verify (rule 9).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from binlogtool.formats.binlog_events.codes import ROWS, EventType
from binlogtool.formats.binlog_events.events.decoding import decoded, xid
from binlogtool.formats.binlog_events.events.event import Event, Fault, event_at
from binlogtool.formats.binlog_events.groups.groups import Groups, Step
from binlogtool.formats.binlog_events.groups.steps import HEADED
from binlogtool.formats.binlog_events.groups.tracking import TableMaps
from binlogtool.formats.binlog_events.stream.meaning import type_name
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, CodecError, Kernel
from binlogtool.formats.mysql_binlog.judge import folds
from binlogtool.formats.mysql_binlog.judge.commits import Commits
from binlogtool.formats.mysql_binlog.judge.row_rules import RowRules
from binlogtool.limits import Limits


class InnerRules:
    """Validates one payload after the other; `type_counts`: number of nested events by type.

    Nested events have no checksum, and neither has the content of zstd frames: all bodies and row images are
    checked.
    """

    def __init__(
        self, description: FormatDescription, commits: Commits, limits: Limits, compile_: Callable[[Kernel], Kernel]
    ) -> None:
        self.kinds: Counter[str] = Counter()
        self._description = description
        self._commits = commits
        self._maps = TableMaps(mariadb=False)
        self._state = [0] * folds.SIZE
        self._rows = RowRules(self._state, self._maps, limits, compile_)

    def faults(self, batch: Batch) -> Iterator[Fault]:
        """Yield faults of the events of one payload."""
        groups = Groups(group=HEADED)
        self._rows.close()
        self._maps.by_id.clear()
        step = Step.OPENS
        for index in range(batch.frames.count):
            event = event_at(batch, index)
            self.kinds[type_name(event.code)] += 1
            if step is Step.ENDS:
                yield Fault("incomplete-transaction", "events follow the end of the transaction", "payload-nesting")
                return
            step = groups.take(event.code, event.body)
            if groups.fault:
                yield Fault("incomplete-transaction", f"inside the payload: {groups.fault}", "payload-nesting")
            yield from self._body(event, index, batch.window)
        if step is not Step.ENDS:
            text = "the events inside the payload do not end with XID or COMMIT"
            yield Fault("incomplete-transaction", text, "payload-open")
        yield from self._rows.end_of_group()

    def _body(self, event: Event, index: int, window: memoryview) -> Iterator[Fault]:
        """Yield faults of one body."""
        try:
            if event.code == EventType.TABLE_MAP:
                self._rows.take_map(event)
            elif event.code in ROWS:
                yield from self._rows.take_rows(event, window, True)
            elif event.code == EventType.XID:
                yield from self._commits.xid(xid(bytes(event.body)), "a transaction")
            else:
                decoded(event.code, event.body, self._description, event.server)
        except (MalformedError, CodecError) as error:
            text = f"event {index} inside the payload, {type_name(event.code)}: {error.args[0]}"
            yield Fault(error.finding_id, text, "body", None, {"inner_event": index})
