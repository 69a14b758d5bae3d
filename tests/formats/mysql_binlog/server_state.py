"""All that a server has, to be compared with what another one has: definitions, and every row of every table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.formats.mysql_binlog.server import OWN, Server

_OWN = ",".join(f"'{name}'" for name in OWN)
_TABLES = f"""SELECT HEX(table_schema), HEX(table_name), table_type FROM information_schema.tables
    WHERE table_schema NOT IN ({_OWN})"""
_COLUMNS = f"""SELECT HEX(table_schema), HEX(table_name), HEX(column_name), data_type, HEX(generation_expression)
    FROM information_schema.columns WHERE table_schema NOT IN ({_OWN}) ORDER BY 1, 2, ordinal_position"""
_SCHEMATA = f"""SELECT 'database', HEX(schema_name), default_character_set_name, default_collation_name
    FROM information_schema.schemata WHERE schema_name NOT IN ({_OWN})"""
_ROUTINES = """SELECT 'routine', HEX(routine_schema), HEX(routine_name), routine_type, HEX(routine_definition),
    sql_mode, character_set_client, collation_connection, database_collation, HEX(routine_comment), HEX(definer),
    security_type, HEX(dtd_identifier) FROM information_schema.routines WHERE routine_schema <> 'sys'"""
_TRIGGERS = """SELECT 'trigger', HEX(trigger_schema), HEX(trigger_name), event_manipulation, HEX(event_object_table),
    action_timing, action_order, HEX(action_statement), sql_mode, character_set_client, collation_connection
    FROM information_schema.triggers WHERE trigger_schema <> 'sys'"""
_EVENTS = """SELECT 'event', HEX(event_schema), HEX(event_name), HEX(event_definition), interval_value, interval_field,
    starts, HEX(event_comment), sql_mode, character_set_client, time_zone FROM information_schema.events"""
_ACCOUNTS = """SELECT HEX(user), HEX(host), {role} FROM mysql.user
    WHERE user NOT IN ('root', 'mariadb.sys') AND user NOT LIKE 'mysql.%' ORDER BY 1, 2"""
_NUMBERS = frozenset(
    ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year", "date", "time", "datetime", "timestamp")
)
_FLOATING = frozenset(("float", "double"))
_ROW_START = b"ROW START".hex().upper()

State = Mapping[str, list[str]]
"""What it is -> its lines; of a table the rows, sorted."""


def _name(in_hex: str) -> bytes:
    return b"`" + bytes.fromhex(in_hex).replace(b"`", b"``") + b"`"


def _lines(server: Server, *queries: str) -> Iterator[list[str]]:
    script = "SET NAMES utf8mb4;\n" + ";\n".join(queries) + ";\n"
    done = server.talk(script.encode(), "-N", "-B")
    assert not done.returncode, done.stderr
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        yield line.split("\t")


def _shown(column: str, kind: str) -> bytes:
    """The column so that nothing of its value is lost on the way through a client."""
    name = _name(column)
    if kind in _FLOATING:
        return b"CONCAT(" + name + b" + 0e0)"
    return name if kind in _NUMBERS else b"HEX(" + name + b")"


def _sent(query: bytes) -> bytes:
    """The query, past the client of MySQL: it drops a backslash at the end of a line, also in a name."""
    if b"\\\n" not in query:
        return query + b";\n"
    return b"SET @q=_utf8mb4 X'%b'; PREPARE q FROM @q; EXECUTE q;\n" % query.hex().encode()


def _script(server: Server) -> Iterator[bytes]:
    columns: dict[tuple[str, str], list[tuple[str, str, str]]] = defaultdict(list)
    for database, table, column, kind, expression in _lines(server, _COLUMNS):
        columns[database, table].append((column, kind, expression))
    for database, table, kind in _lines(server, _TABLES):
        place = _name(database) + b"." + _name(table)
        yield f"SELECT '===', '{database}.{table}';\n".encode()
        yield _sent(b"SHOW CREATE " + (b"VIEW " if kind == "VIEW" else b"TABLE ") + place)
        if kind == "VIEW":
            continue
        own = columns[database, table]
        shown = [_shown(column, type_) for column, type_, _ in own]
        versioned = kind == "SYSTEM VERSIONED"
        if versioned and not any(expression == _ROW_START for _, _, expression in own):
            shown += [b"ROW_START", b"ROW_END"]
        every = b" FOR SYSTEM_TIME ALL" if versioned else b""
        yield _sent(b"SELECT 'row', " + b", ".join(shown) + b" FROM " + place + every)


def accounts(server: Server) -> list[tuple[bytes, bool]]:
    """Users and roles but the server's own, and is it a role as MariaDB has them?"""
    query = _ACCOUNTS.format(role="'N'" if server.mysql else "is_role")
    found = []
    for user, host, role in _lines(server, query):
        named = _name(user) if role == "Y" else _name(user) + b"@" + _name(host)
        found.append((named, role == "Y"))
    return found


def _accounts(server: Server) -> Iterator[bytes]:
    for name, is_role in accounts(server):
        yield b"SELECT '===', '" + b"user".hex().encode() + b"." + name.hex().encode() + b"';\n"
        yield b"" if is_role else b"SHOW CREATE USER " + name + b";\n"
        yield b"SHOW GRANTS FOR " + name + b";\n"


def state_of(server: Server) -> State:
    """Databases, tables, views, routines, triggers, events, rows, users."""
    found: dict[str, list[str]] = {}
    script = b"SET NAMES utf8mb4; SET time_zone='+00:00';\n" + b"".join((*_script(server), *_accounts(server)))
    done = server.talk(script, "-N", "-B", "--max-allowed-packet=1G")
    assert not done.returncode, (done.stderr, script[:2000])
    lines: list[str] = []
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        if line.startswith("===\t"):
            database, table = (bytes.fromhex(part).decode() for part in line.split("\t")[1].split("."))
            lines = found[f"table {database}.{table}"] = []
        else:
            lines.append(line)
    for parts in _lines(server, _SCHEMATA, _ROUTINES, _TRIGGERS, _EVENTS):
        found.setdefault(" ".join(parts[:3]), []).append("\t".join(parts))
    return {name: sorted(lines) for name, lines in found.items()}


def differences(one: State, other: State) -> list[str]:
    """What is not the same in both, in words."""
    out = []
    for name in sorted({*one, *other}):
        first, second = one.get(name), other.get(name)
        if first is None or second is None:
            out.append(f"{name}: only in the {'second' if first is None else 'first'}")
        elif first != second:
            missing = [line for line in first if line not in second]
            more = [line for line in second if line not in first]
            out.append(f"{name}: {len(first)} and {len(second)} lines; {missing[:2]} / {more[:2]}"[:600])
    return out
