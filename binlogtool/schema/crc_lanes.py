"""CRCs of short pieces, 64 bytes at a step: carry-less products in registers of 512 bits, where the machine has them.

A call of ISA-L costs 14 ns for an event of 140 bytes, most of it in loops and tails whose length changes from piece to
piece. Here a piece is taken from its end, its first step being filled up with zeros in front: no tail, few branches.

All polynomials are reflected: bit i of a word of n bits is the coefficient of x^(n-1-i), the first byte is the lowest.
The carry-less product of two words of 64 bits then is a word of 128 bits that means A * B * x.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

LANES_BELOW = 512
"""Pieces shorter than this many bytes; ISA-L is as fast for longer ones."""

_NEEDED = ("avx512f", "avx512bw", "vpclmulqdq", "pclmul")
HAS_LANES = all(llvmlite.binding.get_host_cpu_features().get(name, False) for name in _NEEDED)

_STEP = 64
_LANES = 4
_LAST, _REDUCE, ONES_AT = 64, 128, 160
"""Byte offsets in the constants (those for the next step come first): for the last step, to reduce, and what becomes of
a register of ones, by length."""


def constants(poly: int, table: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """What `crc_lanes` needs of a polynomial (crcmod's notation, with its top bit). table: of its single bytes."""
    step = [64 * 8 + 63, 64 * 8 - 1] * _LANES
    last = [power for lane in range(_LANES) for power in (128 * (3 - lane) + 95, 128 * (3 - lane) + 31)]
    words = [_reflected(_power(power, poly), 64) for power in (*step, *last, 63)]
    words += [_reflected(_quotient(poly), 33), _reflected(poly, 33), 0]
    registers, bytewise = [0xFFFFFFFF], table.tolist()
    while len(registers) < LANES_BELOW:
        registers.append(registers[-1] >> 8 ^ bytewise[registers[-1] & 255])
    return np.concatenate([np.array(words, np.uint64).view(np.uint32), np.array(registers, np.uint32)])


def _reflected(value: int, bits: int) -> int:
    return int(f"{value:0{bits}b}"[::-1], 2)


def _power(exponent: int, poly: int) -> int:
    """x^exponent modulo the polynomial."""
    value = 1
    for bit in f"{exponent:b}":
        value = _times(value, value, poly)
        if bit == "1":
            value = _times(value, 2, poly)
    return value


def _times(a: int, b: int, poly: int) -> int:
    product = 0
    for bit in range(b.bit_length()):
        product ^= a << bit if b >> bit & 1 else 0
    for bit in range(product.bit_length() - 1, 31, -1):
        product ^= poly << (bit - 32) if product >> bit & 1 else 0
    return product


def _quotient(poly: int) -> int:
    """x^64 divided by the polynomial."""
    quotient, rest = 0, 1 << 64
    for bit in range(32, -1, -1):
        if rest >> (bit + 32) & 1:
            quotient |= 1 << bit
            rest ^= poly << bit
    return quotient


# -- code --------------------------------------------------------------------------------------------------------------

_I1, _I8, _I32, _I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
_BYTES, _MASK, _WIDE, _PAIR = (
    ir.VectorType(kind, count) for kind, count in ((_I8, 64), (_I1, 64), (_I64, 8), (_I64, 2))
)


def _product(builder: Any, kind: Any, a: Any, b: Any, which: int) -> Any:
    """Lane by lane: low (0) or high (1) word of `a` (lowest bit of `which`) times that of `b` (bit 4)."""
    name = "llvm.x86.pclmulqdq" + ".512" * (kind is _WIDE)
    function = builder.module.declare_intrinsic(name, fnty=ir.FunctionType(kind, [kind, kind, _I8]))
    return builder.call(function, [a, b, ir.Constant(_I8, which)])


def _multiplied(builder: Any, words: Any, by: Any) -> Any:
    """The sum of both words of each lane, times its two constants."""
    return builder.xor(_product(builder, _WIDE, words, by, 0x00), _product(builder, _WIDE, words, by, 0x11))


def _load(builder: Any, kind: Any, address: Any) -> Any:
    value = builder.load(builder.inttoptr(address, kind.as_pointer()), typ=kind)
    value.align = 1
    return value


def _first(builder: Any, pointer: Any, size: Any) -> Any:
    """The first 1..64 bytes at the end of a register, zeros before them; nothing in front of them is touched."""
    pointer_type = _BYTES.as_pointer()
    load = builder.module.declare_intrinsic(
        "llvm.masked.load.v64i8.p0", fnty=ir.FunctionType(_BYTES, [pointer_type, _I32, _MASK, _BYTES])
    )
    start = builder.sub(pointer, builder.sub(ir.Constant(_I64, _STEP), size))
    mask = builder.shl(ir.Constant(_I64, -1), builder.sub(ir.Constant(_I64, _STEP), size))
    given = [builder.inttoptr(start, pointer_type), ir.Constant(_I32, 1), builder.bitcast(mask, _MASK)]
    return builder.bitcast(builder.call(load, [*given, ir.Constant(_BYTES, None)]), _WIDE)


def _part(builder: Any, words: Any, lane: int) -> Any:
    places = ir.Constant(ir.VectorType(_I32, 2), [2 * lane, 2 * lane + 1])
    return builder.shuffle_vector(words, ir.Constant(_WIDE, ir.Undefined), places)


def _reduced(builder: Any, words: Any, table: Any) -> Any:
    """All lanes, multiplied by x^32, to the register of 32 bits (Barrett's reduction at the end)."""
    by = _load(builder, _WIDE, builder.add(table, ir.Constant(_I64, _LAST)))
    words = _multiplied(builder, words, by)
    parts = [_part(builder, words, lane) for lane in range(_LANES)]
    value = builder.xor(builder.xor(parts[0], parts[1]), builder.xor(parts[2], parts[3]))
    power, barrett = (_load(builder, _PAIR, builder.add(table, ir.Constant(_I64, at))) for at in (_REDUCE, _REDUCE + 8))
    value = builder.xor(_product(builder, _PAIR, value, power, 0x00), value)
    word = builder.extract_element(value, ir.Constant(_I32, 1))
    top = builder.and_(word, ir.Constant(_I64, 0xFFFFFFFF))
    zero = ir.Constant(_PAIR, None)
    estimate = _product(builder, _PAIR, builder.insert_element(zero, top, ir.Constant(_I32, 0)), barrett, 0x00)
    estimate = builder.and_(estimate, ir.Constant(_PAIR, [0xFFFFFFFF, 0]))
    whole = builder.extract_element(_product(builder, _PAIR, estimate, barrett, 0x10), ir.Constant(_I32, 0))
    return builder.lshr(builder.xor(word, whole), ir.Constant(_I64, 32))


@intrinsic  # type: ignore[untyped-decorator]
def crc_lanes(typing: Any, table: Any, pointer: Any, count: Any) -> Any:
    """The register behind `count` > 0 bytes that began as 0. table: address of `constants`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        table, pointer, count = args
        by = _load(builder, _WIDE, table)
        rest = builder.and_(builder.sub(count, ir.Constant(_I64, 1)), ir.Constant(_I64, _STEP - 1))
        size = builder.add(rest, ir.Constant(_I64, 1))
        words, at, end = _first(builder, pointer, size), builder.add(pointer, size), builder.add(pointer, count)
        before = builder.block
        loop, behind = builder.append_basic_block("step"), builder.append_basic_block("behind")
        builder.cbranch(builder.icmp_unsigned("==", at, end), behind, loop)
        builder.position_at_end(loop)
        current, here = builder.phi(_WIDE), builder.phi(_I64)
        following = builder.xor(_multiplied(builder, current, by), _load(builder, _WIDE, here))
        there = builder.add(here, ir.Constant(_I64, _STEP))
        for phi, first, later in ((current, words, following), (here, at, there)):
            phi.add_incoming(first, before)
            phi.add_incoming(later, loop)
        builder.cbranch(builder.icmp_unsigned("==", there, end), behind, loop)
        builder.position_at_end(behind)
        last = builder.phi(_WIDE)
        last.add_incoming(words, before)
        last.add_incoming(following, loop)
        return _reduced(builder, last, table)

    return types.int64(types.int64, types.int64, types.int64), codegen
