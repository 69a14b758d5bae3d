"""Random sequences of DDL for a real server, and what the columns of its tables are called behind each statement.

Behind each statement one row is inserted into each table that is there, and the server's information_schema.columns is
written down: the oracle of the names that a log has for that row. `python -m tests.formats.mysql_binlog.ddl_sequences
SEED COUNT [TREE]` runs COUNT sequences on the installed MariaDB, or on the server of a tree, and prints what differs.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.cli.invoke import invoke
from tests.formats.mysql_binlog.server import Server
from tests.formats.mysql_binlog.server_trees import programs_of

TABLES = ("t", "u", "v", "`w x`")
COLUMNS = ("a", "b", "c", "d", "e", "`f g`", "first_", "`key`")
TYPES = (
    "INT", "INT", "INT UNSIGNED", "INT NOT NULL DEFAULT 0", "VARCHAR(20)", "TEXT", "DECIMAL(8,2)", "DATETIME(3)",
    "BIGINT", "DATE", "MEDIUMTEXT CHARACTER SET latin1", "ENUM('1','2','3')", "INT COMMENT 'x, y INT FIRST'",
)  # fmt: skip
_INSERT = """SET @c = NULL, @s = NULL;
SELECT GROUP_CONCAT(HEX(column_name) ORDER BY ordinal_position),
 CONCAT('INSERT INTO `{db}`.{table} (', GROUP_CONCAT(IF({own}, CONCAT('`', column_name, '`'), NULL)), ') VALUES (',
 GROUP_CONCAT(IF({own}, CASE WHEN data_type LIKE 'date%' THEN '''2020-02-02''' WHEN data_type LIKE 'enum' THEN '1'
 ELSE '{number}' END, NULL)), ')') INTO @c, @s FROM information_schema.columns
 WHERE BINARY table_schema = '{db}' AND BINARY table_name = '{bare}';
