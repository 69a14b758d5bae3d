"""An index as the servers read it: the files that they list, and what they append to.

Both read lines with `my_b_gets`, which drops a last line without a line feed, and treat an empty line as
the end of the list (`MYSQL_BIN_LOG::find_log_pos`, `Binlog_index::find_log_pos`). New names are appended to
the end of the file.
"""

from __future__ import annotations

import re

import msgspec

_NUMBER = re.compile(rb"\.[0-9]{6,18}")
_LONGEST = 4096
"""Bytes of a line that are searched for joined names."""


class ServerList(msgspec.Struct, frozen=True):
    """Names that a server reads, as they are written; `unfinished_line`: a last line without a line feed."""

    names: tuple[bytes, ...]
    unfinished: bytes = b""


def server_list(data: bytes, *, mysql: bool) -> ServerList:
    """Read an index as MySQL or MariaDB does: MySQL drops a carriage return at the end of a line."""
    *lines, unfinished = data.split(b"\n")
    if b"" in lines:
        lines = lines[: lines.index(b"")]
    if mysql:
        lines = [line.removesuffix(b"\r") for line in lines]
    names = [line.partition(b"\0")[0] for line in lines]
    if b"" in names[1:]:
        names = names[: names.index(b"", 1)]
    return ServerList(tuple(names), unfinished)


def split_joined(line: bytes) -> list[bytes]:
    """Return the names in a line: several if line feeds between them are missing."""
    names: list[bytes] = []
    rest = line
    while (at := _joint(rest)) is not None:
        names.append(rest[:at])
        rest = rest[at:]
    return [*names, rest]


def _joint(line: bytes) -> int | None:
    """Return where the second of two joined names begins: names of one base, each with a number."""
    for found in _NUMBER.finditer(line, 0, _LONGEST):
        stem, rest = line[: found.start() + 1], line[found.end() :]
        base = stem[stem.rfind(b"/") + 1 :]
        begins = (stem, b"./" + base, base, b"/")
        if rest.startswith(begins) and (second := _NUMBER.search(rest)) is not None:
            name = rest[: second.start() + 1]
            if name[name.rfind(b"/") + 1 :] == base and base != b".":
                return found.end()
    return None
