"""Metadata of the row events that compiled code decoded, as numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from binlogtool.core.record_and_selection_types import RowBatch
from binlogtool.export import records_to_arrow


class EventTextIndex:
    """Texts that events refer to by number: files, transactions before their own number, absent columns.

    Attributes:
        files, sources, absent: the texts; `sources` also contains sequence numbers.
    """

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.sources: dict[tuple[str | None, int | None], int] = {}
        self.absent: dict[tuple[tuple[int, int], ...], int] = {(): 0}

    @property
    def has_too_many(self) -> bool:
        """True if there are so many texts that they should be discarded before others are added."""
        return len(self.files) + len(self.sources) + len(self.absent) > _MAX_NAMES


_MAX_NAMES = 4096


class EventMetadataColumns:
    """Metadata of the row events of one row batch: numpy arrays with one entry per event, or per row, in log order.

    selected: the rows that are selected; None = all.

    Attributes:
        commits: for each row, whether it is the last row of its transaction.
    """

    def __init__(self, row_batch: RowBatch, names: EventTextIndex) -> None:
        events = row_batch.rows
        kinds, layouts = events.kinds, np.asarray(events.kind_indexes)
        owners, serials = np.asarray(events.owners), np.asarray(events.serials)
        source_numbers = [names.sources.setdefault(one, len(names.sources)) for one in events.sources]
        absent_numbers = [names.absent.setdefault(tuple(one), len(names.absent)) for _, one in kinds]
        self.sizes = np.asarray(events.row_counts)
        self.sides = np.array([side for side, _ in kinds], dtype=np.uint8)[layouts]
        self.absent = np.array(absent_numbers)[layouts]
        self.times, self.servers = np.asarray(events.times), np.asarray(events.origins)
        file = names.files.setdefault(records_to_arrow.printable_path(row_batch.file), len(names.files))
        self.files = np.full(len(layouts), file)
        self.records = np.asarray(events.record_indexes) + row_batch.record
        self.offsets = np.asarray(events.offsets) + row_batch.base
        self.sources = np.where(owners < 0, -1, np.array([*source_numbers, -1])[owners])
        self.serials, self._sources = serials, list(names.sources)
        self.groups, self.ends = np.asarray(events.groups), np.cumsum(self.sizes)
        self.selected: Any = None
        self.commits = np.zeros(self.row_count, dtype=bool)

    @property
    def row_count(self) -> int:
        """Number of rows of all events."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def row_indexes(self, events: Any) -> Any:
        """Return the indexes of the rows of these events."""
        sizes, starts = self.sizes[events], self.ends[events] - self.sizes[events]
        return np.repeat(starts - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())

    def select_rows(self, selected: Any) -> None:
        """Keep only the selected rows."""
        self.selected = selected

    def mark_commits_and_report_missing(self, commit_flags: Sequence[int]) -> bool:
        """Mark the last selected row of each committed transaction; return True if the open transaction ends but its
        last row is not among these rows.

        Returns:
            True if the last row of the transaction that was already open is not among these rows.
        """
        committing = np.flatnonzero(np.asarray(commit_flags))
        rows, before = self.ends[committing] - 1, False
        if self.selected is not None:
            chosen = np.flatnonzero(self.selected)
            places = np.searchsorted(chosen, rows, side="right") - 1
            row_groups = np.repeat(self.groups, self.sizes)
            rows = chosen[places] if len(chosen) else np.zeros(len(places), dtype=np.int64)
            is_own = (places >= 0) & (row_groups[rows] == self.groups[committing])
            before, rows = bool((~is_own & (self.groups[committing] == 0)).any()), rows[is_own]
        self.commits[rows] = True
        return before

    def find_unfinished_transactions(
        self, commit_flags: Sequence[int], *, is_last_open: bool
    ) -> list[tuple[int, int | None]]:
        """Return the transactions without an end that are followed by another transaction.

        Each one is (number of its group, last event with a selected row; None if it has none).
        """
        lasts = np.flatnonzero(np.diff(self.groups, append=self.groups[-1] + (not is_last_open)))
        found = list[tuple[int, int | None]]()
        for event in lasts[np.asarray(commit_flags)[lasts] == 0].tolist():
            group, last = int(self.groups[event]), event
            if self.selected is not None:
                chosen = np.flatnonzero(self.selected[: self.ends[event]])
                last = int(np.searchsorted(self.ends, chosen[-1], side="right")) if len(chosen) else -1
            found.append((group, last if last >= 0 and self.groups[last] == group else None))
        return found

    def format_transaction_of_event(self, event_index: int) -> str | None:
        """Return the transaction of an event as text."""
        source = self._sources[self.sources[event_index]] if self.sources[event_index] >= 0 else None
        serial = int(self.serials[event_index])
        return None if source is None or source[0] is None else f"{source[0]}{serial if serial >= 0 else ''}"

    def find_last_selected_row(self) -> int | None:
        """Return the index of the last selected row; None if the last transaction has none."""
        if self.selected is None:
            return self.row_count - 1
        chosen = np.flatnonzero(self.selected)
        if not len(chosen) or np.repeat(self.groups, self.sizes)[chosen[-1]] != self.groups[-1]:
            return None
        return int(chosen[-1])
