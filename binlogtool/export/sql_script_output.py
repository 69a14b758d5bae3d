"""SQL scripts as outputs: their selection, sidecar files for LOAD DATA, and statement counts."""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

import msgspec
from msgspec.structs import replace

from binlogtool.core.record_and_selection_types import RecordBlock, Selection
from binlogtool.errors import InputOutputError, RefusedError, UsageError, name_os_errors
from binlogtool.format_api.row_output_interfaces import DatabaseRenames, ScriptOptions, SidecarFiles

# --- Sidecar files of a script ---


class SidecarFolder(msgspec.Struct):
    """Directory of sidecar files, created with the first file; an existing non-empty directory is refused."""

    folder: Path
    is_created: bool = False
    names: set[str] = msgspec.field(default_factory=set)

    def add(self, name: str, data: bytes) -> None:
        """Append bytes to a file.

        Raises:
            RefusedError: the directory exists and is not empty.
            InputOutputError: the file cannot be written.
        """
        with name_os_errors(self.folder):
            if not self.is_created:
                self._create_folder()
            with (self.folder / name).open("ab" if name in self.names else "xb") as file:
                file.write(data)
        self.names.add(name)

    def _create_folder(self) -> None:
        if self.folder.exists() and any(self.folder.iterdir()):
            raise RefusedError(f"{self.folder} is not empty; name another directory for the files of LOAD DATA")
        self.folder.mkdir(exist_ok=True)
        self.is_created = True

    def path(self, name: str) -> str:
        """Return the absolute path of a file."""
        return os.path.abspath(self.folder / name)

    def discard(self) -> None:
        """Remove the directory if this object created it, because the script that needs it is not published."""
        if self.is_created:
            import shutil

            shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def discard_sidecars_unless_complete(shelf: SidecarFiles | None) -> Iterator[Callable[[bool], None]]:
    """Yield a function to report that the script is complete; otherwise remove its sidecar files at the end."""
    is_complete = False

    def set_complete(is_whole: bool) -> None:
        nonlocal is_complete
        is_complete = is_whole

    try:
        yield set_complete
    finally:
        if isinstance(shelf, SidecarFolder) and not is_complete:
            shelf.discard()


# --- SQL scripts ---

ROW_MODES = ("exact", "statements")
RECORD_FILTERS = ("types", "limit", "tail", "skip")
_REWRITE_RULE = re.compile(r"\s*(\S+?)\s*->\s*(\S+)\s*\Z")


class ScriptRequest(msgspec.Struct, frozen=True):
    """Options of a script.

    rewrite: texts `old->new` with database names. gtids: None = depends on `rows`. database: the databases to write.
    stop_before: a statement. load_files: a directory for the data of LOAD DATA. skip_ddl: a flashback ignores DDL of
    its tables. match_all: its statements find a row by all its columns, not by its key.
    """

    rewrite: Sequence[str] = ()
    rows: str = "exact"
    comments: bool = False
    gtids: bool | None = None
    database: Sequence[str] = ()
    stop_before: str | None = None
    load_files: str | PathLike[str] | None = None
    skip_ddl: bool = False
    match_all: bool = False

    @property
    def first_non_default_option(self) -> str | None:
        """Name of a script option that is not at its default; None if there is none."""
        defaults = ScriptRequest()
        for name in ("rewrite", "rows", "comments", "gtids", "stop_before", "load_files", "skip_ddl", "match_all"):
            if getattr(self, name) not in (getattr(defaults, name), []):
                return {"gtids": "--with-gtids", "match_all": "--match-all-columns"}.get(
                    name, f"--{name.replace('_', '-')}"
                )
        return None


def build_script_options(to: str, selection: Selection, script_request: ScriptRequest) -> ScriptOptions:
    """Return the form of the script.

    Raises:
        UsageError: the options contradict each other or the selection.
    """
    if script_request.rows not in ROW_MODES:
        raise UsageError(f"--rows {script_request.rows}: choose one of {', '.join(ROW_MODES)}")
    is_flashback = to == "flashback"
    if script_request.skip_ddl and not is_flashback:
        raise UsageError("--skip-ddl is only for flashback")
    if script_request.match_all and not (is_flashback and script_request.rows == "statements"):
        raise UsageError(
            "--match-all-columns is for flashback with --rows statements; the log's own events always "
            "compare all columns"
        )
    if is_flashback and selection.on_damage != "stop":
        raise UsageError(
            f"--on-damage {selection.on_damage}: a flashback needs an undamaged log; select an undamaged part of it"
        )
    if is_flashback:
        refuse_record_filters(selection, "transactions can only be reversed as a whole")
    only, tables = frozenset(script_request.database), table_filter(selection)
    has_condition = selection.where is not None
    if has_condition and (counted := [name for name in ("limit", "skip") if getattr(selection, name)]):
        raise UsageError(f"--where selects rows in a script; it cannot be combined with --{counted[0]} counts records")
    is_partial = (
        bool(only) or has_condition or tables is not None or any(getattr(selection, name) for name in RECORD_FILTERS)
    )
    return ScriptOptions(
        gtids=script_request.rows == "exact" and not is_partial
        if script_request.gtids is None
        else script_request.gtids,
        flashback=is_flashback,
        rename_databases=_parse_rewrites(script_request.rewrite),
        includes_table=tables,
        rows=script_request.rows,
        comments=script_request.comments,
        only_databases=only,
        stop_before=script_request.stop_before,
        skip_ddl=script_request.skip_ddl,
        match_all=script_request.match_all,
        sidecar_files=None if script_request.load_files is None else SidecarFolder(Path(script_request.load_files)),
    )


def refuse_record_filters(selection: Selection, reason: str) -> None:
    """Raise UsageError if options select single records of transactions."""
    for name in (name for name in RECORD_FILTERS if getattr(selection, name)):
        raise UsageError(f"--{name.rstrip('s')} selects single records, but {reason}")


def _parse_rewrites(rewrite: Iterable[str]) -> DatabaseRenames:
    new_names = DatabaseRenames()
    for text in rewrite:
        match = _REWRITE_RULE.match(text)
        if match is None:
            raise UsageError(f"--rewrite {text!r}: use 'old->new' with names of databases")
        if new_names.setdefault(match[1], match[2]) != match[2]:
            raise UsageError(f"--rewrite gives {match[1]!r} two new names")
    return new_names


def table_filter(selection: Selection) -> Callable[[str], bool] | None:
    """Return a predicate for the tables to write; None = all. Other records of their transactions are also read."""
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
    """Count the statements that a client would find; a statement ends with a line that is only the delimiter.

    Raises:
        InputOutputError: the last statement has no end.
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
        raise InputOutputError("the script ends inside a statement and is not usable")
    return count
