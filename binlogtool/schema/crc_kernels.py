"""CRCs inside of compiled code: ISA-L's functions called by address, and a table kernel where they are missing.

numba cannot cache code that refers to a ctypes function; an address handed in as an argument can be called all the
same.
The text of this file is part of every generated module's identity: a change here makes new modules.
"""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from binlogtool.formats.checksums import CHECK_INPUT, CRC32, CRC32C, Checksum
from binlogtool.schema.crc_lanes import HAS_LANES, LANES_BELOW, ONES_AT, constants, crc_lanes

ONES = 0xFFFFFFFF
_MOST = 1 << 30
"""Bytes per call: ISA-L's `crc32_iscsi` takes its length as an int."""

_BIG_MACHINE = sys.byteorder == "big"


def _loader(width: int, big: bool, signed: bool) -> Any:
    """An intrinsic that loads an integer from an address; the caller has proven that the bytes are there."""

    @intrinsic  # type: ignore[untyped-decorator]
    def load(typing: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            small, wide = ir.IntType(8 * width), ir.IntType(64)
            value = builder.load(builder.inttoptr(args[0], small.as_pointer()))
            value.align = 1
            if big != _BIG_MACHINE and width > 1:
                value = builder.bswap(value)
            if width == 8:
                return value
            return builder.sext(value, wide) if signed else builder.zext(value, wide)

        return types.int64(types.int64), codegen

    return load


load_u1 = _loader(1, False, False)
load_i1 = _loader(1, False, True)
load_u2_little, load_u2_big = _loader(2, False, False), _loader(2, True, False)
load_i2_little, load_i2_big = _loader(2, False, True), _loader(2, True, True)
load_u4_little, load_u4_big = _loader(4, False, False), _loader(4, True, False)
load_i4_little, load_i4_big = _loader(4, False, True), _loader(4, True, True)
load_u4_native = load_u4_big if _BIG_MACHINE else load_u4_little
load_i8_little, load_i8_big = _loader(8, False, True), _loader(8, True, True)
load_i8_native = load_i8_big if _BIG_MACHINE else load_i8_little


@intrinsic  # type: ignore[untyped-decorator]
def store_i8_native(typing: Any, address: Any, value: Any) -> Any:
    """Stores a 64-bit integer at an address that the caller has proven to be his."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], ir.IntType(64).as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def _caller(order: tuple[int, int, int], length_bits: int) -> Any:
    """An intrinsic for `uint32 f(...)`; `order`: where register, pointer and length stand in its argument list."""

    @intrinsic  # type: ignore[untyped-decorator]
    def call(typing: Any, address: Any, register: Any, pointer: Any, count: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            i32, i64, data = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()
            length = ir.IntType(length_bits)
            given = [
                builder.trunc(args[1], i32),
                builder.inttoptr(args[2], data),
                builder.trunc(args[3], length) if length_bits < 64 else args[3],
            ]
            kinds: list[Any] = [i32, data, length]
            function = ir.FunctionType(i32, [kinds[i] for i in order])
            result = builder.call(builder.inttoptr(args[0], function.as_pointer()), [given[i] for i in order])
            return builder.zext(result, i64)

        return types.int64(types.int64, types.int64, types.int64, types.int64), codegen

    return call


_call_gzip = _caller((0, 1, 2), 64)
_call_iscsi = _caller((1, 2, 0), 32)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def crc_by_table(table: Any, pointer: Any, count: Any, register: Any) -> Any:
    """Slicing-by-8 over any reflected polynomial; `table`: address of `table_of`; the register is taken as it is."""
    while count >= 8:
        low = load_u4_little(pointer) ^ register
        high = load_u4_little(pointer + 4)
        register = (
            load_u4_native(table + 7168 + 4 * (low & 255)) ^ load_u4_native(table + 6144 + 4 * (low >> 8 & 255))
            ^ load_u4_native(table + 5120 + 4 * (low >> 16 & 255)) ^ load_u4_native(table + 4096 + 4 * (low >> 24))
            ^ load_u4_native(table + 3072 + 4 * (high & 255)) ^ load_u4_native(table + 2048 + 4 * (high >> 8 & 255))
            ^ load_u4_native(table + 1024 + 4 * (high >> 16 & 255)) ^ load_u4_native(table + 4 * (high >> 24))
        )  # fmt: skip
        pointer += 8
        count -= 8
    while count > 0:
        register = load_u4_native(table + 4 * ((register ^ load_u1(pointer)) & 255)) ^ (register >> 8)
        pointer += 1
        count -= 1
    return register


_LANES_AT = 8 * 256 * 4


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _crc_by_lanes(table: Any, pointer: Any, count: Any, register: Any) -> Any:
    """The register behind a short piece; -1 = it is not short, or the register is neither zeros nor ones."""
    if count <= 0 or count >= LANES_BELOW or (register != 0 and register != ONES):
        return -1
    found = crc_lanes(table + _LANES_AT, pointer, count)
    return found ^ load_u4_native(table + (_LANES_AT + ONES_AT) + 4 * count) if register else found


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _no_lanes(table: Any, pointer: Any, count: Any, register: Any) -> Any:
    return -1


_crc_briefly = _crc_by_lanes if HAS_LANES else _no_lanes


@njit(nogil=True)  # type: ignore[untyped-decorator]
def crc_by_gzip(address: Any, table: Any, pointer: Any, count: Any, register: Any) -> Any:
    """CRC-32 by ISA-L's `crc32_gzip_refl`, which inverts the register on both sides."""
    if address == 0:
        return crc_by_table(table, pointer, count, register)
    brief = _crc_briefly(table, pointer, count, register)
    if brief >= 0:
        return brief
    while count > _MOST:
        register = _call_gzip(address, register ^ ONES, pointer, _MOST) ^ ONES
        pointer += _MOST
        count -= _MOST
    return _call_gzip(address, register ^ ONES, pointer, count) ^ ONES


@njit(nogil=True)  # type: ignore[untyped-decorator]
def crc_by_iscsi(address: Any, table: Any, pointer: Any, count: Any, register: Any) -> Any:
    """CRC-32C by ISA-L's `crc32_iscsi`, which works on the register as it is."""
    if address == 0:
        return crc_by_table(table, pointer, count, register)
    brief = _crc_briefly(table, pointer, count, register)
    if brief >= 0:
        return brief
    while count > _MOST:
        register = _call_iscsi(address, register, pointer, _MOST)
        pointer += _MOST
        count -= _MOST
    return _call_iscsi(address, register, pointer, count)


KERNEL_OF = {CRC32.poly: "crc_by_gzip", CRC32C.poly: "crc_by_iscsi"}
"""The compiled kernel for a polynomial; all others go by table."""


@lru_cache
def table_of(poly: int) -> NDArray[np.uint32]:
    """The eight tables of slicing-by-8 of a polynomial (crcmod's notation, with its top bit), then its `constants`."""
    reflected = int(f"{poly & ONES:032b}"[::-1], 2)
    table = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (reflected if value & 1 else 0)
        table[0, byte] = value
    for step in range(1, 8):
        before = table[step - 1]
        table[step] = (before >> np.uint32(8)) ^ table[0][before & np.uint32(255)]
    return np.concatenate([table.ravel(), constants(poly, table[0])])


@lru_cache
def address_of(poly: int) -> int:
    """Where ISA-L's function for this polynomial is; 0 = there is none, or it disagrees with the definition."""
    symbol, checksum = {CRC32.poly: ("crc32_gzip_refl", CRC32), CRC32C.poly: ("crc32_iscsi", CRC32C)}.get(
        poly, (None, None)
    )
    if symbol is None or checksum is None:
        return 0
    function = _isal_function(symbol)
    if function is None or not _agrees(function, symbol, checksum):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@lru_cache
def _isal_function(symbol: str) -> Any:
    try:
        from isal import isal_zlib

        return getattr(ctypes.CDLL(isal_zlib.__file__), symbol)
    except (ImportError, OSError, AttributeError):  # no wheel for this machine, or a build that hides its symbols
        return None


def _agrees(function: Any, symbol: str, checksum: Checksum) -> bool:
    """Compares on the check input and on a few lengths around the function's inner block sizes."""
    compute = _as_python(function, symbol)
    source = random.Random(symbol)
    samples = [CHECK_INPUT, *(source.randbytes(n) for n in (0, 1, 7, 16, 63, 255, 1000, 4097))]
    return all(compute(sample) == checksum(sample) for sample in samples)


def _as_python(function: Any, symbol: str) -> Callable[[bytes], int]:
    function.restype = ctypes.c_uint32
    if symbol == "crc32_gzip_refl":
        function.argtypes = [ctypes.c_uint32, ctypes.c_char_p, ctypes.c_uint64]
        return lambda data: int(function(0, data, len(data)))
    function.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_uint32]
    return lambda data: int(function(data, len(data), ONES)) ^ ONES
