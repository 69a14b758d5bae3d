"""Schemas of the GTID events: the bytes between common header and checksum.

Source: docs/spec/mysql_binlog.md#event-bodies.
"""

from __future__ import annotations

from construct import (
    Array,
    Bytes,
    BytesInteger,
    Computed,
    Construct,
    FlagsEnum,
    GreedyBytes,
    If,
    IfThenElse,
    Int8ul,
    Int32sl,
    Int32ul,
    Int64sl,
    Int64ul,
    Struct,
    this,
)

from binlogtool.formats.binlog_events.gtid.tagged import TaggedMessage, TaggedTagSize
from binlogtool.formats.binlog_events.wire.fields import Lenenc
from binlogtool.formats.bodies import (
    BoundedCount,
    FieldPresent,
    HiddenField,
    HighBitInt,
    HighBitSet,
    IfBytesLeft,
    PeekInt,
    SplitInt,
    TextField,
    Uuid,
    ZeroMeansAbsent,
    make_flag_condition,
)

# -- GTIDs of MySQL ----------------------------------------------------------------------------------------------------


def _original_or_immediate(immediate: str, original: Construct) -> Construct:
    """Return the field of the original server, stored only if it differs from the immediate one."""
    return If(FieldPresent(immediate), IfThenElse(HighBitSet(immediate), original, Computed(this[immediate])))


GTID_LOG = Struct(
    "flags" / FlagsEnum(Int8ul, MAY_HAVE_SBR=1),
    "sid" / Uuid(),
    "gno" / Int64sl,
    "lt_type" / IfBytesLeft(Int8ul),
    "last_committed" / If(FieldPresent("lt_type"), Int64sl),
    "sequence_number" / If(FieldPresent("lt_type"), Int64sl),
    "immediate_commit_timestamp" / IfBytesLeft(HighBitInt(7)),
    "original_commit_timestamp" / _original_or_immediate("immediate_commit_timestamp", BytesInteger(7, swapped=True)),
    "transaction_length" / IfBytesLeft(Lenenc()),
    "immediate_server_version" / IfBytesLeft(HighBitInt(4)),
    "original_server_version" / _original_or_immediate("immediate_server_version", Int32ul),
    "commit_group_ticket" / IfBytesLeft(Int64ul),
)
"""5.6 ends behind gno, 5.7 behind sequence_number, 8.0 behind a server version."""

GTID_TAGGED_LOG = Struct("message" / TaggedMessage())


_SOURCE = Struct(
    "sid" / Uuid(),
    "tag_len" / HiddenField(IfThenElse(this._.tagged, TaggedTagSize(), Computed(0))),
    "tag" / TextField(Bytes(this.tag_len)),
    "n_intervals" / BoundedCount(Int64ul, 16, "intervals"),
    "intervals" / Array(this.n_intervals, Struct("start" / Int64sl, "end" / Int64sl)),
)

PREVIOUS_GTIDS = Struct(
    "head" / PeekInt(Int64ul),
    "tagged" / HiddenField(Computed((this.head & 0xFF == 1) & (this.head >> 56 == 1))),
    "format" / HiddenField(If(this.tagged, Int8ul)),
    "n_sids"
    / IfThenElse(
        this.tagged, BoundedCount(BytesInteger(6, swapped=True), 25, "sources"), BoundedCount(Int64ul, 24, "sources")
    ),
    "format_end" / HiddenField(If(this.tagged, Int8ul)),
    "sids" / Array(this.n_sids, _SOURCE),
)
"""With tags, 1 stands before and behind the number of sources, which has six bytes then."""

# -- GTIDs of MariaDB --------------------------------------------------------------------------------------------------


GTID = Struct(
    "seq_no" / Int64ul,
    "domain_id" / Int32ul,
    "flags2"
    / FlagsEnum(
        Int8ul, STANDALONE=1, GROUP_COMMIT_ID=2, TRANSACTIONAL=4, ALLOW_PARALLEL=8, WAITED=16, DDL=32,
        PREPARED_XA=64, COMPLETED_XA=128,
    ),
    "commit_id" / If(make_flag_condition("flags2", "GROUP_COMMIT_ID"), Int64ul),
    "xid"
    / If(
        make_flag_condition("flags2", "PREPARED_XA", "COMPLETED_XA"),
        Struct(
            "format_id" / Int32sl,
            "gtrid_len" / HiddenField(Int8ul),
            "bqual_len" / HiddenField(Int8ul),
            "gtrid" / TextField(Bytes(this.gtrid_len)),
            "bqual" / TextField(Bytes(this.bqual_len)),
        ),
    ),
    "flags_extra"
    / ZeroMeansAbsent(
        IfBytesLeft(FlagsEnum(Int8ul, MULTI_ENGINE=1, START_ALTER=2, COMMIT_ALTER=4, ROLLBACK_ALTER=8, THREAD_ID=16))
    ),
    "extra_engines" / If(make_flag_condition("flags_extra", "MULTI_ENGINE"), Int8ul),
    "start_alter_seq" / If(make_flag_condition("flags_extra", "COMMIT_ALTER", "ROLLBACK_ALTER"), Int64ul),
    "thread_id" / If(make_flag_condition("flags_extra", "THREAD_ID"), Int32ul),
    "padding" / HiddenField(IfBytesLeft(GreedyBytes)),
)  # fmt: skip

_LISTED = Struct("domain_id" / Int32ul, "server_id" / Int32ul, "seq_no" / Int64ul)

_COUNT_BITS = 28

GTID_LIST = Struct(
    "head" / PeekInt(Int32ul),
    "flags" / Computed(this.head >> _COUNT_BITS),
    "count" / BoundedCount(SplitInt(4, _COUNT_BITS), 16, "GTIDs"),
    "list" / Array(this.count, _LISTED),
    "padding" / HiddenField(IfBytesLeft(GreedyBytes)),
)
