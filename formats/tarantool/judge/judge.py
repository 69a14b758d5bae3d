"""Entry points of validation: one validator per kind of file, the order of a set, and the rules of a set."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence

from binlogtool.formats.judging import Judge
from binlogtool.formats.layouts import Kernel, Layout
from binlogtool.formats.tarantool.codes import FileKind
from binlogtool.formats.tarantool.judge.chain import judge_set
from binlogtool.formats.tarantool.judge.common import FileJudge
from binlogtool.formats.tarantool.judge.log import LogJudge
from binlogtool.formats.tarantool.judge.snap import SnapJudge
from binlogtool.formats.tarantool.judge.vinyl import IndexJudge, RunJudge, VylogJudge
from binlogtool.limits import Limits

_JUDGES: dict[FileKind, type[FileJudge]] = {
    FileKind.XLOG: LogJudge,
    FileKind.SNAP: SnapJudge,
    FileKind.VYLOG: VylogJudge,
    FileKind.RUN: RunJudge,
    FileKind.INDEX: IndexJudge,
}
_ORDER = (".snap", ".vylog", ".xlog", ".index", ".run")
_NUMBER = re.compile(r"(\d+)\..*")
_VINYL = re.compile(r"(.*/)?\d+/\d+/[^/]+\.(?:run|index)(?:\.inprogress)?")


def judge(layout: Layout, compile_: Callable[[Kernel], Kernel], limits: Limits) -> Judge:
    """Create the validator for a file of this kind."""
    kind: FileKind = layout.context.kind
    return _JUDGES[kind](layout, compile_, limits)


def order(names: Sequence[str]) -> list[str]:
    """Sort file names by directory; then snapshots, metadata logs, logs, indexes, runs; each by its number."""
    return sorted(names, key=_rank)


def home(name: str) -> str:
    """Return the data directory of a file: vinyl files lie in `<space id>/<index id>/` below it.

    Source: `docs/spec/tarantool-xlog.md#5-vinyl-files`.
    """
    below = _VINYL.fullmatch(name)
    return (below[1] or "").rstrip("/") if below else posixpath.dirname(name)


def _rank(name: str) -> tuple[tuple[int, str], int, int, str]:
    folder, base = posixpath.split(name)
    number = _NUMBER.fullmatch(base)
    kind = next((i for i, suffix in enumerate(_ORDER) if suffix in base), len(_ORDER))
    return (folder.count("/") + bool(folder), folder), kind, int(number[1]) if number else 0, base


__all__ = ["home", "judge", "judge_set", "order"]
