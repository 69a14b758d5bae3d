"""SET statements that restore the session of a statement and the GTID of a transaction."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.formats.binlog_events.ddl.split_sql_statements import ANSI_QUOTES, NO_BACKSLASH_ESCAPES
from binlogtool.formats.binlog_events.event_schemas import Event
from binlogtool.formats.binlog_events.gtid.gtid_events import MariadbGtid, MysqlGtid
from binlogtool.formats.binlog_events.sql.client_safe_statements import (
    UTF8MB4,
    append_statement_end,
    format_charset_command,
    get_client_charset,
)
from binlogtool.formats.binlog_events.values.column_types import charset_of_collation
from binlogtool.formats.binlog_events.wire_format import EventFlag, EventType, FormatDescription, RowsFlag

# --- Session of a statement ---

_CHECKS_SINCE = (10, 2, 1)
_EXTRA_FLAGS_SINCE = (10, 11, 0)
_FLAG_VARIABLES = (
    ((), 1 << 26, "foreign_key_checks", 0),
    ((), 1 << 27, "unique_checks", 0),
    ((), 1 << 14, "sql_auto_is_null", 1),
    ((), 1 << 19, "autocommit", 0),
    (_CHECKS_SINCE, 1 << 15, "check_constraint_checks", 0),
    (_EXTRA_FLAGS_SINCE, 1 << 28, "sql_if_exists", 1),
    (_EXTRA_FLAGS_SINCE, 1 << 24, "explicit_defaults_for_timestamp", 1),
    (_EXTRA_FLAGS_SINCE, 1 << 30, "system_versioning_insert_history", 1),
)
"""(first version of MariaDB, or () for all servers; bit of status variable flags2; variable; its value if set)."""

_ROW_SQL_MODE = "'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES'"
"""sql_mode that accepts every value a row of this table can have, including zero dates, and refuses values that a
differently defined table could only store in part.
"""

SQL_MODE = "@@session.sql_mode"
_LEXER_MODES = {ANSI_QUOTES: "ANSI_QUOTES", NO_BACKSLASH_ESCAPES: "NO_BACKSLASH_ESCAPES"}
_COMMON_MODE_BITS = 0xEFFC00EF
"""Bits of sql_mode that all servers accept."""

_KNOWN_MODE_BITS = (1 << 40) - 1
"""Bits of sql_mode that some server accepts, or may accept in the future."""

_CHARSETS_WITHOUT_CLIENT = frozenset({"ucs2", "utf16", "utf16le", "utf32"})
"""Character sets that servers refuse as character_set_client."""

_UTF8MB4 = "45"
"""Number of a utf8mb4 collation that all servers know."""

_ZONE = re.compile(r"[\w+:/ -]+\Z", re.ASCII)

_COLLATIONS = "@@session.character_set_collations"
_UNSET = 255
"""Value of a one-byte status variable that means "not set"."""

_VERSION_COMMENTS = {
    _COLLATIONS: "M!110200",
    "@@session.default_collation_for_utf8mb4": "!80011",
    "@@session.enable_cascade_triggers": "!90700",
}
"""Executable comments for variables that older servers do not know."""

_CURRENT_USER = re.compile(rb"\bCURRENT_USER\b", re.IGNORECASE)
_REFUSED_INSIDE = re.compile(
    rb"\s*SET\s+STATEMENT\b.{0,500}?\b(binlog_format|binlog_direct_non_transactional_updates|gtid_domain_id|gtid_seq_no"
    rb"|sql_log_bin|wsrep_on)\s*=.{0,500}?\bFOR\s+(?:INSERT|UPDATE|DELETE|REPLACE|LOAD|WITH)\b",
    re.IGNORECASE | re.DOTALL,
)
"""Variable that MariaDB 10.11 and 11.8 refuse to set for a statement inside a transaction (ERROR 1679, 1685, 1953)."""

Variables = dict[str, str]
"""Name of a session variable -> its value as SQL."""


class ScriptSession(msgspec.Struct):
    """Variables of the target's session, as far as the script has set them.

    `variables`: the variables by name. `charset`: character set of the next statement's text. `client_charset`: the
    character set in which the client reads. `gtid_next`: MySQL's variable.
    """

    variables: Variables = msgspec.field(default_factory=dict)
    database: bytes | None = None
    charset: str | None = None
    client_charset: str = UTF8MB4
    sql_mode: int = 0
    gtid_next: str = "AUTOMATIC"
    _last_query: tuple[int, int, bool] = (0, -1, False)

    def copy(self) -> ScriptSession:
        """Return a copy of the session."""
        return replace(self, variables=dict(self.variables))

    def write_changed_variables(self, values: Mapping[str, str]) -> list[bytes]:
        """Return the statements that set those variables which do not have these values yet."""
        changed = {name: value for name, value in values.items() if self.variables.get(name) != value}
        if not changed:
            return []
        self.forget_last_query()
        self.variables.update(changed)
        return _format_assignments(changed)

    def write_client_charset_change(self, charset: str | None) -> list[bytes]:
        """Return the commands that make the client read statements in this character set."""
        self.charset = charset
        needed = get_client_charset(charset)
        if needed == self.client_charset:
            return []
        commands = [format_charset_command(needed)]
        if needed == "gb18030" and self.client_charset != UTF8MB4:  # clients that do not know it keep the previous one
            commands.insert(0, format_charset_command(UTF8MB4))
        self.client_charset = needed
        for name in _CHARSET_VARIABLES:
            self.variables.pop(name, None)
        self.forget_last_query()
        return commands

    def write_session_for_rows(self, flags: int, time: int, description: FormatDescription) -> list[bytes]:
        """Return the SET statements for the statements of a row event."""
        self.sql_mode = 0
        values = dict(_ROW_VARIABLES)
        for flag, name in get_row_check_variables(description).items():
            values[name] = "0" if flags & flag else "1"
        return [
            *self.write_client_charset_change(UTF8MB4),
            *self.write_changed_variables(values | ({"TIMESTAMP": str(time)} if time else {})),
        ]

    def forget_last_query(self) -> None:
        """Forget the session of the last QUERY, so that the next QUERY sets its own."""
        self._last_query = (0, -1, False)

    def write_session_for_utf8_names(self) -> list[bytes]:
        """Return the SET statements for this program's own statements with names or texts in UTF-8."""
        values = {"@@session.character_set_client": _UTF8MB4, "@@session.collation_connection": _UTF8MB4}
        return [*self.write_client_charset_change(UTF8MB4), *self.write_changed_variables(values)]

    def write_session_for_query(self, query: QuerySession, description: FormatDescription) -> list[bytes]:
        """Return the SET statements for a statement with these status variables."""
        status = query.status
        if (id(status), query.thread_id, query.is_in_transaction) == self._last_query and "charset" in status:
            return self._write_time_change(status, query.time)
        statements: list[bytes] = []
        if "charset" in status:
            statements = self.write_client_charset_change(charset_of_collation(status["charset"]["client"]))
        self.sql_mode = status.get("sql_mode", self.sql_mode)
        values = {"TIMESTAMP": _format_timestamp_value(status, query.time)} if query.time else {}
        values["@@session.pseudo_thread_id"] = str(query.thread_id)
        values |= dict(_iter_flag_variables(status, description)) | dict(_iter_common_variables(status))
        values |= dict(_iter_mariadb_variables(status) if description.is_mariadb else _iter_mysql_variables(status))
        if query.is_in_transaction:
            values.pop("@@session.autocommit", None)  # turning it on would commit
        statements += self.write_changed_variables(values)
        self._last_query = (id(status), query.thread_id, query.is_in_transaction)
        return statements

    def write_sql_mode_again(self) -> list[bytes]:
        """Return statements that set sql_mode again, directly before a statement that clients parse by sql_mode.

        A stored function or trigger that sets sql_mode leaves its status flags in the client, and a refused SET leaves
        the mode unchanged. Every server accepts the names of the modes on which clients depend.
        """
        return _format_sql_mode(self.variables.setdefault(SQL_MODE, "''" if not self.sql_mode else str(self.sql_mode)))

    def wrap_in_no_backslash_escapes(self, mode: int) -> tuple[list[bytes], list[bytes]]:
        """Return the statements that set this sql_mode with NO_BACKSLASH_ESCAPES, and those that restore it."""
        return _format_sql_mode(str(mode | NO_BACKSLASH_ESCAPES)), self.write_sql_mode_again()

    def _write_time_change(self, status: Mapping[str, Any], time: int) -> list[bytes]:
        """Return the SET TIMESTAMP for another time in the session of the previous statement."""
        value = _format_timestamp_value(status, time)
        if not time or self.variables.get("TIMESTAMP") == value:
            return []
        self.variables["TIMESTAMP"] = value
        return [b"SET TIMESTAMP=" + value.encode()]

    def write_restored_session(self) -> bytes:
        """Return the statements that restore the session as far as a script can know it."""
        statements = [append_statement_end(one) for one in self.write_client_charset_change(UTF8MB4)]
        statements += map(
            append_statement_end,
            _format_assignments({name: _RESTORED_VALUES.get(name, "DEFAULT") for name in sorted(self.variables)}),
        )
        return b"".join(statements)


