"""The format `mariadb-innodb-binlog`: the binary log inside InnoDB (`binlog-NNNNNN.ibb`) and its redo log."""

from __future__ import annotations

from binlogtool.format_api.format import Format, LogFileRules, OutputRules, ReadRules, ValidationRules
from binlogtool.format_api.lazy_import import LazyMapping, LazyRef
from binlogtool.format_api.replay_rules import ReplayRules
from binlogtool.format_api.row_output_interfaces import TableSupport
from binlogtool.formats.binlog_events.gtid.gtid_sets import GTID_PARSERS
from binlogtool.formats.binlog_events.wire_format import TYPE_GROUPS
from binlogtool.formats.mariadb_innodb_binlog import FILE_PATTERNS, schema
from binlogtool.formats.mariadb_innodb_binlog.decode import (
    DUMP_TYPES,
    decode_bodies,
    describe_records,
    detect_format,
    fork_context,
    header_extras,
    make_layout,
)
from binlogtool.formats.mariadb_innodb_binlog.repair import REPAIR
from binlogtool.formats.mariadb_innodb_binlog.schema import (
    DEFAULT_PAGE_SIZE_SHIFT,
    IbbRecordType,
    log_stem,
    sort_file_names,
)
from binlogtool.formats.mariadb_innodb_binlog.validate.file import make_file_validator
from binlogtool.formats.mariadb_innodb_binlog.validate.log_set import is_link_proven, validate_log_set

FORMAT = Format(
    name="mariadb-innodb-binlog",
    title="MariaDB InnoDB binary log",
    files=LogFileRules(
        patterns=FILE_PATTERNS,
        name_stem=log_stem,
        log_patterns=FILE_PATTERNS,
        sort_names=sort_file_names,
    ),
    reading=ReadRules(
        detect=detect_format,
        layout=make_layout,
        find_header_bit_flips=LazyRef("mariadb_innodb_binlog.explain_damage:find_header_bit_flips"),
        reads_siblings=True,
        event_groups=LazyRef("mariadb_innodb_binlog.extract_transactions:IbbEventGroupReader"),
        schemas={
            "header_page": schema.header_page_construct(1 << DEFAULT_PAGE_SIZE_SHIFT),
            "page": schema.page_construct(1 << DEFAULT_PAGE_SIZE_SHIFT),
            "chunk": schema.CHUNK,
            **{IbbRecordType(code).name.lower(): body for code, body in schema.RECORDS.items()},
        },
        levels=("record", "page", "event"),
        event_level="event",
        find_ranges=LazyRef("mariadb_innodb_binlog.decode:find_selected_parts"),
        clone_context=fork_context,
        split_finder=LazyRef("mariadb_innodb_binlog.decode:make_split_point_finder"),
        carries_state=True,
        compiled_layouts=LazyRef("mariadb_innodb_binlog.decode:list_compiled_layouts"),
    ),
    validation=ValidationRules(
        validator=make_file_validator,
        validate_set=validate_log_set,
        is_link_proven=is_link_proven,
        explain_damage=LazyRef("mariadb_innodb_binlog.explain_damage:explain_damage"),
        validator_reports_sequences=True,
    ),
    output=OutputRules(
        types=DUMP_TYPES,
        type_groups=TYPE_GROUPS,
        has_whole_seconds=True,
        decode_envelopes=describe_records,
        decode_bodies=decode_bodies,
        decode_extras=header_extras,
        extra_names=("header",),
        json_line=LazyRef("mariadb_innodb_binlog.decode:json_line"),
        start_script=LazyRef("mariadb_innodb_binlog.extract_transactions:make_group_script"),
        start_changes=LazyRef("mariadb_innodb_binlog.rows_and_changes:make_group_changes"),
        start_record_text=LazyRef("binlog_events.record_text:create_record_describer"),
        gtid_rules=GTID_PARSERS,
        sequence_name="transaction",
    ),
    tables=TableSupport(
        LazyRef("mariadb_innodb_binlog.rows_and_changes:GroupTables"),
        types=("TABLE_MAP",),
        emptied=True,
        make_compiled_reader=LazyRef("mariadb_innodb_binlog.rows_and_changes:make_compiled_group_reader"),
    ),
    repair=REPAIR,
    replay=ReplayRules(
        begin=LazyRef("mariadb_innodb_binlog.replay:IbbReplayer"),
        reasons=LazyMapping("mariadb_innodb_binlog.replay:REASONS"),
        effects=LazyRef("binlog_events.replay.event_effects:EventEffectReader"),
        patch=LazyRef("binlog_events.replay.event_effects:apply_update_to_row"),
        level="event",
        count_records=LazyRef("mariadb_innodb_binlog.replay:count_events"),
        parse_state=LazyRef("mariadb_innodb_binlog.replay:parse_server_state"),
        force="skips groups that are damaged or rejected and applies all others that are in intact "
        "pages, including those after an end of data",
    ),
    references=(
        "MariaDB Server 12.3 and main (2026): storage/innobase/fsp/fsp_binlog.cc, handler/innodb_binlog.cc",
        "MariaDB Server: mysys/my_compr_int.cc, client/mysqlbinlog-engine.cc, Docs/replication/binlog.md",
        "MariaDB Server 10.8 and later: storage/innobase/include/mtr0log.h, log/log0recv.cc (the redo log)",
    ),
)
