"""Read a number among the first fields of a frame without parsing the rest."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from binlogtool.schema.lower import lower_schema
from binlogtool.schema.operations import Assign, AssignPosition, LoadInteger, Require, RequireOneOf


class LeadingNumber(NamedTuple):
    """The position of an unsigned number, from the frame's first byte."""

    start: int
    end: int
    big: bool

    def read_from(self, buf: Any, frame_start: int) -> int:
        """Return its value in the frame at `buf[frame_start]`; the buffer must reach up to the number's end."""
        return int.from_bytes(buf[frame_start + self.start : frame_start + self.end], "big" if self.big else "little")


@lru_cache(maxsize=64)
def find_leading_number(schema: Any, path: str) -> LeadingNumber:
    """Return the position of the field `path` of a lowerable schema.

    Raises:
        KeyError: fields other than integers come before it.
        UnlowerableError: there is no integer of this name.
    """
    position = 0
    for op in lower_schema(schema, (path,)).ops:
        if isinstance(op, LoadInteger):
            if op.path == path:
                return LeadingNumber(position, position + op.width, op.big)
            position += op.width
        elif not isinstance(op, (Assign, RequireOneOf, AssignPosition, Require)):
            break
    raise KeyError(path)