PREPARE p FROM @s;
EXECUTE p;
SELECT 'ROW', IFNULL(ROW_COUNT(), -1), '{db}', HEX('{bare}'), @c;
"""


class Oracle(NamedTuple):
    """A row that was inserted. columns: of its table, in order."""

    table: str
    columns: tuple[str, ...]
    statement: str


class Answer(NamedTuple):
    """How many rows have the right names, how many none; and those with wrong names."""

    right: int
    unknown: int
    wrong: list[str]
    unknown_after: list[str]


class Generator:
    """Statements for one database."""

    def __init__(self, seed: str, database: str, *, mysql: bool, capitals: bool = False) -> None:
        self.random = random.Random(seed)
        self.database, self.mysql, self.capitals = database, mysql, capitals
        self.columns: dict[str, list[str]] = {}

    def pick(self, *of: str) -> str:
        return self.random.choice(of)

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def spelled(self, table: str) -> str:
        return table.upper() if self.capitals and self.chance(0.5) else table

    def name(self, table: str) -> str:
        table = self.spelled(table)
        return f"{self.database}.{table}" if self.chance(0.3) else table

    def column(self, table: str) -> str:
        known = self.columns.get(table)
        return self.random.choice(known) if known and self.chance(0.9) else self.pick(*COLUMNS)

    def place(self, table: str) -> str:
        return self.pick("", "", " FIRST", f" AFTER {self.column(table)}")

    def type(self) -> str:
        return self.pick(*TYPES)

    def clause(self, table: str) -> str:
        """One clause of ALTER TABLE."""
        own, new, place = self.column(table), self.pick(*COLUMNS), self.place(table)
        plain = [
            f"ADD {new} {self.type()}{place}", f"ADD COLUMN {new} {self.type()}{place}", f"DROP {own}",
            f"DROP COLUMN {own}", f"MODIFY {own} {self.type()}{place}", f"CHANGE {own} {new} {self.type()}{place}",
            f"CHANGE COLUMN {own} {new} {self.type()}", f"RENAME COLUMN {own} TO {new}",
            f"ADD ({new} INT, {self.pick(*COLUMNS)} TEXT)", "ORDER BY a, b", f"ALTER {own} SET DEFAULT 1",
            "COMMENT='DROP a'",
            "CONVERT TO CHARACTER SET utf8mb4", "ENGINE=InnoDB", f"ADD INDEX ({own})",
            f"ADD {new} INT AS (1 + 1) VIRTUAL{place}", f"ADD {new} INT INVISIBLE",
            f"RENAME TO {self.name(self.pick(*TABLES))}",
            f"ADD {new} INT CHECK ({new} IS NOT NULL OR 1)",
        ]  # fmt: skip
        maria = [
            f"ADD COLUMN IF NOT EXISTS {new} {self.type()}{place}", f"DROP COLUMN IF EXISTS {new}",
            f"CHANGE COLUMN IF EXISTS {new} {self.pick(*COLUMNS)} {self.type()}",
            f"MODIFY IF EXISTS {new} {self.type()}{place}",
            f"RENAME COLUMN IF EXISTS {new} TO {self.pick(*COLUMNS)}",
            "ADD SYSTEM VERSIONING", "DROP SYSTEM VERSIONING",
            f"ADD {new} DATE NOT NULL, ADD z1 DATE NOT NULL, ADD PERIOD FOR p({new}, z1)", "DROP PERIOD FOR p",
        ]  # fmt: skip
        return self.pick(*plain, *(() if self.mysql else maria))

    def swap(self, table: str) -> str:
        one, other = self.column(table), self.column(table)
        ways = [
            f"CHANGE {one} {other} INT, CHANGE {other} {one} INT",
            f"RENAME COLUMN {one} TO {other}, RENAME COLUMN {other} TO {one}",
        ]
        return self.pick(*ways)

    def create(self, table: str) -> str:
        """The columns and options of a new table."""
        names = self.random.sample(COLUMNS, self.random.randint(2, 4))
        self.columns[table] = list(names)
        body = ", ".join(f"{name} {self.type()}" for name in names)
        key = ", id INT AUTO_INCREMENT PRIMARY KEY" if self.chance(0.3) else ""
        option = self.pick("", "", " DEFAULT CHARSET latin1", " PARTITION BY HASH (id)" if key else "")
        if not self.mysql and self.chance(0.1) and "PARTITION" not in option:
            option += " WITH SYSTEM VERSIONING"
        return f"({body}{key}){option}"

    def statement(self) -> str:
        """One random statement."""
        table, other = self.pick(*TABLES), self.pick(*TABLES)
        word = self.pick("ALTER TABLE", "alter table", "ALTER /* c */ TABLE", "/* DROP TABLE t; */ ALTER TABLE")
        if not self.mysql:
            word = self.pick(word, "ALTER ONLINE TABLE", "ALTER IGNORE TABLE", "ALTER TABLE IF EXISTS")
        tail = self.pick("", "", ", ALGORITHM=COPY", " /* , DROP a */")
        clauses = ", ".join(self.clause(table) for _ in range(self.random.randint(1, 3)))
        name, wait = self.name(table), "" if self.mysql or self.chance(0.8) else " WAIT 5"
        replace = "" if self.mysql else self.pick("", "OR REPLACE ")
        choices = [
            *[f"{word} {name}{wait} {clauses}{tail}"] * 8, *[f"{word} {name} {self.swap(table)}"] * 2,
            *[f"CREATE {replace}TABLE {name} {self.create(table)}"] * 2,
            f"CREATE TABLE IF NOT EXISTS {name} {self.create(table)}", f"CREATE TABLE {name} LIKE {self.name(other)}",
            f"CREATE TABLE {name} (LIKE {self.name(other)})",
            f"CREATE TABLE {name} AS SELECT * FROM {self.name(other)}",
            f"DROP TABLE IF EXISTS {name}, {self.name(other)}", f"DROP TABLE {name}, {self.name(other)}",
            f"RENAME TABLE {name} TO {self.name(other)}",
            f"RENAME TABLE {name} TO tmp, {self.name(other)} TO {name}, tmp TO {self.name(other)}",
            f"CREATE TEMPORARY TABLE {name} {self.create(table)};\nALTER TABLE {name} {self.clause(table)};\n"
            f"DROP TEMPORARY TABLE IF EXISTS {', '.join(TABLES)}", f"TRUNCATE {name}",
            f"CREATE TABLE {name} {self.create(table)} /*!99999 SELECT 1 */",
            f"ALTER TABLE {name} /*!50000 ADD ver INT */",
            f"ALTER TABLE{name if name[0] == '`' else ' ' + name} ADD x1 INT",
        ]  # fmt: skip
        made = self.pick(*choices)
        if not self.mysql and self.chance(0.15):
            made = f"SET STATEMENT max_statement_time=60, sort_buffer_size=(1024*300) FOR {made}"
        if self.chance(0.1):
            made = (
                f"SET sql_mode=CONCAT(@@sql_mode, ',ANSI_QUOTES');\n{made.replace('`', chr(34))};\nSET sql_mode=@mode"
            )
        return made


def script(seed: str, database: str, length: int, *, mysql: bool, capitals: bool = False) -> Iterator[str]:
    """The text for a client, and after each statement a row for each table."""
    source = Generator(seed, database, mysql=mysql, capitals=capitals)
    charset = source.pick("", "CHARACTER SET latin1")
    yield f"CREATE DATABASE {database} /* c */ {charset}; USE {database}; SET @mode=@@sql_mode;\n"
    number = 0
    for at in range(length):
        statement = (
            source.statement() if at > 3 else f"CREATE TABLE {source.name(TABLES[at])} {source.create(TABLES[at])}"
        )
        flat = " ".join(statement.split()).encode().hex()
        yield f"SELECT 'DDL', '{flat}';\n{statement};\n"
        for table in TABLES:
            number += 1
            bare = table.strip("`")
            own = "extra NOT LIKE ''%GENERATED%''".replace("''", "'")
            yield _INSERT.format(db=database, table=table, bare=bare, number=number % 3 + 1, own=own)


def oracle(output: str) -> list[Oracle]:
    """The rows that were inserted, in their order."""
    found, statement = list[Oracle](), ""
    for line in output.splitlines():
        cells = line.split("\t")
        if cells[0] == "DDL":
            statement = bytes.fromhex(cells[1]).decode()
        elif cells[0] == "ROW" and cells[1] == "1":
            names = tuple(bytes.fromhex(name).decode() for name in cells[4].split(","))
            found.append(Oracle(f"{cells[2]}.{bytes.fromhex(cells[3]).decode()}", names, statement))
    return found


def rows(path: Path, *words: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The inserted rows of a log: table, and the names of their columns."""
    done = invoke("dump", "-O", "jsonl", *words, str(path))
    for line in done.out.splitlines():
        record: dict[str, Any] = json.loads(line)
        if record["type"].startswith("WRITE_ROWS"):
            for row in record["body"]["rows"]:
                yield record["object"], tuple(row["after"])


