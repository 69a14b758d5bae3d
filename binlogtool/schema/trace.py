"""Annotated parse: every field of a record as (path, start, end, value), from the unchanged schema.

A copy of the schema is made once whose fields add rows while they parse (`trace_clone`, `trace_nodes`); the rows are
collected in a `Trace` (`trace_state`).
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

import msgspec
from construct import CancelParsing, Construct, Container

from binlogtool.limits import Limits
from binlogtool.schema.annotation import AddressSpace, FieldRow
from binlogtool.schema.trace_clone import make_traced_copy
from binlogtool.schema.trace_shapes import FoldedRow, unfold_rows
from binlogtool.schema.trace_state import ROW_BYTES, Trace, TraceError

__all__ = ["ROW_BYTES", "AddressSpace", "TraceError", "TraceResult", "fill_unmapped", "trace_record"]


class TraceResult(msgspec.Struct, frozen=True):
    """The rows of one parse in file order, parents before children; the leaves of a container tile it.

    Attributes:
        errors: In the order of the parse; a broken payload does not hide the fields after it.
        spaces: The bytes that the rows point into, `data` first.
        end: Absolute position where the parse ended.
    """

    rows: list[FieldRow]
    errors: list[TraceError]
    spaces: list[AddressSpace]
    end: int

    @property
    def error(self) -> TraceError | None:
        """The first error, or None."""
        return self.errors[0] if self.errors else None


def trace_record(
    schema: Construct,
    data: bytes,
    base: int,
    limits: Limits,
    root: str = "",
    *,
    fold_rows: bool = False,
    decompress: bool = True,
) -> TraceResult:
    """Parse `data`, which begins at position `base`, and name every byte that the schema covers. Bad bytes never
    raise.

    Args:
        root: Path of the record itself, such as "frame[3]"; its row comes first. Without it the fields are at the
            top.
        fold_rows: Rows may be `trace_shapes.FoldedRow`.
        decompress: False = compressed bytes stay one row, for callers that ask about the file only.

    Raises:
        MemoryError: there is not enough memory.
    """
    state = Trace(data, base, limits, fold_rows, decompress)
    stream = io.BytesIO(data)
    try:
        _parse_traced(make_traced_copy(schema), stream, state, root)
    except Exception as error:
        if not state.rows:
            state.add_failed_row(error, root or "value", 0, stream.tell())
        state.keep_error(error, stream.tell())
        error.__traceback__ = None  # it refers to the frames of all callers and their variables
    _finish_rows(state, stream.tell(), root)
    return TraceResult(state.rows, state.errors, state.spaces, base + stream.tell())


def _parse_traced(schema: Construct, stream: io.BytesIO, state: Trace, root: str) -> None:
    context = Container(_parsing=True, _building=False, _sizing=False)
    context["_params"] = context
    try:
        if root:
            state.parse_node(root, schema._parsereport, stream, context)
        else:
            schema._parsereport(stream, context, state)
    except CancelParsing:
        pass
    finally:
        context.clear()  # it refers to itself


def _finish_rows(state: Trace, end: int, root: str) -> None:
    """Restore the element that was given up where the parse ended; for a schema without names, add the bytes that it
    took.
    """
    given_up = state.abandoned is not None and state.abandoned[:2] == ("", state.base + end)
    if given_up and end < len(state.data):
        end = len(state.data)
    elif root:
        return
    if root and not (state.rows and state.rows[0].path == root):
        state.rows.insert(0, FieldRow(root, state.base, state.base, None, leaf=False))
    state.depth = 0 if root else -1
    state._fill_tail(root, end, "unmapped" if state.rows else "value")
    state.depth = 0
    if root:
        state.rows[0] = state.rows[0]._replace(end=state.base + end, leaf=False, ok=False)


def fill_unmapped(rows: Iterable[FieldRow], start: int, end: int, space: AddressSpace) -> list[FieldRow]:
    """Return the rows with one named `unmapped` added for each range of `[start, end)` that no leaf of `space`
    covers.
    """
    rows = list(rows)
    return (
        rows
        if _is_tiled(rows, start, end, space.name)
        else list(_insert_unmapped(unfold_rows(rows), start, end, space))
    )


def _is_tiled(rows: list[FieldRow], start: int, end: int, space: str) -> bool:
    """Return True if the leaves follow each other without a gap."""
    for row in rows:
        _, row_start, row_end, _, _, _, name, _, _, leaf, _ = row
        if (leaf or row.__class__ is FoldedRow) and name == space:
            if row_start != start:
                return False
            start = row_end
    return start == end


def _insert_unmapped(rows: Iterable[FieldRow], start: int, end: int, space: AddressSpace) -> Iterator[FieldRow]:
    reached = start
    parents: list[FieldRow] = []

    def close_parents(until: int) -> Iterator[FieldRow]:
        nonlocal reached
        while parents and parents[-1].end <= until:
            parent = parents.pop()
            yield from add_unmapped(parent.end, parent)
        yield from add_unmapped(until, parents[-1] if parents else None)

    def add_unmapped(until: int, parent: FieldRow | None) -> Iterator[FieldRow]:
        nonlocal reached
        if until <= reached:
            return
        path, depth = (f"{parent.path}.unmapped", parent.depth + 1) if parent else ("unmapped", 0)
        unit = "decompressed" if space.name else "file"
        yield FieldRow(
            path, reached, until, space.slice_bytes(reached, until), unit=unit, space=space.name, depth=depth
        )
        reached = until

    for row in rows:
        if row.space == space.name:
            yield from close_parents(min(row.start, end))
            if row.leaf:
                reached = max(reached, row.end)
            else:
                parents.append(row)
        yield row
    yield from close_parents(end)
