"""Options that several commands share: parsing, shell completion, and the `Selection` built from their values."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
import msgspec

import binlogtool
from binlogtool.errors import UsageError, format_name_suggestions, unknown_name_error
from binlogtool.limits import parse_size, shorten

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from binlogtool.cli.click_command_tree import CommandRun
    from binlogtool.core.record_and_selection_types import Selection
    from binlogtool.format_api.format import Format
    from binlogtool.report.verify_and_plan_text import GivenReadOptions


# --- Shell completion of option and argument values (click's `shell_complete`) ---

_SEVERITY_LEVELS = ("note", "warning", "error")
_LAST_WORD = re.compile(r"(.*?)([\w.`@]*)", re.DOTALL)
"""Splits an expression into its beginning and its last word."""


Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def _complete_from(list_words: Callable[[click.Context], Iterable[str]]) -> Completer:
    """Return the function that completes with the words that begin with what was typed."""
    return lambda ctx, _param, incomplete: _filter_by_prefix(list_words(ctx), incomplete)


def _complete_from_module(source: str, *more: str) -> Completer:
    """Return the function that completes with the names in `module:attribute`, imported when needed, and more words."""

    def list_words(_ctx: click.Context) -> Iterable[str]:
        module, _, name = source.partition(":")
        names = getattr(import_module(module), name)
        return (*more, *(names() if callable(names) else names))

    return _complete_from(list_words)


complete_format_name = _complete_from_module("binlogtool.formats:list_names")
_complete_format_option = _complete_from_module("binlogtool.formats:list_names", "auto", "list")
_complete_output_format = _complete_from(lambda ctx: getattr(ctx.command, "outputs", ()))
complete_finding_id = _complete_from_module("binlogtool.findings:EXPLANATIONS")
_complete_limit = _complete_from(lambda _ctx: [f"{name}=" for name in LIMIT_NAMES])
complete_schema_name = _complete_from_module("binlogtool.report.json_schema:SCHEMAS")
complete_command_name = _complete_from_module("binlogtool.cli.command_table:COMMANDS")


@_complete_from
def complete_explain_id(_ctx: click.Context) -> list[str]:
    """Complete the arguments of `explain`: findings and exit statuses."""
    from binlogtool.exit_status_texts import STATUSES
    from binlogtool.findings import EXPLANATIONS

    return [*EXPLANATIONS, *(code for key in STATUSES for code in key.split(", "))]


def complete_record_type(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete `--type` with the record types of the format or log on the line, otherwise of all formats."""
    return _filter_by_prefix(
        ["list", *sorted({name for one in _candidate_formats(ctx) for name in one.output.types.values()})], incomplete
    )


