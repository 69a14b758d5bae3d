"""Refuse outputs that would replace a file that the same command line reads, or that another option writes."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click

from binlogtool.cli.options import PATH
from binlogtool.errors import RefusedError, UsageError

OUTPUTS = frozenset({"output", "report", "write_baseline", "chart", "plan", "manifest", "to_file", "load_files"})
"""Options that name files to write; every other option of the type PATH names a file to read."""
_STANDARD_INPUT, _STANDARD_OUTPUT = 0, 1


class _File(NamedTuple):
    """A file that an option names. key: device and inode; None = it does not exist. real: its path without links."""

    option: str
    path: str
    key: tuple[int, int] | None
    real: str

    def is_same(self, other: _File) -> bool:
        """Return True if both are one file, or would be."""
        return self.real == other.real or (self.key is not None and self.key == other.key)


def refuse_collisions(params: Sequence[click.Parameter], values: Mapping[str, Any], config: str | None) -> None:
    """Check the files that a command line names. config: the configuration file that was read.

    Raises:
        RefusedError: an output is a file that is read.
        UsageError: two outputs are the same file.
    """
    outputs = [_file(option, path) for option, path in _outputs(params, values)]
    if not outputs:
        return
    inputs = list(_inputs(params, values, config))
    for output in outputs:
        for given in inputs:
            if output.is_same(given):
                raise RefusedError(f"{output.path} is an input ({given.option}); it is never overwritten")
            if values.get("overwrite") and given.real.startswith(f"{output.real}{os.sep}"):
                raise RefusedError(f"{output.path} holds the input {given.path} ({given.option}); it is not replaced")
    written = [*outputs, *_redirected()]
    for place, output in enumerate(written):
        for other in written[:place]:
            if output.is_same(other):
                raise UsageError(f"{other.option} and {output.option} write to one file, {other.path}: name two files")


def _outputs(params: Sequence[click.Parameter], values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for param in params:
        name = param.name or ""
        value = values.get(name)
        if name not in OUTPUTS or not value:
            continue
        for text in value if isinstance(value, (tuple, list)) else (value,):
            path = text.partition("=")[2] if name == "report" else text
            if path and path != "-":
                yield param.opts[-1], path


def _inputs(params: Sequence[click.Parameter], values: Mapping[str, Any], config: str | None) -> Iterator[_File]:
    for param in params:
        name, value = param.name or "", values.get(param.name or "")
        if not value or name in OUTPUTS:
            continue
        option = param.opts[-1] if isinstance(param, click.Option) else param.human_readable_name
        if name == "conf":
            value = [part.removeprefix("file://") for text in value for part in text.partition("=")[2].split(",")]
            value = [path for path in value if os.path.isfile(path)]
        elif param.type is not PATH:
            continue
        for path in value if isinstance(value, (tuple, list)) else (value,):
            if path == "-":
                yield from _standard(_STANDARD_INPUT, "standard input")
            elif "://" not in path and not (name == "paths" and os.path.isdir(path)):
                yield _file(option, path)
    if config is not None and os.path.exists(config):
        yield _file("--config", config)


def _file(option: str, path: str) -> _File:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return _File(option, path, None, _real(path))
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return _File(option, path, None, f"{option}={path}")  # a device or a pipe cannot be replaced
    return _File(option, path, (status.st_dev, status.st_ino), _real(path))


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return os.path.abspath(path)


def _standard(number: int, name: str) -> Iterator[_File]:
    """Yield a standard stream if it is a regular file."""
    try:
        status = os.fstat(number)
    except OSError:
        return
    if stat.S_ISREG(status.st_mode):
        yield _File(name, name, (status.st_dev, status.st_ino), name)


def _redirected() -> Iterator[_File]:
    if sys.stdout is not None:
        yield from _standard(_STANDARD_OUTPUT, "standard output")
