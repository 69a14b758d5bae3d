"""The Drizzle transaction log: a sequence of entries, each a protobuf message with a CRC-32."""

from __future__ import annotations

from binlogtool.format_api.format import Format, LogFileRules, OutputRules, ReadRules, RepairRules, ValidationRules
from binlogtool.format_api.layout import EveryFrameSplitFinder
from binlogtool.format_api.lazy_import import LazyMapping, LazyRef
from binlogtool.format_api.replay import ReplayRules
from binlogtool.format_api.tables_and_changes import TableSupport
from binlogtool.formats.drizzle import FILE_PATTERNS
from binlogtool.formats.drizzle.decode import (
    TYPE_NAMES,
    StatementTables,
    decode_bodies,
    decode_timestamp_units,
    describe_records,
    make_record_text,
)
from binlogtool.formats.drizzle.detect_layout import detect, get_log_stem, read_layout
from binlogtool.formats.drizzle.schema import CATALOG, ENTRY, Message
from binlogtool.formats.drizzle.validate import create_validator

FORMAT = Format(
    name="drizzle",
    title="Drizzle transaction log",
    files=LogFileRules(
        patterns=FILE_PATTERNS,
        name_stem=get_log_stem,
        log_patterns=("transaction.log", "transaction.log.[0-9]*"),
    ),
    reading=ReadRules(
        detect=detect,
        layout=read_layout,
        schemas={"entry": ENTRY} | {name: Message(CATALOG, name) for name in CATALOG.messages},
        split_finder=lambda layout: EveryFrameSplitFinder(layout) if layout.readable else None,
        compiled_layouts=LazyRef("drizzle.detect_layout:layouts"),
    ),
    validation=ValidationRules(
        validator=create_validator,
        explain_damage=LazyRef("drizzle.explain_damage:explain_damage"),
        is_closed_end_proven=lambda _facts: False,
    ),
    output=OutputRules(
        types=TYPE_NAMES,
        decode_envelopes=describe_records,
        decode_bodies=decode_bodies,
        decode_extras=decode_timestamp_units,
        extra_names=("timestamp_unit",),
        json_line=LazyRef("drizzle.json_lines:create_json_line"),
        start_record_text=lambda: make_record_text,
        sequence_name="transaction",
    ),
    tables=TableSupport(StatementTables),
    repair=RepairRules(transactions="whole_transactions_end"),
    replay=ReplayRules(
        begin=LazyRef("drizzle.replay:DrizzleReplayer"),
        reasons=LazyMapping("drizzle.replay:REASONS"),
        effects=LazyRef("drizzle.replay:DrizzleEffects"),
        patch=LazyRef("drizzle.replay:apply_patch"),
        force="continues after what the reader cannot read, at the next provable entry; the reader itself has no such "
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
