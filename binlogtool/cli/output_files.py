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

OUTPUT_OPTIONS = frozenset({"output", "report", "write_baseline", "chart", "plan", "manifest", "to_file", "load_files"})
"""Options that name files to write; every other option of the type PATH names a file to read."""
_STANDARD_INPUT, _STANDARD_OUTPUT = 0, 1


class _NamedFile(NamedTuple):
    """A file that an option names. identity: device and inode; None = it does not exist. real_path: its path
    without links.
    """

    option: str
    path: str
    identity: tuple[int, int] | None
    real_path: str

    def is_same_file(self, other: _NamedFile) -> bool:
        """Return True if both are one file, or would be."""
        return self.real_path == other.real_path or (self.identity is not None and self.identity == other.identity)


def refuse_collisions(params: Sequence[click.Parameter], values: Mapping[str, Any], config: str | None) -> None:
    """Check the files that a command line names. config: the configuration file that was read.

    Raises:
        RefusedError: an output is a file that is read.
        UsageError: two outputs are the same file.
    """
    outputs = [_identify_file(option, path) for option, path in _list_outputs(params, values)]
    if not outputs:
        return
    inputs = list(_list_inputs(params, values, config))
    for output in outputs:
        for input_file in inputs:
            if output.is_same_file(input_file):
                raise RefusedError(f"{output.path} is an input ({input_file.option}); it is never overwritten")
            if values.get("overwrite") and input_file.real_path.startswith(f"{output.real_path}{os.sep}"):
                raise RefusedError(
                    f"{output.path} holds the input {input_file.path} ({input_file.option}); it is not replaced"
                )
    written = [*outputs, *_redirected_output()]
    for index, output in enumerate(written):
        for other in written[:index]:
            if output.is_same_file(other):
                raise UsageError(f"{other.option} and {output.option} write to one file, {other.path}: name two files")


def _list_outputs(params: Sequence[click.Parameter], values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for param in params:
        name = param.name or ""
        value = values.get(name)
        if name not in OUTPUT_OPTIONS or not value:
            continue
        for text in value if isinstance(value, (tuple, list)) else (value,):
            path = text.partition("=")[2] if name == "report" else text
            if path and path != "-":
                yield param.opts[-1], path


def _list_inputs(
    params: Sequence[click.Parameter], values: Mapping[str, Any], config: str | None
) -> Iterator[_NamedFile]:
    for param in params:
        name, value = param.name or "", values.get(param.name or "")
        if not value or name in OUTPUT_OPTIONS:
            continue
        option = param.opts[-1] if isinstance(param, click.Option) else param.human_readable_name
        if name == "conf":
            value = [part.removeprefix("file://") for text in value for part in text.partition("=")[2].split(",")]
            value = [path for path in value if os.path.isfile(path)]
        elif param.type is not PATH:
            continue
        for path in value if isinstance(value, (tuple, list)) else (value,):
            if path == "-":
                yield from _identify_standard_stream(_STANDARD_INPUT, "standard input")
            elif "://" not in path and not (name == "paths" and os.path.isdir(path)):
                yield _identify_file(option, path)
    if config is not None and os.path.exists(config):
        yield _identify_file("--config", config)


def _identify_file(option: str, path: str) -> _NamedFile:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return _NamedFile(option, path, None, _resolve_path(path))
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return _NamedFile(option, path, None, f"{option}={path}")  # a device or a pipe cannot be replaced
    return _NamedFile(option, path, (status.st_dev, status.st_ino), _resolve_path(path))


def _resolve_path(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return os.path.abspath(path)


def _identify_standard_stream(number: int, name: str) -> Iterator[_NamedFile]:
    """Yield a standard stream if it is a regular file."""
    try:
        status = os.fstat(number)
    except OSError:
        return
    if stat.S_ISREG(status.st_mode):
        yield _NamedFile(name, name, (status.st_dev, status.st_ino), name)


def _redirected_output() -> Iterator[_NamedFile]:
    if sys.stdout is not None:
        yield from _identify_standard_stream(_STANDARD_OUTPUT, "standard output")