def complete_condition(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the last word of a `--where` expression.

    After `before.`, `after.` and `body.`, names are taken from the log on the line.
    """
    from binlogtool.query.conditions import BODY_MEMBERS, MEMBERS

    before, word = _LAST_WORD.fullmatch(incomplete).groups()  # type: ignore[union-attr]  # it matches any text
    if before.count("'") % 2 or "`" in word:
        return []
    inside, dot, _ = word.partition(".")
    if dot:
        return [
            f"{before}{inside}.{name}"
            for name in _filter_by_prefix(_find_member_names_in_log(ctx, inside), word.partition(".")[2])
        ]
    return [before + name for name in _filter_by_prefix((*MEMBERS, *(f"{one}." for one in BODY_MEMBERS)), word)]


def complete_severity(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete `--severity ID=LEVEL`: the id, then the level."""
    from binlogtool.findings import EXPLANATIONS

    id_, equals, _ = incomplete.partition("=")
    return _filter_by_prefix(
        [f"{id_}={level}" for level in _SEVERITY_LEVELS] if equals else [f"{one}=" for one in EXPLANATIONS], incomplete
    )


def complete_report(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete `--report KIND=FILE`: the kind, then a file."""
    from click.shell_completion import CompletionItem

    if "=" in incomplete:
        return [CompletionItem(incomplete, type="file")]
    return [
        CompletionItem(one)
        for one in _filter_by_prefix(
            ("junit=", "sarif=", "gitlab=", "json=", "markdown=", "html=", "github"), incomplete
        )
    ]


def _find_member_names_in_log(ctx: click.Context, image_or_body: str) -> list[str]:
    """Return names of body members or columns in the first records of the log on the line.

    Names that would need quoting in the shell are left out.
    """
    import binlogtool
    from binlogtool.errors import BinlogtoolError

    names: set[str] = set()
    try:
        for path in _files_on_command_line(ctx)[:1]:
            with binlogtool.open(path) as log:
                for record in islice(log.records(), _MAX_SCANNED_RECORDS):
                    names.update(_body_keys(record.body, image_or_body))
    except (BinlogtoolError, OSError):
        pass  # completion ignores wrong paths
    return sorted(name for name in names if _PLAIN_NAME.fullmatch(name))


def _body_keys(body: Any, inside: str) -> Iterator[str]:
    """Yield the members of a body, or of one image of its rows."""
    rows = body.get("rows") if isinstance(body, dict) else None
    images = [body]
    if inside != "body":
        images = [row.get(inside) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    for image in images:
        if isinstance(image, dict):
            yield from image


_MAX_SCANNED_RECORDS = 2000
"""Maximum number of records that are searched for names, because the user waits for the completion."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def _files_on_command_line(ctx: click.Context) -> list[str]:
    words = (*(ctx.params.get("paths") or ()), *ctx.args)  # ctx.args has them while an option still lacks its value
    return [word for word in words if os.path.isfile(word)]


def _filter_by_prefix(words: Any, incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def _candidate_formats(ctx: click.Context) -> list[Format]:
    """Return the format given by `--format` or the first path; all formats if neither determines it."""
    import binlogtool
    from binlogtool import formats
    from binlogtool.errors import BinlogtoolError

    format_name = next(
        (c.params["format"] for c in (ctx, ctx.parent) if c is not None and c.params.get("format")), None
    )
    if format_name in formats.list_names():
        return [formats.load_format(format_name)]
    paths = _files_on_command_line(ctx)
    try:
        if paths:
            with binlogtool.open(paths[0]) as log:
                return [log.files[0].format]
    except (BinlogtoolError, OSError):
        pass  # completion ignores wrong paths
    return list(formats.iter_formats())


# --- Times and durations of the command line ---

_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_MAX_DURATION_S = 1000 * 366 * 86400.0
_DURATION_PART = r"(\d+(?:\.\d+)?)(ms|min|s|m|h|d|w|)"


def parse_duration(text: str) -> float:
    """Parse `90`, `1.5s`, `1m30s` or `2h` into seconds.

    Raises:
        UsageError: the text is not a duration.
    """
    compact = text.strip().lower().replace(" ", "")
    if not re.fullmatch(f"(?:{_DURATION_PART})+", compact):
        raise UsageError(f"{shorten(text)!r} is not a duration; use 90, 1.5s, 1m30s or 2h")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in re.findall(_DURATION_PART, compact))
    if seconds > _MAX_DURATION_S:
        raise UsageError(f"{shorten(text)!r} is too long; the maximum is 1000 years")
    return seconds


def parse_age(text: str) -> float:
    """Parse a duration with a unit, such as `26h`, into seconds.

    Raises:
        UsageError: the text is not a duration, or has no unit.
    """
    seconds = parse_duration(text)
    if text.strip()[-1].isdigit():
        raise UsageError(f"{shorten(text)!r} has no unit; use {shorten(text.strip())}h for hours, or s, min, d, w")
    return seconds


def parse_time(text: str, *, local: bool = False, now: float | None = None) -> int:
    """Parse an RFC 3339 time, epoch seconds, or `-2h` (before now) into microseconds since 1970-01-01 UTC.

    A time without a zone is UTC, or local time if `local`.

    Raises:
        UsageError: the text is not a time, or a date without dashes, which could be epoch seconds.
    """
    stripped = text.strip()
    _refuse_compact_date(text, stripped)
    if re.fullmatch(r"\d{1,11}(?:\.\d+)?", stripped):
        seconds, _, fraction = stripped.partition(".")
        return int(seconds) * 1_000_000 + int(fraction[:6].ljust(6, "0"))
    if stripped[:1] in ("-", "+") and len(stripped) > 1:
        shift = parse_duration(stripped[1:]) * (-1 if stripped[0] == "-" else 1)
        return round((int(time.time() if now is None else now) + shift) * 1_000_000)
    try:
        moment = datetime.fromisoformat(stripped)
        if moment.tzinfo is None:
            moment = moment.astimezone() if local else moment.replace(tzinfo=UTC)
        whole = int(moment.replace(microsecond=0).timestamp())
    except (ValueError, OverflowError, OSError):
        if re.fullmatch(r"\d\d?:\d\d(?::\d\d)?", stripped):
            raise UsageError(f"{stripped!r} has no date; write YYYY-MM-DDT{stripped.zfill(5)}") from None
        form = "2026-01-31T12:00:00Z, epoch seconds, or -2h"
        raise UsageError(f"{shorten(text)!r} is not a time; use {form}") from None
    return whole * 1_000_000 + moment.microsecond


_COMPACT_DATE = re.compile(r"((?:19|20)\d\d)(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d)?)?")


def _refuse_compact_date(text: str, digits: str) -> None:
    """Raise UsageError for a date written as digits only: with eight of them it could be epoch seconds."""
    if (match := _COMPACT_DATE.fullmatch(digits)) is None:
        return
    date = "-".join(match.groups()[:3])
    clock = "".join(f"{mark}{part}" for mark, part in zip("T::", match.groups()[3:], strict=True) if part)
    try:
        datetime.fromisoformat(date + clock)
    except ValueError:
        raise UsageError(f"{shorten(text)!r} is neither a date nor a recent time in epoch seconds") from None
    raise UsageError(f"{shorten(text)!r} is a date without dashes; write {date}{clock}")


# --- Options that several commands share ---


class ParsedType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Click type of a value that a function parses from text; the function's UsageError becomes click's error."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the parsed value; values of other types (defaults, numbers from a file) are parsed from their text."""
        try:
            return self._parse(str(value))
        except UsageError as error:
            self.fail(str(error), param, ctx)


SIZE = ParsedType("size", parse_size)
DURATION = ParsedType("duration", parse_duration)
AGE = ParsedType("duration", parse_age)
PATH = click.Path(allow_dash=True, readable=False)


class Option(click.Option):
    """Click option, declared as its help shows it; click would import `inspect` to remove indentation from the text.

    Args:
        declaration: names, and what their value is called: `-f --format NAME`; `a|b` = one of these words; without a
            value it is a flag.
        help: text of the help, which stays as it is.
        kind: type of the value; None = text, or what the declaration says.
        group: title of the group in the help (see `help_page.GROUPS`); None = the command's own options.
        is_common: `-h` shows this option.
    """

    def __init__(
        self,
        declaration: str,
        help: str,
        kind: Any = None,
        *,
        group: str | None = None,
        is_common: bool = False,
        **attributes: Any,
    ) -> None:
        words = declaration.split(" ")
        names = [word for word in words if word.startswith("-")]
        value = " ".join(words[len(names) :]) or None
        if kind is None and value is not None and "|" in value:
            kind, value = click.Choice(value.split("|")), None
        if kind is None and value is None and "/" not in declaration and "count" not in attributes:
            attributes["is_flag"] = True
        super().__init__(names, metavar=value, type=kind, **attributes)
        self.help, self.group, self.is_common = help, group, is_common


option = Option


def assign_help_group(title: str, params: Iterable[click.Parameter]) -> list[click.Parameter]:
    """Assign new options to a group of the help, unless they already have a group."""
    params = list(params)
    for param in params:
        if isinstance(param, Option):
            param.group = param.group or title
    return params


LIMIT_NAMES: tuple[str, ...] = ("record", "inflate", "depth")
"""Names of `--max NAME=VALUE`: the sizes of a record and of a decompressed record, and the nesting depth."""


def _parse_max_option(text: str) -> tuple[str, int]:
    """Parse `NAME=VALUE` of `--max` into the name of a field of `Limits` and its value."""
    name, equals, value = text.partition("=")
    if name not in LIMIT_NAMES or not equals:
        raise UsageError(
            f"{shorten(text)!r} is not a limit; use record=SIZE, inflate=SIZE or depth=N"
            f"{format_name_suggestions(name, LIMIT_NAMES)}"
        )
    if name != "depth":
        return f"max_{name}", parse_size(value)
    if not re.fullmatch(r"[0-9]{1,4}", value) or not 1 <= int(value) <= 1000:
        raise UsageError(f"depth={shorten(value)}: the depth is a number from 1 to 1000")
    return "max_depth", int(value)


def _output_options() -> list[click.Parameter]:
    """Return the options about the output: its format and destination."""
    return assign_help_group("Output", [
        option("-O --output-format NAME",
            "text, json, jsonl, …; the help of each command lists its formats.",
            shell_complete=_complete_output_format),
        option("-o --output FILE",
            "Write to FILE, completely or not at all; default: stdout, except for tables.", PATH, is_common=True),
        option("--overwrite", "Allow --output to replace an existing file; inputs are never replaced.", is_common=True),
        option("--color auto|always|never", "Colour (default: on a terminal).", default="auto"),
        option("--pager/--no-pager",
            "Page long text on a terminal (default: yes).", default=True, allow_from_autoenv=False),
        option("--ascii", "No box characters."),
        option("--progress auto|never|plain|json",
            "Progress on stderr: auto = on a terminal, until data is written to it or to a pipe.", default="auto"),
        option("-v --verbose", "More diagnostics on stderr; repeatable.", count=True),
        option("-q --quiet", "Fewer diagnostics; repeatable.", count=True),
    ])  # fmt: skip


def _limit_options() -> list[click.Parameter]:
    return assign_help_group("Limits", [
        option("--max-memory SIZE", "Memory limit (default: 256MiB).", SIZE),
        option("--max NAME=VALUE",
            "record=SIZE: report longer records as findings (default: per format); inflate=SIZE: maximum size of one "
            "decompressed record (default: 256MiB); depth=N: maximum nesting depth (default: 64); repeatable.",
            ParsedType("limit", _parse_max_option), multiple=True, shell_complete=_complete_limit),
        option("--timeout DURATION", "Stop after this time with a partial result and status 6.", DURATION),
        option("--jobs N",
            "Number of local processes that share the files (default: 1).", click.IntRange(1, 256), default=1),
    ])  # fmt: skip


def global_options() -> list[click.Parameter]:
    """Return new objects of the global options, which are accepted before and after the command."""
    return [
        *assign_help_group("Input", [
            option("-f --format NAME",
                "Log format (default: detected by content); `list` prints all.",
                shell_complete=_complete_format_option),
        ]),
        *_output_options(),
        *_limit_options(),
        *assign_help_group("Configuration", [
            option("--backend auto|native|python",
                "Scanner backend (default: native code if available).", default="auto"),
            option("--config FILE", "Defaults of options, in TOML (default: the user's file).", PATH),
            option("--no-config", "Read no configuration file."),
            option("--debug", "Show tracebacks."),
        ]),
    ]  # fmt: skip


GLOBAL_NAMES = tuple(p.name or "" for p in global_options())


def hint_options() -> list[click.Parameter]:
    """Return new options that name files with information that a log lacks; `HintOptions` holds them."""
    return assign_help_group("Input", [
        option("--schema FILE.sql",
            "CREATE TABLE statements: names and types of columns; repeatable.", PATH, multiple=True, is_common=True),
        option("--keyfile FILE", "Keys of encrypted logs: a key file or a keyring.", PATH, is_common=True),
        option("--keyfile-secret FILE", "File with the password of an encrypted key file.", PATH),
    ])  # fmt: skip


def script_options() -> list[click.Parameter]:
    """Return new options of SQL scripts."""
    return assign_help_group("SQL", [
        option("--rows exact|statements",
            "Row changes as the log's own events (default), or as INSERT, UPDATE and DELETE.", is_common=True,
            default="exact"),
        option("--comments", "Add readable comments about what the events change."),
        option("--with-gtids/--without-gtids",
            "Set the GTIDs of transactions (default with --rows exact if whole transactions are selected).",
            default=None),
        option("--stop-before STATEMENT",
            "Stop before the transaction that contains this statement: 'DROP TABLE shop.orders'."),
        option("--rewrite 'OLD->NEW'", "Rename a database; repeatable.", multiple=True),
        option("--load-files DIR",
            "Directory for the data of LOAD DATA (default: beside the output, FILE.load).", PATH),
    ])  # fmt: skip


def envelope_options() -> list[click.Parameter]:
    """Return new options for change messages (Debezium, Maxwell, Canal)."""
    return assign_help_group("Messages", [
        option("--envelope debezium|maxwell|canal",
            "Row changes as messages in this shape, one per line or row; for jsonl and tables.", is_common=True),
        option("--source-name NAME", "debezium: value of source.name, which no log contains (default: left out)."),
        option("--tombstones/--no-tombstones",
            "debezium: after each delete, write a message with its key and the value null (default: yes).",
            default=True),
        option("--provide-transaction-metadata",
            "debezium: fill the member transaction, and write a message for each begin and end of a transaction."),
        option("--include-query", "debezium: fill source.query with the statement, where the log has it."),
        option("--schema-messages",
            "debezium: also write a message for each DDL statement, as on the schema change topic."),
        option("--decimals precise|string|double",
            "debezium: DECIMAL as unscaled bytes in base64 (default), as text, or as a number.", default="precise"),
        option("--times adaptive_time_microseconds|connect",
            "debezium: times in the precision of the column (default), or in milliseconds.",
            default="adaptive_time_microseconds"),
        option("--unsigned-bigint long|precise",
            "debezium: BIGINT UNSIGNED as a signed 64-bit number (default), or as unscaled bytes in base64.",
            default="long"),
    ])  # fmt: skip


def level_option() -> click.Parameter:
    """Return a new option `--level`: which units count as records; `HintOptions` holds it."""
    return option(
        "--level page|record|event", "What counts as a record in logs of pages (default: record).", group="Input"
    )


def redo_option() -> click.Parameter:
    """Return a new option that names the redo log; `HintOptions` holds it."""
    return option(
        "--redo FILE",
        "InnoDB's redo log: shows what recovery would apply or discard.",
        PATH,
        is_common=True,
        group="Input",
    )


def server_version_option() -> click.Parameter:
    """Return a new option for the server version whose rules apply to the replay."""
    return option(
        "--server-version X.Y",
        "Version of the server that will start on these files, for example 3.9 (default: the version that wrote them).",
        is_common=True,
        group="Input",
    )


def _object_options() -> list[click.Parameter]:
    return assign_help_group("Selection", [
        option("--object GLOB", "Only this table, space or key; repeatable.", multiple=True, is_common=True),
        option("--database NAME",
            "Tables of this database, as --object 'NAME.*'; repeatable, adds to --object.", multiple=True),
        option("--table NAME",
            "Tables of this name, in any database or those of --database; repeatable, adds to --object.",
            multiple=True),
        option("--exclude-object GLOB", "Leave out this table, space or key; repeatable.", multiple=True),
    ])  # fmt: skip


def selection_options() -> list[click.Parameter]:
    """Return new options that select records; `SelectionOptions` holds them."""
    return assign_help_group("Selection", [
        option("-j --start-position POS",
            "Start position: offset, end-4KiB, record:N, page:N, seq:N, FILE:POS; or gtid:0-1-42: start after this "
            "transaction. With several files an offset refers to the first one.", is_common=True),
        option("--stop-position POS",
            "Stop before this position; gtid:0-1-42: stop after this transaction. With several files an offset refers "
            "to the last one."),
        option("--start-datetime T",
            "Start time: RFC 3339, epoch seconds, or -2h; UTC without a zone.", is_common=True),
        option("--stop-datetime T", "Stop before this time.", is_common=True),
        option("--local-time", "Times without a zone are local."),
        option("-n --limit N", "At most N records.", click.IntRange(0), is_common=True),
        option("--skip N", "Leave out the first N records.", click.IntRange(0), default=0),
        option("--tail N", "Only the last N records.", click.IntRange(0)),
        option("--type NAME",
            "Only records of this type; repeatable; `list` prints all.", multiple=True, is_common=True,
            shell_complete=complete_record_type),
        *_object_options(),
        option("--origin ID", "Only this server or replica id; repeatable.", int, multiple=True),
        option("--exclude-origin ID", "Leave out this origin; repeatable.", int, multiple=True),
        option("--include-gtids SET", "Only transactions in the set: 0-1-42, uuid:1-5, ...", is_common=True),
        option("--exclude-gtids SET", "Leave out the transactions in the set."),
        option("--xid ID", "Only the transaction with this id, as dump shows it (JSON: txn)."),
        option("--on-damage stop|skip|salvage",
            "What to do at damage (default: skip; convert: stop). stop: end there, convert writes nothing; skip: "
            "continue at the next provable record; salvage: as skip, and also write well-framed but unproven records, "
            "with the reason (docs/damage.md).", group="Damage", is_common=True),
        option("--live", "The file may be growing: an unfinished tail is not a finding.", group="Damage"),
    ])  # fmt: skip


def where_option() -> click.Parameter:
    """Return a new option for a condition on records; `SelectionOptions` holds it."""
    return option(
        "--where EXPR",
        "Only records for which this is true: \"object = 'shop.orders' and after.price < 0\". Members, "
        "body.NAME, before.COLUMN and after.COLUMN; = != < <= > >=, in (...), like, ~ (glob), is null, and, "
        "or, not. --limit, --skip and --tail count matching records. In a script it selects rows, not whole "
        "events.",
        group="Selection",
        is_common=True,
        shell_complete=complete_condition,
    )


def network_option() -> Option:
    """Return a new option that allows repairs on network file systems."""
    return option(
        "--allow-network-file-system",
        "Also change files on a network file system, where use by other machines cannot be detected.",
        group="Damage",
        allow_from_autoenv=False,
    )


# --- Options of commands that can run on Spark ---

MASTER_HELP = "Run on Spark: local[*] (embedded), or spark://HOST:PORT, a cluster whose machines all have the files."


def spark_options(help: str = MASTER_HELP) -> list[click.Parameter]:
    """Return new options for Spark. help: help text of --master."""
    return assign_help_group("Spark", [
        option("--master URL", help, is_common=True),
        option("--conf KEY=VALUE",
            "A Spark setting; repeatable; overrides spark-defaults.conf, which overrides binlogtool's defaults. "
            "spark.binlogtool.waitExecutors=DURATION: how long to wait for executors before failing with status 4 "
            "(default: 120s).", multiple=True),
    ])  # fmt: skip


WAIT_SETTING = "spark.binlogtool.waitExecutors"
"""Spark setting of binlogtool: how long a cluster may be without executors."""


def build_master(url: str | None, conf: tuple[str, ...]) -> str | binlogtool.SparkMaster | None:
    """Build the master from `--master` and `--conf`; None = do not use Spark.

    Raises:
        UsageError: settings without a master, or an invalid setting.
    """
    if not conf:
        return url
    if url is None:
        raise click.UsageError("--conf needs --master.")
    waits = [text.partition("=")[2] for text in conf if text.startswith(f"{WAIT_SETTING}=")]
    settings = [text for text in conf if not text.startswith(f"{WAIT_SETTING}=")]
    return binlogtool.SparkMaster.parse(url, settings, parse_duration(waits[-1]) if waits else None)


# --- Options as values of the library ---


def require_paths(paths: tuple[str, ...]) -> None:
    """Check that the command line names at least one path, as click does for a required argument.

    Raises:
        click.UsageError: it names no path.
    """
    if not paths:
        raise click.UsageError("Missing argument 'PATH...'.")


_UNCHANGED_NAMES = ("where", "skip", "limit", "tail", "include_gtids", "exclude_gtids", "xid", "live")
"""Options that have the same name and value in a `Selection`."""


class SelectionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Values of `selection_options` and `where_option`; an option that the command lacks has its default."""

    start_position: str | None = None
    stop_position: str | None = None
    start_datetime: str | None = None
    stop_datetime: str | None = None
    local_time: bool = False
    limit: int | None = None
    skip: int = 0
    tail: int | None = None
    type: tuple[str, ...] = ()
    object: tuple[str, ...] = ()
    database: tuple[str, ...] = ()
    table: tuple[str, ...] = ()
    exclude_object: tuple[str, ...] = ()
    origin: tuple[int, ...] = ()
    exclude_origin: tuple[int, ...] = ()
    include_gtids: str | None = None
    exclude_gtids: str | None = None
    xid: str | None = None
    on_damage: str | None = None
    live: bool = False
    where: str | None = None

    def build(self, *, on_damage: str) -> Selection:
        """Build the selection. on_damage: the command's default for `--on-damage`.

        Raises:
            UsageError: a time is invalid, or the options contradict each other.
        """
        from binlogtool.core.record_and_selection_types import Selection, require_valid_where

        if self.tail is not None and self.limit is not None:
            raise UsageError("--tail and --limit cannot be combined")
        times = [
            None if text is None else parse_time(text, local=self.local_time)
            for text in (self.start_datetime, self.stop_datetime)
        ]
        if self.where is not None:
            require_valid_where(self.where)  # report errors before a file is opened
        return Selection(
            objects=(*self.object, *_table_patterns(self.database, self.table)),
            start=self.start_position,
            stop=self.stop_position,
            start_time=times[0],
            stop_time=times[1],
            on_damage=self.on_damage or on_damage,
            types=self.type,
            exclude_objects=self.exclude_object,
            origins=self.origin,
            exclude_origins=self.exclude_origin,
            **{name: getattr(self, name) for name in _UNCHANGED_NAMES},
        )


class HintOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Values of `hint_options`, `level_option` and `redo_option`."""

    schema: tuple[str, ...] = ()
    keyfile: str | None = None
    keyfile_secret: str | None = None
    level: str | None = None
    redo: str | None = None

    def read_hint_files(self, selection: Selection | None = None, *, script: bool = False) -> binlogtool.Hints | None:
        """Read the files that the options name; None = nothing is known.

        Args:
            selection: the selection, if it affects how the log is read.
            script: SQL statements are requested.

        Raises:
            InputOutputError, UsageError: see `binlogtool.read_hints`.
        """
        from binlogtool.core.record_and_selection_types import add_selection_hints

        values = msgspec.structs.asdict(self)
        hints = binlogtool.read_hints(**values) if any(values.values()) else None
        return hints if selection is None else add_selection_hints(selection, hints, needs_statements=script)

    def to_read_options(self, format_: str) -> GivenReadOptions:
        """Return the options as the next command needs them. format_: `--format`."""
        from binlogtool.report.verify_and_plan_text import collect_read_options

        return collect_read_options(msgspec.structs.asdict(self), format_)


def report_unmatched_schema(run: CommandRun, paths: tuple[str, ...], hints: binlogtool.Hints | None) -> None:
    """Report a --schema that defines no table of the logs; a stream cannot be read for it."""
    if hints is None or hints.schema is None or "-" in paths:
        return
    with binlogtool.open(paths, **run.settings.make_read_options(hints)) as log:
        if text := log.find_unmatched_schema():
            run.print_diagnostic(text, level=-1)


class SqlScriptOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Values of `script_options`."""

    rows: str
    comments: bool
    with_gtids: bool | None
    stop_before: str | None
    rewrite: tuple[str, ...]
    load_files: str | None


def mark_shown_in_short_help(params: Iterable[click.Parameter], *names: str) -> list[click.Parameter]:
    """Mark the options so that `-h` shows only those with these names; for a command with many options."""
    params = list(params)
    for param in params:
        if isinstance(param, Option):
            param.is_common = param.name in names
    return params


def without_options(params: Iterable[click.Parameter], *names: str) -> list[click.Parameter]:
    """Return the options except those with these names."""
    return [param for param in params if param.name not in names]


def _table_patterns(databases: tuple[str, ...], tables: tuple[str, ...]) -> tuple[str, ...]:
    """Return the object patterns for `--database` and `--table`; Tarantool's spaces have no database prefix."""
    if not tables:
        return tuple(f"{database}.*" for database in databases)
    if databases:
        return tuple(f"{database}.{table}" for database in databases for table in tables)
    return tuple(glob for table in tables for glob in (table, f"*.{table}"))


def print_record_types(run: CommandRun, paths: tuple[str, ...]) -> int:
    """Handle `--type list`: print the record types of the named format, otherwise of the first path's."""
    import binlogtool
    from binlogtool import formats
    from binlogtool.terminal.escape_and_fold_text import escape

    if run.settings.format != "auto":
        name = run.settings.format.partition(":")[0]
        if name not in formats.list_names():
            raise unknown_name_error("format", name, formats.list_names())
        format_ = formats.load_format(name)
    elif paths:
        with binlogtool.open(paths[0], limits=run.settings.limits) as log:
            format_ = log.files[0].format
    else:
        raise UsageError("--type list needs --format or a PATH")
    with run.open_output(text=True, page=False) as out:
        for code, name in sorted(format_.output.types.items()):
            out.write_line(f"{code:>6}  {escape(name)}")
    return 0


# --- `--format list` ---


def print_formats(run: CommandRun) -> int:
    """Print all formats, one per line."""
    from binlogtool import formats

    known_formats = list(formats.iter_formats())
    if run.settings.choose_output_format(("text", "json")) == "json":
        return print_json(
            run, [{"name": f.name, "title": f.title, "members": list(f.files.patterns)} for f in known_formats]
        )
    with run.open_output(text=True, page=False) as out:
        for format_ in known_formats:
            out.write_line(f"{format_.name:<24}{format_.title}")
            out.write_line(f"{'':<24}{' '.join(format_.files.patterns)}")
    for name, reason in formats.find_broken_plugins().items():
        run.print_diagnostic(f"the plug-in format {name} cannot be loaded: {reason}")
    return 0


def print_json(run: CommandRun, value: object) -> int:
    """Print a value as JSON."""
    from binlogtool.format_api.encode_json import encode_document

    with run.open_output(text=False) as out:
        out.write(encode_document(value))
    return 0
