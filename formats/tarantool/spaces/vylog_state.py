"""State that a vinyl metadata log describes. It is built record by record as the server does (vy_log.c:
vy_recovery_process_record), with the server's messages for records that do not fit.

A number that a record leaves out is 0; omitted key definitions, and omitted bounds of ranges and slices, are None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import msgspec

from binlogtool.formats.tarantool.codes import VylogKey, VylogType

MAX_OBJECTS = 1_000_000
"""Maximum number of trees, ranges, runs and slices together that are remembered."""

_NO_LSN = -1
"""LSN of an event that has not happened."""
_NUMBER_TYPES = frozenset(("unsigned", "integer", "number", "double"))
_INVALID = "Invalid VYLOG file: "

T = TypeVar("T")

KeyValues = tuple[Any, ...]
"""Values of a key or of its first parts."""


class VinylRun(msgspec.Struct):
    """Run: a file of sorted statements.

    Attributes:
        slices: ids of its slices.
        sliced: it has, or once had, a slice.
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


class VinylSlice(NamedTuple):
    """Part of a run that a range uses. forgotten: a record removed the run although the slice still uses it."""

    id: int
    range: int
    run: int
    begin: KeyValues | None
    end: KeyValues | None
    forgotten: bool = False


class VinylRange(msgspec.Struct):
    """Key range of an LSM tree, with its slices."""

    id: int
    lsm: int
    begin: KeyValues | None
    end: KeyValues | None
    slices: set[int] = msgspec.field(default_factory=set)


class LsmTree(msgspec.Struct):
    """LSM tree of one vinyl index. LSNs are -1 if it was only prepared, or is not dropped.

    Attributes:
        types: types of its key parts; None = not known.
        prepared: id of the tree that is prepared to replace it, or None.
    """

    id: int
    space: int
    index: int
    types: tuple[str, ...] | None = None
    create_lsn: int = _NO_LSN
    drop_lsn: int = _NO_LSN
    dump_lsn: int = _NO_LSN
    ranges: set[int] = msgspec.field(default_factory=set)
    runs: set[int] = msgspec.field(default_factory=set)
    prepared: int | None = None


