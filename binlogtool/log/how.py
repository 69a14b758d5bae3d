"""How logs are read: what every call of the library that reads them has in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import msgspec

from binlogtool.formats.detecting import Hints
from binlogtool.limits import Limits

if TYPE_CHECKING:

    class Means(TypedDict, total=False):
        """The arguments of a call that are the members of `How`."""

        format: str
        limits: Limits
        backend: str
        hints: Hints | None


class How(msgspec.Struct, frozen=True):
    """How logs are read. format: a name, or auto. backend: auto, native or python. hints: what the logs do not say."""

    format: str = "auto"
    limits: Limits = Limits()
    backend: str = "auto"
    hints: Hints | None = None
