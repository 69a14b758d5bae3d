"""Choose the native or the Python backend, and run scan loops and kernels on it.

Functions that the library lacks run as Python: walks of schemas that were not enumerated for the build, and kernels
that changed after it.
"""

from __future__ import annotations

import operator
import os
import re
import struct
from collections.abc import Callable, Iterator
from functools import lru_cache, wraps
from typing import Any

from binlogtool.errors import InputOutputError, UsageError
from binlogtool.format_api.layout import Column, Kernel, zeroed_int64
from binlogtool.schema.frame_scan_loop import Backend, Scanner, compute_scratch_size, find_checksums, generate_walk
from binlogtool.schema.lower_frame_schema import lower_schema
from binlogtool.schema.native_library import (
    KernelNames,
    NativeFunction,
    NativeLibrary,
    PinnedMemory,
    as_int64_memory,
    load_library,
    make_kernel_name,
    make_symbol,
)
from binlogtool.schema.schema_operations import U64, Program, wrap_int64

# --- Native walks and kernels ---


class NativeBackend:
    """Backend that runs the functions of a native library.

    Attributes:
        missing: Symbol -> description of functions that the library lacks (for tests and `--version -v`).
    """

    name = "native"

    def __init__(self, native_library: NativeLibrary) -> None:
        self.library = native_library
        self.missing: dict[str, str] = {}
        self._python_backend = PythonBackend()
        self._compiled: dict[Kernel, Kernel] = {}

    def make_scanner(self, schema: Any, columns: tuple[str, ...], capacity: int = 65536) -> Scanner:
        """Create a scanner. Raises UnlowerableError: see `Backend.make_scanner`."""
        program, symbol = _lower_with_symbol(schema, tuple(columns))
        entry = self.find_function(symbol, 3, f"the walk of {schema!r} with {columns}")
        if entry is None:
            return self._python_backend.make_scanner(schema, columns, capacity)
        return NativeScanner(program, tuple(columns), capacity, self.library, entry)

    def compile_kernel(self, function: Kernel) -> Kernel:
        """Return the kernel as native code, or unchanged."""
        if function not in self._compiled:
            self._compiled[function] = self._find_compiled_kernel(function)
        return self._compiled[function]

    def find_function(self, symbol: str, result_count: int, description: str) -> NativeFunction | None:
        """Return a function of the library; None, and its symbol and description in `missing`, if there is none."""
        function = self.library.find_function(symbol, result_count)
        if function is None:
            self.missing[symbol] = description
        return function

    def _find_compiled_kernel(self, function: Kernel) -> Kernel:
        name = make_kernel_name(function)
        kind = str(function.__annotations__.get("return", "int"))
        entry = self.find_function(f"entry_{name}", 8, f"{function.__module__}.{function.__qualname__}")
        if entry is None:
            return function
        results = kind.count(",") + 1 if kind.startswith("tuple[") else 0
        return _wrap_native_function(function, entry, results, kind == "bool")


@lru_cache(maxsize=1)
def get_native_backend() -> NativeBackend | None:
    """Return the backend of this installation; None if there is no library for this machine."""
    native_library = load_library()
    return None if native_library is None else NativeBackend(native_library)


