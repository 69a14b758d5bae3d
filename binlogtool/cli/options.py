"""Options that several commands share: the global ones, selection of records, hints, scripts, envelopes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from binlogtool.cli import completing
from binlogtool.cli.times import parse_duration
from binlogtool.errors import UsageError
from binlogtool.limits import parse_size


class ParsedType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Click type of a value parsed by a function of its text; the function's UsageError becomes click's error."""

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
PATH = click.Path(allow_dash=True, readable=False)


class Option(click.Option):
    """Click option that keeps its help text unchanged; click would import `inspect` to remove indentation."""

    def __init__(self, *words: Any, help: str | None = None, **attributes: Any) -> None:
        super().__init__(*words, **attributes)
        self.help = help


option = Option


def _format_options() -> list[click.Parameter]:
    """Return the options about formats of input and output, and the output file."""
    return [
        option(
            ["-f", "--format"],
            metavar="NAME",
            shell_complete=completing.complete_format_option,
            help="Log format (default: found by content); `list` prints all.",
        ),
        option(
            ["-O", "--output-format"],
            metavar="NAME",
            shell_complete=completing.complete_output_format,
            help="text, json, jsonl, …; each command has its own choice.",
        ),
        option(
            ["-o", "--output"],
            type=PATH,
            metavar="FILE",
            help="Write to FILE: complete, or not at all (default: stdout).",
        ),
    ]


def _limit_options() -> list[click.Parameter]:
    return [
        option(["--max-memory"], type=SIZE, metavar="SIZE", help="Ceiling of the working set (default: 256MiB)."),
        option(["--max-record"], type=SIZE, metavar="SIZE", help="Longer records are findings (default: per format)."),
        option(["--max-inflate"], type=SIZE, metavar="SIZE", help="Ceiling of one unpacked record (default: 256MiB)."),
        option(["--max-depth"], type=click.IntRange(1, 1000), metavar="N", help="Ceiling of nesting (default: 64)."),
        option(
            ["--timeout"],
            type=DURATION,
            metavar="DURATION",
            help="End after this time with a partial result, status 6.",
        ),
    ]


def global_options() -> list[click.Parameter]:
    """Return new objects of the global options, which are accepted before and after the command."""
    return [
        *_format_options(),
        option(["--overwrite"], is_flag=True, help="Let --output replace a file; never an input."),
        option(
            ["--color"],
            type=click.Choice(["auto", "always", "never"]),
            default="auto",
            help="Colour (default: on a terminal).",
        ),
        option(
            ["--pager/--no-pager"],
            default=True,
            allow_from_autoenv=False,
            help="Page long text on a terminal (default: yes).",
        ),
        option(["--ascii"], is_flag=True, help="No box characters."),
        option(
            ["--progress"],
            type=click.Choice(["auto", "never", "plain", "json"]),
            default="auto",
            help="Progress on stderr: auto = on a terminal, until data goes to it or into a pipe.",
        ),
        option(["-v", "--verbose"], count=True, help="More diagnostics on stderr; repeatable."),
        option(["-q", "--quiet"], count=True, help="Fewer diagnostics; repeatable."),
        *_limit_options(),
        option(
            ["-J", "--jobs"],
            type=click.IntRange(1, 256),
            default=1,
            metavar="N",
            help="Local processes over files (default: 1).",
        ),
        option(
            ["--backend"],
            type=click.Choice(["auto", "native", "python"]),
            default="auto",
            help="Scanner (default: native code where there is some).",
        ),
        option(
            ["--config"], type=PATH, metavar="FILE", help="Defaults of options, in TOML (default: the user's file)."
        ),
        option(["--no-config"], is_flag=True, help="Read no configuration file."),
        option(["--debug"], is_flag=True, help="Show tracebacks."),
    ]


GLOBAL_NAMES = tuple(p.name or "" for p in global_options())