class QuerySession(NamedTuple):
    """Session of a QUERY, from its event; `is_in_transaction`: a transaction is open."""

    status: Mapping[str, Any]
    time: int
    thread_id: int
    is_in_transaction: bool


_CHARSET_VARIABLES = ("@@session.character_set_client", "@@session.collation_connection")
_RESTORED_VALUES = {
    "@@session.pseudo_thread_id": "CONNECTION_ID()",
    **dict.fromkeys(_CHARSET_VARIABLES, _UTF8MB4),
}


_ROW_VARIABLES = {
    "@@session.sql_mode": _ROW_SQL_MODE,
    "@@session.character_set_client": _UTF8MB4,
    "@@session.collation_connection": _UTF8MB4,
    "@@session.time_zone": "'+00:00'",
}


def get_row_check_variables(description: FormatDescription) -> dict[int, str]:
    """Return flags of row events -> variables that they turn off."""
    checks: dict[int, str] = {
        RowsFlag.NO_FOREIGN_KEY_CHECKS: "@@session.foreign_key_checks",
        RowsFlag.RELAXED_UNIQUE_CHECKS: "@@session.unique_checks",
    }
    if description.is_mariadb and description.version >= _CHECKS_SINCE:
        checks[RowsFlag.NO_CHECK_CONSTRAINT_CHECKS] = "@@session.check_constraint_checks"
    return checks


