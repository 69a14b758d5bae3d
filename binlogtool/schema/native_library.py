"""Library of compiled walks and kernels: symbol names, loading, memory for its calls.

The library is one file beside this module, made when the package is built (`native_build.build`). The names of its
functions contain a hash: of the text of a generated function; for a kernel, of the texts of its module, of the modules
of the kernels that it calls and of the enums that they name, and of the integers that they name (no text is parsed for
this, which would slow down every start). A function that is not found was compiled from another text, or not at all.
"""

from __future__ import annotations

import ctypes
import os
import sys
from array import array
from collections.abc import Callable, Collection, Sequence
from enum import EnumType
from functools import lru_cache
from types import FunctionType
from typing import Any

from binlogtool.format_api.layout import Kernel, blake2b
from binlogtool.schema.schema_operations import (
    I64_MAX,
    I64_MIN,
    wrap_int64,
)

# --- Names of compiled functions ---

_COMPILER_MODULES = (
    "binlogtool.format_api.schema_fields", "binlogtool.schema.c_codegen",
)  # fmt: skip
"""Modules that turn kernels into C, with `runtime.c` beside this module. Their files are read, not imported."""
_GENERATOR_MODULES = tuple(
    f"binlogtool.schema.{name}"
    for name in (
        "python_body_codegen", "lower_body_schema", "lower_frame_schema", "json_body_codegen",
        "kernel_body_codegen", "schema_operations", "frame_scan_loop",
    )
)  # fmt: skip
"""Modules that generate kernels from schemas."""
_DIGEST_SIZE = 10


def make_symbol(kind: str, text: str) -> str:
    """Return the name of a generated function with this text."""
    return f"{kind}_{_hash_texts(hash_compiler(), text)}"


@lru_cache(maxsize=1024)
def make_kernel_name(function: Kernel) -> str:
    """Return the name of a kernel's compiled form. Raises OSError: its source cannot be read."""
    parts = []
    for one in collect_called_kernels(function):
        code = one.__code__
        numbers = sorted((n, int(v)) for n in code.co_names if isinstance(v := one.__globals__.get(n), int))
        parts += [one.__module__, one.__qualname__, _hash_module_source(one.__module__), repr(numbers)]
        enums = [v.__module__ for n in code.co_names if isinstance(v := one.__globals__.get(n), EnumType)]
        parts += [_hash_module_source(module) for module in (*_list_modules_of_struct_parameters(one), *enums)]
        if "kernel_schema" in one.__dict__:
            parts.append(_hash_modules(_GENERATOR_MODULES))
    module = function.__module__.rpartition(".")[2]
    return f"{module}_{function.__name__}_{_hash_texts(hash_compiler(), *parts)}"


def collect_called_kernels(function: Kernel) -> list[FunctionType]:
    """Return a kernel and all kernels that it calls, each once, in a deterministic order."""
    collected: dict[Any, None] = {}
    pending: list[Any] = [function]
    while pending:
        current = pending.pop()
        if current not in collected:
            collected[current] = None
            pending += current.__dict__.get("kernel_uses", ())
    return list(collected)


def _list_modules_of_struct_parameters(function: FunctionType) -> list[str]:
    """Return the modules of the structs that a kernel declares as parameters."""
    declared = [function.__globals__.get(one, one) for one in function.__annotations__.values()]
    return [one.__module__ for one in declared if isinstance(one, type) and hasattr(one, "_fields")]


@lru_cache
def hash_compiler() -> str:
    """Return the hash of the code that turns text into C."""
    loader, file = _find_loader(__name__)
    runtime = loader.get_data(os.path.join(os.path.dirname(file), "runtime.c"))
    return _hash_texts(_hash_modules(_COMPILER_MODULES), blake2b(runtime).hexdigest())


@lru_cache
def _hash_modules(names: tuple[str, ...]) -> str:
    """Return the hash of the files of modules of this package, which are not imported."""
    loader, file = _find_loader(__name__)
    root = os.path.dirname(file)[: -len(__name__.rpartition(".")[0])]
    files = [f"{os.path.join(root, *name.split('.'))}.py" for name in names]
    return _hash_texts(*(blake2b(loader.get_data(one)).hexdigest() for one in files))


@lru_cache(maxsize=512)
def _hash_module_source(module: str) -> str:
    loader, file = _find_loader(module)
    return blake2b(loader.get_data(file)).hexdigest()


def _find_loader(module: str) -> tuple[Any, str]:
    """Return the loader that reads files beside a module, also in a zip, and the module's own file."""
    loaded_module = sys.modules[module]
    if loaded_module.__spec__ is None or loaded_module.__spec__.loader is None or loaded_module.__file__ is None:
        raise OSError(f"{module} has no source file")
    return loaded_module.__spec__.loader, loaded_module.__file__


def _hash_texts(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=_DIGEST_SIZE).hexdigest()


# --- The library of compiled walks and kernels ---

LIBRARY_VARIABLE = "BINLOGTOOL_LIBRARY"
"""Environment variable with the path of a library to use instead of the installed one."""

LIBRARY_FILE_NAME = "_native.so"

NativeFunction = Callable[..., Sequence[int]]


class NativeLibrary:
    """Loaded library. Raises OSError: it cannot be loaded on this machine."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = ctypes.CDLL(path)
        self._tables: dict[int, int] = {}
        word, pointer = ctypes.c_int64, ctypes.c_void_p
        self.column_holds = self._bind_function("column_holds", pointer, word, word)
        self.span_outside = self._bind_function("span_outside", pointer, pointer, word, word, word)
        self._make_tables = self._bind_function("crc_tables_of", word, word)

    def _bind_function(self, name: str, *types: Any) -> Any:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise OSError(f"{self.path} is not a library of this program") from None
        function.argtypes, function.restype = types, ctypes.c_int64
        return function

    def find_function(self, symbol: str, result_count: int) -> NativeFunction | None:
        """Return a generated function, called with integers and addresses; None if this library lacks it."""
        try:
            function = getattr(self._library, symbol)
        except AttributeError:
            return None
        function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_void_p), None

        def call(*arguments: int) -> Sequence[int]:
            packed_arguments, returned = _pack_arguments(arguments), array("q", bytes(8 * result_count))
            function(packed_arguments.buffer_info()[0], returned.buffer_info()[0])
            return returned

        return call

    def _make_crc_constants(self, reflected: int, products: int) -> int:
        """Return the address of CRC constants.

        Args:
            products: Constants for carry-less multiplication, which is used if the processor supports it.
        """
        address: int = self._make_tables(reflected, products)
        return address

    def get_crc_constants_address(self, poly: int) -> int:
        """Return the address of the constants of a polynomial (crcmod's notation, with its top bit)."""
        if poly not in self._tables:
            reflected = int(f"{poly & 0xFFFFFFFF:032b}"[::-1], 2)
            address = self._make_crc_constants(reflected, 1)
            if not address:
                raise MemoryError
            self._tables[poly] = address
        return self._tables[poly]


def _pack_arguments(arguments: Sequence[int]) -> array[int]:
    try:
        return array("q", arguments)
    except OverflowError:
        return array("q", [one if I64_MIN <= one <= I64_MAX else wrap_int64(one) for one in arguments])


@lru_cache(maxsize=1)
def load_library() -> NativeLibrary | None:
    """Load the library of this installation; return None if there is none for this machine."""
    chosen, installed = os.environ.get(LIBRARY_VARIABLE), os.path.join(os.path.dirname(__file__), LIBRARY_FILE_NAME)
    try:
        return NativeLibrary(chosen or installed) if chosen or os.path.isfile(installed) else _load_from_zip()
    except OSError:
        return None


def _load_from_zip() -> NativeLibrary:
    """Load the library of a package in a zip, as a cluster receives it; it stays mapped after its file is removed.

    It is copied to a memory file if the system supports that, because there may be no writable directory.
    """
    from importlib.resources import as_file, files

    packed = files(__package__) / LIBRARY_FILE_NAME
    try:
        memory_fd = os.memfd_create(
            LIBRARY_FILE_NAME
        )  # never closed: the loader treats equal paths as the same library
        with open(memory_fd, "wb", closefd=False) as file:
            file.write(packed.read_bytes())
        return NativeLibrary(f"/proc/self/fd/{memory_fd}")
    except (AttributeError, OSError):
        with as_file(packed) as path:
            return NativeLibrary(str(path))


# -- memory ------------------------------------------------------------------------------------------------------------


class _PyBuffer(ctypes.Structure):
    """C struct `Py_buffer` (docs.python.org/3/c-api/buffer.html)."""

    _fields_ = [
        ("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int), ("ndim", ctypes.c_int), ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p),
    ]  # fmt: skip


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes, _get_buffer.restype = (ctypes.py_object, ctypes.c_void_p, ctypes.c_int), ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes, _release_buffer.restype = (ctypes.c_void_p,), None


class _ReadOnlyBuffer(_PyBuffer):
    """Buffer of a read-only object, whose address `ctypes` does not provide."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        _get_buffer(value, ctypes.addressof(self), 0)

    def __del__(self) -> None:
        _release_buffer(ctypes.addressof(self))  # a no-op if no buffer was acquired


_start_of, _address_of = (ctypes.c_char * 0).from_buffer, ctypes.addressof
"""`_start_of` pins a writable object in memory, several times as fast as `_ReadOnlyBuffer`."""


class PinnedMemory:
    """Address of an object's bytes, which are pinned in memory until `release`.

    Raises:
        BufferError: the bytes are not contiguous.
    """

    __slots__ = ("_view", "address")

    def __init__(self, value: Any) -> None:
        self._view: Any
        self.address: int
        if type(value) is bytes:
            self._view = ctypes.c_char_p(value)
            self.address = ctypes.c_void_p.from_buffer(self._view).value or 0
            return
        if not (type(value) is memoryview and value.readonly):
            try:
                self._view = _start_of(value)
                self.address = _address_of(self._view)
                return
            except TypeError:  # not writable
                pass
        self._view = _ReadOnlyBuffer(value)
        self.address = self._view.buf or 0

    def release(self) -> None:
        """Unpin the object."""
        self._view = None


def as_int64_memory(column: Any) -> Any:
    """Return a column as memory of 64-bit integers: the column itself if possible, else a copy."""
    try:
        view = memoryview(column)
    except TypeError:  # a list
        return array("q", column)
    if view.format in ("q", "l") and view.itemsize == 8 and view.c_contiguous:
        return view
    return array("q", view.tolist())


# --- Operations on whole columns ---


def has_any_value(column: Any, values: Collection[int]) -> bool:
    """Return True if the column (a list, or memory) contains one of a few values."""
    native = load_library()
    if native is None or isinstance(column, list):
        return not frozenset(values).isdisjoint(column)
    held = PinnedMemory(column)
    return any(native.column_holds(held.address, len(column), value) for value in values)


def copy_column(column: Any) -> Any:
    """Return a copy of a column, which stays valid when its scanner continues."""
    if isinstance(column, memoryview) and column.itemsize == 8:
        return memoryview(bytearray(column)).cast("q")
    return list(column)


def concatenate_columns(columns: Sequence[Any]) -> Any:
    """Concatenate parts of one column; return a copy."""
    if len(columns) == 1:
        return copy_column(columns[0])
    if all(isinstance(column, list) for column in columns):
        return [value for column in columns for value in column]

    return memoryview(bytearray().join(map(as_int64_memory, columns))).cast("q")


class KernelNames:
    """Provider of kernel names for generated texts, which collects the requested kernels."""

    def __init__(self) -> None:
        self.functions: dict[str, Kernel] = {}

    def add_kernel(self, function: Kernel) -> str:
        """Return the name of a kernel's compiled form, and collect the kernel."""
        name = make_kernel_name(function)
        self.functions[name] = function
        return name
