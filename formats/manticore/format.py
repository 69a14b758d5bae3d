"""The table binary log of Manticore Search, and of Sphinx, its ancestor."""

from __future__ import annotations

from binlogtool.formats.base import Files, Format, Judging, Output, Reading
from binlogtool.formats.later import Later, LaterTable
from binlogtool.formats.manticore import MEMBERS, schema
from binlogtool.formats.manticore.judge.directory import judge_set, order
from binlogtool.formats.manticore.judge.judge import judge
from binlogtool.formats.manticore.layout import apart, detect, layout, stem
from binlogtool.formats.manticore.meaning import TYPES, bodies, describe
from binlogtool.formats.manticore.repair import REPAIR
from binlogtool.formats.replay_rules import Replay

FORMAT = Format(
    name="manticore",
    title="Manticore Search and Sphinx binary log",
    files=Files(
        patterns=MEMBERS,
        stem=stem,
        order=order,
        passing=("binlog.meta.new",),
    ),
    reading=Reading(
        detect=detect,
        layout=layout,
        heads=Later("manticore.damage.heads:heads"),
        schemas={
            "meta": schema.META,
            "header": schema.LOG_HEADER,
            "txn": schema.FRAME,
            "payload": schema.PAYLOAD,
            **{
                f"txn-v{version}": schema.old_frame(version)
                for version in range(schema.FIRST_VERSION, schema.NEW_FRAME)
            },
        },
        apart=apart,
        cutter=Later("manticore.cuts:cutter"),
        compiled_layouts=Later("manticore.native:layouts"),
    ),
    judging=Judging(
        judge=judge,
        judge_set=judge_set,
        explain_damage=Later("manticore.damage.damage:explain_damage"),
    ),
    output=Output(
        types=TYPES,
        describe=describe,
        bodies=bodies,
        json=Later("manticore.payloads.lines:json_line"),
    ),
    tables=Later("manticore.tables:tables"),
    repair=REPAIR,
    replay=Replay(
        begin=Later("manticore.replay.replay:TableReplay"),
        reasons=LaterTable("manticore.replay.reasons:REASONS"),
        effects=Later("manticore.replay.effects:TableEffects"),
        patch=Later("manticore.replay.effects:patch"),
        state=Later("manticore.replay.saved:saved_tid"),
        force="like --replay-flags=ignore-all-errors (up to version 13: ignore-open-errors and accept-desc-timestamp, "
        "all that is known there): after an error the rest of that file is dropped, missing files are passed over",
    ),
    references=(
        "Manticore Search, src/binlog.cpp, src/binlog.h and doc/binary-logging.md, commit e790cb571 (2026-08-22)",
        "Manticore Search 27.1.0 and 6.3.8, the same files at these releases",
        "Sphinx 2.2.11, src/sphinxrt.cpp (Debian package sphinxsearch)",
    ),
)
