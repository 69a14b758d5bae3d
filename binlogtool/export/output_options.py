"""Options of outputs: file format, compression, partitions, typed tables, envelopes of change messages."""

from __future__ import annotations

import fnmatch
import importlib.util
from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool import limits
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import MissingExtraError, UsageError, format_name_suggestions, join_names
from binlogtool.findings import ROWS_DIVERGE, Finding
from binlogtool.format_api.row_output_interfaces import TableSchema, make_database_table, split_table_name
from binlogtool.limits import MIB

# --- Options of typed tables ---

IMAGE_CHOICES = ("after", "before", "both", "changes")


class TypedRowOptions(msgspec.Struct, frozen=True):
    """Options of typed rows.

    Args:
        objects: patterns of selected tables; () = all.
        others: patterns of excluded tables.
        image: content of the columns. after: the row after the change; for a DELETE, before it. before: the row before
            the change; for an INSERT, nothing. both: two structs. changes: like `after`, but for an UPDATE only the
            changed columns and the key.
        per_table: one directory per table; otherwise there is one table, and the output is its directory.
        where: a condition on rows.
        skip, limit: number of matching rows to skip, and maximum number of rows.
        merge: only the last row of each key, unless it was deleted.
    """

    objects: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    image: str = "after"
    per_table: bool = True
    where: str | None = None
    skip: int = 0
    limit: int | None = None
    merge: bool = False

    def is_selected(self, table: TableSchema) -> bool:
        """Return True if the table is selected."""
        names = table.names
        return (not self.objects or _matches_any(names, self.objects)) and not _matches_any(names, self.others)

    def may_select_ignoring_case(self, table: TableSchema) -> bool:
        """Return True if the table named in a statement could be selected; servers may ignore upper and lower case."""
        names = tuple(name.casefold() for name in table.names)
        return self.is_selected(table) or (
            bool(self.objects) and _matches_any(names, tuple(map(str.casefold, self.objects)))
        )

    def is_finding_about_selected_table(self, finding: Finding) -> bool:
        """Return True if a finding is about a selected table, or does not name a table."""
        name = finding.facts.get("table") if finding.id == ROWS_DIVERGE else None
        return name is None or self.may_select_ignoring_case(make_database_table(*split_table_name(str(name)), ()))

    def with_pattern(self, pattern: str) -> TypedRowOptions:
        """Return a copy that selects tables by one pattern."""
        return replace(self, objects=(pattern,), others=())


def describe_other_table(name: str) -> str:
    """Return the remark about a statement that changes rows of a table that is not selected."""
    return (
        f"a statement changes rows of {name}, which is not selected; changes that its triggers or foreign keys make in "
        "other tables are not in the log"
    )


class TableFilter:
    """`TypedRowOptions.is_selected` with a cache of the last answer, as consecutive rows mostly have the same table."""

    def __init__(self, options: TypedRowOptions) -> None:
        self._options = options
        self._last: TableSchema | None = None
        self._last_answer = False

    def __call__(self, table: TableSchema) -> bool:
        """Return True if the table is selected."""
        if table is not self._last:
            self._last, self._last_answer = table, self._options.is_selected(table)
        return self._last_answer


def _matches_any(names: tuple[str, ...], globs: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for name in names for glob in globs)


def build_typed_options(selection: Selection, image: str | None, *, per_table: bool) -> TypedRowOptions:
    """Return the options of typed rows from a selection and the options --image and --per-table.

    Raises:
        UsageError: the options contradict each other.
    """
    if image not in (None, *IMAGE_CHOICES):
        raise UsageError(f"--image {image}: choose one of {', '.join(IMAGE_CHOICES)}")
    if selection.tail is not None:
        raise UsageError("--tail counts records and cannot be used with typed rows; select by position or time")
    if selection.where is not None:
        _refuse_body_in_condition(selection.where)
    s, is_single_table = (
        selection,
        len(selection.objects) == 1 and not any(map("*?[".__contains__, selection.objects[0])),
    )
    row_filters = (s.where, s.skip, s.limit)
    return TypedRowOptions(
        s.objects, s.exclude_objects, image or "after", per_table or not is_single_table, *row_filters
    )


def _refuse_body_in_condition(condition: str) -> None:
    from binlogtool.query.evaluate import compile_condition

    bodies = [path for path in compile_condition(condition).paths if path[0] == "body"]
    if bodies:
        name = ".".join(map(str, bodies[0]))
        raise UsageError(f"--where: {name}: typed rows have no body; use before.COLUMN or after.COLUMN")