def explain_different_effect(status_variables: Mapping[str, Any], sql: bytes) -> str | None:
    """Return why a statement with these status variables has a different effect in a script; None if it has not."""
    if "opaque" in status_variables:
        return f"a status variable of type {status_variables['opaque'][0]} is unknown, and so is its effect"
    invoker = status_variables.get("invoker")
    if invoker is not None and _CURRENT_USER.search(sql):
        user = f"{invoker['user']}@{invoker['host']}"
        return f"its CURRENT_USER was {user}; in a script it is the user who runs the script"
    refused = _REFUSED_INSIDE.match(sql)
    if refused is not None:
        return f"MariaDB refuses SET STATEMENT {refused[1].decode()} inside a transaction, where the script has it"
    return None


def explain_refused_session(status_variables: Mapping[str, Any]) -> str | None:
    """Return why all known servers refuse the session of a statement; None if some server accepts it."""
    for name, number in status_variables.get("charset", {}).items():
        charset = charset_of_collation(number)
        if charset is None or (name == "client" and charset in _CHARSETS_WITHOUT_CLIENT):
            reason = "servers refuse" if charset is not None else "no server of a known version has"
            return f"{reason} {number} as the collation of its {name}, so the statements after it would run without it"
    if status_variables.get("sql_mode", 0) & ~_KNOWN_MODE_BITS:
        return f"servers refuse its sql_mode {status_variables['sql_mode']}"
    return None


