"""Readers that are made of a schema when they are wanted first.

A format says what it wants of which schema; how that is made is the business of the floor above (`binlogtool.schema`),
which is asked for by its name at the first call: the one way up in the house.
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
    """A function of the bytes of a body; what it returns, and what it raises, its maker says."""

    __slots__ = ("_arguments", "_maker", "read")

    def __init__(self, maker: str, *arguments: Any) -> None:
        self._maker, self._arguments = maker, arguments
        self.read: Callable[..., T] = self._first

    def __call__(self, data: bytes) -> T:
        """Reads a body."""
        return self.read(data)

    def _first(self, *given: Any) -> T:
        return self.made()(*given)

    def made(self) -> Callable[..., T]:
        """The function itself."""
        self.read = getattr(import_module(_MAKER), self._maker)(*self._arguments)
        return self.read


def shown_of(shown: Shown) -> Derived[dict[str, Any]]:
    """What `dump` shows of a body (and of what is given beside it), as a dictionary.

    Raises:
        MalformedError: (when it is called) the body is too short for what it says.
    """
    return Derived("decoder", shown)


def fields_of(schema: Construct, kind: type[K]) -> Derived[K]:
    """Fields of a body as a named tuple, whose names say which; see `binlogtool.schema.decoders.fields_reader`."""
    return Derived("fields_reader", schema, kind)


def tuple_of(schema: Construct, *names: str) -> Derived[tuple[Any, ...]]:
    """Two or more fields of a body."""
    return Derived("fields_reader", schema, names)


def number_of(schema: Construct, name: str) -> Derived[int]:
    """The integer of this name of a body."""
    return Derived("fields_reader", schema, name)


def list_of(schema: Construct, name: str, kind: type[K]) -> Derived[tuple[K, ...]]:
    """The array of this name of a body, its elements as named tuples; arrays inside of them are tuples of tuples."""
    return Derived("fields_reader", schema, name, kind)


def place_of(schema: Construct, name: str) -> int:
    """Where a field of a body stands, if all fields before it are there and none of them differs in size.

    Raises:
        ValueError: there is no such field, or no such place.
    """
    at = 0
    for sub in schema.subcons:
        if sub.name == name:
            return at
        at += _size_of(sub)
    raise ValueError(f"{name} is no field of this body")


def unpacker_of(schema: Construct, *names: str) -> Callable[..., tuple[Any, ...]]:
    """A function of a buffer, and of where in it the structure begins: these fields, in the order that they stand in.

    It reads no further than the last of them. Only of structures whose fields up to there have fixed sizes; bytes are
    bytes, codes are numbers. It raises `struct.error` where the buffer is too short.

    Raises:
        ValueError: there is no such field, or it has no such place, or no such form.
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
    """Byte order and code of a field, as `struct` writes them."""
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
