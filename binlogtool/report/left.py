"""Report the files of a directory that are not logs, in one line, or each by name."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from binlogtool.log.left import FILE, PACKED, UNREADABLE, Left
from binlogtool.recovery.report import LeftOut
from binlogtool.render.escape import escape
from binlogtool.report.words import counted

_NAMED_EACH = "not followed; name one to read it"
_HOW = {FILE: "", PACKED: "name one: it is unpacked while it is read", UNREADABLE: "no permission?", "socket": ""}


def left_lines(left: Sequence[LeftOut], *, names: bool = False) -> Iterator[str]:
    """Yield the lines about skipped files.

    Args:
        list_names: Also a line for each file.
    """
    files = [(one.path, file) for one in left for file in one.files]
    if files:
        yield f"not logs: {_kinds([file for _, file in files])}"
    for path, file in files if names else ():
        kind = "" if file.kind == FILE else f"  ({file.kind})"
        yield f"  {escape(os.path.join(path, file.name))}{kind}"


def _kinds(files: Sequence[Left]) -> str:
    counts = sorted(Counter(file.kind for file in files).items(), key=lambda item: (item[0] != FILE, item[0]))
    return ", ".join(f"{counted(number, kind)}{_how(kind)}" for kind, number in counts)


def _how(kind: str) -> str:
    how = _HOW.get(kind, _NAMED_EACH)
    return f" ({how})" if how else ""


def left_json(left: LeftOut) -> dict[str, Any]:
    """Return one member of `not_logs`: the files of a directory that are not logs."""
    return {"path": left.path, "files": [{"name": one.name, "kind": one.kind} for one in left.files]}
