"""Replay most records in compiled code, and hand the others over to be ruled on one by one in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from binlogtool.formats.layouts import Kernel
from binlogtool.formats.replay_rules import Effects, Quick, Ran
from binlogtool.log.records import Block
from binlogtool.log.stretches import Stretch, widened
from binlogtool.recovery.digest import State
from binlogtool.recovery.kept import Rows
from binlogtool.schema import backends

LEAST_MEMORY = 1 << 20
"""Bytes: with less, compiled code keeps no rows."""

_FEW, _FEW_KEPT = 32, 8
"""So many records by compiled code do not pay for the changes of the hand: to rulings, and only to what is kept."""

OnRun = Callable[[str, Ran, int], None]
"""Told the name of the file, and of how many records more."""


class QuickRuns(msgspec.Struct):
    """Runs a format's compiled replay kernels over record ranges.

    Attributes:
        rows: The row store; None if the state is not wanted.
    """

    quick: Quick
    compiled: Callable[[Kernel], Kernel]
    state: State
    rows: Rows | None
    _ruling: int = 1
    _keeping: int = 1

    def blocks(self, stretch: Stretch, name: str, on_run: OnRun) -> Iterator[Block]:
        """Replay a range of records; yield, in order, the blocks that have to be ruled on in Python."""
        at, stop, context = stretch.start, stretch.stop, stretch.maker.layout.context
        while at < stop:
            ran = self.quick.run(name, context, stretch.batch, at, stop, self.compiled)
            reached = at if ran is None else ran.stop
            if ran is not None:
                on_run(name, ran, reached - at)
                self._keep(stretch, at, reached)
            if reached < stop:
                self._ruling = widened(self._ruling, reached - at, _FEW)
                after = min(reached + self._ruling, stop)
                yield from stretch.blocks(reached, after)
                reached = after
            at = reached

    def _keep(self, stretch: Stretch, at: int, stop: int) -> None:
        if self.rows is None:
            return
        while at < stop:
            reached = self.quick.keep(self.rows, stretch.batch, at, stop)
            if reached < stop:
                self._keeping = widened(self._keeping, reached - at, _FEW_KEPT)
                after = min(reached + self._keeping, stop)
                context = stretch.maker.layout.context
                self.state.take(self.quick.changes(context, stretch.batch, reached, after))
                reached = after
            at = reached


def quick_runs(quick: Quick, backend: str, effects: Effects | None, state: State) -> QuickRuns | None:
    """Create the compiled replay; None if there is no compiled code for this machine."""
    chosen = backends.choose(backend)
    if chosen.name != "native":
        return None
    rows = None if effects is None else state.quick(chosen.compile)
    return QuickRuns(quick, chosen.compile, state, rows)
