"""Checksums: each is defined by crcmod parameters and computed by a fast kernel that is checked before its first use.

For a reflected CRC-32 of one polynomial, `f(data, init ^ ones) ^ ones ^ xorout` gives any initial value and final xor
from the common convention (all ones inside).
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from functools import cached_property
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

import msgspec

Buffer = bytes | bytearray | memoryview
_ONES = 0xFFFFFFFF
CHECK_INPUT = b"123456789"


def _load_crc32() -> Callable[[Any, int], int]:
    try:
        from isal import isal_zlib
    except ImportError:  # no wheel for this machine: use the slower standard library
        return zlib.crc32
    kernel: Callable[[Any, int], int] = isal_zlib.crc32
    return kernel


def _load_crc32c() -> Callable[[Any, int], int]:
    """Load the kernel from the extension module: its package looks up its own version first, which takes 20 ms."""
    name = "crc32c._crc32c"
    package = find_spec("crc32c")
    spec = PathFinder.find_spec(name, package.submodule_search_locations) if package is not None else None
    if name in sys.modules or spec is None or spec.loader is None:
        import crc32c

        return crc32c.crc32c
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel: Callable[[Any, int], int] = module.crc32c
    return kernel


_KERNEL_LOADERS: dict[int, Callable[[], Callable[[Any, int], int]]] = {
    0x104C11DB7: _load_crc32,
    0x11EDC6F41: _load_crc32c,
}


class Checksum(msgspec.Struct, frozen=True, dict=True):
    """A reflected 32-bit CRC. `init` and `xorout`: the register's first value and the final xor (Rocksoft model).

    check: value for the ASCII string "123456789".
    """

    name: str
    poly: int
    init: int
    xorout: int
    check: int

    @cached_property
    def reference(self) -> Callable[[Buffer], int]:
        """The definition, computed by crcmod: slow; only used in checks."""
        import crcmod

        function = crcmod.mkCrcFun(self.poly, initCrc=self.init ^ self.xorout, xorOut=self.xorout, rev=True)
        if function(CHECK_INPUT) != self.check:
            raise AssertionError(f"the check value of {self.name} disagrees with its definition")
        return lambda data: int(function(bytes(data)))

    @cached_property
    def kernel(self) -> Callable[[Any, int], int]:
        """The kernel in the common convention, `f(data, start)`; `start` and `final` adapt it to this checksum."""
        kernel = _KERNEL_LOADERS[self.poly]()
        if not kernel(CHECK_INPUT, self.start) ^ self.final == self.check:
            raise AssertionError(f"checksum kernel of {self.name} disagrees with its definition")
        return kernel

    @property
    def start(self) -> int:
        """The start value for the kernel."""
        return self.init ^ _ONES

    @property
    def final(self) -> int:
        """The value to xor the kernel's result with."""
        return self.xorout ^ _ONES

    def __call__(self, data: Buffer) -> int:
        """Return the checksum of `data`."""
        return self.kernel(data, self.start) ^ self.final


CRC32 = Checksum("crc32", 0x104C11DB7, _ONES, _ONES, 0xCBF43926)
"""zlib's CRC-32 (Drizzle, Manticore, MySQL)."""

CRC32C = Checksum("crc32c", 0x11EDC6F41, _ONES, _ONES, 0xE3069283)
"""CRC-32C, Castagnoli (InnoDB pages)."""

CRC32C_RAW = Checksum("crc32c", 0x11EDC6F41, 0, 0, 0x58E3FA20)
"""CRC-32C with initial value 0 and no final xor (Tarantool, docs/spec/tarantool.md#blocks)."""