def hint_options() -> list[click.Parameter]:
    """Return new options that name files with what a log does not contain; `cli.selector.pop_hints` reads them."""
    return [
        option(
            ["--schema"], type=PATH, metavar="FILE.sql", help="CREATE TABLE statements: names and types of columns."
        ),
        option(["--keyfile"], type=PATH, metavar="FILE", help="Keys of encrypted logs: a key file or a keyring."),
        option(
            ["--keyfile-secret"], type=PATH, metavar="FILE", help="File with the password of an encrypted key file."
        ),
    ]


def script_options() -> list[click.Parameter]:
    """Return new options of SQL scripts; `cli.selector.script_values` reads them."""
    return [
        option(
            ["--rows"],
            type=click.Choice(["exact", "statements"]),
            default="exact",
            help="SQL: changes of rows as the log's own events (default), or as INSERT, UPDATE and DELETE.",
        ),
        option(["--comments"], is_flag=True, help="SQL: with readable comments of what the events change."),
        option(
            ["--with-gtids/--without-gtids"],
            default=None,
            help="SQL: transactions get their GTIDs (default with --rows exact, where whole transactions are chosen).",
        ),
        option(
            ["--stop-before"],
            metavar="STATEMENT",
            help="SQL: stop before the transaction with the first statement like this: 'DROP TABLE shop.orders'.",
        ),
        option(
            ["--rewrite"], multiple=True, metavar="'OLD->NEW'", help="SQL: another name for a database; repeatable."
        ),
        option(
            ["--transactions"],
            type=click.Choice(["keep", "flatten"]),
            default="keep",
            help="SQL: with the transactions of the log (default), or each statement for itself.",
        ),
        option(
            ["--load-files"],
            type=PATH,
            metavar="DIR",
            help="SQL: where the data of LOAD DATA go (default: beside the output, FILE.load).",
        ),
    ]


def envelope_options() -> list[click.Parameter]:
    """Return new options of change messages."""
    return [
        option(
            ["--envelope"],
            type=click.Choice(["debezium", "maxwell", "canal"]),
            help="jsonl and tables: the changes of rows as messages in this shape, one a line or row.",
        ),
        option(["--source-name"], metavar="NAME", help="debezium: source.name, which no log has (default: left out)."),
        option(
            ["--tombstones/--no-tombstones"],
            default=True,
            help="debezium: behind each delete a message with its key and the value null (default: yes).",
        ),
        option(
            ["--transaction-messages"],
            is_flag=True,
            help="debezium: a message for each begin and end of a transaction, too (provide.transaction.metadata).",
        ),
        option(
            ["--schema-messages"],
            is_flag=True,
            help="debezium: a message for each statement about tables, too, as on the topic of schema changes.",
        ),
        option(
            ["--decimals"],
            type=click.Choice(["precise", "string", "double"]),
            default="precise",
            help="debezium: DECIMAL as unscaled bytes in base64 (default), as text, or as a number.",
        ),
        option(
            ["--times"],
            type=click.Choice(["adaptive_time_microseconds", "connect"]),
            default="adaptive_time_microseconds",
            help="debezium: units as fine as the column (default), or milliseconds.",
        ),
        option(
            ["--unsigned-bigint"],
            type=click.Choice(["long", "precise"]),
            default="long",
            help="debezium: BIGINT UNSIGNED as 64 bits with a sign (default), or as unscaled bytes in base64.",
        ),
    ]


def level_option() -> click.Parameter:
    """Return a new option: what counts as a record; `cli.selector.pop_hints` reads it."""
    return option(
        ["--level"],
        type=click.Choice(["page", "record", "event"]),
        help="What is a record, in logs of pages (default: record).",
    )


def redo_option() -> click.Parameter:
    """Return a new option: the redo log; `cli.selector.pop_hints` reads it."""
    return option(["--redo"], type=PATH, metavar="FILE", help="InnoDB's redo log: what recovery would apply or cut.")


