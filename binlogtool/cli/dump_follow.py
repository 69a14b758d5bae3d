"""`dump --follow`: check for new records until `--timeout`, a signal, or the reader closes the pipe."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

import binlogtool
from binlogtool.errors import BinlogtoolError, LimitError

if TYPE_CHECKING:
    from binlogtool.cli.command import CommandRun
    from binlogtool.cli.output_destination import OutputDestination
    from binlogtool.core.record_selection import FileFinding, FollowLoss, RecordBlock, Selection

    FollowPart = RecordBlock | FileFinding | FollowLoss


class FollowOptions(msgspec.Struct, frozen=True):
    """Options of a followed dump. poll: seconds between checks."""

    decode: str
    raw: bool
    poll: float
    hints: binlogtool.Hints | None


def follow_logs(
    run: CommandRun, paths: Sequence[str], selection: Selection, options: FollowOptions, out: OutputDestination
) -> Iterator[FollowPart]:
    """Yield new records, damage and lost files, until `--timeout` or forever.

    Raises:
        BrokenPipeError: the reader closed the pipe.
        LimitError: the time limit was reached in the middle of a file.
    """
    settings, is_reported, is_first = run.settings, False, True
    deadline = None if settings.timeout is None else time.monotonic() + settings.timeout
    with binlogtool.follow(
        paths, selection, format=settings.format, limits=settings.limits, backend=settings.backend,
        hints=options.hints, decode=options.decode,
        raw=options.raw,
    ) as follower:  # fmt: skip
        while is_first or not _is_over(deadline):
            for part in follower.look():
                if _is_over(deadline):  # only now: after the last part of a check, all data was printed
                    run.status = 6
                    raise LimitError("the time limit was reached (--timeout) before all data was read")
                yield part
            if follower.unknown_column is not None and not is_reported and not run.progress.records:
                run.say(f"{follower.unknown_column} (so far; a later table may have it)")
                is_reported = True
            if is_first and not run.progress.records:
                for text in _find_unmatched_names(run, paths, selection, options):
                    run.say(f"{text} (so far; it may appear later)")
            is_first = False
            out.wait(options.poll if deadline is None else min(options.poll, max(0.0, deadline - time.monotonic())))


def _find_unmatched_names(
    run: CommandRun, paths: Sequence[str], selection: Selection, options: FollowOptions
) -> tuple[str, ...]:
    """Return a message for each name in the selection that the files do not contain yet."""
    settings = run.settings
    try:
        with binlogtool.open(
            paths, format=settings.format, limits=settings.limits, backend=settings.backend, hints=options.hints
        ) as log:
            if log.is_stream:
                return ()
            unmatched = log.find_unmatched(selection, 0)
    except BinlogtoolError:
        return ()
    return (*unmatched.missing, *unmatched.absent)


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline
