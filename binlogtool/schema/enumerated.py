"""List every kernel and generated function that the built-in formats need; `schema.build` compiles them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from binlogtool import formats
from binlogtool.formats.base import Format
from binlogtool.formats.fields import kernel
from binlogtool.formats.layouts import FrameLevel, Kernel, Layout
from binlogtool.schema import identity
from binlogtool.schema.jsoncells import Plan as CellPlan
from binlogtool.schema.jsonlines import Plan as LinePlan
from binlogtool.schema.jsonmembers import ENVELOPE, Shape, shape_of
from binlogtool.schema.jsonpicks import Plan as PickPlan
from binlogtool.schema.lower import lower
from binlogtool.schema.unit import Unit
from binlogtool.schema.walk_source import walk_text

Pair = tuple[Any, tuple[str, ...]]


def whole() -> Unit:
    """Collect the source of the whole library."""
    unit = Unit()
    for function in kernels():
        unit.kernel(function)
    for layout, format_ in layouts():
        for schema, columns in pairs(layout):
            add_walk(unit, schema, columns)
        for shape in shapes(format_, layout):
            plans: list[LinePlan | CellPlan | PickPlan] = [LinePlan(shape), CellPlan(shape)]
            for plan in (*plans, PickPlan(shape)) if is_picked(shape) else plans:
                unit.generated(plan.source.symbol, plan.source.text(), plan.source.kernels)
    return unit


def add_walk(unit: Unit, schema: Any, columns: tuple[str, ...]) -> None:
    """Add the walk of a schema that gives these columns."""
    names = identity.KernelNames()
    text = walk_text(lower(schema, columns), columns, names)
    unit.generated(identity.symbol_of("walk", text), text, names)


def kernels() -> list[Kernel]:
    """Return all functions of the package that `fields.kernel` marks.

    Only modules whose text has the mark are imported: others may need what a build has not installed.
    """
    found: dict[Kernel, None] = {}
    for name in kernel_modules():
        for value in vars(import_module(name)).values():
            if callable(value) and "kernel_uses" in getattr(value, "__dict__", ()):
                found[value] = None
    return list(found)


def kernel_modules() -> list[str]:
    """Return the names of the modules of the package that mark kernels, sorted."""
    mark = re.compile(rf"^@(?:\w+\.)*{kernel.__name__}\(".encode(), re.MULTILINE)
    package = __name__.partition(".")[0]
    [root] = sys.modules[package].__path__
    names = []
    for folder, _, files in os.walk(root, followlinks=True):
        for file in files:
            path = Path(folder, file)
            if path.suffix == ".py" and mark.search(path.read_bytes()):
                parts = path.relative_to(root).with_suffix("").parts
                names.append(".".join((package, *parts)).removesuffix(".__init__"))
    return sorted(names)


def layouts() -> Iterator[tuple[Layout, Format]]:
    """Yield layouts that cover all files that the formats can have, with their formats (`compiled_layouts`)."""
    for format_ in formats.built_in():
        if format_.reading.compiled_layouts is not None:
            for layout in format_.reading.compiled_layouts():
                yield layout, format_


def pairs(layout: Layout) -> Iterator[Pair]:
    """Yield the schemas that scanners of such a file are made of, with the columns that they give."""
    yield from _of_level(layout.frame)
    if layout.inner is not None:
        yield from _of_level(layout.inner.frame)
    if layout.rows is not None:
        yield layout.rows.schema, layout.rows.columns
        if layout.rows.framed is not None:
            yield layout.rows.framed, layout.rows.columns


def _of_level(level: FrameLevel) -> Iterator[Pair]:
    yield level.schema, level.columns
    yield level.schema, ()


def shapes(format_: Format, layout: Layout) -> Iterator[Shape]:
    """Yield what lines and cells of such a file are made from: with and without bodies and extras."""
    line = None if format_.output.json is None else format_.output.json(layout.context)
    if line is not None:
        for body in (True, False):
            for extras in (True, False):
                yield shape_of(line, layout, body=body, extras=extras)


def is_picked(shape: Shape) -> bool:
    """Return True if `schema.jsonpicks` writes members of this shape."""
    names = [slot.name for slot in shape.slots]
    return names == [*ENVELOPE, "body"]
