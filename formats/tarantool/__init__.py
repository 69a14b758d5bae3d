"""Tarantool journal files: write-ahead logs, snapshots, and the files of the vinyl engine."""

from __future__ import annotations

from binlogtool.formats.base import Format
from binlogtool.formats.tarantool import recovery, schema
from binlogtool.formats.tarantool.cuts import cutter
from binlogtool.formats.tarantool.jsonlines import json_line
from binlogtool.formats.tarantool.layout import MEMBERS, PASSING, apart, detect, layout, stem
from binlogtool.formats.tarantool.meaning import bodies, describe, extras
from binlogtool.formats.tarantool.names import TYPE_NAMES
from binlogtool.formats.tarantool.repair import REPAIR
from binlogtool.formats.tarantool.replay import REPLAY

FORMAT = Format(
    name="tarantool",
    title="Tarantool journal files (.xlog, .snap, .vylog, .run, .index), formats 0.12 and 0.13",
    members=MEMBERS,
    types=TYPE_NAMES,
    detect=detect,
    layout=layout,
    stem=stem,
    judge=recovery.judge,
    describe=describe,
    bodies=bodies,
    extras=extras,
    extra_names=("header",),
    schemas={"header": schema.HEADER, "block": schema.BLOCK, "payload": schema.PAYLOAD, "row": schema.ROW},
    judge_set=recovery.judge_set,
    order=recovery.order,
    home=recovery.home,
    explain_damage=recovery.explain_damage,
    json=json_line,
    apart=apart,
    repair=REPAIR,
    replay=REPLAY,
    cutter=cutter,
    passing=PASSING,
    references=(
        "https://www.tarantool.io/en/doc/latest/reference/internals/file_formats/",
        "https://github.com/tarantool/tarantool/blob/master/src/box/xlog.c",
        "https://github.com/tarantool/tarantool/blob/master/src/box/iproto_constants.h",
    ),
)
