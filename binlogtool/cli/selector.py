"""Convert command line options to the library's values: selection, hints, script options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from binlogtool.cli.options import envelope_options, hint_options, script_options, selection_options
from binlogtool.cli.times import parse_time
from binlogtool.errors import UsageError

if TYPE_CHECKING:
    import binlogtool
    from binlogtool.cli.run import Run
    from binlogtool.log.select import Selection

NAMES = (*(param.name or "" for param in selection_options()), "where")
SCRIPTS = tuple(param.name or "" for param in script_options())
ENVELOPE = tuple(param.name or "" for param in envelope_options())
HINTS = tuple(param.name or "" for param in hint_options())


def hints(o: dict[str, Any], chosen: Selection | None = None, *, script: bool = False) -> binlogtool.Hints | None:
    """Remove the hint options from the command's options, and read the files that they name.

    Args:
        o: options; those of `hint_options`, `level_option` and `redo_option` are removed.
        chosen: the selection, if it affects how the log is read.
        script: SQL statements are requested.

    Raises:
        InputOutputError, UsageError: see `binlogtool.read_hints`.
    """
    import binlogtool
    from binlogtool.log.select import hints_for

    named = {name: o.pop(name) for name in (*HINTS, "level", "redo") if name in o}
    found = binlogtool.read_hints(**named) if any(named.values()) else None
    return found if chosen is None else hints_for(chosen, found, script=script)


def script(o: dict[str, Any], chosen: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `script_options` by the names of `ScriptOptions`. chosen: see `split_selection`."""
    named = {name: o[name] for name in SCRIPTS if name != "with_gtids"}
    return {**named, "gtids": o["with_gtids"], "database": chosen["database"]}


def split(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (selection options, other options)."""
    chosen = {name: value for name, value in options.items() if name in NAMES}
    return chosen, {name: value for name, value in options.items() if name not in NAMES}


def selection(o: dict[str, Any], *, on_damage: str) -> Selection:
    """Build the selection. on_damage: default of this command.

    Raises:
        UsageError: a time is invalid, or the options contradict each other.
    """
    from binlogtool.log.select import Selection, check_where

    if o["tail"] is not None and o["limit"] is not None:
        raise UsageError("--tail and --limit exclude each other")
    times = [
        None if o[name] is None else parse_time(o[name], local=o["local_time"])
        for name in ("start_datetime", "stop_datetime")
    ]
    if (where := o.get("where")) is not None:
        check_where(where)  # report errors before a file is opened
    same = ("skip", "limit", "tail", "include_gtids", "exclude_gtids", "xid", "live")
    lists = ("type", "exclude_object", "origin", "exclude_origin")
    return Selection(
        objects=(*o["object"], *_tables(o["database"], o["table"])),
        start=o["start_position"],
        stop=o["stop_position"],
        start_time=times[0],
        stop_time=times[1],
        on_damage=o["on_damage"] or on_damage,
        where=where,
        **{name: o[name] for name in same},
        **{f"{name}s": o[name] for name in lists},
    )


def _tables(databases: tuple[str, ...], tables: tuple[str, ...]) -> tuple[str, ...]:
    """Return the object patterns for `--database` and `--table`: tables have a database prefix, spaces do not."""
    if not tables:
        return tuple(f"{database}.*" for database in databases)
    if databases:
        return tuple(f"{database}.{table}" for database in databases for table in tables)
    return tuple(glob for table in tables for glob in (table, f"*.{table}"))


def list_types(run: Run, paths: tuple[str, ...]) -> int:
    """Handle `--type list`: print the record types of the named format, otherwise of the first path's."""
    import binlogtool
    from binlogtool import formats
    from binlogtool.render.escape import escape

    if run.settings.format != "auto":
        name = run.settings.format.partition(":")[0]
        if name not in formats.names():
            raise UsageError(f"there is no format {name!r}; known: {', '.join(formats.names())}")
        known = formats.get(name)
    elif paths:
        with binlogtool.open(paths[0], limits=run.settings.limits) as log:
            known = log.files[0].format
    else:
        raise UsageError("--type list needs --format or a PATH")
    with run.output(text=True, page=False) as out:
        for code, name in sorted(known.output.types.items()):
            out.line(f"{code:>6}  {escape(name)}")
    return 0
