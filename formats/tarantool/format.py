"""Tarantool journal files: write-ahead logs, snapshots, and the files of the vinyl engine."""

from __future__ import annotations

from binlogtool.formats.base import Files, Format, Judging, Output, Reading
from binlogtool.formats.later import Later, LaterTable
from binlogtool.formats.replay_rules import Replay
from binlogtool.formats.tarantool import MEMBERS, schema
from binlogtool.formats.tarantool.judge import judge as recovery
from binlogtool.formats.tarantool.layout.layout import PASSING, apart, detect, layout, stem
from binlogtool.formats.tarantool.meaning import bodies, describe, extras, transaction_marks
from binlogtool.formats.tarantool.repair import REPAIR
from binlogtool.formats.tarantool.rows.names import TYPE_NAMES

FORMAT = Format(
    name="tarantool",
    title="Tarantool journal files (.xlog, .snap, .vylog, .run, .index), formats 0.12 and 0.13",
    files=Files(
        patterns=MEMBERS,
        stem=stem,
        order=recovery.order,
        home=recovery.home,
        passing=PASSING,
    ),
    reading=Reading(
        detect=detect,
        layout=layout,
        heads=Later("tarantool.damage.heads:heads"),
        schemas={"header": schema.HEADER, "block": schema.BLOCK, "payload": schema.PAYLOAD, "row": schema.ROW},
        apart=apart,
        cutter=Later("tarantool.cuts:cutter"),
        compiled_layouts=Later("tarantool.native:layouts"),
    ),
    judging=Judging(
        judge=recovery.judge,
        judge_set=recovery.judge_set,
        explain_damage=Later("tarantool.damage.damage:explain_damage"),
    ),
    output=Output(
        types=TYPE_NAMES,
        describe=describe,
        bodies=bodies,
        extras=extras,
        extra_names=("header",),
        json=Later("tarantool.rows.lines:json_line"),
    ),
    repair=REPAIR,
    replay=Replay(
        begin=Later("tarantool.replay.replay:TarantoolReplayer"),
        extras=transaction_marks,
        reasons=LaterTable("tarantool.replay.reasons:REASONS"),
        effects=Later("tarantool.replay.effects:TarantoolEffects"),
        patch=Later("tarantool.replay.effects:patch"),
        quick=Later("tarantool.replay.quick:TarantoolQuick"),
        state=Later("tarantool.replay.position:state"),
        force="force_recovery = true: files with a wrong header, damaged blocks and rows that cannot be applied are "
        "left out, and missing logs are passed over",
    ),
    tables=Later("tarantool.tables:tables"),
    references=(
        "https://www.tarantool.io/en/doc/latest/reference/internals/file_formats/",
        "https://github.com/tarantool/tarantool/blob/master/src/box/xlog.c",
        "https://github.com/tarantool/tarantool/blob/master/src/box/iproto_constants.h",
    ),
)
