"""Read a number among the first fields of a frame without parsing the rest."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from binlogtool.schema.lower import lower
from binlogtool.schema.operations import Let, Load, OneOf, Position, Require


class Leading(NamedTuple):
    """The position of an unsigned number, from the frame's first byte."""

    start: int
    end: int
    big: bool

    def read(self, buf: Any, at: int) -> int:
        """Return its value in the frame at `buf[frame_start]`; the buffer must reach up to the number's end."""
        return int.from_bytes(buf[at + self.start : at + self.end], "big" if self.big else "little")


@lru_cache(maxsize=64)
def leading(schema: Any, path: str) -> Leading:
    """Return the position of the field `path` of a lowerable schema.

    Raises:
        KeyError: fields other than integers come before it.
        UnlowerableError: there is no integer of this name.
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
