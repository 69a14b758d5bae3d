"""Verifies what paths name: each log in turn, as it is, or while its server writes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

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


def _of_path(path: str, format: str, options: Options) -> Iterator[Report]:
    try:
        found = named(path, format)
    except UsageError:
        raise
    except BinlogtoolError as error:
        yield failed(path, error)
        return
    for group in found.groups:
        yield verify_live(group, path, format, options) if options.live else verify_group(group, options)
    packed = [one for one in found.left if is_packed_log(one) and one.name.endswith(READ_PACKED)]
    for one in packed:
        yield from _of_path(os.path.join(path, one.name), format, options)
    yield left_of(path, [one for one in found.left if one not in packed])


def verify_live(group: Group, path: str, format: str, options: Options) -> Report:
    """The report on one of the logs at a path, which a server may be writing."""

    def again() -> Group | None:
        now = named(path, format).groups
        return next((one for one in now if (one.path, one.format) == (group.path, group.format)), None)

    return steady(group, again, options)