def compared(path: Path, expected: list[Oracle], *words: str) -> Answer:
    """What a log has for the rows whose names are known."""
    right, unknown, wrong, after = 0, 0, list[str](), list[str]()
    found = list(rows(path, *words))
    waiting = iter(found)
    for one in expected:
        for table, names in waiting:
            if table.lower() == one.table.lower() and len(names) - len(one.columns) in (0, 2):
                break
        else:
            wrong.append(f"no row for {one}")
            break
        hidden = ("row_start", "row_end") if len(names) > len(one.columns) else ()
        if names == (*one.columns, *hidden):
            right += 1
        elif names[0] == "@1":
            unknown += 1
            after.append(f"{one.table} {one.columns}: {one.statement}")
        else:
            wrong.append(f"{one.table}: {names}, the server {one.columns}, after {one.statement}")
    return Answer(right, unknown, wrong, after)


def run(seed: int, count: int, tree: str | None, length: int = 16, *options: str, capitals: bool = False) -> Answer:
    """Runs `count` sequences on a server, and compares its log."""
    programs = None if tree is None else programs_of(tree)
    mysql = programs is not None and programs.mysql
    own = ["--log-bin=bin", "--binlog-format=ROW", "--skip-networking", *options]
    own += ["--server-id=1"] if mysql else ["--binlog-row-metadata=NO_LOG"]
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/dev/shm") as folder:
        with Server(Path(folder), *own, programs=programs) as server:
            text = "SET SESSION group_concat_max_len=1000000;\n" + "".join(
                "".join(script(f"{seed}-{n}", f"s{n}", length, mysql=mysql, capitals=capitals)) for n in range(count)
            )
            done = server.talk(text.encode(), "--force", "-N")
            expected = oracle(done.stdout.decode())
            server.ask("FLUSH BINARY LOGS")
        return compared(next(Path(folder).rglob("bin.000001")), expected)


