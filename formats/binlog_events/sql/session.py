"""The session in which a statement was logged, and the SET statements that reproduce it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.formats.binlog_events.ddl.modes import ANSI_QUOTES, NO_BACKSLASH_ESCAPES
from binlogtool.formats.binlog_events.sql.client import PLAIN, client_charset, quick, switch
from binlogtool.formats.binlog_events.values.charsets import charset_of
from binlogtool.formats.binlog_events.wire.description import FormatDescription

AUTO_IS_NULL, NO_CHECK_CONSTRAINTS, NOT_AUTOCOMMIT, EXPLICIT_DEFAULTS = 1 << 14, 1 << 15, 1 << 19, 1 << 24
NO_FOREIGN_KEYS, RELAXED_UNIQUE, IF_EXISTS, INSERT_HISTORY = 1 << 26, 1 << 27, 1 << 28, 1 << 30
"""Bits of the status variable flags2; the last four and NO_CHECK_CONSTRAINTS are MariaDB's."""

ROWS_NO_FOREIGN_KEYS, ROWS_RELAXED_UNIQUE, ROWS_NO_CHECKS = 2, 4, 0x80
"""Flags of row events."""

_ROW_MODE = "'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES'"
"""Takes every value that a row of this table can have, zero dates too, and refuses what a table of another kind could
only take in part."""

MODE = "@@session.sql_mode"
_READING_MODES = {ANSI_QUOTES: "ANSI_QUOTES", NO_BACKSLASH_ESCAPES: "NO_BACKSLASH_ESCAPES"}
_COMMON_MODES = 0xEFFC00EF
"""Bits of sql_mode that all servers know; others are refused by some."""

_KNOWN_MODES = (1 << 40) - 1
"""Bits of sql_mode that some server knows or may come to know."""

_NO_CLIENT = frozenset({"ucs2", "utf16", "utf16le", "utf32"})
"""Character sets that no client can have: servers refuse them as character_set_client."""

_MARIADB_CHECKS = (10, 2, 1)
_MARIADB_ALL = (10, 11, 0)
_UTF8MB4 = "45"
"""A collation of utf8mb4 that all servers know by this number."""

_ZONE = re.compile(r"[\w+:/ -]+\Z", re.ASCII)

_COLLATIONS = "@@session.character_set_collations"
_UNSET = 255
"""In a status variable of one byte."""

_SINCE = {
    _COLLATIONS: "M!110200",
    "@@session.default_collation_for_utf8mb4": "!80011",
    "@@session.enable_cascade_triggers": "!90700",
}
"""Variables that servers of before do not have: the script can be for them."""

WITHOUT_MEANING = {
    "catalog": "servers have one",
    "catalog_nz": "servers have one",
    "table_map_for_update": "for filters of replicas: which tables of a multi-table UPDATE change",
    "master_data_written": "for the event's size in relay logs",
    "updated_db_names": "for the order between parallel appliers",
    "ddl_logged_with_xid": "for the recovery of a server",
    "xid": "for the recovery of a server",
    "gtid_flags3": "for the steps of an ALTER TABLE, which its GTID tells too",
}
"""Status variables that change nothing of what a statement does, and why."""

_CURRENT_USER = re.compile(rb"\bCURRENT_USER\b", re.IGNORECASE)

Variables = dict[str, str]
"""Name of a session variable -> its value as SQL."""


