"""Directory names of tables: valid on every file system, and unique within an output.

Rows that belong to no table are in DAMAGE. A table of that name is shown as `DAMAGE` in backticks.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote

from binlogtool.pipeline.rows import DAMAGE

_SAFE = " !#$&'()+,-.;=@[]^_`{}~"
_MOST = 200
"""Maximum bytes of a name; file systems allow 255, and readers append suffixes."""


def told_apart(name: str) -> str:
    """Return the name of a table in an output; a table called DAMAGE is quoted."""
    return f"`{name}`" if name == DAMAGE else name


class Directories:
    """Assigns each table a directory, in the order in which tables appear."""

    def __init__(self) -> None:
        self._names = {DAMAGE: DAMAGE}
        self._taken = {DAMAGE.casefold()}

    def of(self, name: str) -> str:
        """Return the directory of a table: the same one each time.

        On file systems that ignore case another table may already have the plain name; then letters are escaped.
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
    """Escape a leading `.` or `_`, which readers ignore, and replace the end of a too long name by a hash."""
    if made[:1] in ("", ".", "_"):
        made = f"%{ord(made[0]):02X}{made[1:]}" if made else "%"
    if len(made) <= _MOST:
        return made
    head = re.sub(r"%.?\Z", "", made[: _MOST - 17])
    return f"{head}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _escaped(letter: str) -> str:
    plain = letter.isascii() and letter.isalpha()
    return f"%{ord(letter):02X}" if plain else quote(letter, safe=_SAFE, errors="surrogatepass")
