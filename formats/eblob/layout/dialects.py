"""The dialects that share one magic and version, and the rule that tells them apart.

See docs/spec/eblob.md#other-dialects.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from construct import Construct

from binlogtool.formats.eblob import schema
from binlogtool.formats.eblob.schema import MAX_SIZE, RECORD_HEADER_SIZE, RawType, UpdateType

ReadRange = Callable[[int, int], bytes]
"""`[offset, offset + size)` of the file, shorter at its end."""

MAX_CHAIN_RECORDS = 1024
"""Records that are followed to tell the dialects apart."""

_RULED_BYTES = 34
"""Bytes of a record header that its rules are about."""

_B_TYPES: Mapping[int, str] = MappingProxyType({1: "RAW_DATA"})
_SIZE_PATTERN = rb".{6}\0\0"
_ZERO_PATTERN = rb"\0{8}"
_TYPE_PATTERN = rb"[\x01-\x04]\0{7}"


class EblobDialect(msgspec.Struct, frozen=True):
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
    record_header_size: int
    types: Mapping[int, str]
    sync: bytes
    parse_length: Callable[[bytes], int | None]
    is_grouped: bool = False
    byte_order: str = "little"


def _make_split_length_parser(order: str, types: Mapping[int, str]) -> Callable[[bytes], int | None]:
    unpack = struct.Struct(f"{order}QQQQ").unpack_from

    def parse_length(head: bytes) -> int | None:
        record_type, meta_size, data_size, flags = unpack(head)
        fits = record_type in types and not flags and meta_size <= MAX_SIZE and data_size <= MAX_SIZE
        return meta_size + data_size if fits else None

    return parse_length


def _parse_total_length(head: bytes) -> int | None:
    record_type, size, meta_size, flags = struct.unpack_from("<QQQQ", head)
    fits = record_type in _UPDATE_TYPES and not flags and meta_size <= size <= MAX_SIZE
    return int(size) if fits else None


def _parse_origin_length(head: bytes) -> int | None:
    record_type, size, flags = struct.unpack_from("<QQQ", head)
    return int(size) if record_type in _UPDATE_TYPES and not flags and size <= MAX_SIZE else None


def _parse_packed_length(head: bytes) -> int | None:
    record_type, _, size, flags = struct.unpack_from("<HQQQ", head)
    return int(size) if record_type in _PACKED_TYPES and flags < 1 << 16 and size <= MAX_SIZE else None


def _type_names(kinds: Any) -> Mapping[int, str]:
    return MappingProxyType({kind.value: kind.name for kind in kinds})


_RAW_TYPES = _type_names(RawType)
_UPDATE_TYPES = _type_names(UpdateType)
_PACKED_TYPES: Mapping[int, str] = MappingProxyType({number: f"TYPE_{number}" for number in (1, 2, 3)})


def _make_aligned_dialect(
    name: str, title: str, schema_: Construct, types: Mapping[int, str], sync: bytes, length: Any, **options: Any
) -> EblobDialect:
    """Create a dialect with the 256-byte header."""
    header = options.pop("header", schema.HEADER)
    return EblobDialect(
        name, title, schema_, header, schema.HEADER_SIZE, RECORD_HEADER_SIZE, types, sync, length, **options
    )


def _make_packed_dialect(
    name: str, title: str, schema_: Construct, header: Construct, frames_at: int, record_header_size: int
) -> EblobDialect:
    sync = rb"[\x01-\x03]\0.{8}" + _SIZE_PATTERN + rb".{2}\0{6}"
    return EblobDialect(
        name, title, schema_, header, frames_at, record_header_size, _PACKED_TYPES, sync, _parse_packed_length
    )


DIALECT_B = _make_aligned_dialect(
    "b", "B, final (December 2012 to July 2013)", schema.RECORD, _B_TYPES,
    rb"\x01\0{7}" + _SIZE_PATTERN * 2 + _ZERO_PATTERN, _make_split_length_parser("<", _B_TYPES), is_grouped=True,
)  # fmt: skip
DIALECT_B4 = _make_aligned_dialect(
    "b4", "B with types 1 to 4 (22 to 24 December 2012)", schema.RECORD_B4, _RAW_TYPES,
    _TYPE_PATTERN + _SIZE_PATTERN * 2 + _ZERO_PATTERN, _make_split_length_parser("<", _RAW_TYPES),
)  # fmt: skip
DIALECT_A = _make_aligned_dialect(
    "a", "A, size includes metadata (October to December 2012)", schema.RECORD_A, _UPDATE_TYPES,
    rb"[\x01-\x03]\0{7}" + _SIZE_PATTERN * 2 + _ZERO_PATTERN, _parse_total_length,
)  # fmt: skip
DIALECT_A0 = _make_aligned_dialect(
    "a0", "A0, with origin (23 October 2012)", schema.RECORD_A0, _UPDATE_TYPES,
    rb"[\x01-\x03]\0{7}" + _SIZE_PATTERN + _ZERO_PATTERN, _parse_origin_length,
)  # fmt: skip
DIALECT_B_BE = _make_aligned_dialect(
    "b-be", "B, final, written by a big-endian machine", schema.RECORD_BE, _B_TYPES,
    rb"\0{7}\x01" + rb"\0\0.{6}" * 2 + _ZERO_PATTERN, _make_split_length_parser(">", _B_TYPES),
    header=schema.HEADER_BE, byte_order="big", is_grouped=True,
)  # fmt: skip
DIALECT_P = _make_packed_dialect(
    "p", "P, packed, 255-byte header (October 2012)", schema.RECORD_P, schema.HEADER_PACKED,
    schema.PACKED_HEADER_SIZE, schema.PACKED_RECORD_HEADER_SIZE,
)  # fmt: skip
DIALECT_P_FIRST = _make_packed_dialect(
    "p-257", "P, packed, 257-byte header (October 2012)", schema.RECORD_P, schema.HEADER_PACKED_FIRST,
    schema.FIRST_PACKED_HEADER_SIZE, schema.PACKED_RECORD_HEADER_SIZE,
)  # fmt: skip
DIALECT_P_STAMPED = _make_packed_dialect(
    "p-ts", "P, packed, 255-byte header, with time stamps (October 2012)", schema.RECORD_P_STAMPED,
    schema.HEADER_PACKED, schema.PACKED_HEADER_SIZE, schema.STAMPED_RECORD_HEADER_SIZE,
)  # fmt: skip
DIALECT_P_STAMPED_FIRST = _make_packed_dialect(
    "p-ts-257", "P, packed, 257-byte header, with time stamps (October 2012)", schema.RECORD_P_STAMPED,
    schema.HEADER_PACKED_FIRST, schema.FIRST_PACKED_HEADER_SIZE, schema.STAMPED_RECORD_HEADER_SIZE,
)  # fmt: skip

DIALECTS: Mapping[str, EblobDialect] = MappingProxyType(
    {
        one.name: one
        for one in (
            DIALECT_B,
            DIALECT_B4,
            DIALECT_A,
            DIALECT_A0,
            DIALECT_B_BE,
            DIALECT_P,
            DIALECT_P_FIRST,
            DIALECT_P_STAMPED,
            DIALECT_P_STAMPED_FIRST,
        )
    }
)
PACKED_DIALECTS = (DIALECT_P, DIALECT_P_FIRST, DIALECT_P_STAMPED, DIALECT_P_STAMPED_FIRST)


class RecordChain(msgspec.Struct, frozen=True, order=True):
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
    b4_records: int = 0


def follow_records(dialect: EblobDialect, read: ReadRange, size: int | None, offset: int) -> RecordChain:
    """Follow record headers from `offset`.

    Args:
        size: of the file; None = unknown, then the end of what can be read counts as the end.
    """
    b4_records, is_plain = 0, True
    for links in range(MAX_CHAIN_RECORDS):
        if offset == size:
            return RecordChain(True, links, True, is_plain, b4_records)
        head = read(offset, dialect.record_header_size)
        if len(head) < dialect.record_header_size:
            fits = len(head) < _RULED_BYTES or dialect.parse_length(head) is not None or not any(head)
            return RecordChain(size is None or not any(head), links, fits, is_plain, b4_records)
        if not any(head):
            return RecordChain(True, links, True, is_plain, b4_records)
        length = dialect.parse_length(head)
        if length is None:
            return RecordChain(False, links, False, is_plain, b4_records)
        offset += dialect.record_header_size + length
        if size is not None and offset > size:
            return RecordChain(False, links, True, is_plain, b4_records)
        is_plain = is_plain and not length
        b4_records += _is_b4_record(dialect, head)
    return RecordChain(True, MAX_CHAIN_RECORDS, True, is_plain, b4_records)


def _is_b4_record(dialect: EblobDialect, head: bytes) -> bool:
    return int.from_bytes(head[:2], "little") not in _B_TYPES and dialect.name == "b4"


class DialectChoice(msgspec.Struct, frozen=True):
    """The dialect that fits.

    Attributes:
        doubt: which other dialects would fit; None = certain, or it does not matter.
        links: number of records of its chain.
    """

    dialect: EblobDialect
    doubt: str | None
    links: int


def choose_dialect(
    candidates: tuple[EblobDialect, ...], read: ReadRange, size: int | None, starts: Iterator[int]
) -> DialectChoice:
    """Choose the dialect whose chain leads on, from the first of the starts at which exactly one does.

    See docs/spec/eblob.md#other-dialects.

    Args:
        candidates: the preferred one first.
        starts: a start in the middle of the file counts if at least two records follow.
    """
    first: DialectChoice | None = None
    for number, start in enumerate(starts):
        chains = [(follow_records(one, read, size, start or one.frames_at), one) for one in candidates]
        best = max(chain for chain, _ in chains)
        choice = _make_choice(best, [(chain, one) for chain, one in chains if _is_rival(chain, best)])
        if choice.doubt is None and (number == 0 or best.links > 1):
            return choice
        first = first or choice
        if best.complete:
            break
    assert first is not None
    return first


def _is_rival(chain: RecordChain, best: RecordChain) -> bool:
    """Check if a chain is as good as the best one, or differs from it only by a torn last record."""
    is_equal = (chain.complete, chain.links, chain.fits) == (best.complete, best.links, best.fits)
    return is_equal or (best.complete and chain.fits and 0 < best.links <= chain.links and not chain.plain)


def _make_choice(best: RecordChain, fitting: list[tuple[RecordChain, EblobDialect]]) -> DialectChoice:
    """Choose the first of those whose chain is the best; the others are its rivals."""
    dialect = next(one for chain, one in fitting if chain.complete == best.complete)
    others = ", ".join(f"{one.name} ({one.title})" for _, one in fitting if one is not dialect)
    if not others or (best.complete and all(chain.plain for chain, _ in fitting)):
        return DialectChoice(dialect, None, best.links)  # without content the dialects are the same
    if best.complete:
        return DialectChoice(dialect, f"the chain of records fits {dialect.name} and also {others}", best.links)
    doubt = f"no dialect leads from the first record to the end; beside {dialect.name} it could be {others}"
    return DialectChoice(dialect, doubt, best.links)
