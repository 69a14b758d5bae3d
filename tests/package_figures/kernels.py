"""Kernels of a checkout: their number and lines, and which of them take numbers out of the bytes of a log by hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.package_figures.modules import Code, tree

DECORATORS = {"kernel", "kernel_template"}
LOADS = {
    "load_uint32", "load_uint48", "load_int64", "load_little_endian", "load_big_endian", "load_big_endian_uint16",
    "load_big_endian_uint32", "load_big_endian_int64",
    "load_big_endian_number", "load_mp_integer",
}  # fmt: skip
"""Kernels that make a number of bytes."""
OWN_TABLES = {"texts", "text_table", "catalog_table", "rules", "words", "transitions", "moves", "table", "out", "heads"}
"""Arrays with tables that this program makes itself; all others hold bytes of a log."""
DERIVED_OFFSETS = ("field_offset(", ".sizeof()")
"""Functions that return an offset of a schema."""


def modules_of_formats(root: Path) -> dict[str, Path]:
    """The modules of formats, named as below `formats`, and those of `format_api`, named with that package."""
    formats, package = root / "formats", root / "binlogtool"
    below = dict.fromkeys(formats.rglob("*.py"), formats)
    below |= dict.fromkeys((package / "format_api").rglob("*.py"), package)
    return {str(path.relative_to(base).with_suffix("")): path for path, base in sorted(below.items())}


def iter_kernels(path: Path) -> Iterator[ast.FunctionDef]:
    """Yield the kernels and templates of a module, also those that are methods."""
    for node in ast.walk(tree(path)):
        decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
        if any(isinstance(one, ast.Call) and getattr(one.func, "id", "") in DECORATORS for one in decorators):
            yield node  # type: ignore[misc]


def list_hand_readers(code: Code) -> dict[str, set[str]]:
    """Return, by module, the kernels that take numbers out of bytes of a log by offsets that no schema gives."""
    modules = modules_of_formats(code.root)
    offsets = {name for path in modules.values() for name in _iter_schema_offsets(path)}
    found = {
        name: {kernel.name for kernel in iter_kernels(path) if _reads_by_hand(kernel, offsets)}
        for name, path in modules.items()
    }
    return {name: kernels for name, kernels in found.items() if kernels}


def _iter_schema_offsets(path: Path) -> Iterator[str]:
    """Yield the constants of a module that are offsets or sizes of a schema."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Assign) and any(mark in ast.unparse(node.value) for mark in DERIVED_OFFSETS):
            yield from (one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name))


def _reads_by_hand(kernel: ast.FunctionDef, offsets: set[str]) -> bool:
    """Return whether a kernel loads a number, joins bytes to one, or reads a byte at a fixed distance."""

    def is_derived(place: ast.expr) -> bool:
        return any(isinstance(one, ast.Name) and one.id in offsets for one in ast.walk(place))

    for node in ast.walk(kernel):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in LOADS and len(node.args) > 1:
            if _holds_log(node.args[0]) and not is_derived(node.args[1]):
                return True
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.BinOp):
            is_fixed = isinstance(node.slice.right, ast.Constant) and not is_derived(node.slice)
            if is_fixed and _is_byte_array(node.value, kernel):
                return True
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift):
            bytes_ = [one for one in ast.walk(node.left) if isinstance(one, ast.Subscript)]
            if any(_is_byte_array(one.value, kernel) for one in bytes_):
                return True
    return False


def _holds_log(array: ast.expr) -> bool:
    return ast.unparse(array).rpartition(".")[2] not in OWN_TABLES


def _is_byte_array(array: ast.expr, kernel: ast.FunctionDef) -> bool:
    """Return whether this is an array of bytes of a log: a parameter of that type, or a field `buf` of a struct."""
    if isinstance(array, ast.Attribute):
        return array.attr == "buf"
    types = {one.arg: ast.unparse(one.annotation) for one in kernel.args.args if one.annotation is not None}
    return isinstance(array, ast.Name) and types.get(array.id) == "UInt8s" and _holds_log(array)


def count_kernels(code: Code) -> tuple[int, int]:
    """Return the number of kernels and templates, and of their lines."""
    sizes = [
        1 + (kernel.end_lineno or 0) - min(one.lineno for one in kernel.decorator_list)
        for path in code.modules
        for kernel in iter_kernels(path)
    ]
    return len(sizes), sum(sizes)
