"""A number among the first fields of a frame, read without the rest of it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from binlogtool.schema.lower import lower
from binlogtool.schema.operations import Let, Load, OneOf, Position, Require


class Leading(NamedTuple):
    """Where an unsigned number stands, counted from the frame's first byte."""

    start: int
    end: int
    big: bool

    def read(self, buf: Any, at: int) -> int:
        """Its value in the frame at `buf[at]`, whose bytes up to there are in the buffer."""
        return int.from_bytes(buf[at + self.start : at + self.end], "big" if self.big else "little")


@lru_cache(maxsize=64)
def leading(schema: Any, path: str) -> Leading:
    """The place of the field `path` of a lowerable schema.

    Raises:
        KeyError: something else than integers stands before it.
        Unlowerable: there is no integer of this name.
    """
    at = 0
    for op in lower(schema, (path,)).ops:
        if isinstance(op, Load):
            if op.path == path:
                return Leading(at, at + op.width, op.big)
            at += op.width
        elif not isinstance(op, (Let, OneOf, Position, Require)):
            break
    raise KeyError(path)
