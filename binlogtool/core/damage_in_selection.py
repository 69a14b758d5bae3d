"""Decide whether a damaged range may hold selected transactions of a flashback.

A damaged range lies between the last transaction before it and the first one after it. If both are of the only source
of the log, the numbers between them are those of the lost transactions.
"""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.core.open_file import LogFile
from binlogtool.core.record_filter import NUMBERED_GTID, RecordFilter, parse_gtid_source
from binlogtool.core.scan_file import DamagedRange
from binlogtool.findings import Finding
from binlogtool.format_api.layout import Batch
from binlogtool.format_api.row_output_interfaces import ScriptWriter

_MAX_CHECKED = 10_000
"""Maximum number of lost transactions that are compared with the selection."""


class UndecidedDamage:
    """The damaged ranges of one pass that are not decided yet."""

    def __init__(self, record_filter: RecordFilter) -> None:
        self._filter = record_filter
        self._sources: set[str] = set()
        self._last_txn: str | None = None
        self._waiting: list[tuple[LogFile, Finding]] = []
        self._txn_before: str | None = None

    def defer_damage(self, file: LogFile, damage: DamagedRange, script: ScriptWriter | None) -> bool:
        """Keep damage until the next transaction is known; False if a selected one is open: the damage is in it."""
        if not self._filter.transactions or (script is not None and script.has_open_transaction):
            return False
        if not self._waiting:
            self._txn_before = self._last_txn
        self._waiting += [(file, one) for one in damage.findings]
        return True

    def decide_damage_before_batch(
        self, file: LogFile, batch: Batch
    ) -> tuple[bool, list[tuple[LogFile, Finding]]] | None:
        """Note the transactions of a batch; return the decided findings, and whether they concern the selection."""
        envelope = file.format.output.decode_envelopes(file.layout.context, batch, 0, batch.records.count)
        txns = [str(one) for one in envelope.txn if one is not None]
        if not txns:
            return None
        self._sources.update(parse_gtid_source(match[1]) for one in {*txns} if (match := NUMBERED_GTID.fullmatch(one)))
        decided = self.decide_deferred_damage(txns[0])
        self._last_txn = txns[-1]
        return decided

    def decide_deferred_damage(self, txn_after: str | None) -> tuple[bool, list[tuple[LogFile, Finding]]] | None:
        """Return (True if selected transactions can be lost, the deferred findings); None if nothing is deferred."""
        if not self._waiting:
            return None
        findings, self._waiting = self._waiting, []
        lost = list(self._iter_possibly_lost_transactions(txn_after))
        is_selected = not lost or any(all(matches(one) for matches in self._filter.transactions) for one in lost)
        return is_selected and not self._is_nothing_lost(txn_after), findings

    def _is_nothing_lost(self, txn_after: str | None) -> bool:
        bounds = self._parse_numbers_around_damage(txn_after)
        return bounds is not None and bounds[1] <= bounds[0] + 1

    def _parse_numbers_around_damage(self, txn_after: str | None) -> tuple[int, int] | None:
        """Return the numbers of the transactions before and after the damage; None if they are not comparable."""
        before, after = (NUMBERED_GTID.fullmatch(one or "") for one in (self._txn_before, txn_after))
        if len(self._sources) != 1 or (after is None and before is None):
            return None
        low = 0 if before is None else int(before[2])
        high = low + _MAX_CHECKED if after is None else int(after[2])
        return (low, high) if low <= high <= low + _MAX_CHECKED else None

    def _iter_possibly_lost_transactions(self, txn_after: str | None) -> Iterator[str]:
        """Yield the transactions that can be lost in the damage; none if they are unknown."""
        bounds = self._parse_numbers_around_damage(txn_after)
        matches = [NUMBERED_GTID.fullmatch(one or "") for one in (self._txn_before, txn_after)]
        prefixes = {one[1] for one in matches if one is not None}
        for number in range(*((bounds[0] + 1, bounds[1]) if bounds is not None else (0, 0))):
            yield from (f"{prefix}{number}" for prefix in prefixes)
