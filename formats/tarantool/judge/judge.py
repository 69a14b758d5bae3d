"""Entry points of validation: one validator per kind of file, the order of a set, and the rules of a set."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence

from binlogtool.formats.judging import Validator
from binlogtool.formats.layouts import Kernel, LogFileLayout
from binlogtool.formats.tarantool.codes import FileKind
from binlogtool.formats.tarantool.judge.chain import validate_set
from binlogtool.formats.tarantool.judge.common import TarantoolValidator
from binlogtool.formats.tarantool.judge.log import XlogValidator
from binlogtool.formats.tarantool.judge.snap import SnapValidator
from binlogtool.formats.tarantool.judge.vinyl import IndexValidator, RunValidator, VylogValidator
from binlogtool.limits import Limits

_VALIDATORS: dict[FileKind, type[TarantoolValidator]] = {
    FileKind.XLOG: XlogValidator,
    FileKind.SNAP: SnapValidator,
    FileKind.VYLOG: VylogValidator,
    FileKind.RUN: RunValidator,
    FileKind.INDEX: IndexValidator,
}
_SUFFIX_ORDER = (".snap", ".vylog", ".xlog", ".index", ".run")
_NUMBERED_NAME = re.compile(r"(\d+)\..*")
_VINYL_PATH = re.compile(r"(.*/)?\d+/\d+/[^/]+\.(?:run|index)(?:\.inprogress)?")


def create_validator(layout: LogFileLayout, compile_: Callable[[Kernel], Kernel], limits: Limits) -> Validator:
    """Create the validator for a file of this kind."""
    kind: FileKind = layout.context.kind
    return _VALIDATORS[kind](layout, compile_, limits)


def sort_names(names: Sequence[str]) -> list[str]:
    """Sort file names by directory; then snapshots, metadata logs, logs, indexes, runs; each by its number."""
    return sorted(names, key=_make_sort_key)


def find_log_directory(name: str) -> str:
    """Return the data directory of a file: vinyl files lie in `<space id>/<index id>/` below it.

    Source: `docs/spec/tarantool.md#vinyl-files`.
    """
    vinyl_path = _VINYL_PATH.fullmatch(name)
    return (vinyl_path[1] or "").rstrip("/") if vinyl_path else posixpath.dirname(name)


def _make_sort_key(name: str) -> tuple[tuple[int, str], int, int, str]:
    folder, base = posixpath.split(name)
    number = _NUMBERED_NAME.fullmatch(base)
    kind = next((i for i, suffix in enumerate(_SUFFIX_ORDER) if suffix in base), len(_SUFFIX_ORDER))
    return (folder.count("/") + bool(folder), folder), kind, int(number[1]) if number else 0, base


__all__ = ["create_validator", "find_log_directory", "sort_names", "validate_set"]
