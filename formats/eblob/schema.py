"""The eblob binlog on disk: file headers, records of all dialects, and the data of a data-sort.

Source: eblob, library/binlog.h and library/binlog.c between October 2012 and July 2013, and library/blob.h for the
structures of the data file. See docs/spec/eblob.md.
"""

from __future__ import annotations

import enum
from typing import Any

from construct import (
    Bytes,
    Check,
    Computed,
    Construct,
    Int16ub,
    Int16ul,
    Int32sl,
    Int64sb,
    Int64sl,
    Int64ub,
    Int64ul,
    Pass,
    Select,
    Struct,
    Switch,
    this,
)

from binlogtool.format_api.schema_fields import Magic, NestedSchema

MAGIC = b"1337833\0"
PACKED_MAGIC = b"\x13\x37\xb3\x3f\0"
VERSION = 1
HEADER_SIZE = 256
PACKED_HEADER_SIZE = 255
FIRST_PACKED_HEADER_SIZE = 257
"""Size of the header in the first days of the packed dialect."""

RECORD_HEADER_SIZE = 128
PACKED_RECORD_HEADER_SIZE = 26
STAMPED_RECORD_HEADER_SIZE = 34

MAX_SIZE = 1 << 56
"""Upper limit of a size field: far beyond any file, so that no sum of sizes overflows 64 bits."""

TARGET_SIZE = 8
REMOVE_SIZE = 8
FOOTER_SIZE = 72
CONTROL_SIZE = 96
WRITE_CONTROL_SIZE = 88
HASH_SIZE = 64


class HeaderFlag(enum.IntFlag):
    """Flags of the file header, in their final numbering. See docs/spec/eblob.md#file-header."""

    PREALLOCATE = 1
    SYNC = 2
    TRUNCATE = 4


class ControlFlag(enum.IntFlag):
    """Flags of a record of the data file (`BLOB_DISK_CTL_*`)."""

    REMOVE = 1
    NOCSUM = 2
    COMPRESS = 4
    WRITE_RETURN = 8
    APPEND = 16
    OVERWRITE = 32
    EXTHDR = 64
    UNCOMMITTED = 128
    CHUNKED_CSUM = 256


class RawType(enum.IntEnum):
    """Record types of dialect b4; the final dialect b has only RAW_DATA, under number 1."""

    UPDATE = 1
    REMOVE = 2
    RAW_INDEX = 3
    RAW_DATA = 4


class UpdateType(enum.IntEnum):
    """Record types of dialects a and a0."""

    UPDATE = 1
    REMOVE = 2
    REMOVE_ALL = 3


HEADER = Struct(
    "magic" / Bytes(8),
    "version" / Int16ul,
    "pad1" / Bytes(6),
    "flags" / Int64ul,
    "pad2" / Bytes(232),
)
"""File header (docs/spec/eblob.md#file-header). Its rules are checked by `layout`, so that the records of a file with a
wrong header can still be read.
"""

HEADER_BE = Struct(
    "magic" / Bytes(8),
    "version" / Int16ub,
    "pad1" / Bytes(6),
    "flags" / Int64ub,
    "pad2" / Bytes(232),
)
"""File header as written by a big-endian machine (docs/spec/eblob.md#byte-order)."""


def _packed_header_construct(size: int) -> Struct:
    return Struct("magic" / Bytes(5), "version" / Int16ul, "flags" / Int64ul, "pad" / Bytes(size - 15))


HEADER_PACKED = _packed_header_construct(PACKED_HEADER_SIZE)
HEADER_PACKED_FIRST = _packed_header_construct(FIRST_PACKED_HEADER_SIZE)
"""Headers of dialect p (docs/spec/eblob.md#other-dialects)."""

TARGET = Struct("target_offset" / Int64ul)
TARGET_BE = Struct("target_offset" / Int64ub)
"""Metadata of a data-sort record: the offset in the unsorted data file at which the data was written."""

REMOVE = Struct("flags" / Magic(Int64ul, REMOVE=ControlFlag.REMOVE))
"""Data of a removal: the flags field of the disk control; all other bits are wiped."""


def _target_offset(context: Any) -> int:
    """Return the target offset in the metadata of the enclosing record."""
    return int.from_bytes(context._.metadata, "little")


def _is_own_control(context: Any) -> bool:
    """Return whether it is the control block of the record's key, at the offset that it names itself."""
    return bool(context.key == context._.key and context.position == _target_offset(context))


def _is_after_record_start(context: Any) -> bool:
    """Return whether the footer was written after the control block of the record that it points to."""
    return bool(context.record_start + CONTROL_SIZE <= _target_offset(context))


CONTROL = Struct(
    "key" / Bytes(64),
    "flags" / Int64ul,
    "data_size" / Int64ul,
    "disk_size" / Int64ul,
    "position" / Int64ul,
)
"""eblob_disk_control, the head of a record in the data file; always little-endian."""

FOOTER = Struct("sha512" / Bytes(HASH_SIZE), "record_start" / Int64ul)
"""End of a record in the data file; the hash is zero if the record has no checksum."""

OWN_CONTROL = Struct(*CONTROL.subcons, Check(_is_own_control))
LIKELY_FOOTER = Struct(*FOOTER.subcons, Check(_is_after_record_start))

