"""The dialects that share one magic and version, and the rule that tells them apart.

See docs/spec/eblob-binlog.md#5-other-dialects-same-magic-and-version-detect-by-content.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from construct import Construct

from binlogtool.formats.eblob import schema
from binlogtool.formats.eblob.schema import MAX_SIZE, RECORD_HEADER, RawType, UpdateType

Reader = Callable[[int, int], bytes]
"""`[offset, offset + size)` of the file, shorter at its end."""

MAX_LINKS = 1024
"""Records that are followed to tell the dialects apart."""

_RULED = 34
"""Bytes of a record header that its rules are about."""

_B_TYPES: Mapping[int, str] = MappingProxyType({1: "RAW_DATA"})
_SIZES = rb".{6}\0\0"
_ZERO = rb"\0{8}"
_KNOWN_TYPE = rb"[\x01-\x04]\0{7}"


class Dialect(msgspec.Struct, frozen=True):
    """One layout of the log.

    Attributes:
        name: the part after `--format eblob:`.
        record_header_size: size of a record header.
        parse_length: returns the bytes of metadata and data according to a record header; None if it is not one.
        sync: pattern of a record header, for at most 64 bytes.
        is_grouped: its records are those of a data-sort as specified, so they can be grouped and validated against
            each
            other.
    """

    name: str
    title: str
    schema: Construct
    header: Construct
    frames_at: int
    head: int
    types: Mapping[int, str]
    sync: bytes
    length: Callable[[bytes], int | None]
    grouped: bool = False
    byte_order: str = "little"


def _split_length(order: str, types: Mapping[int, str]) -> Callable[[bytes], int | None]:
    unpack = struct.Struct(f"{order}QQQQ").unpack_from

    def length(head: bytes) -> int | None:
        kind, meta_size, data_size, flags = unpack(head)
        fits = kind in types and not flags and meta_size <= MAX_SIZE and data_size <= MAX_SIZE
        return meta_size + data_size if fits else None

    return length


def _total_length(head: bytes) -> int | None:
    kind, size, meta_size, flags = struct.unpack_from("<QQQQ", head)
    fits = kind in _UPDATE_TYPES and not flags and meta_size <= size <= MAX_SIZE
    return int(size) if fits else None


def _origin_length(head: bytes) -> int | None:
    kind, size, flags = struct.unpack_from("<QQQ", head)
    return int(size) if kind in _UPDATE_TYPES and not flags and size <= MAX_SIZE else None


def _packed_length(head: bytes) -> int | None:
    kind, _, size, flags = struct.unpack_from("<HQQQ", head)
    return int(size) if kind in _PACKED_TYPES and flags < 1 << 16 and size <= MAX_SIZE else None


def _names(kinds: Any) -> Mapping[int, str]:
    return MappingProxyType({kind.value: kind.name for kind in kinds})


_RAW_TYPES = _names(RawType)
_UPDATE_TYPES = _names(UpdateType)
_PACKED_TYPES: Mapping[int, str] = MappingProxyType({number: f"TYPE_{number}" for number in (1, 2, 3)})


def _aligned(
    name: str, title: str, of: Construct, types: Mapping[int, str], sync: bytes, length: Any, **more: Any
) -> Dialect:
    """Create a dialect with the 256-byte header."""
    header = more.pop("header", schema.HEADER)
    return Dialect(name, title, of, header, schema.HEADER_SIZE, RECORD_HEADER, types, sync, length, **more)


def _packed(name: str, title: str, of: Construct, header: Construct, frames_at: int, head: int) -> Dialect:
    sync = rb"[\x01-\x03]\0.{8}" + _SIZES + rb".{2}\0{6}"
    return Dialect(name, title, of, header, frames_at, head, _PACKED_TYPES, sync, _packed_length)


B = _aligned(
    "b", "B, final (December 2012 to July 2013)", schema.RECORD, _B_TYPES,
    rb"\x01\0{7}" + _SIZES * 2 + _ZERO, _split_length("<", _B_TYPES), grouped=True,
)  # fmt: skip
B4 = _aligned(
    "b4", "B with types 1 to 4 (22 to 24 December 2012)", schema.RECORD_B4, _RAW_TYPES,
    _KNOWN_TYPE + _SIZES * 2 + _ZERO, _split_length("<", _RAW_TYPES),
)  # fmt: skip
A = _aligned(
    "a", "A, size includes metadata (October to December 2012)", schema.RECORD_A, _UPDATE_TYPES,
    rb"[\x01-\x03]\0{7}" + _SIZES * 2 + _ZERO, _total_length,
)  # fmt: skip
A0 = _aligned(
    "a0", "A0, with origin (23 October 2012)", schema.RECORD_A0, _UPDATE_TYPES,
    rb"[\x01-\x03]\0{7}" + _SIZES + _ZERO, _origin_length,
)  # fmt: skip
B_BE = _aligned(
    "b-be", "B, final, written by a big-endian machine", schema.RECORD_BE, _B_TYPES,
    rb"\0{7}\x01" + rb"\0\0.{6}" * 2 + _ZERO, _split_length(">", _B_TYPES),
    header=schema.HEADER_BE, byte_order="big", grouped=True,
)  # fmt: skip
P = _packed(
    "p", "P, packed, 255-byte header (October 2012)", schema.RECORD_P, schema.HEADER_PACKED,
    schema.PACKED_HEADER_SIZE, schema.PACKED_RECORD_HEADER,
)  # fmt: skip
P_FIRST = _packed(
    "p-257", "P, packed, 257-byte header (October 2012)", schema.RECORD_P, schema.HEADER_PACKED_FIRST,
    schema.FIRST_HEADER_SIZE, schema.PACKED_RECORD_HEADER,
)  # fmt: skip
P_STAMPED = _packed(
    "p-ts", "P, packed, 255-byte header, with time stamps (October 2012)", schema.RECORD_P_STAMPED,
    schema.HEADER_PACKED, schema.PACKED_HEADER_SIZE, schema.STAMPED_RECORD_HEADER,
)  # fmt: skip
P_STAMPED_FIRST = _packed(
    "p-ts-257", "P, packed, 257-byte header, with time stamps (October 2012)", schema.RECORD_P_STAMPED,
    schema.HEADER_PACKED_FIRST, schema.FIRST_HEADER_SIZE, schema.STAMPED_RECORD_HEADER,
)  # fmt: skip

DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {one.name: one for one in (B, B4, A, A0, B_BE, P, P_FIRST, P_STAMPED, P_STAMPED_FIRST)}
)
PACKED = (P, P_FIRST, P_STAMPED, P_STAMPED_FIRST)


class Chain(msgspec.Struct, frozen=True, order=True):
    """How far a dialect's rule leads from record to record.

    Attributes:
        complete: to the end of the file, to zeros, or as far as was followed.
        links: number of records.
        fits: nothing contradicts the rule (the last record may be torn).
        plain: no metadata and no data anywhere, so all rules with this record header agree.
        b4_records: records of a type that b lacks.
    """

    complete: bool
    links: int
    fits: bool
    plain: bool = True
    odd: int = 0


def follow(dialect: Dialect, read: Reader, size: int | None, at: int) -> Chain:
    """Follow record headers from `offset`.

    Args:
        size: of the file; None = unknown, then the end of what can be read counts as the end.
    """
    odd, plain = 0, True
    for links in range(MAX_LINKS):
        if at == size:
            return Chain(True, links, True, plain, odd)
        head = read(at, dialect.head)
        if len(head) < dialect.head:
            fits = len(head) < _RULED or dialect.length(head) is not None or not any(head)
            return Chain(size is None or not any(head), links, fits, plain, odd)
        if not any(head):
            return Chain(True, links, True, plain, odd)
        length = dialect.length(head)
        if length is None:
            return Chain(False, links, False, plain, odd)
        at += dialect.head + length
        if size is not None and at > size:
            return Chain(False, links, True, plain, odd)
        plain = plain and not length
        odd += _is_odd(dialect, head)
    return Chain(True, MAX_LINKS, True, plain, odd)


def _is_odd(dialect: Dialect, head: bytes) -> bool:
    return int.from_bytes(head[:2], "little") not in _B_TYPES and dialect.name == "b4"


class Choice(msgspec.Struct, frozen=True):
    """The dialect that fits.

    Attributes:
        doubt: which other dialects would fit; None = certain, or it does not matter.
        links: number of records of its chain.
    """

    dialect: Dialect
    doubt: str | None
    links: int


def choose(candidates: tuple[Dialect, ...], read: Reader, size: int | None, starts: Iterator[int]) -> Choice:
    """Choose the dialect whose chain leads on, from the first of the starts at which exactly one does.

    See docs/spec/eblob-binlog.md#5-other-dialects-same-magic-and-version-detect-by-content.

    Args:
        candidates: the preferred one first.
        starts: a start in the middle of the file counts if at least two records follow.
    """
    first: Choice | None = None
    for number, start in enumerate(starts):
        chains = [(follow(one, read, size, start or one.frames_at), one) for one in candidates]
        best = max(chain for chain, _ in chains)
        choice = _judged(best, [(chain, one) for chain, one in chains if _rivals(chain, best)])
        if choice.doubt is None and (number == 0 or best.links > 1):
            return choice
        first = first or choice
        if best.complete:
            break
    assert first is not None
    return first


def _rivals(chain: Chain, best: Chain) -> bool:
    """Check if a chain is as good as the best one, or differs from it only by a torn last record."""
    same = (chain.complete, chain.links, chain.fits) == (best.complete, best.links, best.fits)
    return same or (best.complete and chain.fits and 0 < best.links <= chain.links and not chain.plain)


def _judged(best: Chain, fitting: list[tuple[Chain, Dialect]]) -> Choice:
    """Choose the first of those whose chain is the best; the others are its rivals."""
    dialect = next(one for chain, one in fitting if chain.complete == best.complete)
    others = ", ".join(f"{one.name} ({one.title})" for _, one in fitting if one is not dialect)
    if not others or (best.complete and all(chain.plain for chain, _ in fitting)):
        return Choice(dialect, None, best.links)  # without content the dialects are the same
    if best.complete:
        return Choice(dialect, f"the chain of records fits {dialect.name} and also {others}", best.links)
    doubt = f"no dialect leads from the first record to the end; beside {dialect.name} it could be {others}"
    return Choice(dialect, doubt, best.links)
