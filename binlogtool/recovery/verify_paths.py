"""Verify the logs that paths name, each in turn, also while a server writes them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from binlogtool.errors import BinlogtoolError, UsageError
from binlogtool.log.left import READ_PACKED, is_packed_log
from binlogtool.log.named import Group, named
from binlogtool.recovery.report import Report, failed, joined, left_of
from binlogtool.recovery.steady import steady
from binlogtool.recovery.verify import Options, verify_group


def verify_paths(
    paths: Iterable[str | os.PathLike[str]],
    format: str,
    options: Options,
) -> Report:
    """See `binlogtool.verify`."""
    return joined(part for path in paths for part in _of_path(os.fspath(path), format, options))


class NamedGroup(NamedTuple):
    """A log to verify.

    Attributes:
        path: The PATH argument, or the compressed file of a directory, that named it.
    """

    path: str
    group: Group


def logs_at(path: str, format: str) -> Iterator[NamedGroup | Report]:
    """List the logs at a path, compressed files of a directory included, and report what is not read.

    Raises:
        UsageError.
    """
    try:
        found = named(path, format)
    except UsageError:
        raise
    except BinlogtoolError as error:
        yield failed(path, error)
        return
    yield from (NamedGroup(path, group) for group in found.groups)
    packed = [file for file in found.left if is_packed_log(file) and file.name.endswith(READ_PACKED)]
    for file in packed:
        yield from logs_at(os.path.join(path, file.name), format)
    yield left_of(path, [file for file in found.left if file not in packed])


def _of_path(path: str, format: str, options: Options) -> Iterator[Report]:
    for found in logs_at(path, format):
        if isinstance(found, Report):
            yield found
        elif options.live:
            yield verify_live(found.group, found.path, format, options)
        else:
            yield verify_group(found.group, options)


def verify_live(group: Group, path: str, format: str, options: Options) -> Report:
    """Verify one of the logs at a path, which a server may be writing."""

    def again() -> Group | None:
        now = named(path, format).groups
        return next((one for one in now if (one.path, one.format) == (group.path, group.format)), None)

    return steady(group, again, options)
