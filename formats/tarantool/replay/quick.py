"""Fast path of a replay: rows that need no individual check are ruled on and stored by compiled code.

Implements `replay_rules.CompiledReplay`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from binlogtool.findings import Finding
from binlogtool.formats.columns import to_int_list
from binlogtool.formats.keeping import NO_SPACE, RowStoreMemory
from binlogtool.formats.layouts import Batch, Kernel
from binlogtool.formats.replay_rules import APPLIED, BatchRuling, ObjectCount, StateChange
from binlogtool.formats.tarantool.codes import FileKind
from binlogtool.formats.tarantool.layout.layout import TarantoolContext
from binlogtool.formats.tarantool.meaning import decode_bodies
from binlogtool.formats.tarantool.msgpack.messages import limit_depth
from binlogtool.formats.tarantool.replay import kernels
from binlogtool.formats.tarantool.rows.names import TYPE_NAMES
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.tarantool.replay.effects import TarantoolEffects
    from binlogtool.formats.tarantool.replay.replay import TarantoolReplayer

_RULING_COLUMNS = ("type", "replica_id", "lsn", "flags", "space_id", "body_keys", "tsn", "header_keys")
_STORE_COLUMNS = ("type", "space_id", "body_keys", "shape", "body", "tuple", "end")
_MAX_SPACES = 1 << 12
"""Spaces that a kernel is told at once."""


class TarantoolFastPath:
    """Fast path of one replay: rulings and row changes."""

    def __init__(self, replayer: TarantoolReplayer, effects: TarantoolEffects | None, limits: Limits) -> None:
        self._replayer, self._effects = replayer, effects
        self._limits, self._depth = limits, limit_depth(limits)
        self._space_table: tuple[set[int], list[int], array[int]] = set(), [], array("q")
        self._key_table: tuple[int, dict[int, tuple[str, tuple[int, ...]]], int, array[int]] = -1, {}, 0, array("q")

    def rule_on_batch(
        self, name: str, context: Any, batch: Batch, start: int, stop: int, compile_kernel: Callable[[Kernel], Kernel]
    ) -> BatchRuling | None:
        """See `formats.replay_rules.CompiledReplay`."""
        expected = self._replayer.get_expected_rows(name, batch, start)
        if expected is None:
            return None
        spaces, space_table = self._list_simple_spaces()
        counts = array("q", bytes(8 * kernels.COUNTS_PER_SPACE * len(spaces)))
        columns = kernels.ReplayColumns._make(batch.records[column] for column in _RULING_COLUMNS)
        transactional = int(self._replayer.version.is_transactional)
        reached = compile_kernel(kernels.find_plain_run)(
            columns, start, stop, expected.replica, expected.first_lsn, transactional, space_table, len(spaces), counts
        )
        if reached == start:
            return None
        self._replayer.note_applied_rows(expected, reached - start)
        objects = []
        for i, space in enumerate(spaces):
            rows, first, last = counts[3 * i : 3 * i + 3]
            if rows:
                objects.append(ObjectCount(context.spaces[space], rows, first, last))
        return BatchRuling(reached, APPLIED, expected.reason, objects)

    def store_changes(self, row_store: RowStoreMemory, batch: Batch, start: int, stop: int) -> int:
        """See `formats.replay_rules.CompiledReplay`."""
        assert self._effects is not None
        plain = self._effects.plain_keys
        if self._key_table[:2] != (row_store.version, plain):
            self._key_table = row_store.version, dict(plain), *_build_key_table(row_store, plain)
        _, _, count, key_table = self._key_table
        columns = kernels.BodyColumns._make(batch.records[column] for column in _STORE_COLUMNS)
        store = row_store.compile_kernel(kernels.store_rows)
        while True:
            start, status = store(batch.arena, columns, start, stop, key_table, count, self._depth, row_store.memory)
            if status != NO_SPACE:
                return int(start)
            row_store.grow()

    def decode_changes(self, context: TarantoolContext, batch: Batch, start: int, stop: int) -> Iterator[StateChange]:
        """See `formats.replay_rules.CompiledReplay`."""
        assert self._effects is not None
        types = to_int_list(batch.records["type"], start, stop)
        decoded_bodies = decode_bodies(context, batch, start, stop, self._limits)
        for row_type, body in zip(types, decoded_bodies, strict=True):
            if not isinstance(body, Finding):
                snapshot = context.kind is not FileKind.XLOG
                yield from self._effects.changes(TYPE_NAMES[row_type], body, snapshot=snapshot)

    def _list_simple_spaces(self) -> tuple[list[int], array[int]]:
        """Return the spaces on whose rows nothing depends, by their ids, and the kernel's table of them."""
        simple = self._replayer.simple_spaces
        if self._space_table[0] != simple:
            spaces = sorted(simple)[:_MAX_SPACES]
            table = array("q")
            for space in spaces:
                table.extend((space, *[0] * (kernels.SPACE_ENTRY_SIZE - 1)))
            self._space_table = set(simple), spaces, table
        return self._space_table[1], self._space_table[2]


def _build_key_table(
    row_store: RowStoreMemory, plain_keys: Mapping[int, tuple[str, tuple[int, ...]]]
) -> tuple[int, array[int]]:
    """Build the table of `store_rows`: the spaces whose keys are fields in rising order. Returns their number first."""
    spaces = [
        (space, name, fields)
        for space, (name, fields) in sorted(plain_keys.items())
        if 0 < len(fields) <= kernels.MAX_PARTS and list(fields) == sorted(set(fields))
    ][:_MAX_SPACES]
    table = array("q")
    for space, name, fields in spaces:
        table.extend(
            (space, *row_store.object_number(name), len(fields), *fields, *[0] * (kernels.MAX_PARTS - len(fields)))
        )
    return len(spaces), table
