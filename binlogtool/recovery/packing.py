"""Sequences of very many structs: each is kept as MessagePack where that takes less memory, and decoded on access."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, TypeVar, overload

import msgspec
from msgspec.structs import astuple

S = TypeVar("S", bound=msgspec.Struct)


def pack_struct(value: msgspec.Struct, replacements: Mapping[int, Any] = MappingProxyType({})) -> bytes | None:
    """Encode the members of a struct; None if they cannot be encoded.

    Args:
        replacements: Values to encode in place of members, by the member's index.
    """
    members = [replacements.get(number, member) for number, member in enumerate(astuple(value))]
    try:
        return msgspec.msgpack.encode(members, enc_hook=dict)  # a mapping that is not a dictionary
    except (TypeError, ValueError, OverflowError):  # details that JSON cannot express
        return None


class CompactList(Sequence[S], Generic[S]):
    """An immutable sequence of structs; subclasses define what is packed, and how."""

    __slots__ = ("_kept",)

    def __init__(self, values: Iterable[S | bytes] = ()) -> None:
        self._kept = tuple(map(self.pack, values))

    @staticmethod
    @abstractmethod
    def pack(value: S | bytes, /) -> S | bytes:
        """Return the value as it is kept: packed, or unchanged."""

    @staticmethod
    @abstractmethod
    def unpack(packed_value: S | bytes, /) -> S:
        """Return the value."""

    @property
    def packed_values(self) -> Sequence[S | bytes]:
        """The values as they are kept."""
        return self._kept

    @overload
    def __getitem__(self, index: int) -> S: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[S, ...]: ...

    def __getitem__(self, index: int | slice) -> S | tuple[S, ...]:
        return (
            tuple(map(self.unpack, self._kept[index])) if isinstance(index, slice) else self.unpack(self._kept[index])
        )

    def __iter__(self) -> Iterator[S]:
        return map(self.unpack, self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(self._kept)

    def __repr__(self) -> str:
        return repr(tuple(self))
