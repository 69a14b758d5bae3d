"""The binary log that MariaDB keeps inside InnoDB (`binlog-NNNNNN.ibb`), and the redo log that recovers it."""

from __future__ import annotations

from binlogtool.formats.base import Format
from binlogtool.formats.mariadb_innodb_binlog import schema
from binlogtool.formats.mariadb_innodb_binlog.bundles import bundles
from binlogtool.formats.mariadb_innodb_binlog.chain import judge_set
from binlogtool.formats.mariadb_innodb_binlog.codes import MEMBERS, order
from binlogtool.formats.mariadb_innodb_binlog.damage import explain_damage
from binlogtool.formats.mariadb_innodb_binlog.judge import judge
from binlogtool.formats.mariadb_innodb_binlog.layout import detect, layout
from binlogtool.formats.mariadb_innodb_binlog.meaning import TYPES, bodies, describe, extras
from binlogtool.formats.mariadb_innodb_binlog.seek import seek
from binlogtool.formats.mysql_binlog.gtids import RULES

FORMAT = Format(
    name="mariadb-innodb-binlog",
    title="MariaDB InnoDB binary log",
    members=MEMBERS,
    types=TYPES,
    detect=detect,
    layout=layout,
    judge=judge,
    describe=describe,
    bodies=bodies,
    extras=extras,
    judge_set=judge_set,
    bundles=bundles,
    explain_damage=explain_damage,
    schemas={"header_page": schema.header_page(16384), "page": schema.page(16384)},
    order=order,
    numbers_by_judge=True,
    levels=("record", "page", "event"),
    gtids=RULES,
    seek=seek,
)