def _wrap_native_function(function: Kernel, entry: NativeFunction, result_count: int, is_bool: bool) -> Kernel:
    """Return the function to call instead of a kernel. result_count: length of the returned tuple; 0 = one integer."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        pinned = [
            one if isinstance(one, int) else PinnedMemory(_as_memory(one))
            for one in _flatten_struct_arguments(arguments)
        ]
        try:
            returned = entry(*(one if isinstance(one, int) else one.address for one in pinned))
        finally:
            for one in pinned:
                if not isinstance(one, int):
                    one.release()
        if result_count:
            return tuple(returned[:result_count])
        return bool(returned[0]) if is_bool else returned[0]

    return call


def _flatten_struct_arguments(arguments: tuple[Any, ...]) -> Iterator[Any]:
    """Yield the arguments, with structs replaced by their fields."""
    for one in arguments:
        if isinstance(one, tuple) and hasattr(one, "_fields"):
            yield from one
        else:
            yield one


def _as_memory(values: Any) -> Any:
    """Return an array as memory: bytes unchanged, integers as 64-bit integers."""
    if isinstance(values, memoryview):
        return values if values.itemsize == 1 else as_int64_memory(values)
    return values if isinstance(values, (bytes, bytearray)) else as_int64_memory(values)


@lru_cache(maxsize=256)
def _lower_with_symbol(schema: Any, columns: tuple[str, ...]) -> tuple[Program, str]:
    """Return the lowered schema and the name of its walk."""
    program = lower_schema(schema, columns)
    return program, make_walk_symbol(program, columns)


def make_walk_symbol(program: Program, columns: tuple[str, ...]) -> str:
    """Return the name of a walk in the library."""
    return make_symbol("walk", generate_walk(program, columns, KernelNames()))


class NativeScanner(Scanner):
    """Scanner that runs a walk of the native library."""

    def __init__(
        self,
        program: Program,
        columns: tuple[str, ...],
        capacity: int,
        native_library: NativeLibrary,
        entry: NativeFunction,
    ) -> None:
        super().__init__(program, columns, capacity)
        self._library, self._native_walk = native_library, entry
        self._tables = as_int64_memory(
            [native_library.get_crc_constants_address(poly) for poly in find_checksums(program)]
        )
        self._scratch = zeroed_int64(compute_scratch_size(program) + 1)
        self._pinned = [PinnedMemory(self._tables), PinnedMemory(self._scratch)]

    def _allocate_columns(self) -> None:
        super()._allocate_columns()
        self._pinned_output = PinnedMemory(self._out)

    def _set_input(self, buf: Any, starts: Column, ends: Column, first: int, count: int, has_spans: bool) -> None:
        self._input = [PinnedMemory(one) for one in (buf, as_int64_memory(starts), as_int64_memory(ends))]
        self._rows = 0
        if has_spans:
            if min(len(starts), len(ends)) < count:
                raise ValueError(f"there are fewer than {count} spans")
            wrong = self._library.span_outside(*(one.address for one in self._input[1:]), first, count, len(buf))
            if wrong >= 0:
                self._release_input()
                raise ValueError(f"span {wrong} is not inside a buffer of {len(buf)} bytes")

    def _release_input(self) -> None:
        for one in self._input:
            one.release()
        self._input = []

    def _run_walk(self, span: int, count: int, position: int) -> tuple[int, int]:
        base, starts, ends = (one.address for one in self._input)
        self._rows, span, position = self._native_walk(
            base, starts, ends, span, count, position, self._rows, self._capacity, self._pinned_output.address,
            self._stride,
            self._pinned[1].address, self._pinned[0].address,
        )  # fmt: skip
        return span, position


# --- Choice of the backend ---

BACKEND_VARIABLE = "BINLOGTOOL_BACKEND"
BACKEND_NAMES = ("auto", "native", "python")


def choose_backend(name: str) -> Backend:
    """Return the backend called `name` (auto, native, python).

    The environment variable BINLOGTOOL_BACKEND takes precedence.

    auto is native code if the package has a library for this machine; functions that it lacks run as Python.

    Raises:
        UsageError: the name is unknown.
        InputOutputError: native code is requested, but there is none for this machine.
    """
    name = os.environ.get(BACKEND_VARIABLE) or name
    if name not in BACKEND_NAMES:
        raise UsageError(f"unknown backend {name!r}: use {', '.join(BACKEND_NAMES)}")
    if name == "python":
        return PythonBackend()

    native = get_native_backend()
    if native is not None:
        return native
    if name == "native":
        raise InputOutputError(
            "there is no native code for this machine: build it (python -m binlogtool.native_build.build)"
        )
    return PythonBackend()


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


class PythonScanner(Scanner):
    """Scanner that runs a walk as Python."""

    def __init__(self, program: Program, columns: tuple[str, ...], capacity: int) -> None:
        super().__init__(program, columns, capacity)
        self._walk = _compile_walk(program, columns)
        self._scratch = [0] * compute_scratch_size(program)
        self._crc_kernels = [checksum.kernel for checksum in find_checksums(program).values()]

    def _set_input(self, buf: Any, starts: Column, ends: Column, first: int, count: int, has_spans: bool) -> None:
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
    return compile_generated_function(lambda kernels: generate_walk(program, columns, kernels), "walk")


def compile_generated_function(generate: Callable[[KernelNames], str], function_name: str) -> Callable[..., Any]:
    """Return a generated function as a Python function."""
    kernels = _LocalNames()
    text = re.sub(r"\((buf|out) \+ ", r"(\1, ", generate(kernels).replace("base + ", "base, "))
    names = {**_RUNTIME, **kernels.functions}
    exec(compile(text, f"<generated {function_name}>", "exec"), names)
    function: Callable[..., Any] = names[function_name]
    return function


class _LocalNames(KernelNames):
    """Provider of kernel names by number, because no library is involved."""

    def add_kernel(self, function: Kernel) -> str:
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
