"""State that a vinyl metadata log describes, built record by record as the server does (vy_log.c:
vy_recovery_process_record), with the server's messages for records that do not fit.

A value that a record leaves out is 0; a key definition and the bounds of a range or slice that it leaves out are
None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import msgspec

from binlogtool.formats.tarantool.codes import VylogKey, VylogType

MAX_OBJECTS = 1_000_000
"""Trees, ranges, runs and slices that are remembered."""

_INCOMPLETE = -1
"""LSN of something that has not happened."""
_NUMBERS = frozenset(("unsigned", "integer", "number", "double"))
_INVALID = "Invalid VYLOG file: "

T = TypeVar("T")

Key = tuple[Any, ...]
"""The values of a key or of a part of it."""


class Run(msgspec.Struct):
    """A sorted file.

    Attributes:
        slices: ids of its slices.
        sliced: it has had a slice at some time.
        appended: created after the checkpoint with which the file begins.
    """

    id: int
    lsm: int
    dump_lsn: int = -1
    dropped: bool = False
    incomplete: bool = True
    sliced: bool = False
    appended: bool = False
    slices: set[int] = msgspec.field(default_factory=set)


class Slice(NamedTuple):
    """The part of a run that a range uses. forgotten: a record has removed the run although the slice uses it."""

    id: int
    range: int
    run: int
    begin: Key | None
    end: Key | None
    forgotten: bool = False


class Range(msgspec.Struct):
    """A part of the keys of an LSM tree, with its slices."""

    id: int
    lsm: int
    begin: Key | None
    end: Key | None
    slices: set[int] = msgspec.field(default_factory=set)


class LsmTree(msgspec.Struct):
    """One vinyl index. The LSNs are -1 where it was only prepared, or is not dropped.

    Attributes:
        types: of the parts of its key; None = not known.
        prepared: id of the tree that is prepared to replace it, or None.
    """

    id: int
    space: int
    index: int
    types: tuple[str, ...] | None = None
    create_lsn: int = _INCOMPLETE
    drop_lsn: int = _INCOMPLETE
    dump_lsn: int = _INCOMPLETE
    ranges: set[int] = msgspec.field(default_factory=set)
    runs: set[int] = msgspec.field(default_factory=set)
    prepared: int | None = None


class VylogState(msgspec.Struct):
    """Everything that the records describe.

    Attributes:
        checkpoint: ids of the slices when the record SNAPSHOT was read, and of those that came after it; None = not
            read.
        unchecked: why nothing can be concluded, or None.
    """

    trees: dict[int, LsmTree] = msgspec.field(default_factory=dict)
    ranges: dict[int, Range] = msgspec.field(default_factory=dict)
    runs: dict[int, Run] = msgspec.field(default_factory=dict)
    slices: dict[int, Slice] = msgspec.field(default_factory=dict)
    checkpoint: set[int] | None = None
    unchecked: str | None = None
    _found: tuple[dict[tuple[int, int], LsmTree], str | None] | None = None

    def apply(self, kind: int, keys: Mapping[int, Any]) -> str | None:
        """Process one record; return the server's message if it does not fit."""
        self._found = None
        if kind == VylogType.SNAPSHOT:
            self.checkpoint = set(self.slices)
            return None
        if kind in (VylogType.REBOOTSTRAP, VylogType.ABORT_REBOOTSTRAP):
            self.unchecked = "the instance was bootstrapped again"
            return None
        if len(self.trees) + len(self.ranges) + len(self.runs) + len(self.slices) >= MAX_OBJECTS:
            self.unchecked = "too many objects"
        if not _is_definition(keys.get(VylogKey.KEY_DEF, ())):
            return f"{_INVALID}Bad record: failed to decode index key definition"
        apply = None if self.unchecked else _RULES.get(kind)
        try:
            if apply is not None:
                apply(self, _Keys(keys))
        except _RecordError as error:
            return _INVALID + str(error)
        return None

    def tree_of(self, space: int, index: int) -> LsmTree | None:
        """Return the last incarnation of an index (vy_recovery_lsm_by_index_id), or None."""
        trees, _ = self._indexes()
        return trees.get((space, index))

    def duplicate_tree(self) -> str | None:
        """Return the server's message if an index has two LSM trees (vy_recovery_build_index_id_hash), else None."""
        _, fault = self._indexes()
        return None if fault is None else _INVALID + fault

    def _indexes(self) -> tuple[dict[tuple[int, int], LsmTree], str | None]:
        """Return the last incarnation of each index, and a fault; cached until the next record."""
        if self._found is None:
            self._found = self._look_up_indexes()
        return self._found

    def _look_up_indexes(self) -> tuple[dict[tuple[int, int], LsmTree], str | None]:
        found: dict[tuple[int, int], LsmTree] = {}
        fault = None
        for tree in self.trees.values():
            tree.prepared = None
        for tree in self.trees.values():
            place = tree.space, tree.index
            before = found.get(place)
            if before is None:
                found[place] = tree
            elif tree.create_lsn < 0:
                if before.prepared is not None:
                    fault = fault or f"LSM tree {tree.space}/{tree.index} prepared twice"
                before.prepared = tree.id
            elif before.drop_lsn >= 0:
                found[place] = tree
            elif before.create_lsn < 0:
                tree.prepared = before.id
                found[place] = tree
            else:
                fault = fault or f"LSM tree {tree.space}/{tree.index} created twice"
        return found, fault

    def living_runs(self, tree: LsmTree) -> Iterator[Run]:
        """Yield the runs that a slice of the tree refers to, in the server's order (vy_lsm_recover)."""
        seen: set[int] = set()
        for number in sorted(tree.ranges):
            slices = (self.slices[one] for one in self.ranges[number].slices)
            living = (one for one in slices if not one.forgotten)
            for slice_ in sorted(living, key=lambda one: self.runs[one.run].dump_lsn):
                if slice_.run not in seen:
                    seen.add(slice_.run)
                    yield self.runs[slice_.run]

    def forgotten_slices(self, tree: LsmTree) -> list[Slice]:
        """List the slices of a tree whose runs are forgotten: the server reads freed memory when it recovers the
        tree.
        """
        slices = (self.slices[one] for number in sorted(tree.ranges) for one in sorted(self.ranges[number].slices))
        return [one for one in slices if one.forgotten]

    # -- the shape of a tree ---------------------------------------------------------------------------------------

    def tree_fault(self, tree: LsmTree) -> str | None:
        """Return the server's message if the ranges of a tree leave keys out or overlap (vy_lsm_recover), else None."""
        fault = self._bounds_fault(tree) or self._span_fault(tree)
        return None if fault is None else _INVALID + fault

    def _bounds_fault(self, tree: LsmTree) -> str | None:
        for number in sorted(tree.ranges):
            range_ = self.ranges[number]
            if _order(tree, range_.begin, range_.end) in (0, 1):
                return f"begin >= end for range {number}"
            for one in sorted(range_.slices):
                slice_ = self.slices[one]
                if _order(tree, slice_.begin, slice_.end) in (0, 1):
                    return f"begin >= end for slice {one}"
        return None

    def _span_fault(self, tree: LsmTree) -> str | None:
        """Check that the ranges follow each other; None also where the order of the keys is not known."""
        ranges = _sorted_ranges(tree, [self.ranges[number] for number in sorted(tree.ranges)])
        if ranges is None:
            return None
        if not ranges:
            return f"LSM tree {tree.id} has empty range tree"
        if ranges[0].begin is not None:
            return f"Range {ranges[0].id} is leftmost but starts with a finite key"
        for before, after in pairwise(ranges):
            order = _order(tree, before.end, after.begin)
            if order != 0:
                if order == 1:
                    return f"Nearby ranges {before.id} and {after.id} overlap"
                return f"Keys between ranges {before.id} and {after.id} not spanned"
        if ranges[-1].end is not None:
            return f"Range {ranges[-1].id} is rightmost but ends with a finite key"
        return None


