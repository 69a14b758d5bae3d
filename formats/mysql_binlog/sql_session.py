"""The session in which a statement was logged: the SET statements that bring another session there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from binlogtool.formats.mysql_binlog.charsets import charset_of
from binlogtool.formats.mysql_binlog.description import FormatDescription
from binlogtool.formats.mysql_binlog.sql_client import PLAIN, client_charset, quick, switch

AUTO_IS_NULL, NO_CHECK_CONSTRAINTS, NOT_AUTOCOMMIT, EXPLICIT_DEFAULTS = 1 << 14, 1 << 15, 1 << 19, 1 << 24
NO_FOREIGN_KEYS, RELAXED_UNIQUE, IF_EXISTS, INSERT_HISTORY = 1 << 26, 1 << 27, 1 << 28, 1 << 30
"""Bits of the status variable flags2; the last four and NO_CHECK_CONSTRAINTS are MariaDB's."""

ROWS_NO_FOREIGN_KEYS, ROWS_RELAXED_UNIQUE, ROWS_NO_CHECKS = 2, 4, 0x80
"""Flags of row events."""

_ROW_MODE = "'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES'"
"""Takes every value that a row of this table can have, zero dates too, and refuses what a table of another kind could
only take in part."""

_MARIADB_CHECKS = (10, 2, 1)
_MARIADB_ALL = (10, 11, 0)
_UTF8MB4 = "45"
"""A collation of utf8mb4 that all servers know by this number."""

_ZONE = re.compile(r"[\w+:/ -]+\Z", re.ASCII)

Variables = dict[str, str]
"""Name of a session variable -> its value as SQL."""


@dataclass(slots=True)
class Session:
    """What the variables of the target's session are, as far as the script has set them.

    charset: of the next statement's text. client: the character set in which the client reads. mode: sql_mode.
    gtid_next: of MySQL.
    """

    known: Variables = field(default_factory=dict)
    database: bytes | None = None
    charset: str | None = None
    client: str = PLAIN
    mode: int = 0
    gtid_next: str = "AUTOMATIC"
    _same: tuple[int, int] = (0, -1)

    @property
    def key(self) -> tuple[int, int]:
        """What a QUERY must have for this very session, but for the time."""
        return self._same

    def change(self, wanted: Mapping[str, str]) -> list[bytes]:
        """The statement that sets what is not so already."""
        new = {name: value for name, value in wanted.items() if self.known.get(name) != value}
        if not new:
            return []
        self._same = (0, -1)
        self.known.update(new)
        return [("SET " + ", ".join(f"{name}={value}" for name, value in new.items())).encode()]

    def reads(self, charset: str | None) -> list[bytes]:
        """What makes the client read statements in this character set."""
        self.charset = charset
        needed = client_charset(charset)
        if needed == self.client:
            return []
        self.client = needed
        for name in _CHARSET:
            self.known.pop(name, None)
        self._same = (0, -1)
        return [switch(needed)]

    def for_rows(self, flags: int, time: int, described: FormatDescription) -> list[bytes]:
        """What the statements for a row event need."""
        self.mode = 0
        wanted = {
            "@@session.sql_mode": _ROW_MODE,
            "@@session.character_set_client": _UTF8MB4,
            "@@session.collation_connection": _UTF8MB4,
            "@@session.time_zone": "'+00:00'",
            "@@session.foreign_key_checks": _off(flags & ROWS_NO_FOREIGN_KEYS),
            "@@session.unique_checks": _off(flags & ROWS_RELAXED_UNIQUE),
        }
        if described.is_mariadb and described.version >= _MARIADB_CHECKS:
            wanted["@@session.check_constraint_checks"] = _off(flags & ROWS_NO_CHECKS)
        return [*self.reads(PLAIN), *self.change(wanted | ({"TIMESTAMP": str(time)} if time else {}))]

    def for_names(self) -> list[bytes]:
        """What statements that were made here need if they have names or texts in UTF-8."""
        wanted = {"@@session.character_set_client": _UTF8MB4, "@@session.collation_connection": _UTF8MB4}
        return [*self.reads(PLAIN), *self.change(wanted)]

    def for_query(self, query: Query, described: FormatDescription) -> list[bytes]:
        """What a statement with these status variables needs."""
        status = query.status
        if (id(status), query.thread) == self._same and "charset" in status:
            return self._at(status, query.time)
        made: list[bytes] = []
        if "charset" in status:
            made = self.reads(charset_of(status["charset"]["client"]))
        self.mode = status.get("sql_mode", self.mode)
        wanted = {"TIMESTAMP": _time(status, query.time)} if query.time else {}
        wanted["@@session.pseudo_thread_id"] = str(query.thread)
        wanted |= dict(_flags(status, described)) | dict(_values(status)) | dict(_mysql_values(status, described))
        if query.inside:
            wanted.pop("@@session.autocommit", None)  # to turn it on would commit
        made += self.change(wanted)
        self._same = (id(status), query.thread)
        return made

    def _at(self, status: Mapping[str, Any], time: int) -> list[bytes]:
        """The same session as for the statement before, at another time."""
        value = _time(status, time)
        if not time or self.known.get("TIMESTAMP") == value:
            return []
        self.known["TIMESTAMP"] = value
        return [b"SET TIMESTAMP=" + value.encode()]

    def end(self) -> bytes:
        """What gives the session back as it was, as far as a script can know."""
        made = [quick(one) for one in self.reads(PLAIN)]
        names = [f"{name}={_LAST.get(name, 'DEFAULT')}" for name in sorted(self.known)]
        return b"".join(made) + (quick(("SET " + ", ".join(names)).encode()) if names else b"")


