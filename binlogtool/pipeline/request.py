"""Read request of a job: built by binlogtool's own commands, or from the options of a Spark query."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Mapping
from difflib import get_close_matches

import msgspec
from msgspec.structs import replace

from binlogtool.errors import BinlogtoolError, InputOutputError, UsageError
from binlogtool.formats.detecting import Hints
from binlogtool.limits import Limits, parse_size
from binlogtool.log.hints import read_hints
from binlogtool.log.select import Selection, check_where
from binlogtool.log.source import is_url, open_source
from binlogtool.pipeline.balance import GROUPS_PER_CORE
from binlogtool.pipeline.inputs import list_files
from binlogtool.pipeline.tasks import SPLIT_SIZE, Parts, TaskFile

HINTS_OPTION = "hints.secret"
"""Option with the hints, which may contain keys: Spark redacts options whose name contains 'secret'."""


UNSIGNED_MODES = ("data", "decimal")


class ReadRequest(msgspec.Struct, frozen=True):
    """Description of what a Spark job reads; serialised as one JSON option.

    groups: maximum number of partitions for files that are not split. split_size: files larger than this many bytes
      are
    split. cuts: the parts of each member (None = not split); () = not determined. files: number of tasks, each of which
    reads consecutive pieces and writes one output file; None = tasks as in `plan_tasks`. notes: directory for findings
    that no row represents (`notes`); None = discard them. histories: state that earlier files carry over to members
    (`table_definitions`), each as `Hints.earlier`. columns, payload: see `rows.create_layout`. object: the one table or
    space whose typed rows are read (`objects`). unsigned: "data" or "decimal", see `from_options`.
    """

    members: tuple[TaskFile, ...]
    groups: int = 8
    backend: str = "auto"
    limits: Limits = msgspec.field(default_factory=Limits)
    selection: Selection = msgspec.field(default_factory=Selection)
    split_size: int = SPLIT_SIZE
    columns: tuple[str, ...] = ()
    payload: str = "decoded"
    object: str | None = None
    cuts: tuple[Parts | None, ...] = ()
    notes: str | None = None
    files: int | None = None
    unsigned: str = "data"
    histories: tuple[str, ...] = ()

    def member_hints(self, member: TaskFile, hints: Hints | None) -> Hints | None:
        """Return the hints for one member: the user's, with what earlier files carry over to it."""
        if member.earlier is None:
            return hints
        return replace(hints or Hints(), earlier=self.histories[member.earlier])

    def to_json(self) -> str:
        """Return the value of the option `request`."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> ReadRequest:
        """Parse the value of the option `request`."""
        return msgspec.json.decode(text, type=cls)


def hints_to_json(hints: Hints) -> str:
    """Return the value of the option `hints.secret`."""
    return msgspec.json.encode(hints).decode()


def parse_hints(options: Mapping[str, str]) -> Hints | None:
    """Return the hints in the options: as a whole, or as keyfile, keyfileSecret, schema and level; None without any.

    Raises:
        InputOutputError, UsageError: see `read_hints`.
    """
    if HINTS_OPTION in options:
        return msgspec.json.decode(options[HINTS_OPTION], type=Hints)
    values = [options.get(name) for name in ("schema", "keyfile", "keyfileSecret", "level")]
    objects = any(options.get(name) for name in ("object", "objects", "where"))
    if not any((*values, objects)):
        return None
    hints = read_hints(schema=values[0], keyfile=values[1], keyfile_secret=values[2], level=values[3])
    return replace(hints, objects=objects)


def parse_options(options: Mapping[str, str], *, files: bool = True) -> ReadRequest:
    """Build the request of a query from its options. files: look up the files that the paths name.

    Options: format: as `--format`. columns: names, separated by commas. payload: decoded, raw or none. splitSize:
      such as
    `64MiB`. object: see `objects`. types, objects: names, separated by commas. startTime, stopTime: microseconds
    since 1970.
    unsigned: types of unsigned fields (Tarantool): data = bigint unless a record needs more, decimal = holds every
      allowed
    value. where: a condition, as `--where`. engine: native, python or auto. maxRecord: bytes.

    Raises:
        UsageError: an option is unknown or has an invalid value, or no path was given.
        InputOutputError: nothing has such a path.
    """
    if "request" in options:
        return ReadRequest.from_json(options["request"])
    _check_known_options(options)
    paths, unsigned = parse_paths(options), options.get("unsigned", "data")
    if unsigned not in UNSIGNED_MODES:
        raise UsageError(f"unsigned={unsigned}: choose one of {', '.join(UNSIGNED_MODES)}")
    existing_paths = [name for path in paths for name in _expand_pattern(path)] if files else []
    members = tuple(member for name in existing_paths for member in list_members(name, options.get("format", "auto")))
    max_record = options.get("maxRecord")
    times = [options.get(name) for name in ("startTime", "stopTime")]
    return ReadRequest(
        members,
        GROUPS_PER_CORE * (os.cpu_count() or 1),
        options.get("engine", "auto"),
        Limits() if max_record is None else Limits(max_record=parse_size(max_record)),
        Selection(
            start_time=None if times[0] is None else int(times[0]),
            stop_time=None if times[1] is None else int(times[1]),
            types=_split_names(options.get("types")),
            objects=_split_names(options.get("objects")),
            where=_check_condition(options.get("where")),
        ),
        max(1, parse_size(options.get("splitSize", str(SPLIT_SIZE)))),
        _split_names(options.get("columns")),
        options.get("payload", "decoded"),
        options.get("object"),
        unsigned=unsigned,
    )


_OPTIONS = (
    "path", "paths", "format", "schema", "keyfile", "keyfileSecret", "level", "object", "objects", "types", "where",
    "startTime", "stopTime", "columns", "payload", "splitSize", "unsigned", "engine", "maxRecord", "pushdown",
    "maxFilesPerTrigger", "maxBytesPerTrigger", "checkpointLocation", HINTS_OPTION, "request",
)  # fmt: skip
"""Options of the data source. Spark passes their names in lower case or as given."""


def _check_known_options(options: Mapping[str, str]) -> None:
    names_by_lower = {name.lower(): name for name in _OPTIONS}
    for name in options:
        if name.lower() in names_by_lower or "." in name or name.startswith("__"):
            continue
        suggestions = [names_by_lower[one] for one in get_close_matches(name.lower(), names_by_lower, 3)]
        hint = (
            f"did you mean {' or '.join(suggestions)}?" if suggestions else f"options are {', '.join(_OPTIONS[1:-2])}"
        )
        raise UsageError(f"there is no option {name!r}; {hint}")


def _expand_pattern(path: str) -> list[str]:
    """Return the paths that a path or a pattern names.

    Raises:
        InputOutputError: there are none.
    """
    if is_url(path) or os.path.lexists(path):
        return [path]
    matches = sorted(glob.glob(path)) if glob.has_magic(path) else []
    if not matches:
        problem = "no file has a name like this" if glob.has_magic(path) else "no such file or directory"
        raise InputOutputError(f"{path}: {problem}")
    return matches


def _check_condition(text: str | None) -> str | None:
    """Return the condition after checking it; it is compiled again where records are read."""
    if text is not None:
        check_where(text)
    return text


def _split_names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def parse_paths(options: Mapping[str, str]) -> list[str]:
    """Return the paths that `load` was given: one or several.

    Raises:
        UsageError: none was given.
    """
    if "paths" in options:
        return [str(path) for path in json.loads(options["paths"])]
    if not options.get("path"):
        raise UsageError("name at least one file or directory in load()")
    return [options["path"]]


def list_members(path: str, format: str) -> list[TaskFile]:
    """Return the files behind a path. A file that cannot be opened is a member, too, which is read as a DAMAGE row."""
    members = []
    for name, format_name in list_files(path, format):
        try:
            source = open_source(name)
        except BinlogtoolError:
            members.append(TaskFile(name, name, format_name, 0))
            continue
        members.append(TaskFile(name, name, format_name, source.size or 0))
        source.close()
    return members