class _Keys:
    """The keys of a record; numbers that it leaves out are 0."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Mapping[int, Any]) -> None:
        self._keys = keys

    def number(self, key: VylogKey) -> int:
        value = self._keys.get(key, 0)
        return value if type(value) is int else 0

    def bound(self, key: VylogKey) -> Key | None:
        value = self._keys.get(key)
        return tuple(value) if isinstance(value, list | tuple) and value else None

    @property
    def types(self) -> tuple[str, ...] | None:
        """Types of the parts of a key definition; "?" for one whose order is not plain."""
        parts = self._keys.get(VylogKey.KEY_DEF)
        return tuple(map(_type_of, parts)) if isinstance(parts, list | tuple) else None


def _is_definition(parts: Any) -> bool:
    """Check that a value has the shape of the parts of a key."""
    return isinstance(parts, list | tuple) and all(
        isinstance(one, Mapping | list) and not (isinstance(one, Mapping) and {"field", "type"} - one.keys())
        for one in parts
    )


def _type_of(part: Any) -> str:
    if not isinstance(part, Mapping) or part.get("collation") is not None or part.get("path"):
        return "?"
    return str(part.get("type", "?")).lower() if part.get("sort_order", "asc") == "asc" else "?"


# -- order of keys -----------------------------------------------------------------------------------------------------


def _order(tree: LsmTree, a: Key | None, b: Key | None) -> int | None:
    """Compare two keys: -1, 0 or 1; None if one of them is open, or the order is not known."""
    if a is None or b is None:
        return None
    for kind, x, y in zip(tree.types or (), a, b, strict=False):
        order = _compare(kind, x, y)
        if order != 0:
            return order
    return (len(a) > len(b)) - (len(a) < len(b)) if tree.types and len(a) <= len(tree.types) else None


def _compare(kind: str, x: Any, y: Any) -> int | None:
    if x is None or y is None:
        return (x is not None) - (y is not None)
    if kind in _NUMBERS and _is_number(x) and _is_number(y):
        return int(x > y) - int(x < y)
    if kind == "string" and isinstance(x, str) and isinstance(y, str):
        left, right = (one.encode("utf-8", "surrogateescape") for one in (x, y))
        return (left > right) - (left < right)
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _sorted_ranges(tree: LsmTree, ranges: list[Range]) -> list[Range] | None:
    """Sort ranges by their begin; None if the order of two of them is not known."""
    done: list[Range] = []
    for range_ in ranges:
        at = len(done)
        while at > 0:
            before = done[at - 1]
            order = _order(tree, before.begin, range_.begin)
            if before.begin is not None and range_.begin is not None and order is None:
                return None
            if before.begin is None or (range_.begin is not None and order is not None and order <= 0):
                break
            at -= 1
        done.insert(at, range_)
    return done


# -- one rule for each type of record ----------------------------------------------------------------------------------


class _RecordError(Exception):
    """A record does not fit; the argument is the server's message."""


