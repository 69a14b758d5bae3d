"""The binary log of MySQL and MariaDB: a chain of events (version 4), also as relay log."""

from __future__ import annotations

from binlogtool.formats.base import Format
from binlogtool.formats.later import Later, LaterTable
from binlogtool.formats.mysql_binlog import MEMBERS
from binlogtool.formats.mysql_binlog.chain import judge_set
from binlogtool.formats.mysql_binlog.codes import MAGIC, TYPES
from binlogtool.formats.mysql_binlog.gtids import RULES
from binlogtool.formats.mysql_binlog.layout import apart
from binlogtool.formats.mysql_binlog.meaning import bodies, describe, extras
from binlogtool.formats.mysql_binlog.members import detect, judge, layout
from binlogtool.formats.mysql_binlog.names import PASSING, order, stem
from binlogtool.formats.mysql_binlog.repair import FLAGS_AT, REPAIR
from binlogtool.formats.replays import Replay

FORMAT = Format(
    name="mysql-binlog",
    title="MySQL and MariaDB binary log",
    members=MEMBERS,
    types=TYPES,
    detect=detect,
    layout=layout,
    heads=Later("mysql_binlog.heads:heads"),
    judge=judge,
    numbers_by_judge=True,
    describe=describe,
    bodies=bodies,
    extras=extras,
    extra_names=("header",),
    explain_damage=Later("mysql_binlog.explain:explain_damage"),
    json=Later("mysql_binlog.jsonlines:json_line"),
    gtids=RULES,
    sql=Later("mysql_binlog.statements:script"),
    changes=Later("mysql_binlog.changes:changes"),
    judge_set=judge_set,
    bundles=Later("mysql_binlog.bundles:bundles"),
    cutter=Later("mysql_binlog.cuts:cutter"),
    rewritten=(len(MAGIC) + FLAGS_AT, len(MAGIC) + FLAGS_AT + 2),  # it is closed: the server clears a flag
    order=order,
    passing=PASSING,
    stem=stem,
    apart=apart,
    repair=REPAIR,
    replay=Replay(
        begin=Later("mysql_binlog.replay:BinlogReplay"),
        reasons=LaterTable("mysql_binlog.replay:REASONS"),
        effects=Later("mysql_binlog.effects:EventEffects"),
        patch=Later("mysql_binlog.effects:patch"),
        state=Later("mysql_binlog.replay:state_of"),
        force="leaves out the transactions that are damaged or refused, and applies all others "
        "(mysqlbinlog --force-read with --skip-gtid-strict-mode, mysql --force)",
    ),
    schemas=LaterTable("mysql_binlog.schemas:SCHEMAS"),
    references=(
        "MySQL Server 9.7: libs/mysql/binlog/event, sql/log_event.cc, sql/binlog, sql/rpl_gtid",
        "MariaDB Server 10.11 and 11.8: sql/log_event.h, sql/log_event.cc, sql/log_event_server.cc, sql/log.cc",
        "MySQL Internals: Binary Log Version 4, row-based binary logging",
    ),
)
