"""Report the files of a directory that are not logs, in one line, or each by name."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from binlogtool.log.left import COMPRESSED, FILE, UNREADABLE, SkippedFile
from binlogtool.recovery.report import SkippedFiles
from binlogtool.render.escape import escape
from binlogtool.report.words import format_quantity

_DEFAULT_ADVICE = "not followed; name one to read it"
_ADVICE = {
    FILE: "",
    COMPRESSED: "name one: it is unpacked while it is read",
    UNREADABLE: "no permission?",
    "socket": "",
}


def render_skipped_files(skipped: Sequence[SkippedFiles], *, list_names: bool = False) -> Iterator[str]:
    """Yield the lines about skipped files.

    Args:
        list_names: Also a line for each file.
    """
    files = [(one.path, file) for one in skipped for file in one.files]
    if files:
        yield f"not logs: {_count_kinds([file for _, file in files])}"
    for path, file in files if list_names else ():
        kind = "" if file.kind == FILE else f"  ({file.kind})"
        yield f"  {escape(os.path.join(path, file.name))}{kind}"


def _count_kinds(files: Sequence[SkippedFile]) -> str:
    counts = sorted(Counter(file.kind for file in files).items(), key=lambda item: (item[0] != FILE, item[0]))
    return ", ".join(f"{format_quantity(number, kind)}{_format_advice(kind)}" for kind, number in counts)


def _format_advice(kind: str) -> str:
    advice = _ADVICE.get(kind, _DEFAULT_ADVICE)
    return f" ({advice})" if advice else ""


def skipped_files_to_json(skipped: SkippedFiles) -> dict[str, Any]:
    """Return one member of `not_logs`: the files of a directory that are not logs."""
    return {"path": skipped.path, "files": [{"name": one.name, "kind": one.kind} for one in skipped.files]}