class VylogState(msgspec.Struct):
    """Everything that the records of a metadata log describe.

    Attributes:
        checkpoint: ids of the slices at the SNAPSHOT record and of later slices; None = no such record was read.
        unchecked: why nothing can be concluded, or None.
    """

    trees: dict[int, LsmTree] = msgspec.field(default_factory=dict)
    ranges: dict[int, VinylRange] = msgspec.field(default_factory=dict)
    runs: dict[int, VinylRun] = msgspec.field(default_factory=dict)
    slices: dict[int, VinylSlice] = msgspec.field(default_factory=dict)
    checkpoint: set[int] | None = None
    unchecked: str | None = None
    _cached_indexes: tuple[dict[tuple[int, int], LsmTree], str | None] | None = None

    def apply_record(self, record_type: int, keys: Mapping[int, Any]) -> str | None:
        """Apply one record; return the server's message if it does not fit, else None."""
        self._cached_indexes = None
        if record_type == VylogType.SNAPSHOT:
            self.checkpoint = set(self.slices)
            return None
        if record_type in (VylogType.REBOOTSTRAP, VylogType.ABORT_REBOOTSTRAP):
            self.unchecked = "the instance was bootstrapped again"
            return None
        if len(self.trees) + len(self.ranges) + len(self.runs) + len(self.slices) >= MAX_OBJECTS:
            self.unchecked = "too many objects"
        if not _is_key_definition(keys.get(VylogKey.KEY_DEF, ())):
            return f"{_INVALID}Bad record: failed to decode index key definition"
        rule = None if self.unchecked else _RULES.get(record_type)
        try:
            if rule is not None:
                rule(self, _RecordKeys(keys))
        except _RecordError as error:
            return _INVALID + str(error)
        return None

    def find_latest_tree(self, space: int, index: int) -> LsmTree | None:
        """Return the last incarnation of an index (vy_recovery_lsm_by_index_id), or None."""
        trees, _ = self._get_latest_trees_and_fault()
        return trees.get((space, index))

    def check_duplicate_tree(self) -> str | None:
        """Return the server's message if an index has two LSM trees (vy_recovery_build_index_id_hash), else None."""
        _, fault = self._get_latest_trees_and_fault()
        return None if fault is None else _INVALID + fault

    def _get_latest_trees_and_fault(self) -> tuple[dict[tuple[int, int], LsmTree], str | None]:
        """Return the last incarnation of each index, and a fault or None; cached until the next record."""
        if self._cached_indexes is None:
            indexes: dict[tuple[int, int], LsmTree] = {}
            fault = None
            for tree in self.trees.values():
                tree.prepared = None
            for tree in self.trees.values():
                index_id = tree.space, tree.index
                before = indexes.get(index_id)
                if before is None:
                    indexes[index_id] = tree
                elif tree.create_lsn < 0:
                    if before.prepared is not None:
                        fault = fault or f"LSM tree {tree.space}/{tree.index} prepared twice"
                    before.prepared = tree.id
                elif before.drop_lsn >= 0:
                    indexes[index_id] = tree
                elif before.create_lsn < 0:
                    tree.prepared = before.id
                    indexes[index_id] = tree
                else:
                    fault = fault or f"LSM tree {tree.space}/{tree.index} created twice"
            self._cached_indexes = indexes, fault
        return self._cached_indexes

    def list_live_runs(self, tree: LsmTree) -> Iterator[VinylRun]:
        """Yield the runs that a slice of the tree refers to, in the server's order (vy_lsm_recover)."""
        seen: set[int] = set()
        for number in sorted(tree.ranges):
            slices = (self.slices[one] for one in self.ranges[number].slices)
            live_slices = (one for one in slices if not one.forgotten)
            for slice_ in sorted(live_slices, key=lambda one: self.runs[one.run].dump_lsn):
                if slice_.run not in seen:
                    seen.add(slice_.run)
                    yield self.runs[slice_.run]

    def list_forgotten_slices(self, tree: LsmTree) -> list[VinylSlice]:
        """List the slices of a tree whose runs are forgotten: recovering it, the server reads freed memory."""
        slices = (self.slices[one] for number in sorted(tree.ranges) for one in sorted(self.ranges[number].slices))
        return [one for one in slices if one.forgotten]

    # -- the shape of a tree ---------------------------------------------------------------------------------------

    def find_tree_range_error(self, tree: LsmTree) -> str | None:
        """Return the server's message if the ranges of a tree overlap or leave out keys (vy_lsm_recover), else None."""
        fault = self._find_inverted_bounds(tree) or self._find_range_gap_or_overlap(tree)
        return None if fault is None else _INVALID + fault

    def _find_inverted_bounds(self, tree: LsmTree) -> str | None:
        for number in sorted(tree.ranges):
            range_ = self.ranges[number]
            if _compare_keys(tree, range_.begin, range_.end) in (0, 1):
                return f"begin >= end for range {number}"
            for slice_id in sorted(range_.slices):
                slice_ = self.slices[slice_id]
                if _compare_keys(tree, slice_.begin, slice_.end) in (0, 1):
                    return f"begin >= end for slice {slice_id}"
        return None

    def _find_range_gap_or_overlap(self, tree: LsmTree) -> str | None:
        """Return a message if the ranges are not contiguous; None if they are, or if the key order is not known."""
        ranges = _sort_ranges(tree, [self.ranges[number] for number in sorted(tree.ranges)])
        if ranges is None:
            return None
        if not ranges:
            return f"LSM tree {tree.id} has empty range tree"
        if ranges[0].begin is not None:
            return f"Range {ranges[0].id} is leftmost but starts with a finite key"
        for before, after in pairwise(ranges):
            order = _compare_keys(tree, before.end, after.begin)
            if order != 0:
                if order == 1:
                    return f"Nearby ranges {before.id} and {after.id} overlap"
                return f"Keys between ranges {before.id} and {after.id} not spanned"
        if ranges[-1].end is not None:
            return f"Range {ranges[-1].id} is rightmost but ends with a finite key"
        return None


