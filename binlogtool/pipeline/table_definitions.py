"""Table definitions from earlier files of a log, for tasks that read its files one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from binlogtool.errors import BinlogtoolError
from binlogtool.formats.base import Format
from binlogtool.formats.detecting import Hints
from binlogtool.log import detect
from binlogtool.log.open import LogReader
from binlogtool.pipeline.closing import log_key, sequence_numbers
from binlogtool.pipeline.inputs import resolve_format
from binlogtool.pipeline.request import ReadRequest
from binlogtool.pipeline.tasks import TaskFile


def add_histories(request: ReadRequest, hints: Hints | None) -> ReadRequest:
    """Return the request with the state that earlier files carry over to each member: one pass over the files'
    statements.

    Only for formats whose files are not self-contained.
    """
    history_numbers: dict[str, int] = {}
    earlier: dict[str, int] = {}
    for log in _group_by_log(request.members):
        for path, history in _read_histories(log, request, hints):
            earlier[path] = history_numbers.setdefault(history, len(history_numbers))
    members = tuple(replace(one, earlier=earlier.get(one.path)) for one in request.members)
    return replace(request, members=members, histories=tuple(history_numbers))


def _group_by_log(members: Sequence[TaskFile]) -> list[list[TaskFile]]:
    """Return the members of each log that has several, in its order."""
    logs: dict[str, list[TaskFile]] = {}
    for member in members:
        if not member.trouble and _carries_state(member):
            logs.setdefault(log_key(member.path), []).append(member)
    return [sorted(log, key=lambda one: sequence_numbers(one.path)) for log in logs.values() if len(log) > 1]


def _carries_state(member: TaskFile) -> bool:
    with contextlib.suppress(BinlogtoolError):
        return detect.find_format(resolve_format(member.path, member.format)).reading.carries_state
    return False


def _read_histories(
    members: Sequence[TaskFile], request: ReadRequest, hints: Hints | None
) -> Iterator[tuple[str, str]]:
    """Yield (path, carried state) of those members to which state is carried over."""
    files: list[tuple[str, str, Format | None]] = [
        (one.path, one.path, detect.find_format(resolve_format(one.path, one.format))) for one in members
    ]
    log = LogReader(files, request.limits, request.backend, hints or Hints())
    with contextlib.closing(log):
        for number, member in enumerate(members):
            with contextlib.suppress(BinlogtoolError):
                history = log.export_carried_state(number)
                if history is not None:
                    yield member.path, history
