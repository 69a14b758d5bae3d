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
from binlogtool.formats.scripting import Wording
from binlogtool.log.records import Block
from binlogtool.log.select import Selection

if TYPE_CHECKING:
    from pathlib import Path

    from binlogtool.formats.scripting import Shelf

TRANSACTIONS = ("keep", "flatten")
ROWS = ("exact", "statements")
SINGLE = ("types", "limit", "tail", "skip")
_REWRITE = re.compile(r"\s*(\S+?)\s*->\s*(\S+)\s*\Z")


class Request(msgspec.Struct, frozen=True):
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
    def given(self) -> str | None:
        """Name of a script option that is not at its default; None if there is none."""
        usual = Request()
        for name in ("rewrite", "transactions", "rows", "comments", "gtids", "stop_before", "load_files", "skip_ddl"):
            if getattr(self, name) not in (getattr(usual, name), []):
                return "--" + ("with-gtids" if name == "gtids" else name.replace("_", "-"))
        return None


def wording(to: str, selection: Selection, request: Request) -> Wording:
    """Return the form of the script.

    Raises:
        UsageError: the options contradict each other, or the selection.
    """
    for name, value, known in (("transactions", request.transactions, TRANSACTIONS), ("rows", request.rows, ROWS)):
        if value not in known:
            raise UsageError(f"--{name} {value}: choose one of {', '.join(known)}")
    flat, undo = request.transactions == "flatten", to == "sql-undo"
    if request.skip_ddl and not undo:
        raise UsageError("--skip-ddl is for sql-undo")
    if (flat or undo) and selection.on_damage != "stop":
        what = "an undo goes back over an unbroken log" if undo else "statements without transactions do not roll back"
        raise UsageError(f"--on-damage {selection.on_damage}: {what}; choose a part of the log that is not damaged")
    if undo:
        given = [name for name in SINGLE if getattr(selection, name)]
        if given:
            raise UsageError(f"--{given[0].rstrip('s')} chooses single records, but transactions are undone as a whole")
    only, tables = frozenset(request.database), chosen_tables(selection)
    condition = selection.where is not None
    if condition and (counted := [name for name in ("limit", "skip") if getattr(selection, name)]):
        raise UsageError(f"--where: it chooses rows in a script, and --{counted[0]} counts records")
    part = bool(only) or condition or tables is not None or any(getattr(selection, name) for name in SINGLE)
    return Wording(
        gtids=request.rows == "exact" and not part if request.gtids is None else request.gtids,
        undo=undo,
        flat=flat,
        databases=_databases(request.rewrite),
        tables=tables,
        rows=request.rows,
        comments=request.comments,
        only=only,
        until=request.stop_before,
        skip_ddl=request.skip_ddl,
        shelf=None if request.load_files is None else _shelf(request.load_files),
    )


def _shelf(directory: str | PathLike[str]) -> Shelf:
    from pathlib import Path

    from binlogtool.pipeline.writers.shelf import Folder

    return Folder(Path(directory))


def _databases(rewrite: Iterable[str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for text in rewrite:
        match = _REWRITE.match(text)
        if match is None:
            raise UsageError(f"--rewrite {text!r}: give it as 'old->new', names of databases")
        if found.setdefault(match[1], match[2]) != match[2]:
            raise UsageError(f"--rewrite gives {match[1]!r} two new names")
    return found


def chosen_tables(selection: Selection) -> Callable[[str], bool] | None:
    """Return a predicate of the tables to write; None = all. Other records of their transactions are read
    nevertheless.
    """
    objects, others = selection.objects, selection.exclude_objects
    if not objects and not others:
        return None

    def wanted(name: str) -> bool:
        chosen = not objects or any(fnmatch.fnmatchcase(name, glob) for glob in objects)
        return chosen and not any(fnmatch.fnmatchcase(name, glob) for glob in others)

    return wanted


def reach(selection: Selection) -> Selection:
    """Return the selection that must be read for the script."""
    return replace(selection, objects=(), exclude_objects=(), once=True)


def pieces(block: Block) -> Iterator[bytes]:
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