def _registered(objects: Mapping[int, T], number: int, fault: str) -> T:
    """Return the object that a record names.

    Raises:
        _RecordError: with `fault`, where no record before has created it.
    """
    found = objects.get(number)
    if found is None:
        raise _RecordError(fault)
    return found


def _check_new(objects: Mapping[int, Any], number: int, what: str) -> None:
    """Check that an id is not in use."""
    if number in objects:
        raise _RecordError(f"Duplicate {what} id {number}")


def _prepare_lsm(state: VylogState, keys: _Keys) -> None:
    number = keys.number(VylogKey.LSM_ID)
    if keys.types is None:
        raise _RecordError(f"Missing key definition for LSM tree {number}")
    _check_new(state.trees, number, "LSM tree")
    space, index = keys.number(VylogKey.SPACE_ID), keys.number(VylogKey.INDEX_ID)
    state.trees[number] = LsmTree(number, space, index, keys.types)


def _create_lsm(state: VylogState, keys: _Keys) -> None:
    number = keys.number(VylogKey.LSM_ID)
    if number not in state.trees:
        _prepare_lsm(state, keys)
    elif max(state.trees[number].create_lsn, state.trees[number].drop_lsn) >= 0:
        raise _RecordError(f"Duplicate LSM tree id {number}")
    tree = state.trees[number]
    tree.create_lsn = keys.number(VylogKey.CREATE_LSN) or number  # before 1.7.6 the id was the LSN
    tree.dump_lsn = keys.number(VylogKey.DUMP_LSN)


def _modify_lsm(state: VylogState, keys: _Keys) -> None:
    number = keys.number(VylogKey.LSM_ID)
    tree = _registered(state.trees, number, f"Update of unregistered LSM tree {number}")
    if tree.drop_lsn >= 0:
        raise _RecordError(f"Update of deleted LSM tree {number}")
    tree.types = keys.types


def _drop_lsm(state: VylogState, keys: _Keys) -> None:
    number = keys.number(VylogKey.LSM_ID)
    tree = _registered(state.trees, number, f"LSM tree {number} deleted but not registered")
    if tree.drop_lsn >= 0:
        raise _RecordError(f"LSM tree {number} deleted twice")
    tree.drop_lsn = keys.number(VylogKey.DROP_LSN)


def _forget_lsm(state: VylogState, keys: _Keys) -> None:
    number = keys.number(VylogKey.LSM_ID)
    tree = _registered(state.trees, number, f"LSM tree {number} forgotten but not registered")
    if tree.ranges or tree.runs:
        raise _RecordError(f"Forgotten LSM tree {number} has ranges/runs")
    del state.trees[number]


def _dump_lsm(state: VylogState, keys: _Keys) -> None:
    number = keys.number(VylogKey.LSM_ID)
    tree = _registered(state.trees, number, f"Dump of unregistered LSM tree {number}")
    tree.dump_lsn = keys.number(VylogKey.DUMP_LSN)


def _insert_range(state: VylogState, keys: _Keys) -> None:
    number, lsm = keys.number(VylogKey.RANGE_ID), keys.number(VylogKey.LSM_ID)
    _check_new(state.ranges, number, "range")
    tree = _registered(state.trees, lsm, f"Range {number} created for unregistered LSM tree {lsm}")
    state.ranges[number] = Range(number, lsm, keys.bound(VylogKey.BEGIN), keys.bound(VylogKey.END))
    tree.ranges.add(number)


