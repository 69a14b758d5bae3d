"""Tarantool journal files: write-ahead logs, snapshots, and the files of the vinyl engine."""

from __future__ import annotations

from binlogtool.format_api.format import Format, LogFileRules, OutputRules, ReadRules, ValidationRules
from binlogtool.format_api.lazy_import import LazyMapping, LazyRef
from binlogtool.format_api.replay import ReplayRules
from binlogtool.formats.tarantool import FILE_PATTERNS, schema
from binlogtool.formats.tarantool.codes import TYPE_NAMES
from binlogtool.formats.tarantool.decode import decode_bodies, decode_headers, describe_records, read_transaction_flags
from binlogtool.formats.tarantool.layout import TEMPORARY_PATTERNS, detect, fork_context, get_log_stem, read_layout
from binlogtool.formats.tarantool.repair import REPAIR
from binlogtool.formats.tarantool.validate import data_directory

FORMAT = Format(
    name="tarantool",
    title="Tarantool journal files (.xlog, .snap, .vylog, .run, .index), formats 0.12 and 0.13",
    files=LogFileRules(
        patterns=FILE_PATTERNS,
        name_stem=get_log_stem,
        sort_names=data_directory.sort_names,
        log_directory=data_directory.find_log_directory,
        temporary_patterns=TEMPORARY_PATTERNS,
    ),
    reading=ReadRules(
        detect=detect,
        layout=read_layout,
        find_header_flips=LazyRef("tarantool.damage:find_header_flips"),
        schemas={"header": schema.HEADER, "block": schema.BLOCK, "payload": schema.PAYLOAD, "row": schema.ROW},
        clone_context=fork_context,
        split_finder=LazyRef("tarantool.decode:create_split_points"),
        carries_state=True,
        compiled_layouts=LazyRef("tarantool.layout:layouts"),
    ),
    validation=ValidationRules(
        validator=data_directory.create_validator,
        validate_set=data_directory.validate_set,
        explain_damage=LazyRef("tarantool.damage:explain_damage"),
    ),
    output=OutputRules(
        types=TYPE_NAMES,
        decode_envelopes=describe_records,
        decode_bodies=decode_bodies,
        decode_extras=decode_headers,
        extra_names=("header",),
        json_line=LazyRef("tarantool.rows.json_lines:create_json_line"),
        start_record_text=LazyRef("tarantool.record_text:start_record_text"),
    ),
    repair=REPAIR,
    replay=ReplayRules(
        begin=LazyRef("tarantool.replay.replay:TarantoolReplayer"),
        decode_extras=read_transaction_flags,
        reasons=LazyMapping("tarantool.replay.losses:REASONS"),
        effects=LazyRef("tarantool.replay.effects:TarantoolEffects"),
        patch=LazyRef("tarantool.replay.effects:apply_patch"),
        compiled=LazyRef("tarantool.replay.fast_path:TarantoolFastPath"),
        parse_state=LazyRef("tarantool.replay.replay:read_header_position"),
        force="force_recovery = true: files with a wrong header, damaged blocks and rows that cannot be applied are "
        "skipped, and missing logs are tolerated",
    ),
    tables=LazyRef("tarantool.tables:create_tables"),
    references=(
        "https://www.tarantool.io/en/doc/latest/reference/internals/file_formats/",
        "https://github.com/tarantool/tarantool/blob/master/src/box/xlog.c",
        "https://github.com/tarantool/tarantool/blob/master/src/box/iproto_constants.h",
    ),
)