def server_version_option() -> click.Parameter:
    """Return a new option: the server version whose rules apply to the replay."""
    return option(
        ["--server-version"],
        metavar="X.Y",
        help="The server that will start on these files, such as 3.9; default: the one that wrote them.",
    )


def _object_options() -> list[click.Parameter]:
    return [
        option(["--object"], multiple=True, metavar="GLOB", help="Table, space or key; repeatable."),
        option(
            ["--database"],
            multiple=True,
            metavar="NAME",
            help="Tables of this database, as --object 'NAME.*'; repeatable, adds to --object.",
        ),
        option(
            ["--table"],
            multiple=True,
            metavar="NAME",
            help="Tables of this name, in any database or those of --database; repeatable, adds to --object.",
        ),
        option(
            ["--exclude-object"],
            multiple=True,
            metavar="GLOB",
            help="Objects to leave out; repeatable.",
        ),
    ]


def selection_options() -> list[click.Parameter]:
    """Return new options that select records; `cli.selector` reads them."""
    return [
        option(
            ["-j", "--start-position"],
            metavar="POS",
            help="First position: offset, end-4KiB, record:N, page:N, seq:N, FILE:POS; or gtid:0-1-42: what comes "
            "after it. Of several files an offset counts in the first one.",
        ),
        option(
            ["--stop-position"],
            metavar="POS",
            help="Position to stop before; gtid:0-1-42 is the last transaction. Of several files an offset counts in "
            "the last one.",
        ),
        option(
            ["--start-datetime"], metavar="T", help="First time: RFC 3339, epoch seconds, or -2h; UTC without a zone."
        ),
        option(["--stop-datetime"], metavar="T", help="Time to stop before."),
        option(["--local-time"], is_flag=True, help="Times without a zone are local."),
        option(["-n", "--limit"], type=click.IntRange(0), metavar="N", help="At most N records."),
        option(["--skip"], type=click.IntRange(0), default=0, metavar="N", help="Leave out the first N records."),
        option(["--tail"], type=click.IntRange(0), metavar="N", help="Only the last N records."),
        option(
            ["--type"],
            multiple=True,
            metavar="NAME",
            shell_complete=completing.complete_record_type,
            help="Record type; repeatable; `list` prints all.",
        ),
        *_object_options(),
        option(["--origin"], type=int, multiple=True, metavar="ID", help="Server or replica id; repeatable."),
        option(["--exclude-origin"], type=int, multiple=True, metavar="ID", help="Ids to leave out."),
        option(
            ["--include-gtids"], metavar="SET", help="Only transactions in the set: uuid:1-5, 0-1-42, 0-1-1..42, ..."
        ),
        option(["--exclude-gtids"], metavar="SET", help="No transactions in the set."),
        option(["--xid"], metavar="ID", help="Only this transaction."),
        option(
            ["--on-damage"],
            type=click.Choice(["stop", "skip", "salvage"]),
            help="What to do at damage. salvage: as skip, and what is well framed but unproven, marked with why.",
        ),
        option(["--live"], is_flag=True, help="The file may grow: an unfinished tail is no finding."),
    ]


def where_option() -> click.Parameter:
    """Return a new option: a condition on records; `cli.selector` reads it."""
    return option(
        ["--where"],
        metavar="EXPR",
        shell_complete=completing.complete_condition,
        help="Only records for which this is true: \"object = 'shop.orders' and after.price < 0\". Members, body.NAME, "
        "before.COLUMN and after.COLUMN; = != < <= > >=, in (...), like, ~ (a glob), is null, and, or, not. --limit, "
        "--skip and --tail count what it leaves. Of a script it chooses rows, not whole events.",
    )


def network_option() -> Option:
    """Return a new option that allows repairs on network file systems."""
    return option(
        ["--allow-network-file-system"],
        is_flag=True,
        allow_from_autoenv=False,
        help="Change files on a network file system, too, where other users of them cannot be seen.",
    )