class Query(NamedTuple):
    """What a QUERY says of its session. inside: a transaction is open."""

    status: Mapping[str, Any]
    time: int
    thread: int
    inside: bool


_CHARSET = ("@@session.character_set_client", "@@session.collation_connection")
_LAST = {
    "@@session.pseudo_thread_id": "CONNECTION_ID()",
    **dict.fromkeys(_CHARSET, _UTF8MB4),
}


def row_flags(flags: int, described: FormatDescription) -> tuple[list[bytes], list[bytes]]:
    """The statements around those for a row event with these flags, in a session where all checks are on."""
    usual = Session()
    usual.for_rows(0, 0, described)
    own = replace(usual, known=dict(usual.known))
    return own.for_rows(flags, 0, described), own.for_rows(0, 0, described)


def _off(flag: int) -> str:
    return "0" if flag else "1"


def _on(flag: int) -> str:
    return "1" if flag else "0"


def _time(status: Mapping[str, Any], time: int) -> str:
    part = status.get("hrnow", status.get("microseconds", 0))
    return f"{time}.{part:06d}" if part else str(time)


def _flags(status: Mapping[str, Any], described: FormatDescription) -> Iterable[tuple[str, str]]:
    flags = status.get("flags2")
    if flags is None:
        return
    yield "@@session.foreign_key_checks", _off(flags & NO_FOREIGN_KEYS)
    yield "@@session.unique_checks", _off(flags & RELAXED_UNIQUE)
    yield "@@session.sql_auto_is_null", _on(flags & AUTO_IS_NULL)
    yield "@@session.autocommit", _off(flags & NOT_AUTOCOMMIT)
    if described.is_mariadb and described.version >= _MARIADB_CHECKS:
        yield "@@session.check_constraint_checks", _off(flags & NO_CHECK_CONSTRAINTS)
    if described.is_mariadb and described.version >= _MARIADB_ALL:
        yield "@@session.sql_if_exists", _on(flags & IF_EXISTS)
        yield "@@session.explicit_defaults_for_timestamp", _on(flags & EXPLICIT_DEFAULTS)
        yield "@@session.system_versioning_insert_history", _on(flags & INSERT_HISTORY)


def _values(status: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Those that all servers have; what is left out of the status block has its default."""
    if "sql_mode" in status:
        yield "@@session.sql_mode", str(status["sql_mode"])
    step = status.get("auto_increment", {"increment": 1, "offset": 1})
    yield "@@session.auto_increment_increment", str(step["increment"])
    yield "@@session.auto_increment_offset", str(step["offset"])
    if "charset" in status:
        yield "@@session.character_set_client", str(status["charset"]["client"])
        yield "@@session.collation_connection", str(status["charset"]["connection"])
        yield "@@session.collation_server", str(status["charset"]["server"])
    zone = status.get("time_zone")
    if isinstance(zone, str) and _ZONE.match(zone):
        yield "@@session.time_zone", f"'{zone}'"
    yield "@@session.lc_time_names", str(status.get("lc_time_names", 0))
    yield "@@session.collation_database", str(status.get("charset_database", "DEFAULT"))


def _mysql_values(status: Mapping[str, Any], described: FormatDescription) -> Iterable[tuple[str, str]]:
    if described.is_mariadb:
        return
    for name, variable in (
        ("default_collation_utf8mb4", "default_collation_for_utf8mb4"),
        ("explicit_defaults_ts", "explicit_defaults_for_timestamp"),
        ("sql_require_primary_key", "sql_require_primary_key"),
        ("default_table_encryption", "default_table_encryption"),
    ):
        value = status.get(name)
        if value is not None and value != 255:
            yield f"@@session.{variable}", str(value)
