"""Every status variable that a server can write with a statement is set, told, or known to change nothing."""

from __future__ import annotations

import struct

import pytest

from binlogtool.formats.binlog_events.sql.session_statements import (
    QuerySession,
    ScriptSession,
    explain_different_effect,
)
from binlogtool.formats.binlog_events.status_variables import STATUS_VARIABLES, decode_status_variables
from binlogtool.formats.binlog_events.wire_format import FormatDescription

_MARIADB, _MYSQL = (FormatDescription(4, version, 1, 19, bytes(40), 1) for version in ("11.8.6-MariaDB", "9.7.0"))
_USUAL_COLLATIONS = b"\5" + struct.pack("<10H", 33, 2048, 35, 2560, 45, 2304, 54, 2816, 60, 3072)
"""As MariaDB 11.8 writes them."""

_CALL = b"ALTER USER CURRENT_USER IDENTIFIED BY 'x'"
_CASES: dict[str, tuple[FormatDescription, bytes, bytes, str]] = {
    "flags2": (_MARIADB, struct.pack("<I", 0), struct.pack("<I", 1 << 26), "foreign_key_checks=0"),
    "sql_mode": (_MARIADB, struct.pack("<Q", 0), struct.pack("<Q", 4), "sql_mode=4"),
    "auto_increment": (_MARIADB, struct.pack("<HH", 1, 1), struct.pack("<HH", 7, 3), "auto_increment_increment=7"),
    "charset": (_MARIADB, struct.pack("<HHH", 45, 45, 8), struct.pack("<HHH", 8, 45, 8), "character_set_client=8"),
    "time_zone": (_MARIADB, b"\6+00:00", b"\6+05:30", "time_zone='+05:30'"),
    "lc_time_names": (_MARIADB, struct.pack("<H", 0), struct.pack("<H", 4), "lc_time_names=4"),
    "charset_database": (_MARIADB, struct.pack("<H", 8), struct.pack("<H", 45), "collation_database=45"),
    "microseconds": (_MYSQL, b"\0\0\0", b"\1\0\0", "TIMESTAMP=9.000001"),
    "hrnow": (_MARIADB, b"\0\0\0", b"\1\0\0", "TIMESTAMP=9.000001"),
    "explicit_defaults_ts": (_MYSQL, b"\1", b"\0", "explicit_defaults_for_timestamp=0"),
    "default_collation_utf8mb4": (_MYSQL, struct.pack("<H", 255), struct.pack("<H", 45), "for_utf8mb4=45"),
    "sql_require_primary_key": (_MYSQL, b"\0", b"\1", "sql_require_primary_key=1"),
    "default_table_encryption": (_MYSQL, b"\0", b"\1", "default_table_encryption=1"),
    "enable_cascade_triggers": (_MYSQL, b"\0", b"\1", "/*!90700 SET @@session.enable_cascade_triggers=1 */"),
    "character_set_collations": (_MARIADB, _USUAL_COLLATIONS, b"\1" + struct.pack("<HH", 45, 46),
                                 "WHERE id IN (46)) */"),
}  # fmt: skip
"""Name -> the server, two values, and what is set for the second one."""

_TOLD = {"invoker": b"\4root\1h"}
_WITHOUT_EFFECT = {
    "catalog": "servers have one",
    "catalog_nz": "servers have one",
    "table_map_for_update": "for filters of replicas: which tables of a multi-table UPDATE change",
    "master_data_written": "for the event's size in relay logs",
    "updated_db_names": "for the order between parallel appliers",
    "ddl_logged_with_xid": "for the recovery of a server",
    "xid": "for the recovery of a server",
    "gtid_flags3": "for the steps of an ALTER TABLE, which its GTID event contains too",
}
"""Status variables that do not change the effect of a statement, and the reason."""


def _set(described: FormatDescription, code: int, value: bytes) -> bytes:
    status = decode_status_variables(bytes([code]) + value)
    return b"\n".join(
        ScriptSession().write_session_for_query(QuerySession(status, 9, 1, is_in_transaction=False), described)
    )


@pytest.mark.parametrize(
    ("code", "name"),
    [(code, one.name) for code, one in STATUS_VARIABLES.fields.items() if one.name != "filler"],
    ids=str,
)
def test_no_status_variable_is_passed_over_without_a_word(code: int, name: str) -> None:
    assert (name in _CASES) + (name in _TOLD) + (name in _WITHOUT_EFFECT) == 1
    if name in _CASES:
        described, usual, other, expected = _CASES[name]
        assert expected in _set(described, code, other).decode()
        assert expected not in _set(described, code, usual).decode()
    elif name in _TOLD:
        status = decode_status_variables(bytes([code]) + _TOLD[name])
        assert "root@h" in (explain_different_effect(status, _CALL) or "")
        assert explain_different_effect(status, b"CREATE DEFINER=`root`@`h` VIEW v AS SELECT 1") is None


def test_what_a_server_has_at_first_is_set_too() -> None:
    """The target's own defaults may be others; servers that do not have the variable take it for a comment."""
    made = _set(_MYSQL, 18, struct.pack("<H", 255))
    assert b"\n/*!80011 SET @@session.default_collation_for_utf8mb4=255 */" in made
    made = _set(_MARIADB, 131, _USUAL_COLLATIONS)
    assert b"\n/*M!110200 SET @@session.character_set_collations=(SELECT" in made


def test_a_status_variable_that_is_not_known_is_told() -> None:
    assert "type 99" in (explain_different_effect(decode_status_variables(b"\x63\1"), b"SELECT 1") or "")


def test_variables_of_newer_servers_are_given_back_where_they_are() -> None:
    session = ScriptSession()
    status = decode_status_variables(b"\x15\1")
    session.write_session_for_query(QuerySession(status, 9, 1, is_in_transaction=False), _MYSQL)
    assert b"/*!90700 SET @@session.enable_cascade_triggers=DEFAULT */" in session.write_restored_session()


def test_a_time_zone_cannot_leave_its_literal() -> None:
    made = _set(_MARIADB, 5, b"\4';x-")
    assert b"@@session.time_zone=0x273b782d" in made and b"';" not in made


@pytest.mark.parametrize(
    ("sql", "variable"),
    [
        (b"SET STATEMENT binlog_format='ROW' FOR INSERT INTO t (b) VALUES (2)", "binlog_format"),
        (b"set statement sql_mode='', gtid_seq_no=100 for insert INTO t (b) VALUES (2)", "gtid_seq_no"),
        (b"SET STATEMENT sql_log_bin=0 FOR DELETE FROM t", "sql_log_bin"),
        (b"SET STATEMENT server_id=4, binlog_row_image='MINIMAL' FOR INSERT INTO t (b) VALUES (2)", None),
        (b"SET STATEMENT gtid_domain_id=5 FOR CREATE TABLE u (a INT)", None),
    ],
)
def test_variables_that_a_server_refuses_to_set_inside_a_transaction_are_told(sql: bytes, variable: str | None) -> None:
    """MariaDB 10.11 and 11.8 refused them after BEGIN (ERROR 1679, 1953, 1694), and accepted the others."""
    reason = explain_different_effect({}, sql)
    assert (reason is None) if variable is None else (reason is not None and f"SET STATEMENT {variable} " in reason)
