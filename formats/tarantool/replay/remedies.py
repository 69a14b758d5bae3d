"""Steps that let a stopped server start, where a command or an option does so without losing rows."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from binlogtool.formats.replay_rules import ExaminedFile, ReplaySituation, ReplayStop

Step = Mapping[str, str | None]
"""what: in words; command: to copy, None = there is none."""

_NUMBERED_NAME = re.compile(r"(\d+)(\.(?:xlog|snap|vylog))")
_MAX_HEADER_SIZE = 300
"""Bytes within which a header ends; a shorter file without its empty line holds no rows."""


def list_remedies(stop: ReplayStop | None, situation: ReplaySituation) -> list[Step]:
    """List the steps for a start that ends at `stop`; [] where rows would be lost, or no remedy is known."""
    if stop is None or not situation.is_directory or situation.policy == "force":
        return []
    return list(_find_steps(stop, {file.name: file for file in situation.files}))


def _find_steps(stop: ReplayStop, files: Mapping[str, ExaminedFile]) -> Iterator[Step]:
    file = files.get(stop.file)
    if "failed to create file" in stop.why and stop.file.endswith(".inprogress"):
        yield _propose_move(file, "take the unfinished file away: the server makes it again, and fails where it exists")
    if file is None:
        return
    kind = stop.file.rpartition(".")[2]
    if kind == "xlog" and stop.why.startswith("Unexpected end of file") and _ends_in_header(file):
        size = "0 bytes" if not file.size else "only a part of its header"
        yield _propose_move(file, f"take {posixpath.basename(file.name)} away: it has {size} and holds no row")
        yield {"what": "or start once with force_recovery = true, which leaves it out", "command": None}
    if "invalid xlog order" in stop.why or "failed to open" in stop.why:
        yield from _propose_rename(file, files)
    if kind == "index":
        yield {
            "what": "start once with force_recovery = true: it makes the index file again from its run",
            "command": None,
        }


def _ends_in_header(file: ExaminedFile) -> bool:
    """Check that a file ends inside its header, so that it can hold no row."""
    header = None if file.layout is None else file.layout.context.text.end
    return header is None and file.records == 0 and file.size < _MAX_HEADER_SIZE


def _propose_rename(file: ExaminedFile, files: Mapping[str, ExaminedFile]) -> Iterator[Step]:
    """Propose the right name for a file whose name does not have 20 digits."""
    folder, base = posixpath.split(file.name)
    name_match = _NUMBERED_NAME.fullmatch(base)
    if name_match is None:
        return
    name = f"{int(name_match[1]):020d}{name_match[2]}"
    if base == name:
        return
    if posixpath.join(folder, name) in files:
        yield _propose_move(file, f"take {base} away: {name} has the same number")
    else:
        target = shlex.quote(posixpath.join(posixpath.dirname(file.path), name))
        yield {"what": "give the file its name back: 20 digits", "command": f"mv -- {shlex.quote(file.path)} {target}"}


def _propose_move(file: ExaminedFile | None, description: str) -> dict[str, Any]:
    path = None if file is None else shlex.quote(file.path)
    return {"what": description, "command": None if path is None else f"mv -- {path} {path}.aside"}
