"""Types of the array parameters of kernels (`fields.kernel`). All other parameters and all results are `int` or `bool`.

The compiler reads the annotation of a parameter and nothing else: names are free. A function that declares a parameter
with none of these types cannot be compiled, which is an error of the build.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Annotated, NamedTuple, TypeAlias


class ArrayType(NamedTuple):
    """What lies in memory behind an array parameter.

    size: bytes of an element: 1, an unsigned byte; 8, a signed integer in the order of this machine.
    mutable: the kernel, or one that it calls, may write to it.
    """

    size: int
    mutable: bool


UInt8s: TypeAlias = Annotated["bytes | bytearray | memoryview[int]", ArrayType(1, False)]
"""Bytes that a kernel reads; each is a number from 0 to 255."""

MutableUInt8s: TypeAlias = Annotated["bytearray | memoryview[int]", ArrayType(1, True)]
"""Bytes that a kernel writes."""

Int64s: TypeAlias = Annotated[Sequence[int], ArrayType(8, False)]
"""Signed 64-bit integers that a kernel reads: a column of a batch, a table of constants."""

MutableInt64s: TypeAlias = Annotated["MutableSequence[int] | memoryview[int]", ArrayType(8, True)]
"""Signed 64-bit integers that a kernel writes."""
