"""The eblob binlog: changes that reached a blob while it was being sorted; no checksums, nine dialects."""

from __future__ import annotations

from binlogtool.format_api.format import Format, LogFileRules, OutputRules, ReadRules, RepairRules, ValidationRules
from binlogtool.format_api.lazy_import import LazyMapping, LazyRef
from binlogtool.format_api.replay_rules import ReplayRules
from binlogtool.format_api.row_output_interfaces import TableSupport
from binlogtool.formats.eblob import FILE_PATTERNS
from binlogtool.formats.eblob.decode import (
    DIALECTS,
    KIND_NAMES,
    EblobRecordTableReader,
    decode_bodies,
    describe_records,
    detect_format,
    get_log_stem,
    make_record_text,
    read_layout,
)
from binlogtool.formats.eblob.schema import CONTROL, FOOTER, HEADER, HEADER_PACKED, WRITE_CONTROL
from binlogtool.formats.eblob.validate import create_validator

FORMAT = Format(
    name="eblob",
    title="eblob data-sort binlog",
    files=LogFileRules(
        patterns=FILE_PATTERNS,
        name_stem=get_log_stem,
        log_patterns=FILE_PATTERNS,
    ),
    reading=ReadRules(
        detect=detect_format,
        layout=read_layout,
        schemas={
            "header": HEADER,
            "header-packed": HEADER_PACKED,
            "control": CONTROL,
            "footer": FOOTER,
            "write-control": WRITE_CONTROL,
            **{f"record-{name}": dialect.schema for name, dialect in DIALECTS.items()},
        },
        split_finder=LazyRef("eblob.decode:make_split_point_finder"),
        variants=tuple(DIALECTS),
        compiled_layouts=LazyRef("eblob.decode:list_compiled_layouts"),
    ),
    validation=ValidationRules(
        validator=create_validator,
        explain_damage=LazyRef("eblob.explain_damage:explain_damage"),
        is_closed_end_proven=lambda _facts: False,
    ),
    output=OutputRules(
        types=KIND_NAMES,
        decode_envelopes=describe_records,
        decode_bodies=decode_bodies,
        json_line=LazyRef("eblob.json_line_kernels:create_json_line"),
        start_record_text=lambda: make_record_text,
    ),
    tables=TableSupport(EblobRecordTableReader, transactions=False),
    repair=RepairRules(
        gaps="records after damage can be older than those before it, and there is no checksum to prove otherwise"
    ),
    replay=ReplayRules(
        begin=LazyRef("eblob.replay:DataSortReplayer"),
        reasons=LazyMapping("eblob.replay:REASONS"),
        effects=LazyRef("eblob.replay:BlobEffectReader"),
        parse_state=LazyRef("eblob.replay:parse_blob_index"),
        force="same as server: the library has no such option",
    ),
    references=(
        "eblob 0.17 to 0.21, library/binlog.c and library/binlog.h (October 2012 to July 2013)",
        "eblob 0.21, library/datasort.c (what is logged and how it is replayed), include/eblob/blob.h (disk control)",
    ),
)
