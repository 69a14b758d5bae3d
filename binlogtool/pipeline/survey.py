"""Scan of the inputs on the executors before their rows are read: hashes, and where to split them.

Each is one pass over the bytes, independent of the other; the driver alone would need hours for large inputs.
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
    """SHA-256 of a file as hexadecimal text. trouble: why there is none."""

    sha256: str
    trouble: str = ""


class Hashing(msgspec.Struct, frozen=True):
    """Task that hashes a file. lenient: do not raise for a file that cannot be read."""

    member: Member
    lenient: bool = False

    @property
    def size(self) -> int:
        """Number of bytes to read."""
        return self.member.size

    def done(self) -> Hash:
        """Return the hash.

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
    """How files are split. split_size: files above this many bytes are split; None = none. request: the members'
    request.
    """

    split_size: int | None
    request: Request
    hints: Hints | None

    def of(self, member: Member) -> Cutting:
        """Return the task that splits one member."""
        r = self.request
        size = self.split_size or member.size
        return Cutting(member, size, r.backend, r.limits, r.hints_of(member, self.hints))


class Cutting(msgspec.Struct, frozen=True):
    """Task that finds the parts of a file."""

    member: Member
    split_size: int
    backend: str
    limits: Limits
    hints: Hints | None

    @property
    def size(self) -> int:
        """Number of bytes to scan."""
        return self.member.size

    def done(self) -> Parts:
        """Return the parts."""
        return parts_of(self.member, self.split_size, self.backend, self.limits, self.hints)


class Survey(msgspec.Struct, frozen=True):
    """Per file, in the order of the request: its hash, and its parts (None = it is not split)."""

    hashes: tuple[Hash, ...]
    cuts: tuple[Parts | None, ...]


def surveyed(fleet: Fleet, members: Sequence[Member], how: Ways, *, lenient: bool = False) -> Survey:
    """Hash all files, and find the parts of large ones. lenient: see `HashTask`.

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
