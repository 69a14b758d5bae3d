"""The Drizzle transaction log: a chain of entries, each one protobuf message with a CRC-32."""

from __future__ import annotations

from binlogtool.formats.base import Files, Format, Judging, Output, Reading
from binlogtool.formats.cuts import Everywhere
from binlogtool.formats.drizzle import MEMBERS
from binlogtool.formats.drizzle.judge.judge import judge
from binlogtool.formats.drizzle.layout import detect, layout, stem
from binlogtool.formats.drizzle.meaning import TYPES, bodies, describe, extras
from binlogtool.formats.drizzle.protobuf.messages import Message
from binlogtool.formats.drizzle.schema import CATALOG, ENTRY
from binlogtool.formats.later import Later, LaterTable
from binlogtool.formats.repair_rules import Repair
from binlogtool.formats.replay_rules import Replay

FORMAT = Format(
    name="drizzle",
    title="Drizzle transaction log",
    files=Files(
        patterns=MEMBERS,
        stem=stem,
    ),
    reading=Reading(
        detect=detect,
        layout=layout,
        schemas={"entry": ENTRY} | {name: Message(CATALOG, name) for name in CATALOG.messages},
        cutter=lambda layout: Everywhere(layout) if layout.readable else None,
        compiled_layouts=Later("drizzle.native:layouts"),
    ),
    judging=Judging(
        judge=judge,
        explain_damage=Later("drizzle.damage:explain_damage"),
    ),
    output=Output(
        types=TYPES,
        describe=describe,
        bodies=bodies,
        extras=extras,
        extra_names=("timestamp_unit",),
        json=Later("drizzle.protobuf.lines:json_line"),
    ),
    tables=Later("drizzle.tables:tables"),
    repair=Repair(transactions="whole_transactions_end"),
    replay=Replay(
        begin=Later("drizzle.replay.replay:LogReplay"),
        reasons=LaterTable("drizzle.replay.replay:REASONS"),
        effects=Later("drizzle.replay.effects:RowEffects"),
        patch=Later("drizzle.replay.effects:patch"),
        force="goes on behind what the reader cannot read, at the next provable entry; the reader itself has no such "
        "switch",
    ),
    references=(
        "Drizzle server 7.0 and 7.1, plugin/transaction_log: transaction_log.cc, transaction_log_reader.cc, "
        "utilities/transaction_reader.cc",
        "Drizzle server, drizzled/message/transaction.proto, table.proto, schema.proto, engine.proto",
        "Drizzle server, drizzled/replication_services.cc, drizzled/transaction_services.cc (segments, rollback)",
        "Protocol Buffers documentation: Encoding",
    ),
)
