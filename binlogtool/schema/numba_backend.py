"""The scanner of the extra `fast`: generated source compiled by numba, kept between runs."""

from __future__ import annotations

import inspect
from functools import lru_cache, wraps
from types import ModuleType
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from binlogtool.formats.base import Column, Kernel, Table
from binlogtool.schema import crc_kernels, crc_lanes, exact, generate, store_kernels
from binlogtool.schema.drive import DrivenScanner
from binlogtool.schema.kernel_source import KernelTexts
from binlogtool.schema.lower import lower
from binlogtool.schema.numba_codegen import (
    END,
    FIRST,
    HEAD,
    OFFSET,
    SPAN,
    VERDICT,
    module_source,
    polynomials,
    scratch_size,
)
from binlogtool.schema.operations import Program

_BYTES = bytes | bytearray | memoryview

_STAGGER = 72
"""Unused places behind each column: columns whose distance is a power of two fall into the same lines of the cache."""


class NumbaBackend:
    """Native speed; costs about half a second of start-up per process (more when something is compiled anew)."""

    name = "numba"

    def scanner(self, schema: Any, columns: tuple[str, ...], capacity: int = 65536) -> NumbaScanner:
        """A scanner of its own for each caller; the compiled functions are shared.

        Raises:
            Unlowerable: see `Backend.scanner`.
        """
        return NumbaScanner(_program(schema, tuple(columns)), tuple(columns), capacity)

    def compile(self, function: Kernel) -> Kernel:
        """The kernel, compiled on its first call for the types of that call.

        Raises:
            KernelError: the function is no kernel.
        """
        return _compiled(function)


@lru_cache(maxsize=256)
def _program(schema: Any, columns: tuple[str, ...]) -> Program:
    return lower(schema, columns)


@lru_cache(maxsize=256)
def _module(program: Program, columns: tuple[str, ...]) -> ModuleType:
    return generate.load(module_source(program, columns), _depends_on())


@lru_cache(maxsize=256)
def _compiled(function: Kernel) -> Kernel:
    """Inside, arrays are addresses: an array as an argument costs two atomic reference counts in each call."""
    arrays = _arrays(function)
    byte_stores = _TEXT_STORES if "texts" in arrays else {}
    integers = arrays - {*_LOADS, *byte_stores}
    loads = {name: f"load_i8_native({name} + 8 * ({{}}))" for name in integers}
    stores = {name: f"store_i8_native({name} + 8 * ({{}}), int64({{}}))" for name in integers}
    texts = KernelTexts("@njit(cache=True, nogil=True, forceinline=True)", loads | _LOADS, stores | byte_stores)
    name = texts.add(function)
    compiled = getattr(generate.load(_KERNELS_HEAD + texts.text(), _depends_on()), name)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        held = [argument if isinstance(argument, int) else _array_of(argument) for argument in arguments]
        return compiled(*(one if isinstance(one, int) else one.ctypes.data for one in held))

    return call


_LOADS = {"buf": "load_u1(buf + ({}))", "texts": "load_u1(texts + ({}))"}
"""Arrays of bytes in kernels; all others are integers."""
_TEXT_STORES = {"out": "store_u1(out + ({}), int64({}))"}
"""Kernels that are given `texts` write text: their `out` is bytes, too. In the others it is integers."""

_KERNELS_HEAD = f"{HEAD}from binlogtool.schema.store_kernels import *\n\n"


def _arrays(function: Kernel) -> set[str]:
    """Names of the parameters of a kernel, and of those that it calls, that are arrays: bytes `buf`, else integers."""
    own = {name for name, kind in function.__annotations__.items() if kind in ("Any", Any) and name != "return"}
    return own.union(*(_arrays(used) for used in function.__dict__.get("kernel_uses", ())))


def _array_of(values: Any) -> NDArray[Any]:
    """Bytes, or integers of 64 bits, as they are."""
    return _bytes_of(values) if isinstance(values, _BYTES) else np.asarray(values, np.int64)


