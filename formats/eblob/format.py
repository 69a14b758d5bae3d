"""The eblob binlog: the changes that reached one blob while it was being sorted; no checksums, nine dialects."""

from __future__ import annotations

from binlogtool.formats.base import Files, Format, Judging, Output, Reading
from binlogtool.formats.eblob import MEMBERS
from binlogtool.formats.eblob.judge import judge
from binlogtool.formats.eblob.layout.dialects import DIALECTS
from binlogtool.formats.eblob.layout.layout import detect, layout, stem
from binlogtool.formats.eblob.meaning import TYPES, bodies, describe
from binlogtool.formats.eblob.schema import CONTROL, FOOTER, HEADER, HEADER_PACKED, WRITE_CONTROL
from binlogtool.formats.later import Later, LaterTable
from binlogtool.formats.repair_rules import Repair
from binlogtool.formats.replay_rules import Replay

FORMAT = Format(
    name="eblob",
    title="eblob data-sort binlog",
    files=Files(
        patterns=MEMBERS,
        stem=stem,
    ),
    reading=Reading(
        detect=detect,
        layout=layout,
        schemas={
            "header": HEADER,
            "header-packed": HEADER_PACKED,
            "control": CONTROL,
            "footer": FOOTER,
            "write-control": WRITE_CONTROL,
            **{f"record-{name}": dialect.schema for name, dialect in DIALECTS.items()},
        },
        cutter=Later("eblob.cuts:cutter"),
        variants=tuple(DIALECTS),
        compiled_layouts=Later("eblob.native:layouts"),
    ),
    judging=Judging(
        judge=judge,
        explain_damage=Later("eblob.damage.damage:explain_damage"),
    ),
    output=Output(
        types=TYPES,
        describe=describe,
        bodies=bodies,
        json=Later("eblob.groups.lines:json_line"),
    ),
    tables=Later("eblob.tables:tables"),
    repair=Repair(gaps="records behind a damage can be older than those before it, and no checksum tells"),
    replay=Replay(
        begin=Later("eblob.replay:DataSort"),
        reasons=LaterTable("eblob.replay:REASONS"),
        effects=Later("eblob.replay:BlobEffects"),
        state=Later("eblob.replay:index_of"),
        force="like server: the library has no such switch",
    ),
    references=(
        "eblob 0.17 to 0.21, library/binlog.c and library/binlog.h (October 2012 to July 2013)",
        "eblob 0.21, library/datasort.c (what is logged and how it is replayed), include/eblob/blob.h (disk control)",
    ),
)
