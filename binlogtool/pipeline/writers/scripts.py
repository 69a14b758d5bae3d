"""SQL scripts: options, the selection to read for them, and the number of statements in a finished one."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from binlogtool.errors import InputOutputError, UsageError
from binlogtool.formats.scripting import ScriptOptions
from binlogtool.log.records import RecordBlock
from binlogtool.log.select import Selection

if TYPE_CHECKING:
    from pathlib import Path

    from binlogtool.formats.scripting import SidecarFiles

TRANSACTION_MODES = ("keep", "flatten")
ROW_MODES = ("exact", "statements")
RECORD_FILTERS = ("types", "limit", "tail", "skip")
_REWRITE_RULE = re.compile(r"\s*(\S+?)\s*->\s*(\S+)\s*\Z")


class ScriptRequest(msgspec.Struct, frozen=True):
    """Options of a script.

    rewrite: texts `old->new`, names of databases. gtids: None = depends on `rows`. database: only these databases.
    stop_before: a statement. load_files: a directory for data that a server loaded. skip_ddl: a flashback ignores DDL
      of its
    tables.
    """

    rewrite: Sequence[str] = ()
    transactions: str = "keep"
    rows: str = "exact"
    comments: bool = False
    gtids: bool | None = None
    database: Sequence[str] = ()
    stop_before: str | None = None
    load_files: str | PathLike[str] | None = None
    skip_ddl: bool = False

    @property
    def used_option(self) -> str | None:
        """Name of a script option that is not at its default; None if there is none."""
        defaults = ScriptRequest()
        for name in ("rewrite", "transactions", "rows", "comments", "gtids", "stop_before", "load_files", "skip_ddl"):
            if getattr(self, name) not in (getattr(defaults, name), []):
                return "--" + ("with-gtids" if name == "gtids" else name.replace("_", "-"))
        return None


def build_wording(to: str, selection: Selection, options: ScriptRequest) -> ScriptOptions:
    """Return the form of the script.

    Raises:
        UsageError: the options contradict each other, or the selection.
    """
    for name, value, choices in (
        ("transactions", options.transactions, TRANSACTION_MODES),
        ("rows", options.rows, ROW_MODES),
    ):
        if value not in choices:
            raise UsageError(f"--{name} {value}: choose one of {', '.join(choices)}")
    is_flat, is_undo = options.transactions == "flatten", to == "sql-undo"
    if options.skip_ddl and not is_undo:
        raise UsageError("--skip-ddl is for sql-undo")
    if (is_flat or is_undo) and selection.on_damage != "stop":
        reason = (
            "an undo goes back over an unbroken log" if is_undo else "statements without transactions do not roll back"
        )
        raise UsageError(f"--on-damage {selection.on_damage}: {reason}; choose a part of the log that is not damaged")
    if is_undo:
        record_filters = [name for name in RECORD_FILTERS if getattr(selection, name)]
        if record_filters:
            raise UsageError(
                f"--{record_filters[0].rstrip('s')} chooses single records, but transactions are undone as a whole"
            )
    only, tables = frozenset(options.database), table_filter(selection)
    has_condition = selection.where is not None
    if has_condition and (counted := [name for name in ("limit", "skip") if getattr(selection, name)]):
        raise UsageError(f"--where: it chooses rows in a script, and --{counted[0]} counts records")
    is_partial = (
        bool(only) or has_condition or tables is not None or any(getattr(selection, name) for name in RECORD_FILTERS)
    )
    return ScriptOptions(
        gtids=options.rows == "exact" and not is_partial if options.gtids is None else options.gtids,
        flashback=is_undo,
        flat=is_flat,
        rename_databases=_parse_rewrites(options.rewrite),
        includes_table=tables,
        rows=options.rows,
        comments=options.comments,
        only_databases=only,
        stop_before=options.stop_before,
        skip_ddl=options.skip_ddl,
        sidecar_files=None if options.load_files is None else _create_sidecar_folder(options.load_files),
    )


def _create_sidecar_folder(directory: str | PathLike[str]) -> SidecarFiles:
    from pathlib import Path

    from binlogtool.pipeline.writers.shelf import SidecarFolder

    return SidecarFolder(Path(directory))


def _parse_rewrites(rewrite: Iterable[str]) -> Mapping[str, str]:
    new_names: dict[str, str] = {}
    for text in rewrite:
        match = _REWRITE_RULE.match(text)
        if match is None:
            raise UsageError(f"--rewrite {text!r}: give it as 'old->new', names of databases")
        if new_names.setdefault(match[1], match[2]) != match[2]:
            raise UsageError(f"--rewrite gives {match[1]!r} two new names")
    return new_names


def table_filter(selection: Selection) -> Callable[[str], bool] | None:
    """Return a predicate of the tables to write; None = all. Other records of their transactions are read
    nevertheless.
    """
    objects, others = selection.objects, selection.exclude_objects
    if not objects and not others:
        return None

    def is_selected(name: str) -> bool:
        chosen = not objects or any(fnmatch.fnmatchcase(name, glob) for glob in objects)
        return chosen and not any(fnmatch.fnmatchcase(name, glob) for glob in others)

    return is_selected


def script_selection(selection: Selection) -> Selection:
    """Return the selection that must be read for the script."""
    return replace(selection, objects=(), exclude_objects=(), once=True)


def record_texts(block: RecordBlock) -> Iterator[bytes]:
    """Yield the text of each record of a block, with its findings as comments."""
    for i, body in enumerate(block.bodies):
        notes = [f"# {f.id} at {block.offset[i]}: {json.dumps(f.message)}\n" for f in block.findings.get(i, ())]
        yield "".join(notes).encode() + (body or b"")


def count_statements(path: Path) -> int:
    """Count the statements that a client would find: a line that is only the delimiter ends one.

    Raises:
        InputOutputError: the last statement does not end.
    """
    count, delimiter, is_open = 0, b";", False
    with path.open("rb") as file:
        for line in file:
            text = line.rstrip(b"\n")
            if not is_open and text.startswith(b"DELIMITER "):
                delimiter = text[10:]
            elif text == delimiter or (delimiter == b";" and text.endswith(b";")):
                count, is_open = count + 1, False
            elif is_open or not text.startswith(b"#"):
                is_open = True
    if is_open:
        raise InputOutputError("the script ends inside a statement: it is not usable")
    return count