def _format_sql_mode(value: str) -> list[bytes]:
    """Return the statements that set sql_mode.

    A server that refuses an unknown mode still gets the modes that affect the reading of text.
    """
    statements = [f"SET {SQL_MODE}={value}".encode()]
    if value.isdecimal() and int(value) & ~_COMMON_MODE_BITS:
        words = [word for bit, word in _LEXER_MODES.items() if int(value) & bit]
        statements.insert(0, f"SET {SQL_MODE}='{','.join(words)}'".encode())
    return statements


def _format_assignments(values: Mapping[str, str]) -> list[bytes]:
    """Return the SET of these variables; older servers read the variables of newer ones as a comment."""
    common = ", ".join(f"{name}={value}" for name, value in values.items() if name not in _VERSION_COMMENTS)
    statements = [f"SET {common}".encode()] if common else []
    return statements + [
        f"/*{_VERSION_COMMENTS[n]} SET {n}={v} */".encode() for n, v in values.items() if n in _VERSION_COMMENTS
    ]


def wrap_in_row_check_settings(flags: int, description: FormatDescription) -> tuple[list[bytes], list[bytes]]:
    """Return the statements before and after those of a row event with these flags, in a session with all checks on."""
    base = ScriptSession()
    base.write_session_for_rows(0, 0, description)
    changed = base.copy()
    return changed.write_session_for_rows(flags, 0, description), changed.write_session_for_rows(0, 0, description)


def _format_timestamp_value(status: Mapping[str, Any], time: int) -> str:
    """Return TIMESTAMP including the microseconds from the status variables."""
    microseconds = status.get("hrnow", status.get("microseconds", 0))
    return f"{time}.{microseconds:06d}" if microseconds else str(time)


def _iter_flag_variables(status: Mapping[str, Any], description: FormatDescription) -> Iterable[tuple[str, str]]:
    """Yield the variables that flags2 sets."""
    flags = status.get("flags2")
    if flags is None:
        return
    for since, bit, name, value in _FLAG_VARIABLES:
        if not since or (description.is_mariadb and description.version >= since):
            yield f"@@session.{name}", str(value if flags & bit else 1 - value)


