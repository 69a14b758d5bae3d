"""Generate Python functions that read row images with one pattern of NULLs.

For a fixed pattern of NULLs, an image is read straight through, without a test per column. Neighbours of fixed width
become one `struct` call. From the file only column names get into the source, and only as string literals.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from binlogtool.formats.binlog_events.values.columns import ColumnKind, ValueKind
from binlogtool.formats.binlog_events.values.decoding import ValueConverter, shortest_float


class ColumnReader(msgspec.Struct, frozen=True):
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
    convert: ValueConverter
    label: str

    @property
    def fixed(self) -> int:
        """Size in bytes of a value of fixed width."""
        return self.kind.fixed

    @property
    def prefix(self) -> int:
        """Bytes of the length before a value; 0 = fixed width."""
        return self.kind.prefix


_STRUCT_CODES: Mapping[tuple[int, int], str] = {
    (ValueKind.SIGNED, 1): "b",
    (ValueKind.SIGNED, 2): "h",
    (ValueKind.SIGNED, 4): "i",
    (ValueKind.SIGNED, 8): "q",
    (ValueKind.UNSIGNED, 1): "B",
    (ValueKind.UNSIGNED, 2): "H",
    (ValueKind.UNSIGNED, 4): "I",
    (ValueKind.UNSIGNED, 8): "Q",
    (ValueKind.DOUBLE, 8): "d",
    (ValueKind.FLOAT, 4): "f",
}
_LENGTH_EXPRESSIONS = {
    1: "d[p + {0}]",
    2: "(d[p + {0}] | d[p + {0} + 1] << 8)",
    3: "(d[p + {0}] | d[p + {0} + 1] << 8 | d[p + {0} + 2] << 16)",
    4: "(d[p + {0}] | d[p + {0} + 1] << 8 | d[p + {0} + 2] << 16 | d[p + {0} + 3] << 24)",
}


def generate_skip_function(columns: Iterable[ColumnReader]) -> Callable[[bytes, int], int]:
    """Generate `skip(d, p)`, which returns the end of the values of these columns that start at `p`.

    The end may be beyond the end of the data. The function raises IndexError if a length lies beyond the end.
    """
    lines = ["def function(d, p):"]
    offset = 0
    for column in columns:
        if column.prefix:
            lines.append(f"    p += {offset + column.prefix} + {_LENGTH_EXPRESSIONS[column.prefix].format(offset)}")
            offset = 0
        else:
            offset += column.fixed
    lines.append(f"    return p + {offset}")
    return _compile_source(lines, {})


def generate_decode_function(
    present: Sequence[ColumnReader], all_columns: Iterable[ColumnReader]
) -> Callable[..., tuple[dict[str, Any], int]]:
    """Generate `decode(d, p, budget)`, which returns (values by key, end of the values).

    The function raises IndexError or struct.error if a value lies beyond the end, and what the columns' readers
    raise.
    It may also return an end beyond the data, with values cut short.

    Args:
        present: the columns that have a value in the image.
        all_columns: all columns of the image; those that are not in `present` decode to None.
    """
    source = _ImageSourceBuilder()
    fixed_run: list[ColumnReader] = []
    for column in present:
        if column.prefix:
            source.add_fixed_columns(fixed_run)
            fixed_run = []
            source.add_sized_column(column)
        else:
            fixed_run.append(column)
    source.add_fixed_columns(fixed_run)
    pairs = [f"{cell.key!r}: {source.expressions.get(cell.key, 'None')}" for cell in all_columns]
    return _compile_source([*source.lines, f"    return {{{', '.join(pairs)}}}, p + {source.offset}"], source.names)


class _ImageSourceBuilder(msgspec.Struct):
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

    def add_fixed_columns(self, columns: list[ColumnReader]) -> None:
        """Add code that unpacks consecutive values of fixed width."""
        if not columns:
            return
        number = len(self.names)
        layout = struct.Struct(
            "<" + "".join([_STRUCT_CODES.get((cell.kind.kind, cell.fixed), f"{cell.fixed}s") for cell in columns])
        )
        self.names[f"u{number}"] = layout.unpack_from
        variables = [f"v{number}_{place}" for place in range(len(columns))]
        self.lines.append(f"    {', '.join(variables)}, = u{number}(d, p + {self.offset})")
        self.offset += layout.size
        for column, variable in zip(columns, variables, strict=True):
            self.expressions[column.key] = self._fixed_expression(column, variable)

    def _fixed_expression(self, column: ColumnReader, variable: str) -> str:
        if column.kind.kind == ValueKind.FLOAT:
            return f"shortest({variable})"
        return (
            variable if (column.kind.kind, column.fixed) in _STRUCT_CODES else self._call_expression(column, variable)
        )

    def _call_expression(self, column: ColumnReader, argument: str) -> str:
        name = f"c{len(self.names)}"
        if column.read is not None:
            self.names[name] = column.read
            return f"{name}({argument})"
        self.names[name] = column.convert
        return f"{name}({argument}, budget)"

    def add_sized_column(self, column: ColumnReader) -> None:
        """Add code that reads a value with a length before it."""
        variable = f"s{len(self.lines)}"
        self.lines.append(f"    q = p + {self.offset + column.prefix}")
        self.lines.append(f"    p = q + {_LENGTH_EXPRESSIONS[column.prefix].format(self.offset)}")
        self.offset = 0
        if column.kind.kind in (ValueKind.UTF8, ValueKind.GUESS):
            self.lines += [
                "    try:",
                f"        {variable} = d[q:p].decode()",
                "    except UnicodeDecodeError:",
                f"        {variable} = d[q:p]",
            ]
            self.expressions[column.key] = variable
        elif column.kind.kind == ValueKind.BYTES:
            self.lines.append(f"    {variable} = d[q:p]")
            self.expressions[column.key] = variable
        else:
            self.lines.append(f"    {variable} = {self._call_expression(column, 'd[q:p]')}")
            self.expressions[column.key] = variable


def _compile_source(lines: list[str], names: dict[str, Any]) -> Callable[..., Any]:
    namespace = dict(names)
    exec(compile("\n".join(lines), "<row image>", "exec"), namespace)
    function: Callable[..., Any] = namespace["function"]
    return function
