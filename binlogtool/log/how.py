"""Read options: the arguments that every call that reads logs has in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import msgspec

from binlogtool.formats.detecting import Hints
from binlogtool.limits import Limits

if TYPE_CHECKING:

    class ReadOptionArguments(TypedDict, total=False):
        """Keyword arguments of a call that become the members of `ReadOptions`."""

        format: str
        limits: Limits
        backend: str
        hints: Hints | None


class ReadOptions(msgspec.Struct, frozen=True):
    """How logs are read.

    Args:
        format: a format name, or "auto".
        backend: "auto", "native" or "python".
        hints: what the logs do not contain themselves.
    """

    format: str = "auto"
    limits: Limits = Limits()
    backend: str = "auto"
    hints: Hints | None = None
