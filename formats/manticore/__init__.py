"""The table binary log of Manticore Search, and of Sphinx, its ancestor."""

from __future__ import annotations

from binlogtool.formats.base import Format
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.cuts import cutter
from binlogtool.formats.manticore.directory import judge_set, order
from binlogtool.formats.manticore.explain import explain_damage
from binlogtool.formats.manticore.layout import MEMBERS, apart, detect, layout, stem
from binlogtool.formats.manticore.meaning import TYPES, bodies, describe
from binlogtool.formats.manticore.recovery import judge
from binlogtool.formats.manticore.repair import REPAIR
from binlogtool.formats.manticore.replay import REPLAY

FORMAT = Format(
    name="manticore",
    title="Manticore Search and Sphinx binary log",
    members=MEMBERS,
    types=TYPES,
    detect=detect,
    layout=layout,
    stem=stem,
    judge=judge,
    describe=describe,
    bodies=bodies,
    schemas={
        "meta": schema.META,
        "header": schema.LOG_HEADER,
        "txn": schema.FRAME,
        "payload": schema.PAYLOAD,
        **{f"txn-v{version}": schema.old_frame(version) for version in range(schema.FIRST_VERSION, schema.NEW_FRAME)},
    },
    judge_set=judge_set,
    order=order,
    explain_damage=explain_damage,
    apart=apart,
    repair=REPAIR,
    replay=REPLAY,
    cutter=cutter,
    passing=("binlog.meta.new",),
    references=(
        "Manticore Search, src/binlog.cpp, src/binlog.h and doc/binary-logging.md, commit e790cb571 (2026-08-22)",
        "Manticore Search 27.1.0 and 6.3.8, the same files at these releases",
        "Sphinx 2.2.11, src/sphinxrt.cpp (Debian package sphinxsearch)",
    ),
)
