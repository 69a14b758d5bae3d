"""Rules about the events inside of a TRANSACTION_PAYLOAD: one complete transaction with its own table maps.

Source: docs/spec/mysql_binlog.md#validation (rule 9).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from binlogtool.formats.binlog_events.codes import ROW_EVENTS, EventType
from binlogtool.formats.binlog_events.events.decoding import decode_body, parse_xid
from binlogtool.formats.binlog_events.events.event import Event, EventFault, get_event
from binlogtool.formats.binlog_events.groups.groups import GroupStep, TransactionGroups
from binlogtool.formats.binlog_events.groups.steps import AFTER_GTID
from binlogtool.formats.binlog_events.groups.tracking import TableMaps
from binlogtool.formats.binlog_events.stream.meaning import type_name
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, DecompressionError, Kernel
from binlogtool.formats.mysql_binlog.judge import folds
from binlogtool.formats.mysql_binlog.judge.commits import CommitRules
from binlogtool.formats.mysql_binlog.judge.row_rules import RowRules
from binlogtool.limits import Limits


class PayloadRules:
    """Validates one payload after the other; `type_counts`: number of nested events by type.

    Nested events have no checksum, and neither has the content of zstd frames: all bodies and row images are
    checked.
    """

    def __init__(
        self, description: FormatDescription, commits: CommitRules, limits: Limits, compile_: Callable[[Kernel], Kernel]
    ) -> None:
        self.type_counts: Counter[str] = Counter()
        self._description = description
        self._commits = commits
        self._maps = TableMaps(is_mariadb=False)
        self._state = [0] * folds.STATE_SIZE
        self._rows = RowRules(self._state, self._maps, limits, compile_)

    def check_payload(self, batch: Batch) -> Iterator[EventFault]:
        """Yield faults of the events of one payload."""
        groups = TransactionGroups(group=AFTER_GTID)
        self._rows.end_statement()
        self._maps.by_id.clear()
        step = GroupStep.OPENS
        for index in range(batch.frames.count):
            event = get_event(batch, index)
            self.type_counts[type_name(event.code)] += 1
            if step is GroupStep.ENDS:
                yield EventFault(
                    "incomplete-transaction", "events follow the end of the transaction", "payload-nesting"
                )
                return
            step = groups.add_event(event.code, event.body)
            if groups.fault:
                yield EventFault("incomplete-transaction", f"inside the payload: {groups.fault}", "payload-nesting")
            yield from self._check_body(event, index, batch.window)
        if step is not GroupStep.ENDS:
            text = "the events inside the payload do not end with XID or COMMIT"
            yield EventFault("incomplete-transaction", text, "payload-open")
        yield from self._rows.check_group_end()

    def _check_body(self, event: Event, index: int, window: memoryview) -> Iterator[EventFault]:
        """Yield faults of one body."""
        try:
            if event.code == EventType.TABLE_MAP:
                self._rows.add_map(event)
            elif event.code in ROW_EVENTS:
                yield from self._rows.check_rows(event, window, True)
            elif event.code == EventType.XID:
                yield from self._commits.check_xid(parse_xid(bytes(event.body)), "a transaction")
            else:
                decode_body(event.code, event.body, self._description, event.server_id)
        except (MalformedError, DecompressionError) as error:
            text = f"event {index} inside the payload, {type_name(event.code)}: {error.args[0]}"
            yield EventFault(error.finding_id, text, "body", None, {"inner_event": index})