def get_number_or_zero(keys: Mapping[int, Any], key: VylogKey) -> int:
    """Return a number of a record; 0 if the record has none."""
    value = keys.get(key, 0)
    return value if type(value) is int else 0


class _RecordKeys:
    """Keys of a record; numbers that it leaves out are 0."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Mapping[int, Any]) -> None:
        self._keys = keys

    def get_number_or_zero(self, key: VylogKey) -> int:
        return get_number_or_zero(self._keys, key)

    def get_bound(self, key: VylogKey) -> KeyValues | None:
        value = self._keys.get(key)
        return tuple(value) if isinstance(value, list | tuple) and value else None

    @property
    def types(self) -> tuple[str, ...] | None:
        """Types of the parts of a key definition; "?" for a type whose order is not plain."""
        parts = self._keys.get(VylogKey.KEY_DEF)
        return tuple(map(_get_part_type, parts)) if isinstance(parts, list | tuple) else None


def _is_key_definition(parts: Any) -> bool:
    """Return whether a value has the shape of the parts of a key."""
    return isinstance(parts, list | tuple) and all(
        isinstance(one, Mapping | list) and not (isinstance(one, Mapping) and {"field", "type"} - one.keys())
        for one in parts
    )


def _get_part_type(part: Any) -> str:
    if not isinstance(part, Mapping) or part.get("collation") is not None or part.get("path"):
        return "?"
    return str(part.get("type", "?")).lower() if part.get("sort_order", "asc") == "asc" else "?"


# -- order of keys -----------------------------------------------------------------------------------------------------


def _compare_keys(tree: LsmTree, a: KeyValues | None, b: KeyValues | None) -> int | None:
    """Compare two keys: -1, 0 or 1; None if one of them is open, or the order is not known."""
    if a is None or b is None:
        return None
    for kind, x, y in zip(tree.types or (), a, b, strict=False):
        order = _compare_values(kind, x, y)
        if order != 0:
            return order
    return (len(a) > len(b)) - (len(a) < len(b)) if tree.types and len(a) <= len(tree.types) else None


def _compare_values(kind: str, x: Any, y: Any) -> int | None:
    if x is None or y is None:
        return (x is not None) - (y is not None)
    if kind in _NUMBER_TYPES and _is_number(x) and _is_number(y):
        return int(x > y) - int(x < y)
    if kind == "string" and isinstance(x, str) and isinstance(y, str):
        left, right = (one.encode("utf-8", "surrogateescape") for one in (x, y))
        return (left > right) - (left < right)
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _sort_ranges(tree: LsmTree, ranges: list[VinylRange]) -> list[VinylRange] | None:
    """Sort ranges by their begin; None if the order of two of them is not known."""
    sorted_ranges: list[VinylRange] = []
    for range_ in ranges:
        position = len(sorted_ranges)
        while position > 0:
            before = sorted_ranges[position - 1]
            order = _compare_keys(tree, before.begin, range_.begin)
            if before.begin is not None and range_.begin is not None and order is None:
                return None
            if before.begin is None or (range_.begin is not None and order is not None and order <= 0):
                break
            position -= 1
        sorted_ranges.insert(position, range_)
    return sorted_ranges


# -- rules by record type ----------------------------------------------------------------------------------------------


class _RecordError(Exception):
    """Error: a record does not fit; the argument is the server's message."""


def _get_registered(objects: Mapping[int, T], number: int, fault: str) -> T:
    """Return the object that a record names.

    Raises:
        _RecordError: no earlier record created the object; the message is `fault`.
    """
    item = objects.get(number)
    if item is None:
        raise _RecordError(fault)
    return item


def _require_unused_id(objects: Mapping[int, Any], number: int, object_name: str) -> None:
    """Check that an id is not in use."""
    if number in objects:
        raise _RecordError(f"Duplicate {object_name} id {number}")


def _apply_prepare_lsm(state: VylogState, keys: _RecordKeys) -> None:
    number = keys.get_number_or_zero(VylogKey.LSM_ID)
    if keys.types is None:
        raise _RecordError(f"Missing key definition for LSM tree {number}")
    _require_unused_id(state.trees, number, "LSM tree")
    space, index = keys.get_number_or_zero(VylogKey.SPACE_ID), keys.get_number_or_zero(VylogKey.INDEX_ID)
    state.trees[number] = LsmTree(number, space, index, keys.types)


