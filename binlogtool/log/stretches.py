"""Record ranges: selected records whose envelopes need not have been decoded yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import TYPE_CHECKING

import msgspec

from binlogtool.formats.layouts import Batch
from binlogtool.log.filters import find_runs
from binlogtool.log.records import RecordBlock

if TYPE_CHECKING:
    from binlogtool.log.blocks import BlockDecoder

MAX_BLOCK_RECORDS = 2048
"""Records in a block at most."""


class RecordRange(msgspec.Struct, frozen=True):
    """The records `[start, stop)` of a batch before they are decoded; valid as long as the batch.

    It must be consumed in order: by `blocks`, or by code that knows which records teach their format nothing
    (`formats.jsonline.JsonLine`).

    Args:
        marks: a byte for each record, 1 for the selected ones; the others teach their format nothing. None = all are
            selected.
    """

    decoder: BlockDecoder
    batch: Batch
    start: int
    stop: int
    marks: bytes | None = None

    def decode_blocks(self, start: int, stop: int) -> Iterator[RecordBlock]:
        """Yield the records `[start, stop)` of the batch, which must be in this range."""
        marks = self.marks_from(start)
        for low, high in ((start, stop),) if marks is None else find_runs(map(bool, marks[: stop - start]), start):
            for first in range(low, high, MAX_BLOCK_RECORDS):
                last = min(first + MAX_BLOCK_RECORDS, high)
                yield from self.decoder.make_blocks(
                    self.batch, first, last, self.decoder.decode_envelopes(self.batch, first, last)
                )

    def marks_from(self, at: int) -> bytes | None:
        """Return the marks of the records from `at` on."""
        return None if self.marks is None else self.marks[at - self.start :]

    def has_selected(self, start: int, stop: int) -> bool:
        """Return True if one of the records `[start, stop)` is selected."""
        marks = self.marks_from(start)
        return stop > start and (marks is None or 1 in marks[: stop - start])

    def last_selected(self, start: int, stop: int) -> int:
        """Return the index in the batch of the last selected record in `[start, stop)`; there must be one."""
        marks = self.marks_from(start)
        return stop - 1 if marks is None else start + marks.rindex(1, 0, stop - start)

    def selected_numbers(self, start: int, stop: int) -> Sequence[int]:
        """Return the numbers in the file of the selected records in `[start, stop)`."""
        numbers, marks = self.batch.record_numbers(start, stop), self.marks_from(start)
        return numbers if marks is None else list(compress(numbers, marks))


def make_marks(runs: Sequence[tuple[int, int]]) -> bytes | None:
    """Return the marks of a range over these runs; None = the runs cover all of it."""
    first, stop = runs[0][0], runs[-1][1]
    if sum(last - start for start, last in runs) == stop - first:
        return None
    marks = bytearray(stop - first)
    for start, last in runs:
        marks[start - first : last - first] = b"\1" * (last - start)
    return bytes(marks)


def split_runs(runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Split runs into pieces of at most one block."""
    for first, last in runs:
        yield from ((start, min(start + MAX_BLOCK_RECORDS, last)) for start in range(first, last, MAX_BLOCK_RECORDS))


def next_python_run(last_run: int, compiled_count: int, min_compiled_run: int) -> int:
    """Return how many records to decode in Python where compiled code stopped.

    Args:
        last_run: the number of the last time.
        compiled_count: records that compiled code has done since; if that is `min_compiled_run` or more, one
        record is enough, else the
            number
            doubles, as switching costs too much.
    """
    return min(2 * last_run, MAX_BLOCK_RECORDS) if compiled_count < min_compiled_run else 1
