"""Decoders generated from a schema on first use.

A format names the schema and the fields; the generator is `binlogtool.schema.decoders`, imported by name at the first
call, as formats must not import upper layers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from importlib import import_module
from typing import Any, Generic, TypeVar

from construct import BytesInteger, Construct, FormatField, IfThenElse, Renamed, SizeofError, Subconstruct

from binlogtool.formats.bodies import IfMore, Shown

_MAKER = "binlogtool.schema.decoders"

T = TypeVar("T")
K = TypeVar("K", bound=tuple[Any, ...])


class Derived(Generic[T]):
    """A decoder of the bytes of a body, generated at its first call."""

    __slots__ = ("_arguments", "_maker", "read")

    def __init__(self, maker: str, *arguments: Any) -> None:
        self._maker, self._arguments = maker, arguments
        self.read: Callable[..., T] = self._first

    def __call__(self, data: bytes) -> T:
        """Decode a body."""
        return self.read(data)

    def _first(self, *given: Any) -> T:
        return self.made()(*given)

    def made(self) -> Callable[..., T]:
        """Generate the decoder and return it."""
        self.read = getattr(import_module(_MAKER), self._maker)(*self._arguments)
        return self.read


def shown_of(shown: Shown) -> Derived[dict[str, Any]]:
    """Return a decoder of what `dump` shows of a body (and its parameters), as a dictionary.

    Raises:
        MalformedError: (when called) the body is too short for its declared content.
    """
    return Derived("decoder", shown)


def fields_of(schema: Construct, kind: type[K]) -> Derived[K]:
    """Return a decoder of some fields of a body into a named tuple, whose field names select them."""
    return Derived("fields_reader", schema, kind)


def tuple_of(schema: Construct, *names: str) -> Derived[tuple[Any, ...]]:
    """Return a decoder of two or more fields of a body into a tuple."""
    return Derived("fields_reader", schema, names)


def number_of(schema: Construct, name: str) -> Derived[int]:
    """Return a decoder of one integer field of a body."""
    return Derived("fields_reader", schema, name)


def list_of(schema: Construct, name: str, kind: type[K]) -> Derived[tuple[K, ...]]:
    """Return a decoder of one array field: its elements as named tuples, arrays inside of them as tuples of tuples."""
    return Derived("fields_reader", schema, name, kind)


def place_of(schema: Construct, name: str) -> int:
    """Return the offset of a field in a body, if all fields before it are always present and of fixed size.

    Raises:
        ValueError: there is no such field, or its offset is not fixed.
    """
    at = 0
    for sub in schema.subcons:
        if sub.name == name:
            return at
        at += _size_of(sub)
    raise ValueError(f"{name} is no field of this body")


def unpacker_of(schema: Construct, *names: str) -> Callable[..., tuple[Any, ...]]:
    """Return a function (buffer, offset of the structure) -> these fields, in the order of the structure.

    It reads no further than the last of them; all fields up to there must have fixed sizes. Bytes stay bytes, codes
    stay numbers. The function raises `struct.error` where the buffer is too short.

    Raises:
        ValueError: a field does not exist, or has no fixed offset or no struct code.
    """
    wanted, orders, text = set(names), set[str](), ""
    for sub in schema.subcons:
        if not wanted:
            break
        if sub.name in wanted:
            wanted.remove(sub.name)
            code = _code_of(sub)
            orders |= set(code[:1]) & {"<", ">"} if code[-1] not in "bB" else set()
            text += code.lstrip("<>=")
        else:
            text += f"{_size_of(sub)}x"
    if wanted or len(orders) > 1:
        raise ValueError(f"{', '.join(sorted(wanted)) or schema}: no fields of one byte order that stand in this body")
    return struct.Struct((orders.pop() if orders else "<") + text).unpack_from


def _code_of(sub: Any) -> str:
    """Return the byte order and type code of a field, as `struct` writes them."""
    while isinstance(sub, Subconstruct):
        sub = sub.subcon
    if isinstance(sub, BytesInteger):
        raise ValueError(f"an integer of {sub.length} bytes is none that struct knows")
    return str(sub.fmtstr) if isinstance(sub, FormatField) else f"{_size_of(sub)}s"


def _size_of(sub: Any) -> int:
    while isinstance(sub, Renamed | IfMore | IfThenElse):
        sub = sub.thensubcon if isinstance(sub, IfThenElse) else sub.subcon
    size = getattr(sub, "size", None)
    try:
        return size if isinstance(size, int) else int(sub.sizeof())
    except SizeofError as error:
        raise ValueError(str(error)) from None