def _apply_create_lsm(state: VylogState, keys: _RecordKeys) -> None:
    number = keys.get_number_or_zero(VylogKey.LSM_ID)
    if number not in state.trees:
        _apply_prepare_lsm(state, keys)
    elif max(state.trees[number].create_lsn, state.trees[number].drop_lsn) >= 0:
        raise _RecordError(f"Duplicate LSM tree id {number}")
    tree = state.trees[number]
    tree.create_lsn = keys.get_number_or_zero(VylogKey.CREATE_LSN) or number  # before 1.7.6 the id was the LSN
    tree.dump_lsn = keys.get_number_or_zero(VylogKey.DUMP_LSN)


def _apply_modify_lsm(state: VylogState, keys: _RecordKeys) -> None:
    number = keys.get_number_or_zero(VylogKey.LSM_ID)
    tree = _get_registered(state.trees, number, f"Update of unregistered LSM tree {number}")
    if tree.drop_lsn >= 0:
        raise _RecordError(f"Update of deleted LSM tree {number}")
    tree.types = keys.types


def _apply_drop_lsm(state: VylogState, keys: _RecordKeys) -> None:
    number = keys.get_number_or_zero(VylogKey.LSM_ID)
    tree = _get_registered(state.trees, number, f"LSM tree {number} deleted but not registered")
    if tree.drop_lsn >= 0:
        raise _RecordError(f"LSM tree {number} deleted twice")
    tree.drop_lsn = keys.get_number_or_zero(VylogKey.DROP_LSN)


def _apply_forget_lsm(state: VylogState, keys: _RecordKeys) -> None:
    number = keys.get_number_or_zero(VylogKey.LSM_ID)
    tree = _get_registered(state.trees, number, f"LSM tree {number} forgotten but not registered")
    if tree.ranges or tree.runs:
        raise _RecordError(f"Forgotten LSM tree {number} has ranges/runs")
    del state.trees[number]


def _apply_dump_lsm(state: VylogState, keys: _RecordKeys) -> None:
    number = keys.get_number_or_zero(VylogKey.LSM_ID)
    tree = _get_registered(state.trees, number, f"Dump of unregistered LSM tree {number}")
    tree.dump_lsn = keys.get_number_or_zero(VylogKey.DUMP_LSN)


def _apply_insert_range(state: VylogState, keys: _RecordKeys) -> None:
    number, lsm = keys.get_number_or_zero(VylogKey.RANGE_ID), keys.get_number_or_zero(VylogKey.LSM_ID)
    _require_unused_id(state.ranges, number, "range")
    tree = _get_registered(state.trees, lsm, f"Range {number} created for unregistered LSM tree {lsm}")
    state.ranges[number] = VinylRange(number, lsm, keys.get_bound(VylogKey.BEGIN), keys.get_bound(VylogKey.END))
    tree.ranges.add(number)


def _apply_delete_range(state: VylogState, keys: _RecordKeys) -> None:
    number = keys.get_number_or_zero(VylogKey.RANGE_ID)
    range_ = _get_registered(state.ranges, number, f"Range {number} deleted but not registered")
    if range_.slices:
        raise _RecordError(f"Deleted range {number} has run slices")
    del state.ranges[number]
    state.trees[range_.lsm].ranges.discard(number)


def _add_run(state: VylogState, number: int, tree: LsmTree) -> VinylRun:
    run = state.runs[number] = VinylRun(number, tree.id, appended=state.checkpoint is not None)
    tree.runs.add(number)
    return run


def _get_tree_of_run(state: VylogState, keys: _RecordKeys) -> LsmTree:
    number, lsm = keys.get_number_or_zero(VylogKey.RUN_ID), keys.get_number_or_zero(VylogKey.LSM_ID)
    return _get_registered(state.trees, lsm, f"Run {number} created for unregistered LSM tree {lsm}")


