"""The binary log of MySQL and MariaDB: a chain of events (version 4), also as relay log."""

from __future__ import annotations

from binlogtool.formats.base import Format
from binlogtool.formats.mysql_binlog.bodies import BODIES
from binlogtool.formats.mysql_binlog.bundles import bundles
from binlogtool.formats.mysql_binlog.chain import judge_set
from binlogtool.formats.mysql_binlog.codes import MAGIC, TYPES, EventType
from binlogtool.formats.mysql_binlog.cuts import cutter
from binlogtool.formats.mysql_binlog.explain import explain_damage
from binlogtool.formats.mysql_binlog.gtid_index import GTID_INDEX_FILE
from binlogtool.formats.mysql_binlog.gtids import RULES
from binlogtool.formats.mysql_binlog.heads import heads
from binlogtool.formats.mysql_binlog.index import INDEX_FILE, INFO_FILE, STATE_FILE
from binlogtool.formats.mysql_binlog.jsonlines import json_line
from binlogtool.formats.mysql_binlog.layout import FILE_HEADER, apart
from binlogtool.formats.mysql_binlog.meaning import bodies, describe, extras
from binlogtool.formats.mysql_binlog.members import detect, judge, layout
from binlogtool.formats.mysql_binlog.names import MEMBERS, PASSING, order, stem
from binlogtool.formats.mysql_binlog.repair import FLAGS_AT, REPAIR
from binlogtool.formats.mysql_binlog.replay import REPLAY
from binlogtool.formats.mysql_binlog.schema import EVENTS, Form
from binlogtool.formats.mysql_binlog.statements import script

FORMAT = Format(
    name="mysql-binlog",
    title="MySQL and MariaDB binary log",
    members=MEMBERS,
    types=TYPES,
    detect=detect,
    layout=layout,
    heads=heads,
    judge=judge,
    numbers_by_judge=True,
    describe=describe,
    bodies=bodies,
    extras=extras,
    extra_names=("header",),
    explain_damage=explain_damage,
    json=json_line,
    gtids=RULES,
    sql=script,
    judge_set=judge_set,
    bundles=bundles,
    cutter=cutter,
    rewritten=(len(MAGIC) + FLAGS_AT, len(MAGIC) + FLAGS_AT + 2),  # it is closed: the server clears a flag
    order=order,
    passing=PASSING,
    stem=stem,
    apart=apart,
    repair=REPAIR,
    replay=REPLAY,
    schemas={
        "file_header": FILE_HEADER,
        "event": EVENTS[Form.CRC],
        "event_plain": EVENTS[Form.PLAIN],
        "event_bare": EVENTS[Form.BARE],
        "index": INDEX_FILE,
        "state": STATE_FILE,
        "relay_log_info": INFO_FILE,
        "gtid_index": GTID_INDEX_FILE,
    }
    | {EventType(code).name.lower(): body for code, body in BODIES.items()},
    references=(
        "MySQL Server 9.7: libs/mysql/binlog/event, sql/log_event.cc, sql/binlog, sql/rpl_gtid",
        "MariaDB Server 10.11 and 11.8: sql/log_event.h, sql/log_event.cc, sql/log_event_server.cc, sql/log.cc",
        "MySQL Internals: Binary Log Version 4, row-based binary logging",
    ),
)