def typed_selection(selection: Selection) -> Selection:
    """Return the selection for reading, which includes records that define tables and transactions."""
    return replace(selection, objects=(), exclude_objects=(), where=None, skip=0, limit=None)


def is_part_selected(selection: Selection) -> bool:
    """Return True if a selection of records leaves some out, apart from damage."""
    return replace(selection, on_damage="skip", live=False, whole=frozenset(), once=False) != Selection()


def describe_missing_table(tables: Iterable[str], name: str = "") -> str:
    """Return a text that a table is missing among these tables, with the most similar names."""
    names = sorted(tables)
    if suggestion := format_name_suggestions(name, names):
        return f"the log contains no such table{suggestion}"
    listing = f"it has {join_names(names)}" if names else "it has none"
    return f"the log contains no such table; {listing}"


# --- Options of change messages ---

ENVELOPES = ("debezium", "maxwell", "canal")
DECIMAL_MODES = ("precise", "string", "double")
TIME_MODES = ("adaptive_time_microseconds", "connect")
BIGINT_MODES = ("long", "precise")


class EnvelopeOptions(msgspec.Struct, frozen=True):
    """Options of change messages. envelope: the shape; all other options are for debezium.

    source_name: logical name of the server; None = left out. tombstones: a message without a value after each delete.
    provide_transaction_metadata: the member transaction, and a message for each begin and end of a transaction.
    include_query: the statement of a change in source.query. schema_messages: one for each DDL statement.
    decimals, times, unsigned_bigint: as decimal.handling.mode, time.precision.mode and bigint.unsigned.handling.mode.
    """

    envelope: str
    source_name: str | None = None
    tombstones: bool = True
    provide_transaction_metadata: bool = False
    include_query: bool = False
    schema_messages: bool = False
    decimals: str = "precise"
    times: str = "adaptive_time_microseconds"
    unsigned_bigint: str = "long"

    def refuse_invalid_options(self) -> None:
        """Raise UsageError if the shape is unknown, or if an option does not apply to it."""
        for name, allowed in _ALLOWED_VALUES.items():
            if getattr(self, name) not in allowed:
                raise UsageError(f"--{_option_name(name)} {getattr(self, name)}: choose one of {', '.join(allowed)}")
        if self.envelope != "debezium" and (option := find_non_default_option(self)):
            raise UsageError(f"--{option} is for --envelope debezium, not for {self.envelope}")


def parse_envelope_options(values: Mapping[str, Any] | None) -> EnvelopeOptions | None:
    """Return the options of messages; None = no messages are requested.

    Raises:
        UsageError: an option of messages is given without --envelope.
    """
    if values is None:
        return None
    used_values = {name: value for name, value in values.items() if name != "envelope" or value}
    options = EnvelopeOptions(**{"envelope": "debezium", **used_values})
    if "envelope" in used_values:
        return options
    if name := find_non_default_option(options):
        raise UsageError(f"--{name} is for --envelope debezium")
    return None


_ALLOWED_VALUES = {
    "envelope": ENVELOPES,
    "decimals": DECIMAL_MODES,
    "times": TIME_MODES,
    "unsigned_bigint": BIGINT_MODES,
}


def find_non_default_option(options: EnvelopeOptions) -> str | None:
    """Return the name of a debezium option that is not at its default; None if there is none."""
    defaults = EnvelopeOptions(options.envelope)
    names = [name for name in EnvelopeOptions.__struct_fields__ if getattr(options, name) != getattr(defaults, name)]
    return _option_name(names[0]) if names else None


def _option_name(name: str) -> str:
    return "no-tombstones" if name == "tombstones" else name.replace("_", "-")


# --- Directory names of partitions without a value ---

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Directory of rows whose partition column is null, for numbers, times and truth values: Spark's and Hive's name."""

NO_TEXT = "__none__"
"""Directory of rows whose text partition column is null or empty: object=__none__."""


# --- Optional dependencies ---


def require_modules_lifting_memory_limit(purpose: str, *modules: str, extra: str = "arrow") -> None:
    """Check that modules are installed, without importing them, and lift this process's memory limit.

    The limit is lifted because these modules, and Java, which is started later, have their own memory limits.

    Args:
        purpose: the work that needs the modules, for the message.
        modules: names of the modules.
        extra: the optional dependency group that contains them.

    Raises:
        MissingExtraError: a module is missing; the message names the command that installs it.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join((", ".join(missing[:-1]), missing[-1]) if len(missing) > 1 else missing)
        raise MissingExtraError(f"{purpose} needs {names}: run `pip install '.[{extra}]'` in a checkout")
    limits.lift_memory_ceiling()


# --- Options of table files ---

COMPRESSIONS: Mapping[str, tuple[str, ...]] = {
    "parquet": ("zstd", "gzip", "snappy", "lz4_raw", "none"),
    "orc": ("zstd", "zlib", "snappy", "lz4", "none"),
    "csv": ("none", "gzip", "bzip2"),
    "json": ("none", "gzip", "bzip2"),
    "avro": ("deflate", "bzip2", "xz", "none"),
}
"""Compressions of each table format; the first one is the default."""

DEFAULT_FILE_SIZE = 256 * MIB
"""Approximate size of an output file in bytes."""

MIN_FILE_SIZE = 32 * MIB
"""Files are made smaller to keep all cores busy, but not below this size in bytes: small files take more space."""

_GROWTH: Mapping[str, float] = {"parquet": 0.3, "orc": 0.3, "avro": 0.5, "csv": 8.0, "json": 12.0, "jsonl": 12.0}
"""Output bytes per byte of a log with small records (measured with 20 MiB; Parquet 200 MiB); large ones need less."""
_TEXT_COMPRESSION_RATIO = 10.0
"""Factor by which compressed texts are smaller."""

DERIVED_PARTITIONS = ("date", "hour")
"""Columns derived from `time` (UTC), for partitions only: 2026-01-31, and 0 to 23."""

RECORD_PARTITIONS = (
    "file", "format", "type", "seq", "object", "origin", "txn", "checksum_algorithm", "checksum_ok",
    *DERIVED_PARTITIONS,
)  # fmt: skip
"""Columns that can be partitions; the other columns differ from row to row."""

TYPED_PARTITIONS = ("op", "server", "file", *DERIVED_PARTITIONS)
"""Columns that can be partitions of typed rows of tables."""


class TableFileOptions(msgspec.Struct, frozen=True):
    """Options of table files.

    Args:
        to: the format.
        partition_by: columns whose values become directories.
        compression: None = the format's default.
        csv_safe: put an apostrophe before CSV texts that a spreadsheet would take for formulas.
        typed: the rows are typed rows of tables (`export.table_spool`), not records.
        file_size: approximate bytes of a file; None = DEFAULT_FILE_SIZE.
    """

    to: str
    partition_by: tuple[str, ...] = ()
    compression: str | None = None
    csv_safe: bool = False
    typed: bool = False
    file_size: int | None = None

    def estimate_file_count(self, size: int, cores: int) -> int:
        """Return the number of files for logs of `size` bytes, with `cores` parallel tasks."""
        output_size = size * _GROWTH[self.to]
        if _GROWTH[self.to] > 1 and self.codec != "none":
            output_size /= _TEXT_COMPRESSION_RATIO
        file_size = self.file_size or DEFAULT_FILE_SIZE
        return max(ceil(output_size / file_size), min(cores, ceil(output_size / min(file_size, MIN_FILE_SIZE))), 1)

    def check(self) -> None:
        """Check the options before any work starts.

        Raises:
            UsageError: an option is not allowed.
            MissingExtraError: a library that writes tables is not installed.
        """
        allowed = COMPRESSIONS[self.to]
        if self.compression not in (None, *allowed):
            raise UsageError(f"--compression {self.compression}: {self.to} can have {', '.join(allowed)}")
        allowed = TYPED_PARTITIONS if self.typed else RECORD_PARTITIONS
        for name in self.partition_by:
            if name not in allowed:
                raise UsageError(f"--partition-by {name}: choose of {', '.join(allowed)}")
        if len(set(self.partition_by)) < len(self.partition_by):
            raise UsageError("--partition-by names a column twice")
        if self.typed and self.file_size is not None:
            raise UsageError("--target-file-size is for records; it cannot be used with typed rows")
        if self.csv_safe and self.to != "csv":
            raise UsageError("--csv-safe is only for --to csv")
        require_modules_lifting_memory_limit(
            f"--to {self.to}", "numpy", "pyarrow", *(("fastavro",) if self.to == "avro" else ())
        )

    @property
    def codec(self) -> str:
        """Name of the compression."""
        return self.compression or COMPRESSIONS.get(self.to, ("none",))[0]

    @property
    def spool_options(self) -> TableFileOptions:
        """Options of files in a spool, which are Parquet: those of the output if its files can be the same."""
        return self if self.to == "parquet" and not self.partition_by else TableFileOptions("parquet")
