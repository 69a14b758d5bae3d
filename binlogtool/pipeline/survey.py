"""What must be known of the inputs before their rows are read, found out on the executors: hashes, and where to split.

Both are one pass over the bytes, and neither needs the other: a driver would pass over everything alone, for hours.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from binlogtool.errors import InputOutputError
from binlogtool.formats.detecting import Hints
from binlogtool.limits import Limits
from binlogtool.pipeline.fleet import Fleet, each
from binlogtool.pipeline.inputs import sha256
from binlogtool.pipeline.request import Request
from binlogtool.pipeline.tasks import Member, Parts, parts_of


class Hash(msgspec.Struct, frozen=True):
    """Of the bytes of a file, as hexadecimal text. trouble: why there is none."""

    sha256: str
    trouble: str = ""


class Hashing(msgspec.Struct, frozen=True):
    """Asks for the hash of a file. lenient: what cannot be read is no error."""

    member: Member
    lenient: bool = False

    @property
    def size(self) -> int:
        """Bytes to be read."""
        return self.member.size

    def done(self) -> Hash:
        """The hash.

        Raises:
            InputOutputError: the file cannot be read.
        """
        if self.member.trouble:
            return Hash("", self.member.trouble)
        try:
            return Hash(sha256(self.member.path))
        except InputOutputError as error:
            if not self.lenient:
                raise
            return Hash("", str(error))


class Ways(msgspec.Struct, frozen=True):
    """How files are split. split_size: bytes from which on; None = none is. request: whose members they are."""

    split_size: int | None
    request: Request
    hints: Hints | None

    def of(self, member: Member) -> Cutting:
        """What asks for the parts of one member."""
        r = self.request
        size = self.split_size or member.size
        return Cutting(member, size, r.backend, r.limits, r.hints_of(member, self.hints))


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

    hashes: tuple[Hash, ...]
    cuts: tuple[Parts | None, ...]


def surveyed(fleet: Fleet, members: Sequence[Member], how: Ways, *, lenient: bool = False) -> Survey:
    """Reads all files once or twice. lenient: see `Hashing`.

    Raises:
        InputOutputError: a file cannot be read.
    """
    big = [i for i, one in enumerate(members) if how.split_size is not None and one.size > how.split_size]
    asked: list[Hashing | Cutting] = [Hashing(one, lenient) for one in members]
    asked += [how.of(members[i]) for i in big]
    job = partial(each, work=_answered, home=os.getcwd())
    answers = fleet.results("reading headers", asked, job)
    cuts = dict(zip(big, answers[len(members) :], strict=True))
    return Survey(tuple(answers[: len(members)]), tuple(cuts.get(i) for i in range(len(members))))


def _answered(question: Hashing | Cutting) -> Any:
    return question.done()
