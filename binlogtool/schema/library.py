"""The library of compiled walks and kernels: find and load it, look functions up, pass memory to it.

It is one file beside this module, made when the package is built (`schema.build`). The names of its functions have
the
hash of their text (`schema.identity`): a function that is not found was compiled from something else, or not at all.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from binlogtool.schema.expressions import I64_MAX, I64_MIN, signed

ENVIRONMENT = "BINLOGTOOL_LIBRARY"
"""Names another library than that of this installation."""

FILE_NAME = "_native.so"

Entry = Callable[..., Sequence[int]]


class Library:
    """A loaded library.

    Raises:
        OSError: it cannot be loaded on this machine.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = ctypes.CDLL(path)
        self._tables: dict[int, int] = {}
        word, pointer = ctypes.c_int64, ctypes.c_void_p
        self.column_holds = self._plain("column_holds", pointer, word, word)
        self.span_outside = self._plain("span_outside", pointer, pointer, word, word, word)
        self._make_tables = self._plain("crc_tables_of", word, word)

    def _plain(self, name: str, *types: Any) -> Any:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise OSError(f"{self.path} is not a library of this program") from None
        function.argtypes, function.restype = types, ctypes.c_int64
        return function

    def entry(self, symbol: str, results: int) -> Entry | None:
        """Return a generated function, called with integers and addresses; None if this library does not have it."""
        try:
            function = getattr(self._library, symbol)
        except AttributeError:
            return None
        function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_void_p), None

        def call(*arguments: int) -> Sequence[int]:
            given, found = _words(arguments), array("q", bytes(8 * results))
            function(given.buffer_info()[0], found.buffer_info()[0])
            return found

        return call

    def _crc_tables_of(self, reflected: int, products: int) -> int:
        """Return the address of CRC constants.

        Args:
            products: Carry-less multiplication may be used, where the processor has it.
        """
        address: int = self._make_tables(reflected, products)
        return address

    def crc_table(self, poly: int) -> int:
        """Return the address of the constants of a polynomial (crcmod's notation, with its top bit)."""
        if poly not in self._tables:
            reflected = int(f"{poly & 0xFFFFFFFF:032b}"[::-1], 2)
            address = self._crc_tables_of(reflected, 1)
            if not address:
                raise MemoryError
            self._tables[poly] = address
        return self._tables[poly]


def _words(arguments: Sequence[int]) -> array[int]:
    try:
        return array("q", arguments)
    except OverflowError:
        return array("q", [one if I64_MIN <= one <= I64_MAX else signed(one) for one in arguments])


@lru_cache(maxsize=1)
def library() -> Library | None:
    """Load the library of this installation; return None if there is none for this machine."""
    named, beside = os.environ.get(ENVIRONMENT), os.path.join(os.path.dirname(__file__), FILE_NAME)
    try:
        return Library(named or beside) if named or os.path.isfile(beside) else _unpacked()
    except OSError:
        return None


def _unpacked() -> Library:
    """Load the library of a package in a zip, as a cluster gets it; it stays mapped after its file is gone.

    It is copied to a memory file where the system has these, because there may be no writable directory.
    """
    from importlib.resources import as_file, files

    packed = files(__package__) / FILE_NAME
    try:
        held = os.memfd_create(FILE_NAME)  # never closed: the loader treats equal paths as the same library
        with open(held, "wb", closefd=False) as file:
            file.write(packed.read_bytes())
        return Library(f"/proc/self/fd/{held}")
    except (AttributeError, OSError):
        with as_file(packed) as path:
            return Library(str(path))


# -- memory ------------------------------------------------------------------------------------------------------------


class _Buffer(ctypes.Structure):
    """`Py_buffer` (docs.python.org/3/c-api/buffer.html)."""

    _fields_ = [
        ("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int), ("ndim", ctypes.c_int), ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p),
    ]  # fmt: skip


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes, _get_buffer.restype = (ctypes.py_object, ctypes.c_void_p, ctypes.c_int), ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes, _release_buffer.restype = (ctypes.c_void_p,), None


class _Lent(_Buffer):
    """The buffer of a read-only object, whose address `ctypes` does not give."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        _get_buffer(value, ctypes.addressof(self), 0)

    def __del__(self) -> None:
        _release_buffer(ctypes.addressof(self))  # a no-op if no buffer was acquired


_start_of, _address_of = (ctypes.c_char * 0).from_buffer, ctypes.addressof
"""The first makes an object that keeps a writable one where it is: several times as fast as `_Lent`."""


class Held:
    """The address of an object's bytes, which stay in place until `release`.

    Raises:
        BufferError: they are not contiguous.
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
        self._view = _Lent(value)
        self.address = self._view.buf or 0

    def release(self) -> None:
        """Unpin the object."""
        self._view = None


def integers(column: Any) -> Any:
    """Return a column as memory of 64-bit integers: itself where possible, else a copy."""
    try:
        view = memoryview(column)
    except TypeError:  # a list
        return array("q", column)
    if view.format in ("q", "l") and view.itemsize == 8 and view.c_contiguous:
        return view
    return array("q", view.tolist())
