"""The native backend for schemas and kernels of tests: what its library lacks is compiled when it is asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from binlogtool.format_api.layout import Kernel
from binlogtool.native_build.build import NoCompilerError, compile_library, find_compiler
from binlogtool.native_build.collect_kernels import add_walk_of_schema
from binlogtool.schema.backends import NativeBackend
from binlogtool.schema.c_codegen import CLibrarySource
from binlogtool.schema.frame_scan_loop import Scanner
from binlogtool.schema.native_library import NativeLibrary


class CompilingBackend(NativeBackend):
    """Each schema and each kernel in a library of its own."""

    def __init__(self) -> None:
        super().__init__(_empty())

    def make_scanner(self, schema: Any, columns: tuple[str, ...], capacity: int = 65536) -> Scanner:
        self.library = _of_walk(schema, tuple(columns))
        made = super().make_scanner(schema, columns, capacity)
        assert not self.missing
        return made

    def compile_kernel(self, function: Kernel) -> Kernel:
        self.library = _of_kernel(function)
        made = super().compile_kernel(function)
        assert not self.missing
        return made


@cache
def _empty() -> NativeLibrary:
    return _library("empty", lambda unit: None)


@cache
def _of_walk(schema: Any, columns: tuple[str, ...]) -> NativeLibrary:
    return _library("walk", lambda unit: add_walk_of_schema(unit, schema, columns))


@cache
def _of_kernel(function: Kernel) -> NativeLibrary:
    return _library("kernel", lambda unit: unit.add_kernel(function))


def zig_cache() -> Path:
    """The folder in which ziglang, where it is the compiler, keeps its runtime library: building it takes seconds."""
    return Path(_zig_folder().name)


@cache
def _zig_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="zig-")


def _library(name: str, fill: Callable[[CLibrarySource], None]) -> NativeLibrary:
    unit = CLibrarySource()
    fill(unit)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, f"{name}.so")
        compile_library(unit.write_text(), target, zig_cache=zig_cache())
        return NativeLibrary(target)  # it stays mapped when its file is gone


try:
    find_compiler()
except NoCompilerError:
    pytest.skip("there is no C compiler", allow_module_level=True)
