"""The options of a replay."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from binlogtool.errors import UsageError
from binlogtool.formats.detecting import Hints
from binlogtool.formats.replay_rules import POLICIES, StateChange
from binlogtool.limits import Limits
from binlogtool.recovery.digest import Patch

if TYPE_CHECKING:
    from binlogtool.log.how import ReadOptionArguments

    class ReplayKeywords(ReadOptionArguments, total=False):
        """The keyword arguments of `binlogtool.replay` that become `ReplayOptions`."""

        policy: str
        against: Mapping[str, Any] | str | os.PathLike[str] | None
        until: str | None
        digest: bool
        server_version: str | None


_SERVER_VERSION = re.compile(r"\d{1,4}\.\d{1,4}(?!\d)")

OnChanges = Callable[[Iterable[StateChange]], None]
MakeChangeSink = Callable[[Patch | None], OnChanges]
"""Called for each log with its format's `Replay.patch`: what gets the changes of all applied records, in order."""


class ReplayOptions(msgspec.Struct, frozen=True):
    """How to replay; see `binlogtool.replay`."""

    policy: str = "server"
    against: Mapping[str, Any] | str | None = None
    until: str | None = None
    limits: Limits = Limits()
    backend: str = "auto"
    hints: Hints = Hints()
    digest: bool = True
    server_version: str | None = None

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise UsageError(f"unknown policy {self.policy!r}; one of {', '.join(POLICIES)}")
        if self.server_version is not None and not _SERVER_VERSION.match(self.server_version):
            raise UsageError(f"no version of a server: {self.server_version!r}; write it as 3.9 or 2.11.4")
