"""Generated functions that become C, run as Python: a byte that is read or written outside of its array is an error."""

from __future__ import annotations

import ast
from functools import cache
from typing import Any

from binlogtool.format_api.schema_fields import BodySchema
from binlogtool.schema import native_library
from binlogtool.schema.json_body_codegen import generate_json_body
from binlogtool.schema.program import U64, wrap_int64


class Pointer:
    """An address in an array."""

    def __init__(self, array: Any, at: int = 0) -> None:
        self.array, self.at = array, at

    def __add__(self, more: int) -> Pointer:
        return Pointer(self.array, self.at + more)

    def __getitem__(self, index: int) -> int:
        return int(self.array[self.inside(index)])

    def __setitem__(self, index: int, value: int) -> None:
        self.array[self.inside(index)] = value

    def inside(self, index: int, size: int = 1) -> int:
        if not 0 <= self.at + index <= len(self.array) - size:
            raise IndexError(self.at + index)
        return self.at + index

    def load(self, size: int, order: Any, is_signed: bool) -> int:
        at = self.inside(0, size)
        return int.from_bytes(self.array[at : at + size], order, signed=is_signed)


def _loader(size: int, order: str, is_signed: bool) -> Any:
    return lambda pointer: pointer.load(size, order or "little", is_signed)


def _store(pointer: Pointer, value: int) -> None:
    at = pointer.inside(0, 8)
    pointer.array[at : at + 8] = (value & U64).to_bytes(8, "little")


RUNTIME: dict[str, Any] = {
    f"load_{kind}{size}{'_' + order if order else ''}": _loader(size, order, kind == "i")
    for kind in "ui"
    for size in (1, 2, 4, 8)
    for order in ("", "little", "big")
} | {"store_i8_little": _store, "int64": wrap_int64, "uint64": lambda value: value & U64}


@cache
def json_writer(shown: BodySchema) -> Any:
    """The function of `schema.json_bodies`."""
    kernels = native_library.KernelNames()
    name, text = generate_json_body(shown, kernels)
    space = RUNTIME | kernels.functions
    exec(compile(ast.parse(text), name, "exec"), space)
    for table in [one for one in space if one.startswith("TABLE_")]:
        space[table] = Pointer(memoryview(b"".join((word & U64).to_bytes(8, "little") for word in space[table])))
    return space[name]


def json_of(shown: BodySchema, body: bytes, *given: int, room: int = 1 << 14) -> bytes | int:
    """What it writes of a body into so much room, or why it does not."""
    out = bytearray(room)
    end = json_writer(shown)(Pointer(body), 0, len(body), *given, Pointer(out), 0, room)
    return end if end < 0 else bytes(out[:end])
