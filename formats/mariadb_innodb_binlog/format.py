"""The binary log that MariaDB keeps inside InnoDB (`binlog-NNNNNN.ibb`), and the redo log that recovers it."""

from __future__ import annotations

from binlogtool.formats.base import Files, Format, Judging, Output, Reading
from binlogtool.formats.binlog_events.codes import TYPE_GROUPS
from binlogtool.formats.binlog_events.gtid.sets import RULES
from binlogtool.formats.later import Later, LaterTable
from binlogtool.formats.mariadb_innodb_binlog import MEMBERS, schema
from binlogtool.formats.mariadb_innodb_binlog.codes import USUAL_SHIFT, RecordType, order, stem
from binlogtool.formats.mariadb_innodb_binlog.judge.chain import judge_set
from binlogtool.formats.mariadb_innodb_binlog.judge.judge import judge
from binlogtool.formats.mariadb_innodb_binlog.layout import apart, detect, layout
from binlogtool.formats.mariadb_innodb_binlog.meaning import TYPES, bodies, describe, extras
from binlogtool.formats.mariadb_innodb_binlog.repair.repair import REPAIR
from binlogtool.formats.replay_rules import Replay

FORMAT = Format(
    name="mariadb-innodb-binlog",
    title="MariaDB InnoDB binary log",
    files=Files(
        patterns=MEMBERS,
        stem=stem,
        order=order,
    ),
    reading=Reading(
        detect=detect,
        layout=layout,
        heads=Later("mariadb_innodb_binlog.damage.heads:heads"),
        bundles=Later("mariadb_innodb_binlog.bundles:bundles"),
        schemas={
            "header_page": schema.header_page(1 << USUAL_SHIFT),
            "page": schema.page(1 << USUAL_SHIFT),
            "chunk": schema.CHUNK,
            **{RecordType(code).name.lower(): body for code, body in schema.RECORDS.items()},
        },
        levels=("record", "page", "event"),
        event_level="event",
        seek=Later("mariadb_innodb_binlog.cuts.seek:seek"),
        apart=apart,
        cutter=Later("mariadb_innodb_binlog.cuts.cuts:cutter"),
        carries=True,
        compiled_layouts=Later("mariadb_innodb_binlog.native:layouts"),
    ),
    judging=Judging(
        judge=judge,
        judge_set=judge_set,
        explain_damage=Later("mariadb_innodb_binlog.damage.damage:explain_damage"),
        numbers_by_judge=True,
    ),
    output=Output(
        types=TYPES,
        type_groups=TYPE_GROUPS,
        describe=describe,
        bodies=bodies,
        extras=extras,
        extra_names=("header",),
        json=Later("mariadb_innodb_binlog.groups.lines:json_line"),
        sql=Later("mariadb_innodb_binlog.sql.statements:script"),
        changes=Later("mariadb_innodb_binlog.changes:changes"),
        gtids=RULES,
    ),
    tables=Later("mariadb_innodb_binlog.tables:tables"),
    repair=REPAIR,
    replay=Replay(
        begin=Later("mariadb_innodb_binlog.replay.replay:IbbReplay"),
        reasons=LaterTable("mariadb_innodb_binlog.replay.replay:REASONS"),
        effects=Later("binlog_events.apply.effects:EventEffects"),
        patch=Later("binlog_events.apply.effects:patch"),
        level="event",
        count=Later("mariadb_innodb_binlog.replay.replay:count_of_events"),
        state=Later("mariadb_innodb_binlog.replay.replay:state_of"),
        force="leaves out the groups that are damaged or refused, and applies all others: those that stand in sound "
        "pages, also behind an end of data",
    ),
    references=(
        "MariaDB Server 12.3 and main (2026): storage/innobase/fsp/fsp_binlog.cc, handler/innodb_binlog.cc",
        "MariaDB Server: mysys/my_compr_int.cc, client/mysqlbinlog-engine.cc, Docs/replication/binlog.md",
        "MariaDB Server 10.8 and later: storage/innobase/include/mtr0log.h, log/log0recv.cc (the redo log)",
    ),
)
