"""The directories of tables: a name for each that every file system takes, and that no other table's is.

Rows that belong to no table are in DAMAGE. A table that is called so is `DAMAGE`, quoted, in names and directories.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote

from binlogtool.pipeline.rows import DAMAGE

_SAFE = " !#$&'()+,-.;=@[]^_`{}~"
_MOST = 200
"""Bytes of a name; file systems take 255, and readers put endings behind it."""


def told_apart(name: str) -> str:
    """The name of a table among those of an output."""
    return f"`{name}`" if name == DAMAGE else name


class Directories:
    """Gives each table its directory, in the order in which the tables are met."""

    def __init__(self) -> None:
        self._names = {DAMAGE: DAMAGE}
        self._taken = {DAMAGE.casefold()}

    def of(self, name: str) -> str:
        """The directory of a table: the same one each time.

        Where letters of either case are the same, another one may have the plain name: its letters are escaped, then.
        """
        if name not in self._names:
            made = _plain(name)
            if made.casefold() in self._taken:
                made = _fit("".join(_escaped(c) for c in name), name)
            self._names[name] = made
            self._taken.add(made.casefold())
        return self._names[name]


def _plain(name: str) -> str:
    return _fit(quote(name, safe=_SAFE, errors="surrogatepass"), name)


def _fit(made: str, name: str) -> str:
    """Readers pass over names that begin with `.` or `_`; one that is too long ends with a hash of all of it."""
    if made[:1] in ("", ".", "_"):
        made = f"%{ord(made[0]):02X}{made[1:]}" if made else "%"
    if len(made) <= _MOST:
        return made
    head = re.sub(r"%.?\Z", "", made[: _MOST - 17])
    return f"{head}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _escaped(letter: str) -> str:
    plain = letter.isascii() and letter.isalpha()
    return f"%{ord(letter):02X}" if plain else quote(letter, safe=_SAFE, errors="surrogatepass")
