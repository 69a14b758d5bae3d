"""The description of the format `mysql-binlog` and of the kinds of its files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from binlogtool.format_api.format import (
    FileHead,
    FileTail,
    Format,
    FormatMatch,
    LogFileRules,
    OutputRules,
    ReadRules,
    ValidationResult,
    ValidationRules,
    Validator,
)
from binlogtool.format_api.lazy_import import LazyMapping, LazyRef
from binlogtool.format_api.replay_rules import ReplayRules
from binlogtool.format_api.row_output_interfaces import TableSupport
from binlogtool.formats.binlog_events.decode import (
    BinlogFileContext,
    build_envelope_columns,
    decode_envelope_column,
    decode_event_bodies,
    decode_header_extras,
    fork_context,
    strip_reading_state,
)
from binlogtool.formats.binlog_events.gtid.gtid_sets import GTID_PARSERS
from binlogtool.formats.binlog_events.wire_format import ENCRYPTED_MAGIC, EVENT_TYPE_NAMES, FLAGS_AT, MAGIC, TYPE_GROUPS
from binlogtool.formats.mysql_binlog import FILE_PATTERNS
from binlogtool.formats.mysql_binlog.detect_layout import create_log_layout as log_layout
from binlogtool.formats.mysql_binlog.detect_layout import detect_binary_log
from binlogtool.formats.mysql_binlog.index_and_state_files import (
    TEMPORARY_PATTERNS,
    create_gtid_index_layout,
    create_text_layout,
    detect_gtid_index,
    detect_text_file,
    get_log_name_stem,
    get_text_file_kind,
    is_gtid_index,
    is_next_file_proven_by_rotate,
    sort_names,
)
from binlogtool.formats.mysql_binlog.repair_in_use_flag_and_index import REPAIR

if TYPE_CHECKING:
    from binlogtool.findings import Finding
    from binlogtool.format_api.layout import Batch, Kernel, LogFileLayout
    from binlogtool.limits import Limits

# --- Dispatch by file kind of a log ---


def detect_member(head: FileHead) -> FormatMatch:
    """Detect a log, its GTID index, or one of the text files next to it."""
    return max(detect_binary_log(head), detect_gtid_index(head), detect_text_file(head), key=attrgetter("score"))


def create_layout(head: FileHead, limits: Limits) -> LogFileLayout:
    """Return the layout of a log, its GTID index, or a text file.

    Raises:
        KeyFileError: the keys that the user named do not decrypt this log.
    """
    kind = get_text_file_kind(head.name.rpartition("/")[2])
    if head.data.startswith((MAGIC, ENCRYPTED_MAGIC)):
        return log_layout(head, limits)
    if is_gtid_index(head):
        return create_gtid_index_layout(head)
    return log_layout(head, limits) if kind is None else create_text_layout(head, kind)


class _NoRecordsValidator:
    """Validator of a file without records: all its findings come from the layout."""

    def validate_batch(self, batch: Batch) -> Sequence[Finding]:
        return ()

    def skip_damage(self, start: int, end: int) -> None:
        return None

    def finish(self, tail: FileTail) -> ValidationResult:
        return ValidationResult(0, {})


def create_validator(layout: LogFileLayout, compile: Callable[[Kernel], Kernel], limits: Limits) -> Validator:
    """Create the validator for one file of any kind."""
    if not isinstance(layout.context, BinlogFileContext):
        return _NoRecordsValidator()
    from binlogtool.formats.mysql_binlog.validate.binlog_file import BinlogValidator

    return BinlogValidator(layout, compile, limits)


# --- Declaration of the format mysql-binlog ---

FORMAT = Format(
    name="mysql-binlog",
    title="MySQL and MariaDB binary log",
    files=LogFileRules(
        patterns=FILE_PATTERNS,
        mutable_header=(len(MAGIC) + FLAGS_AT, len(MAGIC) + FLAGS_AT + 2),
        sort_names=sort_names,
        temporary_patterns=TEMPORARY_PATTERNS,
        name_stem=get_log_name_stem,
        log_patterns=FILE_PATTERNS[:2],
    ),
    reading=ReadRules(
        detect=detect_member,
        layout=create_layout,
        find_header_bit_flips=LazyRef("mysql_binlog.explain_damage:find_header_bit_flips"),
        event_groups=LazyRef("mysql_binlog.extract_transactions:create_transaction_reader"),
        split_finder=LazyRef("mysql_binlog.extract_transactions:make_split_point_finder"),
        carries_state=True,
        clone_context=fork_context,
        compact_layout=strip_reading_state,
        schemas=LazyMapping("mysql_binlog.schema:SCHEMAS"),
        compiled_layouts=LazyRef("mysql_binlog.detect_layout:iter_compiled_layouts"),
    ),
    validation=ValidationRules(
        validator=create_validator,
        validator_reports_sequences=True,
        explain_damage=LazyRef("mysql_binlog.explain_damage:explain_damage"),
        validate_set=LazyRef("mysql_binlog.validate.log_set:validate_set"),
        is_link_proven=is_next_file_proven_by_rotate,
    ),
    output=OutputRules(
        types=EVENT_TYPE_NAMES,
        type_groups=TYPE_GROUPS,
        has_whole_seconds=True,
        decode_envelopes=build_envelope_columns,
        decode_column=decode_envelope_column,
        decode_bodies=decode_event_bodies,
        decode_extras=decode_header_extras,
        extra_names=("header",),
        json_line=LazyRef("binlog_events.json_line_kernels:make_log_json_line"),
        find_statements=LazyRef("binlog_events.sql.flashback:iter_statements_naming_tables"),
        gtid_rules=GTID_PARSERS,
        sequence_name="transaction",
        is_transaction_end=LazyRef("mysql_binlog.extract_transactions:is_transaction_end"),
        start_script=LazyRef("binlog_events.sql.script:create_script"),
        start_changes=LazyRef("binlog_events.changes.row_changes:create_row_change_reader"),
        start_record_text=LazyRef("binlog_events.record_text:create_record_describer"),
    ),
    tables=TableSupport(
        LazyRef("binlog_events.changes.row_event_table_reader:RowEventTableReader"),
        types=("TABLE_MAP",),
        emptied=True,
        make_compiled_reader=LazyRef("binlog_events.changes.row_event_table_reader:create_compiled_table_reader"),
        statements=True,
    ),
    repair=REPAIR,
    replay=ReplayRules(
        begin=LazyRef("mysql_binlog.replay.replayer:BinlogReplayer"),
        reasons=LazyMapping("binlog_events.replay.simulated_applier:REASONS"),
        effects=LazyRef("binlog_events.replay.event_effects:EventEffectReader"),
        patch=LazyRef("binlog_events.replay.event_effects:apply_update_to_row"),
        parse_state=LazyRef("mysql_binlog.replay.replayer:parse_server_state"),
        decode_extras=LazyRef("binlog_events.decode:decode_header_flag_extras"),
        force="skips the transactions that are damaged or rejected, and applies all others "
        "(mysqlbinlog --force-read with --skip-gtid-strict-mode, mysql --force)",
    ),
    references=(
        "MySQL Server 9.7: libs/mysql/binlog/event, sql/log_event.cc, sql/binlog, sql/rpl_gtid",
        "MariaDB Server 10.11 and 11.8: sql/log_event.h, sql/log_event.cc, sql/log_event_server.cc, sql/log.cc",
        "MySQL Internals: Binary Log Version 4, row-based binary logging",
    ),
)
