"""Schemas of the GTID events: the bytes between common header and checksum.

Source: docs/spec/mysql-mariadb-binlog.md#bodies-after-the-header-without-the-checksum.
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

from binlogtool.formats.binlog_events.gtid.tagged import TaggedMessage, TagSize
from binlogtool.formats.binlog_events.wire.fields import Lenenc
from binlogtool.formats.bodies import (
    Ahead,
    Count,
    Given,
    IfMore,
    Marked,
    MarkedInt,
    SplitInt,
    Text,
    UnlessZero,
    Unshown,
    Uuid,
    flagged,
)

# -- GTIDs of MySQL ----------------------------------------------------------------------------------------------------


def _or_same(immediate: str, original: Construct) -> Construct:
    """Return the field of the original server, stored only if it differs from the immediate one."""
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


_SOURCE = Struct(
    "sid" / Uuid(),
    "tag_len" / Unshown(IfThenElse(this._.tagged, TagSize(), Computed(0))),
    "tag" / Text(Bytes(this.tag_len)),
    "n_intervals" / Count(Int64ul, 16, "intervals"),
    "intervals" / Array(this.n_intervals, Struct("start" / Int64sl, "end" / Int64sl)),
)

PREVIOUS_GTIDS = Struct(
    "head" / Ahead(Int64ul),
    "tagged" / Unshown(Computed((this.head & 0xFF == 1) & (this.head >> 56 == 1))),
    "format" / Unshown(If(this.tagged, Int8ul)),
    "n_sids"
    / IfThenElse(this.tagged, Count(BytesInteger(6, swapped=True), 25, "sources"), Count(Int64ul, 24, "sources")),
    "format_end" / Unshown(If(this.tagged, Int8ul)),
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

_COUNT_BITS = 28

GTID_LIST = Struct(
    "head" / Ahead(Int32ul),
    "flags" / Computed(this.head >> _COUNT_BITS),
    "count" / Count(SplitInt(4, _COUNT_BITS), 16, "GTIDs"),
    "list" / Array(this.count, _LISTED),
    "padding" / Unshown(IfMore(GreedyBytes)),
)
