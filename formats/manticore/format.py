"""The table binary log of Manticore Search, and of Sphinx, its ancestor."""

from __future__ import annotations

from binlogtool.format_api.format import Format, LogFileRules, OutputRules, ReadRules, ValidationRules
from binlogtool.format_api.lazy_import import LazyMapping, LazyRef
from binlogtool.format_api.replay import ReplayRules
from binlogtool.format_api.tables_and_changes import TableSupport
from binlogtool.formats.manticore import FILE_PATTERNS, schema
from binlogtool.formats.manticore.decode import (
    TYPE_NAMES,
    DocumentTables,
    decode_bodies,
    describe_records,
    make_record_text,
)
from binlogtool.formats.manticore.layout import detect, fork_context, get_log_stem, read_layout
from binlogtool.formats.manticore.repair import REPAIR
from binlogtool.formats.manticore.validate import create_validator, sort_names, validate_set

FORMAT = Format(
    name="manticore",
    title="Manticore Search and Sphinx binary log",
    files=LogFileRules(
        patterns=FILE_PATTERNS,
        name_stem=get_log_stem,
        sort_names=sort_names,
        temporary_patterns=("binlog.meta.new",),
    ),
    reading=ReadRules(
        detect=detect,
        layout=read_layout,
        find_header_flips=LazyRef("manticore.damage:find_header_flips"),
        schemas={
            "meta": schema.META,
            "header": schema.LOG_HEADER,
            "txn": schema.FRAME,
            "payload": schema.PAYLOAD,
            **{
                f"txn-v{version}": schema.create_old_frame_schema(version)
                for version in range(schema.FIRST_VERSION, schema.NEW_FRAME_VERSION)
            },
        },
        clone_context=fork_context,
        split_finder=LazyRef("manticore.decode:create_split_points"),
        compiled_layouts=LazyRef("manticore.layout:layouts"),
    ),
    validation=ValidationRules(
        validator=create_validator,
        validate_set=validate_set,
        explain_damage=LazyRef("manticore.damage:explain_damage"),
    ),
    output=OutputRules(
        types=TYPE_NAMES,
        decode_envelopes=describe_records,
        decode_bodies=decode_bodies,
        json_line=LazyRef("manticore.payloads.json_lines:create_json_line"),
        start_record_text=lambda: make_record_text,
    ),
    tables=TableSupport(DocumentTables, operations=True),
    repair=REPAIR,
    replay=ReplayRules(
        begin=LazyRef("manticore.replay.replay:ManticoreReplayer"),
        reasons=LazyMapping("manticore.replay.replay:REASONS"),
        effects=LazyRef("manticore.replay.replay:ManticoreEffects"),
        patch=LazyRef("manticore.replay.replay:apply_patch"),
        parse_state=LazyRef("manticore.replay.replay:read_saved_tid"),
        force="like --replay-flags=ignore-all-errors (up to version 13: ignore-open-errors and accept-desc-timestamp, "
        "all that is known there): after an error the rest of that file is dropped, missing files are skipped",
    ),
    references=(
        "Manticore Search, src/binlog.cpp, src/binlog.h and doc/binary-logging.md, commit e790cb571 (2026-08-22)",
        "Manticore Search 27.1.0 and 6.3.8, the same files at these releases",
        "Sphinx 2.2.11, src/sphinxrt.cpp (Debian package sphinxsearch)",
    ),
)
