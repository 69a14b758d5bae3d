"""Declaration of the format mysql-binlog: the binary log of MySQL and MariaDB, also as relay log."""

from __future__ import annotations

from binlogtool.formats.base import Files, Format, Judging, Output, Reading
from binlogtool.formats.binlog_events.codes import MAGIC, TYPE_GROUPS, TYPES
from binlogtool.formats.binlog_events.gtid.sets import RULES
from binlogtool.formats.binlog_events.stream.context import apart, settled
from binlogtool.formats.binlog_events.stream.meaning import bodies, describe, extras
from binlogtool.formats.later import Later, LaterTable
from binlogtool.formats.mysql_binlog import MEMBERS
from binlogtool.formats.mysql_binlog.members.members import detect, judge, layout
from binlogtool.formats.mysql_binlog.members.names import PASSING, order, stem
from binlogtool.formats.mysql_binlog.repair import FLAGS_AT, REPAIR
from binlogtool.formats.replay_rules import Replay

FORMAT = Format(
    name="mysql-binlog",
    title="MySQL and MariaDB binary log",
    files=Files(
        patterns=MEMBERS,
        rewritten=(len(MAGIC) + FLAGS_AT, len(MAGIC) + FLAGS_AT + 2),
        order=order,
        passing=PASSING,
        stem=stem,
    ),
    reading=Reading(
        detect=detect,
        layout=layout,
        heads=Later("mysql_binlog.damage.heads:heads"),
        bundles=Later("mysql_binlog.bundles:bundles"),
        cutter=Later("mysql_binlog.cuts:cutter"),
        carries=True,
        apart=apart,
        settled=settled,
        schemas=LaterTable("mysql_binlog.schema:SCHEMAS"),
        compiled_layouts=Later("mysql_binlog.native:layouts"),
    ),
    judging=Judging(
        judge=judge,
        numbers_by_judge=True,
        explain_damage=Later("mysql_binlog.damage.damage:explain_damage"),
        judge_set=Later("mysql_binlog.judge.chain:judge_set"),
    ),
    output=Output(
        types=TYPES,
        type_groups=TYPE_GROUPS,
        describe=describe,
        bodies=bodies,
        extras=extras,
        extra_names=("header",),
        json=Later("binlog_events.stream.jsonlines:json_line"),
        gtids=RULES,
        sql=Later("binlog_events.sql.statements:script"),
        changes=Later("binlog_events.changes.changes:changes"),
    ),
    tables=Later("binlog_events.changes.row_tables:tables"),
    repair=REPAIR,
    replay=Replay(
        begin=Later("mysql_binlog.replay.replay:BinlogReplay"),
        reasons=LaterTable("binlog_events.apply.reasons:REASONS"),
        effects=Later("binlog_events.apply.effects:EventEffects"),
        patch=Later("binlog_events.apply.effects:patch"),
        state=Later("mysql_binlog.replay.replay:state_of"),
        extras=Later("binlog_events.stream.meaning:flags"),
        force="leaves out the transactions that are damaged or refused, and applies all others "
        "(mysqlbinlog --force-read with --skip-gtid-strict-mode, mysql --force)",
    ),
    references=(
        "MySQL Server 9.7: libs/mysql/binlog/event, sql/log_event.cc, sql/binlog, sql/rpl_gtid",
        "MariaDB Server 10.11 and 11.8: sql/log_event.h, sql/log_event.cc, sql/log_event_server.cc, sql/log.cc",
        "MySQL Internals: Binary Log Version 4, row-based binary logging",
    ),
)
