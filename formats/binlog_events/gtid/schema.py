"""GTID events (specification section 5): the bytes between common header and checksum."""

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

from binlogtool.formats.binlog_events.gtid.tagged import Number, TaggedMessage
from binlogtool.formats.binlog_events.wire.fields import Ahead, Count, Lenenc
from binlogtool.formats.binlog_events.wire.parts import GtidCount
from binlogtool.formats.bodies import Given, IfMore, Marked, MarkedInt, Text, UnlessZero, Unshown, Uuid, flagged


def has_tags(body: bytes) -> bool:
    """Is it the form of PREVIOUS_GTIDS that has a tag for each source?"""
    return body[0] == 1 and body[7] == 1


# -- GTIDs of MySQL ----------------------------------------------------------------------------------------------------


def _or_same(immediate: str, original: Construct) -> Construct:
    """What the original server said: stored only where it differs from the immediate one's."""
    return If(Given(immediate), IfThenElse(Marked(immediate), original, Computed(this[immediate])))


GTID_LOG = Struct(
    "flags" / FlagsEnum(Int8ul, MAY_HAVE_SBR=1),
    "sid" / Uuid(),
    "gno" / Int64sl,
    "lt_type" / IfMore(Int8ul),
    "last_committed" / If(Given("lt_type"), Int64sl),
    "sequence_number" / If(Given("lt_type"), Int64sl),
    "immediate_commit_timestamp" / IfMore(MarkedInt(7)),
    "original_commit_timestamp" / _or_same("immediate_commit_timestamp", BytesInteger(7, swapped=True)),
    "transaction_length" / IfMore(Lenenc()),
    "immediate_server_version" / IfMore(MarkedInt(4)),
    "original_server_version" / _or_same("immediate_server_version", Int32ul),
    "commit_group_ticket" / IfMore(Int64ul),
)
"""5.6 ends behind gno, 5.7 behind sequence_number, 8.0 behind a server version."""

GTID_TAGGED_LOG = Struct("message" / TaggedMessage())


def _tagged_head(data: bytes) -> bool:
    return len(data) == 8 and has_tags(data)


_SOURCE = Struct(
    "sid" / Uuid(),
    "tag_len" / If(this._.tagged, Number()),
    "tag" / If(this._.tagged, Text(Bytes(this.tag_len))),
    "n_intervals" / Count(Int64ul, 16, "intervals"),
    "intervals" / Array(this.n_intervals, Struct("start" / Int64sl, "end" / Int64sl)),
)

PREVIOUS_GTIDS = Struct(
    "tagged" / Ahead(8, _tagged_head),
    "format" / If(this.tagged, Int8ul),
    "n_sids"
    / IfThenElse(this.tagged, Count(BytesInteger(6, swapped=True), 25, "sources"), Count(Int64ul, 24, "sources")),
    "format_end" / If(this.tagged, Int8ul),
    "sids" / Array(this.n_sids, _SOURCE),
)

# -- GTIDs of MariaDB --------------------------------------------------------------------------------------------------


GTID = Struct(
    "seq_no" / Int64ul,
    "domain_id" / Int32ul,
    "flags2"
    / FlagsEnum(
        Int8ul, STANDALONE=1, GROUP_COMMIT_ID=2, TRANSACTIONAL=4, ALLOW_PARALLEL=8, WAITED=16, DDL=32,
        PREPARED_XA=64, COMPLETED_XA=128,
    ),
    "commit_id" / If(flagged("flags2", "GROUP_COMMIT_ID"), Int64ul),
    "xid"
    / If(
        flagged("flags2", "PREPARED_XA", "COMPLETED_XA"),
        Struct(
            "format_id" / Int32sl,
            "gtrid_len" / Unshown(Int8ul),
            "bqual_len" / Unshown(Int8ul),
            "gtrid" / Text(Bytes(this.gtrid_len)),
            "bqual" / Text(Bytes(this.bqual_len)),
        ),
    ),
    "flags_extra"
    / UnlessZero(
        IfMore(FlagsEnum(Int8ul, MULTI_ENGINE=1, START_ALTER=2, COMMIT_ALTER=4, ROLLBACK_ALTER=8, THREAD_ID=16))
    ),
    "extra_engines" / If(flagged("flags_extra", "MULTI_ENGINE"), Int8ul),
    "start_alter_seq" / If(flagged("flags_extra", "COMMIT_ALTER", "ROLLBACK_ALTER"), Int64ul),
    "thread_id" / If(flagged("flags_extra", "THREAD_ID"), Int32ul),
    "padding" / Unshown(IfMore(GreedyBytes)),
)  # fmt: skip

_LISTED = Struct("domain_id" / Int32ul, "server_id" / Int32ul, "seq_no" / Int64ul)

GTID_LIST = Struct("count" / GtidCount(), "list" / Array(this.count, _LISTED), "padding" / IfMore(GreedyBytes))
