"""Replay most records in compiled code, and hand the others over to be ruled on one by one in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from binlogtool.formats.layouts import Kernel
from binlogtool.formats.replay_rules import BatchRuling, CompiledReplay, EffectReader
from binlogtool.log.records import RecordBlock
from binlogtool.log.stretches import RecordRange, next_python_run
from binlogtool.recovery.digest import ReplayState
from binlogtool.recovery.kept import CompiledRowStore
from binlogtool.schema import backends

MIN_STORE_MEMORY = 1 << 20
"""Bytes: with less, compiled code keeps no rows."""

_MIN_RULED_RUN, _MIN_KEPT_RUN = 32, 8
"""So many records by compiled code do not pay for the changes of the hand: to rulings, and only to what is kept."""

OnCompiledRun = Callable[[str, BatchRuling, int], None]
"""Told the name of the file, and of how many records more."""


class CompiledReplayRunner(msgspec.Struct):
    """Runs a format's compiled replay kernels over record ranges.

    Attributes:
        rows: The row store; None if the state is not wanted.
    """

    quick: CompiledReplay
    compiled: Callable[[Kernel], Kernel]
    state: ReplayState
    rows: CompiledRowStore | None
    _ruling: int = 1
    _keeping: int = 1

    def replay_range(
        self, record_range: RecordRange, name: str, on_compiled_run: OnCompiledRun
    ) -> Iterator[RecordBlock]:
        """Replay a range of records; yield, in order, the blocks that have to be ruled on in Python."""
        position, stop, context = record_range.start, record_range.stop, record_range.decoder.layout.context
        while position < stop:
            compiled_run = self.quick.rule_on_batch(name, context, record_range.batch, position, stop, self.compiled)
            reached = position if compiled_run is None else compiled_run.stop
            if compiled_run is not None:
                on_compiled_run(name, compiled_run, reached - position)
                self._keep_rows(record_range, position, reached)
            if reached < stop:
                self._ruling = next_python_run(self._ruling, reached - position, _MIN_RULED_RUN)
                batch_end = min(reached + self._ruling, stop)
                yield from record_range.decode_blocks(reached, batch_end)
                reached = batch_end
            position = reached

    def _keep_rows(self, record_range: RecordRange, position: int, stop: int) -> None:
        if self.rows is None:
            return
        while position < stop:
            reached = self.quick.store_changes(self.rows, record_range.batch, position, stop)
            if reached < stop:
                self._keeping = next_python_run(self._keeping, reached - position, _MIN_KEPT_RUN)
                batch_end = min(reached + self._keeping, stop)
                context = record_range.decoder.layout.context
                self.state.apply_changes(self.quick.decode_changes(context, record_range.batch, reached, batch_end))
                reached = batch_end
            position = reached


def make_compiled_runner(
    quick: CompiledReplay, backend: str, effects: EffectReader | None, state: ReplayState
) -> CompiledReplayRunner | None:
    """Create the compiled replay; None if there is no compiled code for this machine."""
    chosen_backend = backends.choose_backend(backend)
    if chosen_backend.name != "native":
        return None
    rows = None if effects is None else state.open_row_store(chosen_backend.compile_kernel)
    return CompiledReplayRunner(quick, chosen_backend.compile_kernel, state, rows)
