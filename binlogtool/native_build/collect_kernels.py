"""List every kernel and generated function that the built-in formats need; `native_build.build` compiles them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from binlogtool import formats
from binlogtool.format_api.format import Format
from binlogtool.format_api.layout import FrameLevel, Kernel, LogFileLayout
from binlogtool.format_api.schema_fields import kernel
from binlogtool.schema import native_library
from binlogtool.schema.c_codegen import CLibrarySource
from binlogtool.schema.frame_scan_loop import generate_walk
from binlogtool.schema.json_body_codegen import ENVELOPE, MemberShape, make_member_shape
from binlogtool.schema.json_line_codegen import CellCode as CellPlan
from binlogtool.schema.json_line_codegen import LineCode as LinePlan
from binlogtool.schema.json_line_codegen import MemberListCode as PickPlan
from binlogtool.schema.lower_frame_schema import lower_schema

WalkSchema = tuple[Any, tuple[str, ...]]


def collect_library_source() -> CLibrarySource:
    """Collect the source of the whole library."""
    unit = CLibrarySource()
    for function in find_marked_kernels():
        unit.add_kernel(function)
    for layout, format_ in iter_compiled_layouts():
        for schema, columns in iter_walk_schemas(layout):
            add_walk_of_schema(unit, schema, columns)
        for shape in iter_member_shapes(format_, layout):
            plans: list[LinePlan | CellPlan | PickPlan] = [LinePlan(shape), CellPlan(shape)]
            for plan in (*plans, PickPlan(shape)) if has_member_list_writer(shape) else plans:
                unit.add_generated(plan.source.symbol, plan.source.format_text(), plan.source.kernels)
    return unit


def add_walk_of_schema(library_source: CLibrarySource, schema: Any, columns: tuple[str, ...]) -> None:
    """Add the walk of a schema that produces these columns."""
    names = native_library.KernelNames()
    text = generate_walk(lower_schema(schema, columns), columns, names)
    library_source.add_generated(native_library.make_symbol("walk", text), text, names)


def find_marked_kernels() -> list[Kernel]:
    """Return all functions of the package that are marked with `schema_fields.kernel`.

    Only modules whose text contains the mark are imported: others may need packages that a build has not installed.
    """
    functions: dict[Kernel, None] = {}
    for name in find_kernel_modules():
        for value in vars(import_module(name)).values():
            if callable(value) and "kernel_uses" in getattr(value, "__dict__", ()):
                functions[value] = None
    return list(functions)


def find_kernel_modules() -> list[str]:
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


def iter_compiled_layouts() -> Iterator[tuple[LogFileLayout, Format]]:
    """Yield layouts that cover all kinds of files of the formats, each with its format (`compiled_layouts`)."""
    for format_ in formats.iter_built_in():
        if format_.reading.compiled_layouts is not None:
            for layout in format_.reading.compiled_layouts():
                yield layout, format_


def iter_walk_schemas(layout: LogFileLayout) -> Iterator[WalkSchema]:
    """Yield the schemas that the scanners of a layout use, with the columns that they produce."""
    yield from _iter_level_schemas(layout.frame)
    if layout.inner is not None:
        yield from _iter_level_schemas(layout.inner.frame)
    if layout.rows is not None:
        yield layout.rows.schema, layout.rows.columns
        if layout.rows.framed is not None:
            yield layout.rows.framed, layout.rows.columns


def _iter_level_schemas(level: FrameLevel) -> Iterator[WalkSchema]:
    yield level.schema, level.columns
    yield level.schema, ()


def iter_member_shapes(format_: Format, layout: LogFileLayout) -> Iterator[MemberShape]:
    """Yield the shapes of the lines and cells of a layout: with and without bodies and extra members."""
    line = None if format_.output.json_line is None else format_.output.json_line(layout.context)
    if line is not None:
        for body in (True, False):
            for extras in (True, False):
                yield make_member_shape(line, layout, body=body, extras=extras)


def has_member_list_writer(shape: MemberShape) -> bool:
    """Return True if `schema.json_line_codegen` writes members of this shape."""
    names = [slot.name for slot in shape.slots]
    return names == [*ENVELOPE, "body"]
