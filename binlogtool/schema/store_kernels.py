"""Stores of integers at addresses, for compiled code that writes text."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from binlogtool.schema.crc_kernels import _BIG_MACHINE, load_i8_little


def _storer(width: int) -> Any:
    """An intrinsic that stores the low bytes of an integer, the lowest first; the address has been proven."""

    @intrinsic  # type: ignore[untyped-decorator]
    def store(typing: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            small = ir.IntType(8 * width)
            given = args[1] if width == 8 else builder.trunc(args[1], small)
            if _BIG_MACHINE and width > 1:
                given = builder.bswap(given)
            builder.store(given, builder.inttoptr(args[0], small.as_pointer())).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return store


store_u1 = _storer(1)
store_i8 = _storer(8)

PAD = 8
"""Bytes behind both places of a copy that must be there."""


@njit(nogil=True)  # type: ignore[untyped-decorator]
def copy(source: Any, target: Any, size: Any) -> Any:
    """Copies `size` bytes in steps of eight, so perhaps up to seven more; returns `size`."""
    k = 0
    while k < size:
        store_i8(target + k, load_i8_little(source + k))
        k += 8
    return size
