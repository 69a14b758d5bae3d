"""Generate Python functions that read row images with one pattern of NULLs.

For a fixed pattern of NULLs, an image is read straight through, without a test per column. Neighbours of fixed width
become one `struct` call. From the file only column names get into the source, and only as string literals.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from binlogtool.formats.binlog_events.values.columns import ColumnKind, Kind
from binlogtool.formats.binlog_events.values.decoding import Convert, shortest_float


class Cell(msgspec.Struct, frozen=True):
    """How one present column of a row image is read.

    Attributes:
        key: the column's key in a decoded row.
        kind: how the bytes of its values are encoded.
        read: decodes a value from its bytes alone; None where `convert` is needed.
        convert: decodes a value from its bytes and a `DecodeBudget`.
        label: the column's name in error messages.
    """

    key: str
    kind: ColumnKind
    read: Callable[[bytes], Any] | None
    convert: Convert
    label: str

    @property
    def fixed(self) -> int:
        """Size in bytes of a value of fixed width."""
        return self.kind.fixed

    @property
    def prefix(self) -> int:
        """Bytes of the length before a value; 0 = fixed width."""
        return self.kind.prefix


_CODES: Mapping[tuple[int, int], str] = {
    (Kind.SIGNED, 1): "b",
    (Kind.SIGNED, 2): "h",
    (Kind.SIGNED, 4): "i",
    (Kind.SIGNED, 8): "q",
    (Kind.UNSIGNED, 1): "B",
    (Kind.UNSIGNED, 2): "H",
    (Kind.UNSIGNED, 4): "I",
    (Kind.UNSIGNED, 8): "Q",
    (Kind.DOUBLE, 8): "d",
    (Kind.FLOAT, 4): "f",
}
_LENGTHS = {
    1: "d[p + {0}]",
    2: "(d[p + {0}] | d[p + {0} + 1] << 8)",
    3: "(d[p + {0}] | d[p + {0} + 1] << 8 | d[p + {0} + 2] << 16)",
    4: "(d[p + {0}] | d[p + {0} + 1] << 8 | d[p + {0} + 2] << 16 | d[p + {0} + 3] << 24)",
}


def skip_function(cells: Iterable[Cell]) -> Callable[[bytes, int], int]:
    """Generate `skip(d, p)`, which returns the end of the values of these columns that start at `p`.

    The end may be beyond the end of the data. The function raises IndexError if a length lies beyond the end.
    """
    lines = ["def function(d, p):"]
    offset = 0
    for cell in cells:
        if cell.prefix:
            lines.append(f"    p += {offset + cell.prefix} + {_LENGTHS[cell.prefix].format(offset)}")
            offset = 0
        else:
            offset += cell.fixed
    lines.append(f"    return p + {offset}")
    return _compiled(lines, {})


def decode_function(present: Sequence[Cell], all_cells: Iterable[Cell]) -> Callable[..., tuple[dict[str, Any], int]]:
    """Generate `decode(d, p, budget)`, which returns (values by key, end of the values).

    The function raises IndexError or struct.error if a value lies beyond the end, and what the columns' readers
    raise.
    It may also return an end beyond the data, with values cut short.

    Args:
        present: the columns that have a value in the image.
        all_columns: all columns of the image; those that are not in `present` decode to None.
    """
    source = _Source()
    run: list[Cell] = []
    for cell in present:
        if cell.prefix:
            source.fixed(run)
            run = []
            source.sized(cell)
        else:
            run.append(cell)
    source.fixed(run)
    pairs = [f"{cell.key!r}: {source.expressions.get(cell.key, 'None')}" for cell in all_cells]
    return _compiled([*source.lines, f"    return {{{', '.join(pairs)}}}, p + {source.offset}"], source.names)


class _Source(msgspec.Struct):
    """Builds the source of a decode function line by line.

    Attributes:
        lines: the source so far.
        names: objects that the source refers to.
        expressions: column key -> expression of its value.
        offset: bytes after `p` that are already read.
    """

    lines: list[str] = msgspec.field(default_factory=lambda: ["def function(d, p, budget):"])
    names: dict[str, Any] = msgspec.field(default_factory=lambda: {"shortest": shortest_float})
    expressions: dict[str, str] = msgspec.field(default_factory=dict)
    offset: int = 0

    def fixed(self, run: list[Cell]) -> None:
        """Add code that unpacks consecutive values of fixed width."""
        if not run:
            return
        number = len(self.names)
        layout = struct.Struct(
            "<" + "".join([_CODES.get((cell.kind.kind, cell.fixed), f"{cell.fixed}s") for cell in run])
        )
        self.names[f"u{number}"] = layout.unpack_from
        variables = [f"v{number}_{place}" for place in range(len(run))]
        self.lines.append(f"    {', '.join(variables)}, = u{number}(d, p + {self.offset})")
        self.offset += layout.size
        for cell, variable in zip(run, variables, strict=True):
            self.expressions[cell.key] = self._plain(cell, variable)

    def _plain(self, cell: Cell, variable: str) -> str:
        if cell.kind.kind == Kind.FLOAT:
            return f"shortest({variable})"
        return variable if (cell.kind.kind, cell.fixed) in _CODES else self._call(cell, variable)

    def _call(self, cell: Cell, argument: str) -> str:
        name = f"c{len(self.names)}"
        if cell.read is not None:
            self.names[name] = cell.read
            return f"{name}({argument})"
        self.names[name] = cell.convert
        return f"{name}({argument}, budget)"

    def sized(self, cell: Cell) -> None:
        """Add code that reads a value with a length before it."""
        variable = f"s{len(self.lines)}"
        self.lines.append(f"    q = p + {self.offset + cell.prefix}")
        self.lines.append(f"    p = q + {_LENGTHS[cell.prefix].format(self.offset)}")
        self.offset = 0
        if cell.kind.kind in (Kind.UTF8, Kind.GUESS):
            self.lines += [
                "    try:",
                f"        {variable} = d[q:p].decode()",
                "    except UnicodeDecodeError:",
                f"        {variable} = d[q:p]",
            ]
            self.expressions[cell.key] = variable
        elif cell.kind.kind == Kind.BYTES:
            self.lines.append(f"    {variable} = d[q:p]")
            self.expressions[cell.key] = variable
        else:
            self.lines.append(f"    {variable} = {self._call(cell, 'd[q:p]')}")
            self.expressions[cell.key] = variable


def _compiled(lines: list[str], names: dict[str, Any]) -> Callable[..., Any]:
    space = dict(names)
    exec(compile("\n".join(lines), "<row image>", "exec"), space)
    function: Callable[..., Any] = space["function"]
    return function