def _apply_prepare_run(state: VylogState, keys: _RecordKeys) -> None:
    number, tree = keys.get_number_or_zero(VylogKey.RUN_ID), _get_tree_of_run(state, keys)
    _require_unused_id(state.runs, number, "run")
    _add_run(state, number, tree)


def _apply_create_run(state: VylogState, keys: _RecordKeys) -> None:
    number, tree = keys.get_number_or_zero(VylogKey.RUN_ID), _get_tree_of_run(state, keys)
    run = state.runs.get(number)
    if run is not None and run.dropped:
        raise _RecordError(f"Run {number} committed after deletion")
    if run is None:
        run = _add_run(state, number, tree)
    elif run.lsm != tree.id:
        state.trees[run.lsm].runs.discard(number)
        tree.runs.add(number)
        run.lsm = tree.id
    run.dump_lsn, run.incomplete = keys.get_number_or_zero(VylogKey.DUMP_LSN), False


def _apply_drop_run(state: VylogState, keys: _RecordKeys) -> None:
    number = keys.get_number_or_zero(VylogKey.RUN_ID)
    run = _get_registered(state.runs, number, f"Run {number} deleted but not registered")
    if run.dropped:
        raise _RecordError(f"Run {number} deleted twice")
    run.dropped = True


def _apply_forget_run(state: VylogState, keys: _RecordKeys) -> None:
    """Remove a run. Its slices still refer to it, which the server does not check."""
    number = keys.get_number_or_zero(VylogKey.RUN_ID)
    run = _get_registered(state.runs, number, f"Run {number} forgotten but not registered")
    del state.runs[number]
    state.trees[run.lsm].runs.discard(number)
    for slice_ in run.slices:
        state.slices[slice_] = state.slices[slice_]._replace(forgotten=True)


def _apply_insert_slice(state: VylogState, keys: _RecordKeys) -> None:
    number, range_id, run_id = (
        keys.get_number_or_zero(key) for key in (VylogKey.SLICE_ID, VylogKey.RANGE_ID, VylogKey.RUN_ID)
    )
    _require_unused_id(state.slices, number, "slice")
    range_ = _get_registered(state.ranges, range_id, f"Slice {number} created for unregistered range {range_id}")
    run = _get_registered(state.runs, run_id, f"Slice {number} created for unregistered run {run_id}")
    state.slices[number] = VinylSlice(
        number, range_id, run_id, keys.get_bound(VylogKey.BEGIN), keys.get_bound(VylogKey.END)
    )
    range_.slices.add(number)
    run.slices.add(number)
    run.sliced = True
    if state.checkpoint is not None and len(state.checkpoint) < MAX_OBJECTS:
        state.checkpoint.add(number)


def _apply_delete_slice(state: VylogState, keys: _RecordKeys) -> None:
    number = keys.get_number_or_zero(VylogKey.SLICE_ID)
    slice_ = _get_registered(state.slices, number, f"Slice {number} deleted but not registered")
    del state.slices[number]
    state.ranges[slice_.range].slices.discard(number)
    if not slice_.forgotten:
        state.runs[slice_.run].slices.discard(number)


_RULES: Mapping[int, Callable[[VylogState, _RecordKeys], None]] = {
    VylogType.CREATE_LSM: _apply_create_lsm,
    VylogType.DROP_LSM: _apply_drop_lsm,
    VylogType.INSERT_RANGE: _apply_insert_range,
    VylogType.DELETE_RANGE: _apply_delete_range,
    VylogType.PREPARE_RUN: _apply_prepare_run,
    VylogType.CREATE_RUN: _apply_create_run,
    VylogType.DROP_RUN: _apply_drop_run,
    VylogType.FORGET_RUN: _apply_forget_run,
    VylogType.INSERT_SLICE: _apply_insert_slice,
    VylogType.DELETE_SLICE: _apply_delete_slice,
    VylogType.DUMP_LSM: _apply_dump_lsm,
    VylogType.MODIFY_LSM: _apply_modify_lsm,
    VylogType.FORGET_LSM: _apply_forget_lsm,
    VylogType.PREPARE_LSM: _apply_prepare_lsm,
}