WRITE_CONTROL = Struct(
    "size" / Int64ul,
    "offset" / Int64ul,
    "flags" / Int64ul,
    "type" / Int32sl,
    "index" / Int32sl,
    "data_fd" / Int32sl,
    "index_fd" / Int32sl,
    "data_offset" / Int64ul,
    "ctl_data_offset" / Int64ul,
    "ctl_index_offset" / Int64ul,
    "total_size" / Int64ul,
    "total_data_size" / Int64ul,
    "on_disk" / Int32sl,
    "padding" / Bytes(4),
)
"""eblob_write_control as in the memory of a 64-bit machine: metadata of an update in dialect a
(docs/spec/eblob.md#other-dialects).
"""

METADATA = Switch(this.meta_size, {TARGET_SIZE: TARGET, WRITE_CONTROL_SIZE: WRITE_CONTROL})
DATA = Switch(
    this.data_size,
    {
        REMOVE_SIZE: Select(REMOVE, Pass),
        FOOTER_SIZE: Select(LIKELY_FOOTER, Pass),
        CONTROL_SIZE: Select(OWN_CONTROL, Pass),
    },
)
"""Data structures that the record alone reveals; others depend on `eblob.classify_overwrites_and_removals`."""


def _key_fields(integer: Construct) -> tuple[Construct, ...]:
    """Return the key and padding of a record header."""
    return (
        "key" / Bytes(64),
        "pad" / Struct("word0" / integer, "word1" / integer, "word2" / integer, "word3" / integer),
        "pad_bits" / Computed(this.pad.word0 | this.pad.word1 | this.pad.word2 | this.pad.word3),
    )


_BODY_FIELDS = (
    "metadata" / NestedSchema(Bytes(this.meta_size), METADATA),
    "data" / NestedSchema(Bytes(this.data_size), DATA),
)


def _split_size_record(unsigned: Construct, signed: Construct, **types: int) -> Struct:
    """Return a record with the sizes of its metadata and its data. In eblob's memory sizes are signed.

    See docs/spec/eblob.md#records.
    """
    return Struct(
        "type" / Magic(unsigned, **types),
        "meta_size" / signed,
        "data_size" / signed,
        "flags" / signed,
        Check(this.flags == 0),
        *_size_checks(this.meta_size),
        *_size_checks(this.data_size),
        *_key_fields(signed),
        *_BODY_FIELDS,
    )


def _total_size_record(unsigned: Construct, signed: Construct) -> Struct:
    """Return a record of dialect a, with its total size and the size of its metadata."""
    return Struct(
        "type" / Magic(unsigned, **{kind.name: kind.value for kind in UpdateType}),
        "size" / signed,
        "meta_size" / signed,
        "flags" / signed,
        Check(this.flags == 0),
        *_size_checks(this.size),
        *_size_checks(this.meta_size),
        Check(this.meta_size <= this.size),
        "data_size" / Computed(this.size - this.meta_size),
        *_key_fields(signed),
        *_BODY_FIELDS,
    )


def _size_checks(size: Any) -> tuple[Construct, ...]:
    return Check(size >= 0), Check(size <= MAX_SIZE)


RECORD = _split_size_record(Int64ul, Int64sl, RAW_DATA=1)
"""Record of dialect b, the final one."""

RECORD_BE = _split_size_record(Int64ub, Int64sb, RAW_DATA=1)
"""Record of dialect b, written by a big-endian machine."""

TARGETED_RECORD = Struct(*RECORD.subcons[: -len(_BODY_FIELDS)], *TARGET.subcons)
TARGETED_RECORD_BE = Struct(*RECORD_BE.subcons[: -len(_BODY_FIELDS)], *TARGET_BE.subcons)
"""Record of dialect b up to and including its metadata, which is a target offset."""


def _prefix_fields(prefix: str, schema: Struct) -> tuple[Construct, ...]:
    return tuple(f"{prefix}_{field.name}" / field for field in schema.subcons if field.name)


OVERWRITE_ENDING = Struct(
    *_prefix_fields("footer", TARGETED_RECORD),
    *_prefix_fields("footer", FOOTER),
    *_prefix_fields("control", TARGETED_RECORD),
    *_prefix_fields("own", CONTROL),
)
"""End of an overwrite: a footer record, then the control record."""

RECORD_B4 = _split_size_record(Int64ul, Int64sl, **{kind.name: kind.value for kind in RawType})
"""Record of dialect b4: the layout of b, with four types."""

RECORD_A = _total_size_record(Int64ul, Int64sl)
"""Record of dialect a."""

RECORD_A0 = Struct(
    "type" / Magic(Int64ul, **{kind.name: kind.value for kind in UpdateType}),
    "size" / Int64sl,
    "flags" / Int64sl,
    "origin" / Int64ul,
    Check(this.flags == 0),
    *_size_checks(this.size),
    *_key_fields(Int64sl),
    "meta_size" / Computed(0),
    "data_size" / Computed(this.size),
    "data" / Bytes(this.size),
)
"""Record of dialect a0, which was used for some hours: `origin` is the original offset of the data."""


def _packed_record(*extra_fields: Construct) -> Struct:
    return Struct(
        "type" / Magic(Int16ul, **{f"TYPE_{number}": number for number in (1, 2, 3)}),
        "key" / Int64ul,
        "size" / Int64ul,
        "flags" / Int64ul,
        *extra_fields,
        Check(this.size <= MAX_SIZE),
        "pad_bits" / Computed(0),
        "meta_size" / Computed(0),
        "data_size" / Computed(this.size),
        "data" / Bytes(this.size),
    )


RECORD_P = _packed_record()
"""Record of dialect p: `key` is an offset in the backing file; the three types changed meaning within days."""

RECORD_P_STAMPED = _packed_record("timestamp" / Int64ul)
"""Record of dialect p in its first days."""
