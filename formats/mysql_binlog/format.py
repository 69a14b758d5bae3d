"""Declaration of the format mysql-binlog: the binary log of MySQL and MariaDB, also as relay log."""

from __future__ import annotations

from binlogtool.formats.base import Format, LogFileRules, OutputRules, ReadRules, ValidationRules
from binlogtool.formats.binlog_events.codes import EVENT_TYPE_NAMES, MAGIC, TYPE_GROUPS
from binlogtool.formats.binlog_events.gtid.sets import GTID_PARSERS
from binlogtool.formats.binlog_events.stream.context import fork_context, summarize_layout
from binlogtool.formats.binlog_events.stream.meaning import decode_bodies, describe_events, header_extras
from binlogtool.formats.later import LazyMapping, LazyRef
from binlogtool.formats.mysql_binlog import FILE_PATTERNS
from binlogtool.formats.mysql_binlog.members.members import create_layout, create_validator, detect_member
from binlogtool.formats.mysql_binlog.members.names import TEMPORARY_PATTERNS, get_stem, sort_names
from binlogtool.formats.mysql_binlog.repair import FLAGS_AT, REPAIR
from binlogtool.formats.replay_rules import ReplayRules

FORMAT = Format(
    name="mysql-binlog",
    title="MySQL and MariaDB binary log",
    files=LogFileRules(
        patterns=FILE_PATTERNS,
        mutable_header=(len(MAGIC) + FLAGS_AT, len(MAGIC) + FLAGS_AT + 2),
        sort_names=sort_names,
        temporary_patterns=TEMPORARY_PATTERNS,
        name_stem=get_stem,
    ),
    reading=ReadRules(
        detect=detect_member,
        layout=create_layout,
        find_header_flips=LazyRef("mysql_binlog.damage.heads:find_header_flips"),
        event_groups=LazyRef("mysql_binlog.bundles:create_transaction_reader"),
        split_finder=LazyRef("mysql_binlog.cuts:create_split_finder"),
        carries_state=True,
        clone_context=fork_context,
        compact_layout=summarize_layout,
        schemas=LazyMapping("mysql_binlog.schema:SCHEMAS"),
        compiled_layouts=LazyRef("mysql_binlog.native:layouts"),
    ),
    validation=ValidationRules(
        validator=create_validator,
        validator_reports_sequences=True,
        explain_damage=LazyRef("mysql_binlog.damage.damage:explain_damage"),
        validate_set=LazyRef("mysql_binlog.judge.chain:validate_set"),
    ),
    output=OutputRules(
        types=EVENT_TYPE_NAMES,
        type_groups=TYPE_GROUPS,
        decode_envelopes=describe_events,
        decode_bodies=decode_bodies,
        decode_extras=header_extras,
        extra_names=("header",),
        json_line=LazyRef("binlog_events.stream.jsonlines:json_line"),
        gtid_rules=GTID_PARSERS,
        start_script=LazyRef("binlog_events.sql.statements:create_script"),
        start_changes=LazyRef("binlog_events.changes.changes:make_row_changes"),
    ),
    tables=LazyRef("binlog_events.changes.row_tables:make_tables"),
    repair=REPAIR,
    replay=ReplayRules(
        begin=LazyRef("mysql_binlog.replay.replay:BinlogReplayer"),
        reasons=LazyMapping("binlog_events.apply.reasons:REASONS"),
        effects=LazyRef("binlog_events.apply.effects:EventEffects"),
        patch=LazyRef("binlog_events.apply.effects:apply_patch"),
        parse_state=LazyRef("mysql_binlog.replay.replay:parse_server_state"),
        decode_extras=LazyRef("binlog_events.stream.meaning:flag_extras"),
        force="leaves out the transactions that are damaged or refused, and applies all others "
        "(mysqlbinlog --force-read with --skip-gtid-strict-mode, mysql --force)",
    ),
    references=(
        "MySQL Server 9.7: libs/mysql/binlog/event, sql/log_event.cc, sql/binlog, sql/rpl_gtid",
        "MariaDB Server 10.11 and 11.8: sql/log_event.h, sql/log_event.cc, sql/log_event_server.cc, sql/log.cc",
        "MySQL Internals: Binary Log Version 4, row-based binary logging",
    ),
)
