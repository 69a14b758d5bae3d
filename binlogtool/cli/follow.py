"""`dump --follow`: check for new records until `--limit`, `--timeout`, a signal, or the reader closes the pipe."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

import binlogtool
from binlogtool.errors import BinlogtoolError, LimitError
from binlogtool.log.records import Block, Lost

if TYPE_CHECKING:
    from binlogtool.cli.destination import Output
    from binlogtool.cli.run import Run
    from binlogtool.log.records import Trouble
    from binlogtool.log.select import Selection

    Part = Block | Trouble | Lost


class How(msgspec.Struct, frozen=True):
    """How records are read. poll: seconds between checks."""

    decode: str
    raw: bool
    poll: float
    hints: binlogtool.Hints | None


def follow(run: Run, paths: Sequence[str], wanted: Selection, how: How, out: Output) -> Iterator[Part]:
    """Yield new records, damage and lost files, until `--limit`, `--timeout` or forever.

    Raises:
        BrokenPipeError: the reader closed the pipe.
        LimitError: the time limit was reached in the middle of a file.
    """
    s, left, told, is_first = run.settings, wanted.limit, False, True
    deadline = None if s.timeout is None else time.monotonic() + s.timeout
    with binlogtool.follow(
        paths, wanted, format=s.format, limits=s.limits, backend=s.backend, hints=how.hints, decode=how.decode,
        raw=how.raw,
    ) as follower:  # fmt: skip
        while left != 0 and not _is_over(deadline):
            for part in follower.look():
                part = part.part(0, left) if isinstance(part, Block) and left is not None else part
                yield part
                left = left - len(part) if isinstance(part, Block) and left is not None else left
                if left == 0:
                    return
                if _is_over(deadline):
                    run.status = 6
                    raise LimitError("the time of --timeout is over, and not all that is there was read")
            if follower.unknown is not None and not told and not run.progress.records:
                run.say(f"{follower.unknown} (so far: a table that comes may have it)")
                told = True
            if is_first and not run.progress.records:
                for text in _unmatched(run, paths, wanted, how):
                    run.say(f"{text} (so far: it may come)")
            is_first = False
            out.wait(how.poll if deadline is None else min(how.poll, max(0.0, deadline - time.monotonic())))


def _unmatched(run: Run, paths: Sequence[str], wanted: Selection, how: How) -> tuple[str, ...]:
    """Return texts about names in the selection that the files do not contain yet."""
    s = run.settings
    try:
        with binlogtool.open(paths, format=s.format, limits=s.limits, backend=s.backend, hints=how.hints) as log:
            if log.is_stream:
                return ()
            found = log.unmatched(wanted, 0)
    except BinlogtoolError:
        return ()
    return (*found.missing, *found.absent)


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline
