"""What must be known of the inputs before their rows are read, found out on the executors: hashes, and where to split.

Both are one pass over the bytes, and neither needs the other: a driver would pass over everything alone, for hours.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from binlogtool.formats.base import Hints
from binlogtool.limits import Limits
from binlogtool.pipeline.fleet import Fleet, each
from binlogtool.pipeline.inputs import sha256
from binlogtool.pipeline.splits import Member, Parts, parts_of


class Hashing(msgspec.Struct, frozen=True):
    """Asks for the hash of a file."""

    member: Member

    @property
    def size(self) -> int:
        """Bytes to be read."""
        return self.member.size

    def done(self) -> str:
        """The hash, as hexadecimal text."""
        return sha256(self.member.path)


class Cutting(msgspec.Struct, frozen=True):
    """Asks for the parts of a file."""

    member: Member
    split_size: int
    backend: str
    limits: Limits
    hints: Hints | None

    @property
    def size(self) -> int:
        """Bytes to be walked over."""
        return self.member.size

    def done(self) -> Parts:
        """The parts."""
        return parts_of(self.member, self.split_size, self.backend, self.limits, self.hints)


class Survey(msgspec.Struct, frozen=True):
    """Of each file, in the order of the request: the hash of its bytes, and its parts (None = it is not split)."""

    hashes: tuple[str, ...]
    cuts: tuple[Parts | None, ...]


def surveyed(
    fleet: Fleet, members: Sequence[Member], split_size: int | None, backend: str, limits: Limits, hints: Hints | None
) -> Survey:
    """Reads all files once or twice. split_size: bytes from which on a file is split; None = none is.

    Raises:
        InputOutputError: a file cannot be read.
    """
    big = [i for i, one in enumerate(members) if split_size is not None and one.size > split_size]
    asked: list[Hashing | Cutting] = [Hashing(one) for one in members]
    asked += [Cutting(members[i], split_size or 0, backend, limits, hints) for i in big]
    job = partial(each, work=_answered, home=os.getcwd())
    answers = fleet.results("reading headers", asked, job)
    cuts = dict(zip(big, answers[len(members) :], strict=True))
    return Survey(tuple(answers[: len(members)]), tuple(cuts.get(i) for i in range(len(members))))


def _answered(question: Hashing | Cutting) -> Any:
    return question.done()
