"""`binlogtool convert`: write records as tables, lines, scripts or another log, with a manifest of all records."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.core import ParameterSource
from msgspec.structs import replace

from binlogtool.cli.click_command_tree import Command, CommandRun
from binlogtool.cli.options import (
    PATH,
    SIZE,
    HintOptions,
    SelectionOptions,
    SqlScriptOptions,
    build_master,
    envelope_options,
    hint_options,
    level_option,
    mark_shown_in_short_help,
    option,
    print_record_types,
    report_unmatched_schema,
    require_paths,
    script_options,
    selection_options,
    spark_options,
    where_option,
)
from binlogtool.cli.output_destination import OutputDestination
from binlogtool.findings import (
    BEYOND_LIMITS,
    COLUMNS_UNKNOWN,
    ENCRYPTED,
    ROWS_DIVERGE,
    SET_LINK_IDS,
    STATEMENT_LEFT_OUT,
)

if TYPE_CHECKING:
    import binlogtool
    from binlogtool.export.manifest import Manifest


_MAX_SHOWN = 5
_TABLES = ("parquet", "orc", "csv", "json", "avro")
_SPARK_OPTIONS = ("master", "conf")
_TARGETS = (*_TABLES, "jsonl", "sql", "raw", "mysql-binlog")
_PRINTABLE = ("jsonl", "sql")
"""Outputs of one text file, which standard output can take."""
_CHUNK_BYTES = 1 << 20
_QUIET_LABELS = ("read", "check", "wrote")
"""Labels of summary lines without problems: with the output on standard output they are shown only with -v."""
_FLASHBACK_STOPPED = "some changes cannot be reversed; select other transactions by position, GTID or time"
_STOP_REASONS = {
    "envelope": "some records cannot be written as messages; --schema may help, --on-damage skip leaves them out",
    COLUMNS_UNKNOWN: "the log does not name the columns of its tables; give their CREATE TABLE statements with "
    "--schema FILE.sql, or use --on-damage skip to leave these changes out",
    "result": "some events break the rules of a log; --allow-rule-breaks writes them unchanged",
    "limit": "content is beyond a limit of this program; raise it, or use --on-damage skip to leave it out",
    "sql": "some records cannot be written as statements; exclude them with the selection options",
    "options": (
        "an option excludes statements, or --stop-before names a statement that the log does not "
        "contain; the log is not damaged"
    ),
    "flashback": f"{_FLASHBACK_STOPPED}; --skip-ddl leaves table definitions unchanged",
    "flashback-skip-ddl": _FLASHBACK_STOPPED,
}
_ENCRYPTED_HINT = "the input is encrypted; use --keyfile FILE"
_DAMAGED_HINT = "the input is damaged; run `binlogtool verify`, or use --on-damage skip to leave damage out"
_DAMAGED_SCRIPT_HINT = (
    "the input is damaged; run `binlogtool verify`, and select whole transactions before or after the damage "
    "(--include-gtids, --start-position, --stop-position)"
)
_SKIPPED_RANGE_IDS = ("damaged-range", "torn-tail", "garbage-tail")
_UNLOGGED_HINTS = (
    "the output tables list their positions",
    "the output tables list their positions; --on-damage skip accepts the loss",
)


class MessageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Values of `envelope_options`."""

    envelope: str | None
    source_name: str | None
    tombstones: bool
    provide_transaction_metadata: bool
    include_query: bool
    schema_messages: bool
    decimals: str
    times: str
    unsigned_bigint: str


class ConvertCommandOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the command."""

    paths: tuple[str, ...]
    to: str | None
    master: str | None
    conf: tuple[str, ...]
    max_binlog_size: int | None
    allow_rule_breaks: bool
    partition_by: tuple[str, ...]
    compression: str | None
    target_file_size: int | None
    csv_safe: bool
    per_table: bool
    image: str | None
    merge: bool
    append: bool
    final: bool
    manifest: str | None
    messages: MessageOptions
    script: SqlScriptOptions
    selection: SelectionOptions
    hints: HintOptions


def _run_convert(run: CommandRun, options: ConvertCommandOptions) -> int:
    if options.selection.type == ("list",):
        return print_record_types(run, options.paths)
    settings, to = run.settings, options.to
    form = settings.choose_output_format(("text", "json"))
    require_paths(options.paths)
    if to is None:
        raise click.UsageError("--to is required.")
    if settings.output in (None, "-"):
        if to not in _PRINTABLE or options.per_table or options.append or form == "json":
            raise click.UsageError(f"--output is required; only {' and '.join(_PRINTABLE)} can be printed as one file.")
        return print_conversion_when_complete(run, options.paths, lambda path: _call_convert(run, options, to, path))
    return write_conversion_and_print_summary(run, form, lambda path: _call_convert(run, options, to, path))


def write_conversion_and_print_summary(
    run: CommandRun, summary_form: str, convert_to_path: Callable[[str], Manifest]
) -> int:
    """Write a conversion to --output, and the summary, or its manifest if `summary_form` is "json", to standard output.

    Args:
        convert_to_path: writes the output to a path that it is given.
    """
    import binlogtool

    settings = replace(run.settings, output=None)
    with OutputDestination(settings, text=summary_form != "json", page=False, defers_errors=True) as out:
        manifest = convert_to_path(str(run.settings.output))
        run.status = manifest.exit_code
        if summary_form == "json":
            out.write(binlogtool.manifest_as_json(manifest))
        else:
            for line in summary_lines(manifest):
                out.write_line(line)
    return run.status


def print_conversion_when_complete(
    run: CommandRun, inputs: Sequence[str], convert_to_path: Callable[[str], Manifest]
) -> int:
    """Print a conversion to one text file when it is complete; the summary goes to standard error.

    Args:
        convert_to_path: writes the output to a path that it is given.
    """
    from binlogtool.report.dump_output_formats import SqlWriter

    with (
        tempfile.TemporaryDirectory(prefix="binlogtool-") as folder,
        run.open_output(text=False, inputs=inputs) as out,
    ):
        path = os.path.join(folder, "output")
        manifest = convert_to_path(path)
        run.status = manifest.exit_code
        for line in summary_lines(manifest):
            run.print_diagnostic(line, level=1 if line.split(" ", 1)[0] in _QUIET_LABELS else 0)
        if manifest.complete:
            writer = SqlWriter(terminal=out.isatty())
            with open(path, "rb") as output:
                while data := output.read(_CHUNK_BYTES):
                    out.write(data if manifest.to == "jsonl" else writer.escape_script_if_terminal(data))
    return run.status


def _call_convert(run: CommandRun, options: ConvertCommandOptions, to: str, output: str) -> Manifest:
    """Call the library with the options of the command line, and show what it left out or did slowly."""
    import binlogtool

    settings, script = run.settings, options.script
    manifest = binlogtool.convert(
        options.paths,
        to,
        output,
        **settings.make_read_options(options.hints.read_hint_files()),
        selection=options.selection.build(on_damage="stop"),
        master=_choose_master(options, to),
        jobs=settings.jobs if _find_option_source("jobs") is ParameterSource.COMMANDLINE else 1,
        manifest=options.manifest,
        overwrite=settings.overwrite,
        max_binlog_size=options.max_binlog_size,
        allow_rule_breaks=options.allow_rule_breaks,
        on_step=lambda step: run.progress.update_stage(
            f"convert: {step.stage}", step.done, total=step.total, records=step.records
        ),
        partition_by=[name for text in options.partition_by for name in text.split(",") if name],
        compression=options.compression,
        csv_safe=options.csv_safe,
        target_file_size=options.target_file_size,
        envelope=msgspec.structs.asdict(options.messages),
        per_table=options.per_table,
        image=options.image,
        merge=options.merge,
        rows=script.rows,
        comments=script.comments,
        gtids=script.with_gtids,
        stop_before=script.stop_before,
        rewrite=script.rewrite,
        load_files=script.load_files,
        database=options.selection.database,
        append=options.append,
        final=options.final,
    )
    run.report_skipped_files()
    for reason, count in manifest.details.get("general_rows", {}).items():
        rows = "1 row was" if count == 1 else f"{count:,} rows were"
        run.print_diagnostic(f"{rows} decoded one record at a time, more slowly: {reason}", level=1)
    report_unmatched_schema(run, options.paths, options.hints.read_hint_files())
    return manifest


def _choose_master(options: ConvertCommandOptions, to: str) -> str | binlogtool.SparkMaster | None:
    """Return the master of the Spark options; None = do not use Spark.

    Raises:
        UsageError: an option on the command line asks for Spark where it is not used, or for processes beside it.
    """
    if options.append or not (to in _TABLES or (to == "jsonl" and options.messages.envelope)):
        subject = "--append works" if options.append else f"--to {to} is written"
        for name in _SPARK_OPTIONS:
            _refuse_command_line_option(
                name,
                f"{subject} in this process; it cannot be combined with --{name} "
                f"(--master is for {', '.join(_TABLES)}, and jsonl with --envelope)",
            )
        return None
    master = build_master(options.master, options.conf)
    if master is not None:
        _refuse_command_line_option("jobs", "--jobs is for conversions without Spark; use --master 'local[N]'")
    return master


def _refuse_command_line_option(name: str, text: str) -> None:
    """Refuse an option on the command line; in a configuration file it is allowed, as it may be for other commands.

    Raises:
        UsageError: the option is on the command line.
    """
    if _find_option_source(name) is ParameterSource.COMMANDLINE:
        raise click.UsageError(f"{text}.")


def _find_option_source(name: str) -> ParameterSource | None:
    """Return where the value of an option comes from; the command line (of command or group) takes precedence."""
    context: click.Context | None = click.get_current_context()
    sources = list[ParameterSource | None]()
    while context is not None:
        sources.append(context.get_parameter_source(name))
        context = context.parent
    return ParameterSource.COMMANDLINE if ParameterSource.COMMANDLINE in sources else sources[0]


_MIN_UNUSED_FILES = 4
"""From this number on, neighbouring files of which nothing was written share one line of the summary."""


def summary_lines(manifest: Manifest) -> Iterator[str]:
    """Yield the summary lines of a conversion: what was read, checked, found, lost and written."""
    from binlogtool.report.format_numbers_and_names import format_count, format_quantity, format_size
    from binlogtool.terminal.escape_and_fold_text import escape

    noun = "transaction" if manifest.to == "mysql-binlog" else None
    unit_name = "message" if "envelope" in manifest.details else noun or "row"
    if manifest.to in ("sql", "flashback"):
        unit_name = "record" if manifest.details.get("row_changes") is None else "row change"
    noun = noun or ("row" if "tables" in manifest.details else "record")
    for is_used, inputs in groupby(manifest.inputs, lambda input_: input_.records > 0):
        files = list(inputs)
        if is_used or len(files) < _MIN_UNUSED_FILES:
            for file in files:
                size, quantity = format_size(file.size), format_quantity(file.records, noun)
                yield f"read   {escape(file.path)}  {size}  {quantity}"
        else:
            size = format_size(sum(file.size for file in files))
            names = f"{escape(files[0].path)} to {escape(os.path.basename(files[-1].path))}"
            yield f"read   {names}  {len(files):,} files, {size}  0 {noun}s"
    for check in manifest.checks if manifest.complete else ():
        yield f"check  {escape(check.name)}: {escape(check.detail)}"
    if manifest.finding_counts:
        counts = (f"{format_count(n)} {escape(id_)}" for id_, n in sorted(manifest.finding_counts.items()))
        yield f"found  {', '.join(counts)}"
    shown_severities = ["warning"] if manifest.to in ("sql", "flashback") or unit_name == "message" else []
    shown_severities += ["error"] if unit_name == "message" and manifest.complete else []
    yield from _finding_lines("note", [f for f in manifest.findings if _is_reported_as_note(f, shown_severities)])
    yield from _table_change_lines(manifest)
    yield from (f"left   {escape(text)}" for text in manifest.details.get("leftovers", ()))
    yield from _render_lost_range_lines(manifest)
    yield from (f"lost   {escape(text)}" for text in manifest.details.get("unreadable", ()))
    if unlogged := manifest.details.get("untold"):
        hint = _UNLOGGED_HINTS[manifest.on_damage == "stop"]
        yield f"lost   {format_quantity(unlogged, 'record')} whose rows are not in the log; {hint}"
    if manifest.undecoded:
        accept = "; --on-damage skip accepts the loss" if manifest.on_damage == "stop" else ""
        yield (
            f"lost   the content of {format_quantity(manifest.undecoded, 'record')}, which is beyond a limit of this "
            f"program: raise --max depth=N or --max inflate=SIZE{accept}"
        )
    yield from (f"spark  {escape(text)}" for text in manifest.spark_messages)
    if left_out := manifest.details.get("gtids_left_out"):
        yield f"lost   {escape(', '.join(left_out))}"
    if not manifest.complete:
        is_encrypted = ENCRYPTED in manifest.finding_counts
        member, value = ("id", ENCRYPTED) if is_encrypted else ("severity", "error")
        yield from _finding_lines("error", [f for f in manifest.findings if f[member] == value])
        damaged_hint = _DAMAGED_SCRIPT_HINT if manifest.to == "flashback" else _DAMAGED_HINT
        stopped_by = manifest.details.get("stopped_by")
        error_ids = {f["id"] for f in manifest.findings if f["severity"] == "error"}
        if error_ids == {COLUMNS_UNKNOWN}:
            stopped_by = COLUMNS_UNKNOWN
        elif error_ids and error_ids.issubset(BEYOND_LIMITS):
            stopped_by = "limit"
        reason = _STOP_REASONS.get(str(stopped_by), damaged_hint)
        yield f"nothing was written: {_ENCRYPTED_HINT if ENCRYPTED in manifest.finding_counts else reason}"
        return
    if appended := manifest.details.get("append"):
        yield from _finding_lines("error", [f for f in manifest.findings if f["severity"] == "error"])
        yield (
            f"state  {escape(manifest.output)}  {format_quantity(appended['rows'], 'row')} at commit "
            f"{format_count(appended['commit'])}"
        )
        if not manifest.outputs:
            yield "nothing new"
            return
    written = f"{format_quantity(len(manifest.outputs), 'file')}, {format_size(sum(o.size for o in manifest.outputs))}"
    yield f"wrote  {escape(manifest.output)}  {format_quantity(manifest.rows, unit_name)}  {written}"


def _render_lost_range_lines(manifest: Manifest) -> Iterator[str]:
    """Yield lines about the damaged bytes of the input that the output does not contain, and where they are."""
    from binlogtool.report.diagnosis_and_replay import describe_lost_records_by_range
    from binlogtool.report.format_numbers_and_names import format_count, format_offset, format_quantity
    from binlogtool.terminal.escape_and_fold_text import escape

    ranges = [f for f in manifest.findings if f["id"] in _SKIPPED_RANGE_IDS and f["length"]]
    found = [f for f in ranges if f["severity"] != "note"] if manifest.complete else []
    if found:
        size = sum(f["length"] for f in found)
        is_whole_list = sum(manifest.finding_counts[id_] for id_ in {f["id"] for f in found}) == len(found)
        yield (
            f"lost   {'' if is_whole_list else 'at least '}{format_quantity(size, 'byte')} of the input in "
            f"{format_quantity(len(found), 'damaged range')}, which --on-damage {manifest.on_damage} leaves out:"
        )
    names = describe_lost_records_by_range(manifest, found[:_MAX_SHOWN])
    for one in found[:_MAX_SHOWN]:
        place = f"{escape(one['file'])} {format_offset(one['offset'])}"
        lost = names.get((one["file"], one["offset"]), "")
        yield f"lost     {place}  {one['id']}: {format_quantity(one['length'], 'byte')}{lost}"
    if len(found) > _MAX_SHOWN:
        yield f"lost     {format_count(len(found) - _MAX_SHOWN)} more; --manifest FILE lists them"
    for one in manifest.findings if manifest.complete else ():
        is_link = one["id"] in SET_LINK_IDS and one["offset"] is None and one["severity"] != "note"
        is_link = is_link and not _is_reported_as_note(one, ())
        if "packed_size" in one["facts"] or is_link:
            yield f"lost   {escape(one['file'])}  {one['id']}: {escape(one['message'])}"


def _finding_lines(label: str, findings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each finding, one for those that say the same about one file."""
    from binlogtool.report.format_numbers_and_names import format_count, format_repeats, group_and_count_by_key
    from binlogtool.terminal.escape_and_fold_text import escape

    groups = group_and_count_by_key(findings, lambda f: (f["file"], f["id"], f["facts"].get("cause") or f["message"]))
    for finding, count in groups[:_MAX_SHOWN]:
        text = f"{escape(finding['message'])}{format_repeats(count)}"
        yield f"{label:<6} {escape(finding['file'])}  {finding['id']}: {text}"
    if len(groups) > _MAX_SHOWN:
        yield f"{label:<6} {format_count(len(groups) - _MAX_SHOWN)} more; --manifest FILE lists all"


def _is_reported_as_note(finding: Mapping[str, Any], severities: Sequence[str]) -> bool:
    """Return True for findings of these severities, and for what a reader of any output has to know."""
    if finding["id"] == ENCRYPTED:  # it is an error, and is reported there
        return False
    is_table_note = finding["severity"] == "note" and finding["id"] in (STATEMENT_LEFT_OUT, ROWS_DIVERGE)
    is_warning = finding["severity"] == "warning" and finding["id"] in ("extra-member", "meta-mismatch")
    return finding["severity"] in severities or is_table_note or is_warning


def _table_change_lines(manifest: Manifest) -> Iterator[str]:
    """Yield lines about renamed tables and changed columns."""
    from binlogtool.report.format_numbers_and_names import format_count
    from binlogtool.terminal.escape_and_fold_text import escape

    column_changes = [f"{one['name']}: {text}" for one in manifest.details.get("tables", ()) for text in one["changes"]]
    texts = [*manifest.details.get("remarks", ()), *column_changes]
    yield from (f"note   {escape(text)}" for text in texts[:_MAX_SHOWN])
    if len(texts) > _MAX_SHOWN:
        yield f"note   {format_count(len(texts) - _MAX_SHOWN)} more changes of tables; --manifest FILE lists all"


command = Command(
    "convert",
    callback=_run_convert,
    options_type=ConvertCommandOptions,
    writes_files=True,
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        option("--to", "What to write.", click.Choice(_TARGETS), is_common=True),
        *mark_shown_in_short_help(spark_options("Write tables on Spark: local[*] or spark://HOST:PORT.")),
        option("--max-binlog-size SIZE",
            "mysql-binlog: start a new file at this size, between transactions (default: 1GiB).", SIZE),
        option("--allow-rule-breaks",
            "mysql-binlog: also write transactions that break the log's rules (duplicate XID, no GTID).",
            group="Damage"),
        option("--partition-by COL",
            "Write a directory for each value of COL; COL is type, object, date, hour, …; repeatable.",
            group="Tables", multiple=True),
        option("--compression NAME",
            "zstd (default of parquet and orc), deflate (avro), gzip, snappy, none, … by format.", group="Tables"),
        option("--target-file-size SIZE",
            "Approximate file size (default: 256MiB); smaller where that keeps all cores busy.", SIZE, group="Tables"),
        option("--csv-safe",
            "CSV: put an apostrophe before cells that a spreadsheet would take for formulas.", group="Tables"),
        option("--per-table",
            "Changed rows with the columns of their table; a directory for each table.", group="Tables",
            is_common=True),
        option("--image after|before|both|changes",
            "With --object or --per-table: the row image to write (default: after).", group="Tables"),
        option("--merge", "Only the current state of each row of tables.", group="Tables", is_common=True),
        *envelope_options(),
        option("--append", "Add only what is new since the last run; each row exactly once.", is_common=True),
        option("--final", "With --append: the log is complete; also take what comes after its last whole transaction."),
        option("--manifest FILE", "Save the manifest of inputs, hashes and rows as JSON.", PATH, group="Output"),
        *mark_shown_in_short_help(hint_options(), "schema"),
        *mark_shown_in_short_help(script_options()),
        level_option(),
        *mark_shown_in_short_help(
            selection_options(), "start_datetime", "stop_datetime", "type", "object", "on_damage"
        ),
        where_option(),
    ],
    help="""Write records as tables, lines, a script or another log.

    The output appears complete or not at all. Damage stops the work and nothing is written, unless --on-damage says
    otherwise. The manifest proves that the output contains every input record. See docs/tables.md for tables,
    docs/change-events.md for messages, docs/append.md for --append.
    """,
    notes="""The manifest has the hash of each input and output; the output is read again with another reader.

    Tables are parquet, orc, csv, json (one object a line) and avro: a directory of files; they need the extra `arrow`.
    They are written by this process, by --jobs N processes, or with --master on Spark: embedded (local[*],
    which brings its own Java; extra `spark`) or on a cluster. A column of --partition-by is in the names of directories
    (type=INSERT/), no longer in the files; a text that is null or empty has the directory __none__ (object=__none__/),
    a number, date or hour __HIVE_DEFAULT_PARTITION__, which Spark and Hive read as null. In CSV an empty text is "",
    null is nothing. A row of type DAMAGE represents bytes that could not be read; a mere note (reserved space
    at the end of a file) has no row, only an entry in the manifest. --object implies --level event for an .ibb file.

    Paths can be URLs (s3://bucket/key, gs://, hdfs://, ...), as in all commands that only read; S3 is configured
    by AWS_ENDPOINT_URL, AWS_REGION and AWS_ACCESS_KEY_ID. The --output of tables can be a URL, too: it is written
    and checked in TMPDIR, then uploaded, _SUCCESS last; existing output is never replaced.

    --append adds to --output, a directory, what is new since the last run: whole transactions of files that grow,
    rotate and are purged; if nothing is new, it does nothing. OUTPUT/_binlogtool/N.json describes the output
    after run
    N: readers use the files that the highest number lists. Rows have the column `generation`: the number of
    earlier files with
    the same name (RESET MASTER). Files that were removed before they were read to their end are
    reported, with status 1. All runs need the same options (except --on-damage); a second writer fails with status 5.

    --object with a table format gives the changed rows of tables in place of records, typed: op, seq, txn, time,
    server, file, record, offset, row, commit, then the table's own columns, then what did not fit. One name gives one
    table; a pattern ('shop.*'), several names or --per-table give a directory for each table, and
    OUTPUT/_tables.json, which describes them. --image sets what a row's columns hold: values after the change (of a
    DELETE, before it), before it, both as structs, or of an UPDATE only its changes and the key. Columns that are
    added or dropped in the log are merged by name, types become wider: the manifest says where. See
    docs/tables.md. To get records of a table, use --where "object = 'shop.orders'".

    --merge writes the rows of each key as its last change leaves them, in tables as --object and --per-table make them
    (without --object: all). Columns that an image lacks come from earlier images of the row. Tables need a key.

    jsonl (as in `dump`), raw (the exact bytes of the records) and sql are one file in the order of the log.
    sql is the script of `dump -O sql`. --rewrite changes the database of rows and of USE, never the text of a
    statement: a statement that contains the old name is an error.

    --to jsonl --envelope debezium writes the changes of rows in logs of MySQL and MariaDB as Debezium's connectors do:
    one message a line, with key and value; maxwell and canal as those programs do. docs/change-events.md
    describes where each field comes from, and what no log contains and is left out. A table whose column names
    are unknown is an
    error; give them with --schema.

    --to mysql-binlog takes the files of one log (.ibb, or a binary log of MariaDB, also an encrypted one) as one stream
    and writes NAME.000001, ... and NAME.index; --output is NAME with its directory, or a directory, where NAME is
    `binlog`. Each file has its own FORMAT_DESCRIPTION, GTID_LIST and BINLOG_CHECKPOINT, and CRC-32 checksums. In the
    events of transactions only event_size, end_log_pos and the checksum change; that is proven by reading the files
    back, which must also pass `verify`. Transactions are selected as a whole: by GTID, time, origin, position or
    number. With --on-damage skip only the damaged ones are left out, and reported. What breaks the rules of a
    binary log
    but is not damage, such as a duplicate XID (`verify` notes it in the .ibb), is refused unless
    --allow-rule-breaks is given.
    """,
    examples=(
        ("a directory as Parquet", "binlogtool convert --to parquet --output rows.parquet /var/lib/tarantool"),
        (
            "JSON lines with a manifest",
            "binlogtool convert --to jsonl -o log.jsonl --manifest log.json transaction.log",
        ),
        (
            "Debezium messages for another program: JSON lines and SQL are printed without --output",
            "binlogtool convert --to jsonl --envelope debezium mariadb-bin.000001 | head",
        ),
        (
            "a table for a data lake, by day",
            "binlogtool convert --to orc --partition-by date --partition-by type -o rows.orc mariadb-bin.0000*",
        ),
        (
            "the rows of all tables of a database, typed",
            "binlogtool convert --to parquet --object 'shop.*' -o shop mariadb-bin.0000*",
        ),
        (
            "the current rows of a table, from all of its logs",
            "binlogtool convert --merge --to parquet --object shop.orders -o orders mariadb-bin.0000*",
        ),
        (
            "what is new since the last run",
            "binlogtool convert --append --to parquet -o changes /var/lib/mysql",
        ),
        (
            "MariaDB's InnoDB binlog as a classic one",
            "binlogtool convert --to mysql-binlog -o restored/mariadb-bin --max-binlog-size 100MiB /var/lib/mysql",
        ),
    ),
)  # fmt: skip
