"""Fast path of a replay: rows that need no individual check are ruled on and stored by compiled code.

Implements `replay_rules.Quick`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from binlogtool.findings import Finding
from binlogtool.formats.columns import integers
from binlogtool.formats.keeping import NO_ROOM, Kept
from binlogtool.formats.layouts import Batch, Kernel
from binlogtool.formats.replay_rules import APPLIED, Change, Counted, Ran
from binlogtool.formats.tarantool.codes import FileKind
from binlogtool.formats.tarantool.layout.layout import FileContext
from binlogtool.formats.tarantool.meaning import bodies
from binlogtool.formats.tarantool.msgpack.messages import bounded
from binlogtool.formats.tarantool.replay import kernels
from binlogtool.formats.tarantool.rows.names import TYPE_NAMES
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.tarantool.replay.effects import TarantoolEffects
    from binlogtool.formats.tarantool.replay.replay import TarantoolReplayer

_RULED = ("type", "replica_id", "lsn", "flags", "space_id", "body_keys", "tsn", "header_keys")
_KEPT = ("type", "space_id", "body_keys", "shape", "body", "tuple", "end")
_MOST = 1 << 12
"""Spaces that a kernel is told at once."""


class TarantoolQuick:
    """Fast path of one replay: rulings and row changes."""

    def __init__(self, replayer: TarantoolReplayer, effects: TarantoolEffects | None, limits: Limits) -> None:
        self._replayer, self._effects = replayer, effects
        self._limits, self._depth = limits, bounded(limits)
        self._told: tuple[set[int], list[int], array[int]] = set(), [], array("q")
        self._keys: tuple[int, dict[int, tuple[str, tuple[int, ...]]], int, array[int]] = -1, {}, 0, array("q")

    def run(
        self, name: str, context: Any, batch: Batch, start: int, stop: int, compiled: Callable[[Kernel], Kernel]
    ) -> Ran | None:
        """See `formats.replay_rules.Quick`."""
        expected = self._replayer.expected(name, batch, start)
        if expected is None:
            return None
        spaces, known = self._known()
        counted = array("q", bytes(8 * kernels.COUNTED * len(spaces)))
        columns = kernels.ReplayColumns._make(batch.records[column] for column in _RULED)
        transactional = int(self._replayer.version.is_transactional)
        reached = compiled(kernels.plain_rows)(
            columns, start, stop, expected.replica, expected.after, transactional, known, len(spaces), counted
        )
        if reached == start:
            return None
        self._replayer.ran(expected, reached - start)
        objects = []
        for i, space in enumerate(spaces):
            rows, first, last = counted[3 * i : 3 * i + 3]
            if rows:
                objects.append(Counted(context.spaces[space], rows, first, last))
        return Ran(reached, APPLIED, expected.reason, objects)

    def keep(self, kept: Kept, batch: Batch, start: int, stop: int) -> int:
        """See `formats.replay_rules.Quick`."""
        assert self._effects is not None
        plain = self._effects.plain
        if self._keys[:2] != (kept.version, plain):
            self._keys = kept.version, dict(plain), *_keys(kept, plain)
        _, _, count, known = self._keys
        columns = kernels.BodyColumns._make(batch.records[column] for column in _KEPT)
        keep = kept.compiled(kernels.keep_rows)
        while True:
            start, why = keep(batch.arena, columns, start, stop, known, count, self._depth, kept.memory)
            if why != NO_ROOM:
                return int(start)
            kept.more()

    def changes(self, context: FileContext, batch: Batch, start: int, stop: int) -> Iterator[Change]:
        """See `formats.replay_rules.Quick`."""
        assert self._effects is not None
        types = integers(batch.records["type"], start, stop)
        shown = bodies(context, batch, start, stop, self._limits)
        for row_type, body in zip(types, shown, strict=True):
            if not isinstance(body, Finding):
                snapshot = context.kind is not FileKind.XLOG
                yield from self._effects.changes(TYPE_NAMES[row_type], body, snapshot=snapshot)

    def _known(self) -> tuple[list[int], array[int]]:
        """Return the spaces on whose rows nothing depends, by their ids, and the kernel's table of them."""
        simple = self._replayer.simple
        if self._told[0] != simple:
            spaces = sorted(simple)[:_MOST]
            known = array("q")
            for space in spaces:
                known.extend((space, *[0] * (kernels.KNOWN_SPACE - 1)))
            self._told = set(simple), spaces, known
        return self._told[1], self._told[2]


def _keys(kept: Kept, plain: Mapping[int, tuple[str, tuple[int, ...]]]) -> tuple[int, array[int]]:
    """Build the table of `store_rows`: the spaces whose keys are fields in rising order. Returns their number first."""
    spaces = [
        (space, name, fields)
        for space, (name, fields) in sorted(plain.items())
        if 0 < len(fields) <= kernels.MOST_PARTS and list(fields) == sorted(set(fields))
    ][:_MOST]
    known = array("q")
    for space, name, fields in spaces:
        known.extend((space, *kept.object(name), len(fields), *fields, *[0] * (kernels.MOST_PARTS - len(fields))))
    return len(spaces), known