def _iter_common_variables(status: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the variables of all servers; variables that are missing in the status block have their default."""
    if "sql_mode" in status:
        yield "@@session.sql_mode", str(status["sql_mode"])
    increments = status.get("auto_increment", {"increment": 1, "offset": 1})
    yield "@@session.auto_increment_increment", str(increments["increment"])
    yield "@@session.auto_increment_offset", str(increments["offset"])
    if "charset" in status:
        yield "@@session.character_set_client", str(status["charset"]["client"])
        yield "@@session.collation_connection", str(status["charset"]["connection"])
        yield "@@session.collation_server", str(status["charset"]["server"])
    zone = status.get("time_zone")
    if zone is not None:
        is_plain = isinstance(zone, str) and _ZONE.match(zone)
        raw = zone.encode("utf-8", "surrogateescape") if isinstance(zone, str) else zone
        yield "@@session.time_zone", f"'{zone}'" if is_plain else f"0x{raw.hex()}"
    yield "@@session.lc_time_names", str(status.get("lc_time_names", 0))
    yield "@@session.collation_database", str(status.get("charset_database", "DEFAULT"))


def _iter_mariadb_variables(status: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the variables that only MariaDB has."""
    if "character_set_collations" in status:  # only logged for statements that depend on it
        yield _COLLATIONS, _collations_expression(collation for _, collation in status["character_set_collations"])


def _collations_expression(numbers: Iterable[int]) -> str:
    """Return the value of character_set_collations as a query.

    The log has collation numbers and the variable takes names, so the query makes the target server map them.
    """
    ids = ",".join(map(str, sorted(numbers)))
    query = "(SELECT GROUP_CONCAT(CONCAT(character_set_name,'=',full_collation_name)) FROM "
    query += f"information_schema.collation_character_set_applicability WHERE id IN ({ids}))"
    return query if ids else "''"


def _iter_mysql_variables(status: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
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


# --- Identity of a transaction as SET statements ---

SET_GTID_AUTOMATIC = b"SET @@session.gtid_next='AUTOMATIC'"
_SET_READ_COMMITTED = b"/*!50718 SET TRANSACTION ISOLATION LEVEL READ COMMITTED*/"
_MAY_HAVE_STATEMENTS = 1
"""Bit of the flags in a GTID event."""

_GTIDS_SINCE = (5, 6, 5)
_UNKNOWN_TIME, _UNKNOWN_VERSION = 36028797018963968, 999999
"""Values of MySQL's session variables that mean "unknown"."""


def has_gtids(description: FormatDescription) -> bool:
    """Return whether a server of this version has @@gtid_next."""
    return not description.is_mariadb and description.version >= _GTIDS_SINCE


def write_mariadb_gtid_settings(event: Event, gtid: MariadbGtid, session: ScriptSession) -> list[bytes]:
    """Return the SET statements for the domain, server and sequence number of the next transaction in MariaDB."""
    skip = "1" if event.flags & EventFlag.SKIP_REPLICATION else "0"
    variables = {
        "@@session.gtid_domain_id": str(gtid.domain_id),
        "@@session.server_id": str(event.server_id),
        "@@session.gtid_seq_no": str(gtid.seq_no),
    }
    if skip != session.variables.get("@@session.skip_replication", "0"):
        variables["@@session.skip_replication"] = skip
    session.variables.pop("@@session.gtid_seq_no", None)  # the server resets it with each transaction
    return session.write_changed_variables(variables)


def write_parallel_replication_setting(session: ScriptSession, *, allowed: bool) -> list[bytes]:
    """Return the SET statement that says whether the target's replicas may run the next transaction in parallel."""
    return session.write_changed_variables({"@@session.skip_parallel_replication": "0" if allowed else "1"})


def write_mysql_gtid_settings(
    event: Event, gtid: MysqlGtid, gtid_text: str | None, session: ScriptSession
) -> list[bytes]:
    """Return the SET statements for the GTID of the next transaction in MySQL, and for its origin.

    `gtid_text`: the GTID; None if there is none.
    """
    statements = [] if gtid.flags & _MAY_HAVE_STATEMENTS else [_SET_READ_COMMITTED]
    statements += _write_origin_settings(gtid, session)
    is_anonymous = event.code == EventType.ANONYMOUS_GTID or gtid_text is None
    gtid_next = "AUTOMATIC" if is_anonymous else str(gtid_text)  # servers with gtid_mode=ON refuse ANONYMOUS
    if gtid_next != session.gtid_next or not is_anonymous:
        session.gtid_next = gtid_next
        statements.append(b"SET @@session.gtid_next='" + gtid_next.encode() + b"'")
    return statements


def _write_origin_settings(gtid: MysqlGtid, session: ScriptSession) -> list[bytes]:
    """Return the SET statements for server versions and commit time, if the event has them."""
    values = {
        "@@session.original_commit_timestamp": gtid.original_commit_timestamp,
        "@@session.original_server_version": gtid.original_server_version,
        "@@session.immediate_server_version": gtid.immediate_server_version,
    }
    unknown = (_UNKNOWN_TIME, _UNKNOWN_VERSION, _UNKNOWN_VERSION)
    texts = {n: str(v if v is not None else u) for (n, v), u in zip(values.items(), unknown, strict=True)}
    if gtid.original_commit_timestamp is None and "@@session.original_commit_timestamp" not in session.variables:
        return []
    return [b"/*!80014 " + one + b"*/" for one in session.write_changed_variables(texts)]