BEFORE = 6
"""Statements that stand before the log of `run_behind`."""


def run_behind(seed: int, count: int, tree: str | None, *, schema: bool) -> Answer:
    """Runs sequences whose first statements are not in the log, and compares it. schema: what SHOW CREATE TABLE says
    where the log begins is given as --schema."""
    programs = None if tree is None else programs_of(tree)
    mysql = programs is not None and programs.mysql
    own = ["--log-bin=bin", "--binlog-format=ROW", "--skip-networking"]
    own += ["--server-id=1"] if mysql else ["--binlog-row-metadata=NO_LOG"]
    size = 1 + BEFORE * (1 + len(TABLES))
    chunks = [list(script(f"{seed}-{n}", f"s{n}", 16, mysql=mysql)) for n in range(count)]
    setting = "SET SESSION group_concat_max_len=1000000;\n"
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/dev/shm") as folder:
        with Server(Path(folder), *own, programs=programs) as server:
            server.talk((setting + "".join("".join(one[:size]) for one in chunks)).encode(), "--force", "-N")
            known = Path(folder) / "schema.sql"
            known.write_text(definitions(server))
            assert server.run(b"RESET BINARY LOGS AND GTIDS" if mysql else b"RESET MASTER") == ""
            later = "".join(f"USE s{n};\nSET @mode=@@sql_mode;\n" + "".join(one[size:]) for n, one in enumerate(chunks))
            done = server.talk((setting + later).encode(), "--force", "-N")
            server.ask("FLUSH BINARY LOGS")
        log = next(Path(folder).rglob("bin.000001"))
        return compared(log, oracle(done.stdout.decode()), *(("--schema", str(known)) if schema else ()))


def definitions(server: Server) -> str:
    """SHOW CREATE TABLE of all tables."""
    found = []
    where = "table_schema LIKE 's%' AND table_schema <> 'sys' AND table_type <> 'VIEW'"
    for line in server.ask(
        f"SELECT table_schema, table_name FROM information_schema.tables WHERE {where}"
    ).splitlines():
        home, name = line.split("\t")
        shown = server.talk(f"SHOW CREATE TABLE `{home}`.`{name}`".encode(), "-N", "-r").stdout.decode()
        found.append(f"USE `{home}`;\n{shown.split(chr(9), 1)[1]};\n")
    return "".join(found)


if __name__ == "__main__":
    flags = [word for word in sys.argv[1:] if word in ("--capitals", "--schema", "--none")]
    words = [word for word in sys.argv[1:] if word not in flags]
    tree = words[2] if len(words) > 2 and words[2] != "-" else None
    if "--schema" in flags or "--none" in flags:
        answer = run_behind(int(words[0]), int(words[1]), tree, schema="--schema" in flags)
    else:
        answer = run(int(words[0]), int(words[1]), tree, 16, *words[3:], capitals="--capitals" in flags)
    print(f"right {answer.right}, unknown {answer.unknown}, wrong {len(answer.wrong)}")
    print(*answer.wrong[:12], sep="\n")
    print("--- unknown", *answer.unknown_after[:12], sep="\n")
