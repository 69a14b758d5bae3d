"""An index as the servers read it: the files that they list, and what they append to.

Both read lines with `my_b_gets`, which drops a last line without a line feed, and treat an empty line as
the end of the list (`MYSQL_BIN_LOG::find_log_pos`, `Binlog_index::find_log_pos`). New names are appended to
the end of the file.
"""

from __future__ import annotations

import re

import msgspec

_NUMBER = re.compile(rb"\.[0-9]{6,18}")
_MAX_SEARCHED = 4096
"""Bytes of a line that are searched for joined names."""


class ServerList(msgspec.Struct, frozen=True):
    """Names that a server reads, as they are written; `unfinished_line`: a last line without a line feed."""

    names: tuple[bytes, ...]
    unfinished_line: bytes = b""


def read_server_list(data: bytes, *, is_mysql: bool) -> ServerList:
    """Read an index as MySQL or MariaDB does: MySQL drops a carriage return at the end of a line."""
    *lines, unfinished = data.split(b"\n")
    if b"" in lines:
        lines = lines[: lines.index(b"")]
    if is_mysql:
        lines = [line.removesuffix(b"\r") for line in lines]
    names = [line.partition(b"\0")[0] for line in lines]
    if b"" in names[1:]:
        names = names[: names.index(b"", 1)]
    return ServerList(tuple(names), unfinished)


def split_joined_names(line: bytes) -> list[bytes]:
    """Return the names in a line: several if line feeds between them are missing."""
    names: list[bytes] = []
    rest = line
    while (at := _find_joint(rest)) is not None:
        names.append(rest[:at])
        rest = rest[at:]
    return [*names, rest]


def _find_joint(line: bytes) -> int | None:
    """Return where the second of two joined names begins: names of one base, each with a number."""
    for match in _NUMBER.finditer(line, 0, _MAX_SEARCHED):
        stem, rest = line[: match.start() + 1], line[match.end() :]
        base = stem[stem.rfind(b"/") + 1 :]
        possible_starts = (stem, b"./" + base, base, b"/")
        if rest.startswith(possible_starts) and (second := _NUMBER.search(rest)) is not None:
            name = rest[: second.start() + 1]
            if name[name.rfind(b"/") + 1 :] == base and base != b".":
                return match.end()
    return None
