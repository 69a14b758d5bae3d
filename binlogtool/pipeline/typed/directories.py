"""Directory names of tables: valid on every file system, and unique within an output.

Rows that belong to no table are in DAMAGE. A table of that name is shown as `DAMAGE` in backticks.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote

from binlogtool.pipeline.rows import DAMAGE

_SAFE = " !#$&'()+,-.;=@[]^_`{}~"
_MAX_NAME_BYTES = 200
"""Maximum bytes of a name; file systems allow 255, and readers append suffixes."""


def display_name(name: str) -> str:
    """Return the name of a table in an output; a table called DAMAGE is quoted."""
    return f"`{name}`" if name == DAMAGE else name


class TableDirectories:
    """Assigns each table a directory, in the order in which tables appear."""

    def __init__(self) -> None:
        self._names = {DAMAGE: DAMAGE}
        self._used_names = {DAMAGE.casefold()}

    def directory_of(self, name: str) -> str:
        """Return the directory of a table: the same one each time.

        On file systems that ignore case another table may already have the plain name; then letters are escaped.
        """
        if name not in self._names:
            directory = _quote_name(name)
            if directory.casefold() in self._used_names:
                directory = _fit_name("".join(_escape_letter(c) for c in name), name)
            self._names[name] = directory
            self._used_names.add(directory.casefold())
        return self._names[name]


def _quote_name(name: str) -> str:
    return _fit_name(quote(name, safe=_SAFE, errors="surrogatepass"), name)


def _fit_name(directory: str, name: str) -> str:
    """Escape a leading `.` or `_`, which readers ignore, and replace the end of a too long name by a hash."""
    if directory[:1] in ("", ".", "_"):
        directory = f"%{ord(directory[0]):02X}{directory[1:]}" if directory else "%"
    if len(directory) <= _MAX_NAME_BYTES:
        return directory
    head = re.sub(r"%.?\Z", "", directory[: _MAX_NAME_BYTES - 17])
    return f"{head}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _escape_letter(letter: str) -> str:
    plain = letter.isascii() and letter.isalpha()
    return f"%{ord(letter):02X}" if plain else quote(letter, safe=_SAFE, errors="surrogatepass")
