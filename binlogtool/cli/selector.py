"""Convert command line options to the library's values: selection, hints, script options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from binlogtool.cli.options import envelope_options, hint_options, script_options, selection_options
from binlogtool.cli.times import parse_time
from binlogtool.errors import UsageError

if TYPE_CHECKING:
    import binlogtool
    from binlogtool.cli.run import CommandRun
    from binlogtool.log.select import Selection

SELECTION_OPTIONS = (*(param.name or "" for param in selection_options()), "where")
SCRIPT_OPTIONS = tuple(param.name or "" for param in script_options())
ENVELOPE_OPTIONS = tuple(param.name or "" for param in envelope_options())
HINT_OPTIONS = tuple(param.name or "" for param in hint_options())


def pop_hints(
    command_options: dict[str, Any], record_selection: Selection | None = None, *, script: bool = False
) -> binlogtool.Hints | None:
    """Remove the hint options from the command's options, and read the files that they name.

    Args:
        command_options: options; those of `hint_options`, `level_option` and `redo_option` are removed.
        record_selection: the selection, if it affects how the log is read.
        script: SQL statements are requested.

    Raises:
        InputOutputError, UsageError: see `binlogtool.read_hints`.
    """
    import binlogtool
    from binlogtool.log.select import add_selection_hints

    values = {name: command_options.pop(name) for name in (*HINT_OPTIONS, "level", "redo") if name in command_options}
    read = binlogtool.read_hints(**values) if any(values.values()) else None
    return read if record_selection is None else add_selection_hints(record_selection, read, script=script)


def script_values(command_options: dict[str, Any], selection_values: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `script_options` by the names of `ScriptOptions`. selection_values: see
    `split_selection`.
    """
    values = {name: command_options[name] for name in SCRIPT_OPTIONS if name != "with_gtids"}
    return {**values, "gtids": command_options["with_gtids"], "database": selection_values["database"]}


def split_selection(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (selection options, other options)."""
    selection_values = {name: value for name, value in options.items() if name in SELECTION_OPTIONS}
    return selection_values, {name: value for name, value in options.items() if name not in SELECTION_OPTIONS}


def build_selection(command_options: dict[str, Any], *, on_damage: str) -> Selection:
    """Build the selection. on_damage: default of this command.

    Raises:
        UsageError: a time is invalid, or the options contradict each other.
    """
    from binlogtool.log.select import Selection, check_where

    if command_options["tail"] is not None and command_options["limit"] is not None:
        raise UsageError("--tail and --limit exclude each other")
    times = [
        None
        if command_options[name] is None
        else parse_time(command_options[name], local=command_options["local_time"])
        for name in ("start_datetime", "stop_datetime")
    ]
    if (where := command_options.get("where")) is not None:
        check_where(where)  # report errors before a file is opened
    unchanged_names = ("skip", "limit", "tail", "include_gtids", "exclude_gtids", "xid", "live")
    plural_names = ("type", "exclude_object", "origin", "exclude_origin")
    return Selection(
        objects=(*command_options["object"], *_table_patterns(command_options["database"], command_options["table"])),
        start=command_options["start_position"],
        stop=command_options["stop_position"],
        start_time=times[0],
        stop_time=times[1],
        on_damage=command_options["on_damage"] or on_damage,
        where=where,
        **{name: command_options[name] for name in unchanged_names},
        **{f"{name}s": command_options[name] for name in plural_names},
    )


def _table_patterns(databases: tuple[str, ...], tables: tuple[str, ...]) -> tuple[str, ...]:
    """Return the object patterns for `--database` and `--table`: tables have a database prefix, spaces do not."""
    if not tables:
        return tuple(f"{database}.*" for database in databases)
    if databases:
        return tuple(f"{database}.{table}" for database in databases for table in tables)
    return tuple(glob for table in tables for glob in (table, f"*.{table}"))


def print_record_types(run: CommandRun, paths: tuple[str, ...]) -> int:
    """Handle `--type list`: print the record types of the named format, otherwise of the first path's."""
    import binlogtool
    from binlogtool import formats
    from binlogtool.render.escape import escape

    if run.settings.format != "auto":
        name = run.settings.format.partition(":")[0]
        if name not in formats.list_names():
            raise UsageError(f"there is no format {name!r}; known: {', '.join(formats.list_names())}")
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