class Session(msgspec.Struct):
    """Variables of the target's session as far as the script has set them.

    `variables`: the variables by name. `charset`: of the next statement's text. `client_charset`: the character
    set in which the client reads. `gtid_next`: of MySQL.
    """

    known: Variables = msgspec.field(default_factory=dict)
    database: bytes | None = None
    charset: str | None = None
    client: str = PLAIN
    mode: int = 0
    gtid_next: str = "AUTOMATIC"
    _same: tuple[int, int, bool] = (0, -1, False)

    def copy(self) -> Session:
        """Return a copy of the session."""
        return replace(self, known=dict(self.known))

    def change(self, wanted: Mapping[str, str]) -> list[bytes]:
        """Return the statements that set variables which do not have these values already."""
        new = {name: value for name, value in wanted.items() if self.known.get(name) != value}
        if not new:
            return []
        self.forget_query()
        self.known.update(new)
        return _assignments(new)

    def reads(self, charset: str | None) -> list[bytes]:
        """Return the commands that make the client read statements in this character set."""
        self.charset = charset
        needed = client_charset(charset)
        if needed == self.client:
            return []
        made = [switch(needed)]
        if needed == "gb18030" and self.client != PLAIN:  # clients that do not know it keep the previous one
            made.insert(0, switch(PLAIN))
        self.client = needed
        for name in _CHARSET:
            self.known.pop(name, None)
        self.forget_query()
        return made

    def for_rows(self, flags: int, time: int, described: FormatDescription) -> list[bytes]:
        """Return the SET statements for the statements of a row event."""
        self.mode = 0
        wanted = dict(_ROW_SESSION)
        for flag, name in row_checks(described).items():
            wanted[name] = _off(flags & flag)
        return [*self.reads(PLAIN), *self.change(wanted | ({"TIMESTAMP": str(time)} if time else {}))]

    def forget_query(self) -> None:
        """Forget the session of the last QUERY, so that the next one sets its own."""
        self._same = (0, -1, False)

    def for_names(self) -> list[bytes]:
        """Return the SET statements for the program's own statements with names or texts in UTF-8."""
        wanted = {"@@session.character_set_client": _UTF8MB4, "@@session.collation_connection": _UTF8MB4}
        return [*self.reads(PLAIN), *self.change(wanted)]

    def for_query(self, query: Query, described: FormatDescription) -> list[bytes]:
        """Return the SET statements for a statement with these status variables."""
        status = query.status
        if (id(status), query.thread, query.inside) == self._same and "charset" in status:
            return self._at(status, query.time)
        made: list[bytes] = []
        if "charset" in status:
            made = self.reads(charset_of(status["charset"]["client"]))
        self.mode = status.get("sql_mode", self.mode)
        wanted = {"TIMESTAMP": _time(status, query.time)} if query.time else {}
        wanted["@@session.pseudo_thread_id"] = str(query.thread)
        wanted |= dict(_flags(status, described)) | dict(_values(status))
        wanted |= dict(_mariadb_values(status) if described.is_mariadb else _mysql_values(status))
        if query.inside:
            wanted.pop("@@session.autocommit", None)  # turning it on would commit
        made += self.change(wanted)
        self._same = (id(status), query.thread, query.inside)
        return made

    def assert_mode(self) -> list[bytes]:
        """Return statements that set sql_mode again, directly before a text whose reading by a client depends on it.

        A stored function or trigger that sets sql_mode leaves its status flags with the client, and a refused SET
        leaves the mode unchanged. The words for the modes that clients depend on are accepted by every server.
        """
        return _set_mode(self.known.setdefault(MODE, "''" if not self.mode else str(self.mode)))

    def without_escapes(self, mode: int) -> tuple[list[bytes], list[bytes]]:
        """Return the statements that set this sql_mode with NO_BACKSLASH_ESCAPES, and those that restore it."""
        return _set_mode(str(mode | NO_BACKSLASH_ESCAPES)), self.assert_mode()

    def _at(self, status: Mapping[str, Any], time: int) -> list[bytes]:
        """Return the SET TIMESTAMP for the session of the previous statement at another time."""
        value = _time(status, time)
        if not time or self.known.get("TIMESTAMP") == value:
            return []
        self.known["TIMESTAMP"] = value
        return [b"SET TIMESTAMP=" + value.encode()]

    def end(self) -> bytes:
        """Return the statements that restore the session as far as a script can know it."""
        made = [quick(one) for one in self.reads(PLAIN)]
        made += map(quick, _assignments({name: _LAST.get(name, "DEFAULT") for name in sorted(self.known)}))
        return b"".join(made)


class Query(NamedTuple):
    """Session of a QUERY by its event; `inside`: a transaction is open."""

    status: Mapping[str, Any]
    time: int
    thread: int
    inside: bool


_CHARSET = ("@@session.character_set_client", "@@session.collation_connection")
_LAST = {
    "@@session.pseudo_thread_id": "CONNECTION_ID()",
    **dict.fromkeys(_CHARSET, _UTF8MB4),
}


_ROW_SESSION = {
    "@@session.sql_mode": _ROW_MODE,
    "@@session.character_set_client": _UTF8MB4,
    "@@session.collation_connection": _UTF8MB4,
    "@@session.time_zone": "'+00:00'",
}


def row_checks(described: FormatDescription) -> dict[int, str]:
    """Return flags of row events and the variables that they turn off."""
    checks = {
        ROWS_NO_FOREIGN_KEYS: "@@session.foreign_key_checks",
        ROWS_RELAXED_UNIQUE: "@@session.unique_checks",
    }
    if described.is_mariadb and described.version >= _MARIADB_CHECKS:
        checks[ROWS_NO_CHECKS] = "@@session.check_constraint_checks"
    return checks


def doubt(status: Mapping[str, Any], sql: bytes) -> str | None:
    """Return why a statement with these status variables has a different effect in a script; None if it has not."""
    if "opaque" in status:
        return f"a status variable of type {status['opaque'][0]} is not known, nor what it changes"
    invoker = status.get("invoker")
    if invoker is not None and _CURRENT_USER.search(sql):
        return f"its CURRENT_USER was {_shown(invoker)}; in a script it is who runs that"
    return None