@lru_cache
def _depends_on() -> str:
    texts = [inspect.getsource(module) for module in (crc_kernels, crc_lanes, store_kernels)]
    return "\0".join([numba.__version__, np.__version__, *texts])


class NumbaScanner(DrivenScanner):
    """Columns are int64 arrays over one matrix, which the next call fills anew."""

    def __init__(self, program: Program, columns: tuple[str, ...], capacity: int) -> None:
        super().__init__(program, columns, capacity)
        found = polynomials(program)
        self._addresses = np.array([crc_kernels.address_of(poly) for poly in found], np.int64)
        self._tables = np.array([crc_kernels.table_of(poly).ctypes.data for poly in found], np.int64)
        self._scratch = np.zeros(scratch_size(program), np.int64)
        self._out = np.empty((FIRST + len(columns), capacity + _STAGGER), np.int64)
        self._rows = 0
        self._function = self._loaded()

    def _loaded(self) -> Any:
        """The compiled walk. What was kept of it may be damaged: then it is compiled anew."""
        module = _module(self._program, self.columns)
        nothing = (_bytes_of(b""), np.zeros(0, np.int64), np.zeros(0, np.int64))
        try:
            self._call(module.walk, nothing, 0, 0, 0)
        except Exception:
            generate.forget(module)
            _module.cache_clear()
            module = _module(self._program, self.columns)
            self._call(module.walk, nothing, 0, 0, 0)
        return module.walk

    def _call(self, walk: Any, given: tuple[Any, ...], span: int, count: int, at: int) -> tuple[int, int, int]:
        buf, starts, ends = given
        stopped: tuple[int, int, int] = walk(
            buf, starts, ends, span, count, at, self._rows, self._capacity,
            self._out, self._scratch, self._addresses, self._tables,
        )  # fmt: skip
        return stopped

    def _open(self, buf: Any, starts: Column, ends: Column, first: int, count: int, spans: bool) -> None:
        begins, stops = np.asarray(starts, np.int64)[:count], np.asarray(ends, np.int64)[:count]
        if spans:
            _check(begins[first:], stops[first:], len(buf), first)
        self._input = (_bytes_of(buf), begins, stops)
        self._rows = 0

    def _close(self) -> None:
        del self._input

    def _walk(self, span: int, count: int, at: int) -> tuple[int, int]:
        self._rows, span, at = self._call(self._function, self._input, span, count, at)
        return span, at

    def _count(self) -> int:
        return self._rows

    def _rows_before(self, span: int) -> int:
        return int(np.searchsorted(self._out[SPAN, : self._rows], span))

    def _grow(self) -> None:
        larger = np.empty((len(self._out), self._capacity + _STAGGER), np.int64)
        larger[:, : self._rows] = self._out[:, : self._rows]
        self._out = larger

    def _append(self, span: int, at: int, frame: exact.Frame) -> None:
        row = [frame.end, at, span, frame.checksum, *(frame.values[path] for path in self.columns)]
        self._out[:, self._rows] = row
        self._rows += 1

    def _table(self, rows: int) -> Table:
        names = {"end": END, "offset": OFFSET, "span": SPAN, "checksum": VERDICT}
        columns = {name: self._out[row] for name, row in names.items()}
        columns.update((path, self._out[FIRST + i]) for i, path in enumerate(self.columns))
        return Table(rows, columns)


def _check(begins: NDArray[Any], stops: NDArray[Any], size: int, first: int) -> None:
    wrong = (begins < 0) | (stops < begins) | (stops > size)
    if wrong.any():
        raise ValueError(f"span {first + int(wrong.argmax())} is not inside a buffer of {size} bytes")


def _bytes_of(buf: Any) -> NDArray[np.uint8]:
    """The buffer as it is, read-only whatever it was: one array type, one compiled form."""
    array = np.frombuffer(buf, np.uint8) if len(buf) else np.zeros(0, np.uint8)
    array.flags.writeable = False
    return array
