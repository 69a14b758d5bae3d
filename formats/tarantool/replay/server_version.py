"""The version of the server that starts, which selects the rules of replay."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from binlogtool.formats.replay_rules import ExaminedFile
from binlogtool.formats.tarantool.layout.layout import TarantoolContext

_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})")


class ServerVersion(NamedTuple):
    """Major and minor number. 2.6 and 3.9 were run; the rules between are those of the server's own release notes."""

    major: int
    minor: int

    @property
    def is_transactional(self) -> bool:
        """True if the server applies whole transactions instead of row by row (2.8.1, gh-874)."""
        return self >= (2, 8)

    @property
    def is_3(self) -> bool:
        """True if the rules of 3.x hold."""
        return self.major >= 3


OLDEST_VERSION = ServerVersion(2, 6)
"""The rules for files that do not say which server wrote them, and for all older servers."""


def parse_version(text: str | None) -> ServerVersion | None:
    """Parse "3.9", "2.6.0-0-g47aa4e01e" or "Tarantool 3.9.0"; None if there is no version."""
    match = None if text is None else _VERSION.search(text)
    return None if match is None else ServerVersion(int(match[1]), int(match[2]))


def choose_server_version(requested: str | None, files: Iterable[ExaminedFile]) -> ServerVersion:
    """Choose the version of the server that starts.

    Args:
        requested: version that the user gives (`--server-version`); it wins.
        files: of the directory; else the highest version in the headers of its files counts.
    """
    parsed = parse_version(requested)
    if parsed is not None:
        return parsed
    contexts = (file.layout.context for file in files if file.layout is not None)
    versions = (parse_version(one.text.get_value("version")) for one in contexts if isinstance(one, TarantoolContext))
    return max((one for one in versions if one is not None), default=OLDEST_VERSION)
