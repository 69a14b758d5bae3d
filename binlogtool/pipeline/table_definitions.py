"""Table definitions from earlier files of a log, for tasks that read its files one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from binlogtool.errors import BinlogtoolError
from binlogtool.formats.base import Format
from binlogtool.formats.detecting import Hints
from binlogtool.log import detect
from binlogtool.log.open import Log
from binlogtool.pipeline.closing import log_of, numbers
from binlogtool.pipeline.inputs import format_of
from binlogtool.pipeline.request import Request
from binlogtool.pipeline.tasks import Member


def with_histories(request: Request, hints: Hints | None) -> Request:
    """Return the request with the state that earlier files carry over to each member: one pass over the files'
    statements.

    Only for formats whose files are not self-contained.
    """
    found: dict[str, int] = {}
    earlier: dict[str, int] = {}
    for log in _logs(request.members):
        for path, history in _histories(log, request, hints):
            earlier[path] = found.setdefault(history, len(found))
    members = tuple(replace(one, earlier=earlier.get(one.path)) for one in request.members)
    return replace(request, members=members, histories=tuple(found))


def _logs(members: Sequence[Member]) -> list[list[Member]]:
    """Return the members of each log that has several, in its order."""
    logs: dict[str, list[Member]] = {}
    for member in members:
        if not member.trouble and _carries(member):
            logs.setdefault(log_of(member.path), []).append(member)
    return [sorted(log, key=lambda one: numbers(one.path)) for log in logs.values() if len(log) > 1]


def _carries(member: Member) -> bool:
    with contextlib.suppress(BinlogtoolError):
        return detect.by_name(format_of(member.path, member.format)).reading.carries
    return False


def _histories(members: Sequence[Member], request: Request, hints: Hints | None) -> Iterator[tuple[str, str]]:
    """Yield (path, carried state) of those members to which state is carried over."""
    files: list[tuple[str, str, Format | None]] = [
        (one.path, one.path, detect.by_name(format_of(one.path, one.format))) for one in members
    ]
    log = Log(files, request.limits, request.backend, hints or Hints())
    with contextlib.closing(log):
        for number, member in enumerate(members):
            with contextlib.suppress(BinlogtoolError):
                history = log.carried_to(number)
                if history is not None:
                    yield member.path, history
