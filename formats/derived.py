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

from binlogtool.formats.bodies import BodySchema, IfBytesLeft

_GENERATOR_MODULE = "binlogtool.schema.decoders"

T = TypeVar("T")
K = TypeVar("K", bound=tuple[Any, ...])


class LazyDecoder(Generic[T]):
    """A decoder of the bytes of a body, generated at its first call."""

    __slots__ = ("_arguments", "_generator_name", "read")

    def __init__(self, generator_name: str, *arguments: Any) -> None:
        self._generator_name, self._arguments = generator_name, arguments
        self.read: Callable[..., T] = self._build_and_call

    def __call__(self, data: bytes) -> T:
        """Decode a body."""
        return self.read(data)

    def _build_and_call(self, *arguments: Any) -> T:
        return self.build()(*arguments)

    def build(self) -> Callable[..., T]:
        """Generate the decoder and return it."""
        self.read = getattr(import_module(_GENERATOR_MODULE), self._generator_name)(*self._arguments)
        return self.read


def make_body_decoder(body: BodySchema) -> LazyDecoder[dict[str, Any]]:
    """Return a decoder of what `dump` shows of a body (and its parameters), as a dictionary.

    Raises:
        MalformedError: (when called) the body is too short for its declared content.
    """
    return LazyDecoder("make_decoder", body)


def make_fields_decoder(schema: Construct, result_type: type[K]) -> LazyDecoder[K]:
    """Return a decoder of some fields of a body into a named tuple, whose field names select them."""
    return LazyDecoder("make_fields_reader", schema, result_type)


def make_tuple_decoder(schema: Construct, *names: str) -> LazyDecoder[tuple[Any, ...]]:
    """Return a decoder of two or more fields of a body into a tuple."""
    return LazyDecoder("make_fields_reader", schema, names)


def make_integer_decoder(schema: Construct, name: str) -> LazyDecoder[int]:
    """Return a decoder of one integer field of a body."""
    return LazyDecoder("make_fields_reader", schema, name)


def make_list_decoder(schema: Construct, name: str, element_type: type[K]) -> LazyDecoder[tuple[K, ...]]:
    """Return a decoder of one array field: its elements as named tuples, arrays inside of them as tuples of tuples."""
    return LazyDecoder("make_fields_reader", schema, name, element_type)


def field_offset(schema: Construct, name: str) -> int:
    """Return the offset of a field in a body, if all fields before it are always present and of fixed size.

    Raises:
        ValueError: there is no such field, or its offset is not fixed.
    """
    offset = 0
    for subcon in schema.subcons:
        if subcon.name == name:
            return offset
        offset += _fixed_size(subcon)
    raise ValueError(f"{name} is no field of this body")


def make_unpacker(schema: Construct, *names: str) -> Callable[..., tuple[Any, ...]]:
    """Return a function (buffer, offset of the structure) -> these fields, in the order of the structure.

    It reads no further than the last of them; all fields up to there must have fixed sizes. Bytes stay bytes, codes
    stay numbers. The function raises `struct.error` where the buffer is too short.

    Raises:
        ValueError: a field does not exist, or has no fixed offset or no struct code.
    """
    remaining_names, byte_orders, struct_format = set(names), set[str](), ""
    for subcon in schema.subcons:
        if not remaining_names:
            break
        if subcon.name in remaining_names:
            remaining_names.remove(subcon.name)
            code = _struct_code(subcon)
            byte_orders |= set(code[:1]) & {"<", ">"} if code[-1] not in "bB" else set()
            struct_format += code.lstrip("<>=")
        else:
            struct_format += f"{_fixed_size(subcon)}x"
    if remaining_names or len(byte_orders) > 1:
        raise ValueError(
            f"{', '.join(sorted(remaining_names)) or schema}: no fields of one byte order that stand in this body"
        )
    return struct.Struct((byte_orders.pop() if byte_orders else "<") + struct_format).unpack_from


def _struct_code(subcon: Any) -> str:
    """Return the byte order and type code of a field, as `struct` writes them."""
    while isinstance(subcon, Subconstruct):
        subcon = subcon.subcon
    if isinstance(subcon, BytesInteger):
        raise ValueError(f"an integer of {subcon.length} bytes is none that struct knows")
    return str(subcon.fmtstr) if isinstance(subcon, FormatField) else f"{_fixed_size(subcon)}s"


def _fixed_size(subcon: Any) -> int:
    while isinstance(subcon, Renamed | IfBytesLeft | IfThenElse):
        subcon = subcon.thensubcon if isinstance(subcon, IfThenElse) else subcon.subcon
    size = getattr(subcon, "size", None)
    try:
        return size if isinstance(size, int) else int(subcon.sizeof())
    except SizeofError as error:
        raise ValueError(str(error)) from None