def refused(status: Mapping[str, Any]) -> str | None:
    """Return why every known server refuses the session of a statement; None if some server accepts it."""
    for name, number in status.get("charset", {}).items():
        charset = charset_of(number)
        if charset is None or (name == "client" and charset in _NO_CLIENT):
            why = "servers refuse" if charset is not None else "no server of a known version has"
            return f"{why} {number} as the collation of its {name}, and what follows would run without that"
    if status.get("sql_mode", 0) & ~_KNOWN_MODES:
        return f"servers refuse its sql_mode {status['sql_mode']}"
    return None


def _set_mode(value: str) -> list[bytes]:
    """Return the statements that set sql_mode.

    A server that refuses a mode which it does not know still gets the modes that matter for reading text.
    """
    made = [f"SET {MODE}={value}".encode()]
    if value.isdecimal() and int(value) & ~_COMMON_MODES:
        words = [word for bit, word in _READING_MODES.items() if int(value) & bit]
        made.insert(0, f"SET {MODE}='{','.join(words)}'".encode())
    return made


def _shown(invoker: Mapping[str, Any]) -> str:
    """Return user@host of an invoker."""
    return "@".join(str(invoker[name]) for name in ("user", "host"))


def _assignments(values: Mapping[str, str]) -> list[bytes]:
    """Return the SET of these variables; those of newer servers in a statement that others read as a comment."""
    old = ", ".join(f"{name}={value}" for name, value in values.items() if name not in _SINCE)
    made = [f"SET {old}".encode()] if old else []
    return made + [f"/*{_SINCE[n]} SET {n}={v} */".encode() for n, v in values.items() if n in _SINCE]


def row_flags(flags: int, described: FormatDescription) -> tuple[list[bytes], list[bytes]]:
    """Return the statements before and after those of a row event with these flags, in a session with all checks
    on.
    """
    usual = Session()
    usual.for_rows(0, 0, described)
    own = usual.copy()
    return own.for_rows(flags, 0, described), own.for_rows(0, 0, described)


def _off(flag: int) -> str:
    """Return "0" for a set flag."""
    return "0" if flag else "1"


def _on(flag: int) -> str:
    """Return "1" for a set flag."""
    return "1" if flag else "0"


def _time(status: Mapping[str, Any], time: int) -> str:
    """Return TIMESTAMP with the microseconds of the status variables."""
    part = status.get("hrnow", status.get("microseconds", 0))
    return f"{time}.{part:06d}" if part else str(time)


def _flags(status: Mapping[str, Any], described: FormatDescription) -> Iterable[tuple[str, str]]:
    """Yield the variables that flags2 sets."""
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
    """Yield the variables of all servers; what the status block lacks has its default."""
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
    if zone is not None:
        plain = isinstance(zone, str) and _ZONE.match(zone)
        raw = zone.encode("utf-8", "surrogateescape") if isinstance(zone, str) else zone
        yield "@@session.time_zone", f"'{zone}'" if plain else f"0x{raw.hex()}"
    yield "@@session.lc_time_names", str(status.get("lc_time_names", 0))
    yield "@@session.collation_database", str(status.get("charset_database", "DEFAULT"))


def _mariadb_values(status: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the variables that only MariaDB has."""
    if "character_set_collations" in status:  # only logged for statements that depend on it
        yield _COLLATIONS, _collations(collation for _, collation in status["character_set_collations"])


def _collations(numbers: Iterable[int]) -> str:
    """Return the value of character_set_collations as a query.

    The log has numbers of collations, the variable takes names, and the target server maps them.
    """
    chosen = ",".join(map(str, sorted(numbers)))
    names = "(SELECT GROUP_CONCAT(CONCAT(character_set_name,'=',full_collation_name)) FROM "
    names += f"information_schema.collation_character_set_applicability WHERE id IN ({chosen}))"
    return names if chosen else "''"


def _mysql_values(status: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the variables that only MySQL has."""
    if "default_collation_utf8mb4" in status:
        yield "@@session.default_collation_for_utf8mb4", str(status["default_collation_utf8mb4"])
    for name, variable in (
        ("explicit_defaults_ts", "explicit_defaults_for_timestamp"),
        ("sql_require_primary_key", "sql_require_primary_key"),
        ("default_table_encryption", "default_table_encryption"),
        ("enable_cascade_triggers", "enable_cascade_triggers"),
    ):
        value = status.get(name)
        if value is not None and value != _UNSET:
            yield f"@@session.{variable}", str(value)