def _delete_range(state: VylogState, keys: _Keys) -> None:
    number = keys.number(VylogKey.RANGE_ID)
    range_ = _registered(state.ranges, number, f"Range {number} deleted but not registered")
    if range_.slices:
        raise _RecordError(f"Deleted range {number} has run slices")
    del state.ranges[number]
    state.trees[range_.lsm].ranges.discard(number)


def _add_run(state: VylogState, number: int, tree: LsmTree) -> Run:
    run = state.runs[number] = Run(number, tree.id, appended=state.checkpoint is not None)
    tree.runs.add(number)
    return run


def _tree_of_run(state: VylogState, keys: _Keys) -> LsmTree:
    number, lsm = keys.number(VylogKey.RUN_ID), keys.number(VylogKey.LSM_ID)
    return _registered(state.trees, lsm, f"Run {number} created for unregistered LSM tree {lsm}")


def _prepare_run(state: VylogState, keys: _Keys) -> None:
    number, tree = keys.number(VylogKey.RUN_ID), _tree_of_run(state, keys)
    _check_new(state.runs, number, "run")
    _add_run(state, number, tree)


def _create_run(state: VylogState, keys: _Keys) -> None:
    number, tree = keys.number(VylogKey.RUN_ID), _tree_of_run(state, keys)
    run = state.runs.get(number)
    if run is not None and run.dropped:
        raise _RecordError(f"Run {number} committed after deletion")
    if run is None:
        run = _add_run(state, number, tree)
    elif run.lsm != tree.id:
        state.trees[run.lsm].runs.discard(number)
        tree.runs.add(number)
        run.lsm = tree.id
    run.dump_lsn, run.incomplete = keys.number(VylogKey.DUMP_LSN), False


def _drop_run(state: VylogState, keys: _Keys) -> None:
    number = keys.number(VylogKey.RUN_ID)
    run = _registered(state.runs, number, f"Run {number} deleted but not registered")
    if run.dropped:
        raise _RecordError(f"Run {number} deleted twice")
    run.dropped = True


def _forget_run(state: VylogState, keys: _Keys) -> None:
    """Remove a run. Its slices still refer to it, which the server does not check."""
    number = keys.number(VylogKey.RUN_ID)
    run = _registered(state.runs, number, f"Run {number} forgotten but not registered")
    del state.runs[number]
    state.trees[run.lsm].runs.discard(number)
    for slice_ in run.slices:
        state.slices[slice_] = state.slices[slice_]._replace(forgotten=True)


def _insert_slice(state: VylogState, keys: _Keys) -> None:
    number, where, of = (keys.number(key) for key in (VylogKey.SLICE_ID, VylogKey.RANGE_ID, VylogKey.RUN_ID))
    _check_new(state.slices, number, "slice")
    range_ = _registered(state.ranges, where, f"Slice {number} created for unregistered range {where}")
    run = _registered(state.runs, of, f"Slice {number} created for unregistered run {of}")
    state.slices[number] = Slice(number, where, of, keys.bound(VylogKey.BEGIN), keys.bound(VylogKey.END))
    range_.slices.add(number)
    run.slices.add(number)
    run.sliced = True
    if state.checkpoint is not None and len(state.checkpoint) < MAX_OBJECTS:
        state.checkpoint.add(number)


def _delete_slice(state: VylogState, keys: _Keys) -> None:
    number = keys.number(VylogKey.SLICE_ID)
    slice_ = _registered(state.slices, number, f"Slice {number} deleted but not registered")
    del state.slices[number]
    state.ranges[slice_.range].slices.discard(number)
    if not slice_.forgotten:
        state.runs[slice_.run].slices.discard(number)


_RULES: Mapping[int, Callable[[VylogState, _Keys], None]] = {
    VylogType.CREATE_LSM: _create_lsm,
    VylogType.DROP_LSM: _drop_lsm,
    VylogType.INSERT_RANGE: _insert_range,
    VylogType.DELETE_RANGE: _delete_range,
    VylogType.PREPARE_RUN: _prepare_run,
    VylogType.CREATE_RUN: _create_run,
    VylogType.DROP_RUN: _drop_run,
    VylogType.FORGET_RUN: _forget_run,
    VylogType.INSERT_SLICE: _insert_slice,
    VylogType.DELETE_SLICE: _delete_slice,
    VylogType.DUMP_LSM: _dump_lsm,
    VylogType.MODIFY_LSM: _modify_lsm,
    VylogType.FORGET_LSM: _forget_lsm,
    VylogType.PREPARE_LSM: _prepare_lsm,
}
