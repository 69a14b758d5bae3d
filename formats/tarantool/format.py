"""Tarantool journal files: write-ahead logs, snapshots, and the files of the vinyl engine."""

from __future__ import annotations

from binlogtool.format_api.format import (
    EngineLock,
    Format,
    LogFileRules,
    OutputRules,
    ReadRules,
    RepairRules,
    ValidationRules,
)
from binlogtool.format_api.layout import LogFileLayout
from binlogtool.format_api.lazy_import import LazyMapping, LazyRef
from binlogtool.format_api.replay_rules import ReplayRules
from binlogtool.format_api.row_output_interfaces import TableSupport
from binlogtool.formats.tarantool import FILE_PATTERNS, schema
from binlogtool.formats.tarantool.codes import END_MARK, ROW_KINDS, TYPE_NAMES, FileKind
from binlogtool.formats.tarantool.decode import (
    TEMPORARY_PATTERNS,
    TarantoolContext,
    decode_bodies,
    decode_row_headers,
    describe_records,
    detect,
    fork_context,
    get_log_stem,
    make_record_text,
    read_commit_and_local_flags,
    read_layout,
)
from binlogtool.formats.tarantool.validate import data_directory


def get_close_mark(layout: LogFileLayout) -> bytes | None:
    """Return the end mark for a write-ahead log, None for other files: a torn snapshot must not look complete."""
    context = layout.context
    return END_MARK if isinstance(context, TarantoolContext) and context.kind is FileKind.XLOG else None


_SALVAGE_REFUSALS = {
    FileKind.SNAP: "a server does not start from a snapshot without some of its rows, or starts without them",
    FileKind.VYLOG: "the records of a metadata log refer to each other",
    FileKind.RUN: "the index of the run holds the offset of each page",
    FileKind.INDEX: "an index that lacks pages does not match its run",
}


def explain_no_salvaged_copy(layout: LogFileLayout) -> str | None:
    """Explain why a file cannot be salvaged; None for write-ahead logs, which remain usable if rows are missing."""
    kind = layout.context.kind if isinstance(layout.context, TarantoolContext) else None
    return None if kind is None else _SALVAGE_REFUSALS.get(kind)


REPAIR = RepairRules(
    locks=(EngineLock("", "flock"),),  # the server locks its log directory
    close_mark=get_close_mark,
    gaps="rows may be missing in the middle: the server then starts, with or without force_recovery, and "
    "reports nothing"
    "; replicas that request the missing rows cannot be served",
    numbered=True,
    salvage_obstacle=explain_no_salvaged_copy,
    fix_frames=LazyRef("tarantool.explain_damage:rebuild_block_headers"),
)


FORMAT = Format(
    name="tarantool",
    title="Tarantool journal files (.xlog, .snap, .vylog, .run, .index), formats 0.12 and 0.13",
    files=LogFileRules(
        patterns=FILE_PATTERNS,
        name_stem=get_log_stem,
        log_patterns=("*.xlog", "*.snap", "*.vylog"),
        sort_names=data_directory.sort_names,
        log_directory=data_directory.find_log_directory,
        temporary_patterns=TEMPORARY_PATTERNS,
    ),
    reading=ReadRules(
        detect=detect,
        layout=read_layout,
        find_header_bit_flips=LazyRef("tarantool.explain_damage:find_header_bit_flips"),
        schemas={"header": schema.HEADER, "block": schema.BLOCK, "payload": schema.PAYLOAD, "row": schema.ROW},
        clone_context=fork_context,
        split_finder=LazyRef("tarantool.decode:make_split_point_finder"),
        carries_state=True,
        compiled_layouts=LazyRef("tarantool.decode:list_compiled_layouts"),
    ),
    validation=ValidationRules(
        validator=data_directory.create_validator,
        validate_set=data_directory.validate_set,
        is_link_proven=data_directory.is_link_proven,
        explain_damage=LazyRef("tarantool.explain_damage:explain_damage"),
    ),
    output=OutputRules(
        types=TYPE_NAMES,
        decode_envelopes=describe_records,
        decode_bodies=decode_bodies,
        decode_extras=decode_row_headers,
        extra_names=("header",),
        json_line=LazyRef("tarantool.rows.json_line_kernels:create_json_line"),
        start_record_text=lambda: make_record_text,
        sequence_name="LSN",
    ),
    repair=REPAIR,
    replay=ReplayRules(
        begin=LazyRef("tarantool.replay.replayer:TarantoolReplayer"),
        decode_extras=read_commit_and_local_flags,
        reasons=LazyMapping("tarantool.replay.loss_findings:REASONS"),
        effects=LazyRef("tarantool.replay.row_effects:TarantoolEffectReader"),
        patch=LazyRef("tarantool.replay.row_effects:apply_patch"),
        compiled=LazyRef("tarantool.replay.replay_kernels:TarantoolFastPath"),
        uses_server_version=True,
        parse_state=LazyRef("tarantool.replay.replayer:read_header_position"),
        force="force_recovery = true: files with a wrong header, damaged blocks and rows that cannot be applied are "
        "skipped, and missing logs are tolerated",
    ),
    tables=TableSupport(
        LazyRef("tarantool.read_spaces_as_tables:SpaceTableReader"),
        types=ROW_KINDS,
        objects=("_space", "_index"),
        older=("*.snap",),
        operations=True,
    ),
    references=(
        "https://www.tarantool.io/en/doc/latest/reference/internals/file_formats/",
        "https://github.com/tarantool/tarantool/blob/master/src/box/xlog.c",
        "https://github.com/tarantool/tarantool/blob/master/src/box/iproto_constants.h",
    ),
)
