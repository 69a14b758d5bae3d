"""Backend without native code: the text of walks runs as Python, and kernels are called directly."""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from binlogtool.format_api.layout import Column, Kernel
from binlogtool.schema.compile_schema import lower_schema
from binlogtool.schema.native_library import KernelNames
from binlogtool.schema.program import U64, Program, wrap_int64
from binlogtool.schema.scanner import WalkScanner
from binlogtool.schema.walk_codegen import compute_scratch_size, find_checksums, generate_walk

_ONES = 0xFFFFFFFF


class PythonBackend:
    """Backend that always works: no additional dependency, no start-up cost."""

    name = "python"

    def make_scanner(self, schema: Any, columns: tuple[str, ...], capacity: int = 65536) -> PythonScanner:
        """Create a scanner; the generated functions are shared. Raises UnlowerableError: see `Backend.make_scanner`."""
        return PythonScanner(_lower_cached(schema, tuple(columns)), tuple(columns), capacity)

    def compile_kernel(self, function: Kernel) -> Kernel:
        """Return the function unchanged."""
        return function


class PythonScanner(WalkScanner):
    """Scanner that runs a walk as Python."""

    def __init__(self, program: Program, columns: tuple[str, ...], capacity: int) -> None:
        super().__init__(program, columns, capacity)
        self._walk = _compile_walk(program, columns)
        self._scratch = [0] * compute_scratch_size(program)
        self._crc_kernels = [checksum.kernel for checksum in find_checksums(program).values()]

    def _load_input(self, buf: Any, starts: Column, ends: Column, first: int, count: int, spans: bool) -> None:
        size = len(buf)
        for start, end in zip(starts[first:count], ends[first:count], strict=True):
            if not 0 <= start <= end <= size:
                raise ValueError(f"[{start}, {end}) is not inside a buffer of {size} bytes")
        self._input = (memoryview(buf), starts, ends)
        self._rows = 0

    def _release_input(self) -> None:
        self._input[0].release()
        del self._input

    def _run_walk(self, span: int, count: int, position: int) -> tuple[int, int]:
        buf, starts, ends = self._input
        self._rows, span, position = self._walk(
            buf, starts, ends, span, count, position, self._rows, self._capacity, self._out, self._stride,
            self._scratch, self._crc_kernels,
        )  # fmt: skip
        return span, position


@lru_cache(maxsize=256)
def _lower_cached(schema: Any, columns: tuple[str, ...]) -> Program:
    return lower_schema(schema, columns)


@lru_cache(maxsize=256)
def _compile_walk(program: Program, columns: tuple[str, ...]) -> Callable[..., tuple[int, int, int]]:
    return compile_generated(lambda kernels: generate_walk(program, columns, kernels), "walk")


def compile_generated(generate: Callable[[KernelNames], str], name: str) -> Callable[..., Any]:
    """Return a generated function as a Python function."""
    kernels = _LocalNames()
    text = re.sub(r"\((buf|out) \+ ", r"(\1, ", generate(kernels).replace("base + ", "base, "))
    names = {**_RUNTIME, **kernels.functions}
    exec(compile(text, f"<generated {name}>", "exec"), names)
    function: Callable[..., Any] = names[name]
    return function


class _LocalNames(KernelNames):
    """Provider of kernel names by number, because no library is involved."""

    def add(self, function: Kernel) -> str:
        name = f"kernel{len(self.functions)}"
        self.functions[name] = function
        return name


def _make_load(code: str) -> Callable[[memoryview, int], int]:
    unpack = struct.Struct(code).unpack_from
    return lambda buf, at: unpack(buf, at)[0]


def _compute_register(kernel: Callable[[Any, int], int], buf: memoryview, at: int, size: int, init: int) -> int:
    """Return the register of a CRC after these bytes, without the final xor."""
    return kernel(buf[at : at + size], init ^ _ONES) ^ _ONES


_RUNTIME: dict[str, Any] = {
    "load_u1": operator.getitem,
    "store_i8_little": lambda out, at, value: struct.pack_into("<q", out, at, value),
    "load_i1": _make_load("b"),
    **{
        f"load_{sign}{size}_{order}": _make_load(
            (">" if order == "big" else "<") + (code if sign == "i" else code.upper())
        )
        for size, code in ((2, "h"), (4, "i"), (8, "q"))
        for sign in ("iu" if size < 8 else "i")
        for order in ("big", "little")
    },
    "crc_run": _compute_register,
    "int64": wrap_int64,
    "uint64": U64.__and__,
}
"""Functions that generated walks call: the counterparts of `runtime.c`."""
