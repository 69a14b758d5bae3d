"""Some transactions of a real server taken back, beside later changes of other rows and columns (seeded).

    python -m tests.formats.mysql_binlog.undo_round_trips SERVER FIRST COUNT

The server says what its tables hold after each transaction; from these answers alone follows what they must hold when
only the chosen transactions are taken back, and whether later ones changed the same rows.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from binlogtool import convert
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import BinlogtoolError
from binlogtool.format_api.format import Hints
from tests.formats.mysql_binlog.server import Server
from tests.formats.mysql_binlog.workloads import Pair, pair

TRANSACTIONS = 8
START = 2_000_000_000
"""The time of the first transaction of seed 0; each has a minute of its own. A server's events about itself can have
the time of an earlier trip: those of a later one come later."""
SECONDS = 60 * (TRANSACTIONS + 1)

KEYS = {
    "none": ("", ()),
    "id": (", PRIMARY KEY (id)", ("id",)),
    "pair": (", PRIMARY KEY (id, name)", ("id", "name")),
    "name": (", PRIMARY KEY (name)", ("name",)),
    "unique": (", UNIQUE KEY (id)", ("id",)),
    "three": (", PRIMARY KEY (name, n3, id)", ("name", "n3", "id")),
    "nullable": (", UNIQUE KEY (nk)", ()),
}
"""Name -> definition, and the columns that identify a row: none where the key is missing or its values may be NULL."""

KEY_COLUMNS = {
    "three": ("n3", "INT UNSIGNED NOT NULL", lambda r: str(r.randrange(2**32))),
    "nullable": ("nk", "BIGINT", lambda r: str(r.randrange(-(2**60), 2**60))),
}
"""Key -> one more column that it needs: name, type, value."""

COLUMNS = {
    "n": ("INT", lambda r: str(r.randrange(-99, 99))),
    "price": ("DECIMAL(9,2)", lambda r: f"{r.randrange(99999) / 100:.2f}"),
    "f": ("FLOAT", lambda r: repr(r.choice((0.5, 1.25, -3.0, 1e10)))),
    "d": ("DOUBLE", lambda r: repr(r.choice((0.1, -2.5e-7, 1e300)))),
    "note": ("TEXT", lambda r: "'" + r.choice(("a", "A", "ä", "it''s", "", "zz  ")) + "'"),
    "b": ("VARBINARY(20)", lambda r: f"X'{r.randbytes(r.randrange(5)).hex()}'"),
    "e": ("ENUM('x','y','z')", lambda r: f"'{r.choice('xyz')}'"),
    "at": ("DATETIME(3)", lambda r: f"'2024-0{r.randrange(1, 9)}-11 12:13:14.{r.randrange(999):03}'"),
    "stamp": (
        "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP",
        lambda r: f"'2023-01-0{r.randrange(1, 9)} 01:02:03'",
    ),
    "j": ("JSON", lambda r: f'\'{{"a": {r.randrange(9)}, "b": [1, "{"x" * r.randrange(60)}"]}}\''),
    "bits": ("BIT(9)", lambda r: f"b'{r.randrange(511):b}'"),
    "u": ("BIGINT UNSIGNED", lambda r: str(r.choice((0, 1, 2**63, 2**64 - 1, r.randrange(2**64))))),
    "tiny": ("TINYINT UNSIGNED", lambda r: str(r.randrange(256))),
    "medium": ("MEDIUMINT", lambda r: str(r.randrange(-(2**23), 2**23))),
    "wide": ("DECIMAL(38,10)", lambda r: f"{r.randrange(-(10**28), 10**28)}.{r.randrange(10**10):010}"),
    "s": ("SET('a','b','c d','é')", lambda r: r.choice(("''", "'a'", "'a,c d'", "'b,é'"))),
    "t": ("TIME(6)", lambda r: f"'{r.choice(('', '-'))}{r.randrange(838)}:01:59.{r.randrange(10**6):06}'"),
    "t2": ("TIME(2)", lambda r: f"'{r.choice(('', '-'))}00:00:00.{r.randrange(100):02}'"),
    "ts": ("TIMESTAMP(6) NULL", lambda r: f"'2023-01-0{r.randrange(1, 9)} 01:02:03.{r.randrange(10**6):06}'"),
    "y": ("YEAR", lambda r: str(r.choice((0, 1901, 2155, 2024)))),
    "fixed": ("BINARY(8)", lambda r: f"X'{r.randbytes(r.randrange(5)).hex()}'"),
    "blob_": ("LONGBLOB", lambda r: f"X'{r.randbytes(r.randrange(400)).hex()}'"),
    "latin": ("VARCHAR(300) CHARACTER SET latin1", lambda r: r.choice(("'é'", "'ÿ ß'", "''", "'a\\\\b'"))),
    "gbk": ("CHAR(20) CHARACTER SET gbk", lambda r: r.choice(("'中'", "'誠'", "'a\\nb'"))),
    "wide_text": ("MEDIUMTEXT CHARACTER SET utf16", lambda r: r.choice(("'é'", "'𝄞x'", "'\\0'"))),
    "stored_": ("BIGINT GENERATED ALWAYS AS (id * 2 + 1) STORED", lambda r: "DEFAULT"),
    "virtual_": ("BIGINT GENERATED ALWAYS AS (id * 3 + 1) VIRTUAL", lambda r: "DEFAULT"),
}
NOT_NULL = ("stamp", "stored_", "virtual_", "n3")
"""Columns that no statement sets to NULL."""

TYPES = {**COLUMNS, **{name: (type_, value) for name, type_, value in KEY_COLUMNS.values()}}
SHOWN = {
    **{name: f"HEX({name})" for name in ("b", "note", "name", "fixed", "blob_", "latin", "gbk", "wide_text")},
    "bits": "bits+0",
}
State = dict[tuple[str, ...], tuple[str, ...]]


@dataclass
class Table:
    """A table of one round trip. live: the keys (id, name) of its rows, as far as the script goes."""

    name: str
    key: str
    columns: list[str]
    live: list[tuple[int, str]] = field(default_factory=list)
    made: int = 0

    @property
    def display_name(self) -> list[str]:
        return ["id", "name", *self.columns]

    @property
    def identity(self) -> tuple[str, ...]:
        return KEYS[self.key][1]

    def definition(self) -> str:
        columns = "".join(f", {name} {TYPES[name][0]}" for name in self.columns)
        own = "id INT NOT NULL, name VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
        return f"CREATE TABLE r.{self.name} ({own}{columns}{KEYS[self.key][0]})"

    def insert(self, r: random.Random) -> str:
        self.made += 1
        row = (self.made, f"k{self.made}" if self.key == "name" else r.choice(("p", "q", "Q")) + str(self.made % 3))
        self.live.append(row)
        values = [_value(r, name) for name in self.columns]
        return f"INSERT INTO r.{self.name} VALUES ({row[0]}, '{row[1]}'{''.join(', ' + v for v in values)})"

    def update(self, r: random.Random) -> str:
        names = r.sample(self.columns, r.randrange(1, min(3, len(self.columns)) + 1))
        sets = [f"{name}={_value(r, name)}" for name in names]
        if "j" in names and r.random() < 0.7:
            sets[names.index("j")] = f"j=JSON_SET(j, '$.a', {r.randrange(100, 199)})"
        rows = r.sample(self.live, min(len(self.live), 1 if "nk" in names else r.choice((1, 1, 2))))
        if r.random() < 0.15 and self.live:
            self.made += 1
            rows = rows[:1]
            self.live[self.live.index(rows[0])] = (self.made, rows[0][1])
            sets.append(f"id={self.made}")
        return f"UPDATE r.{self.name} SET {', '.join(sets)} WHERE id IN ({', '.join(str(row[0]) for row in rows)})"

    def delete(self, r: random.Random) -> str:
        row = self.live.pop(r.randrange(len(self.live)))
        return f"DELETE FROM r.{self.name} WHERE id={row[0]}"

    def change(self, r: random.Random) -> str:
        if not self.live or r.random() < 0.25:
            return self.insert(r)
        return self.update(r) if r.random() < 0.75 else self.delete(r)


def _value(r: random.Random, name: str) -> str:
    return TYPES[name][1](r) if r.random() > 0.2 or name in NOT_NULL else "NULL"


@dataclass
class Trip:
    """What came of one round trip. outcome: exact, reported, refused, or what is wrong."""

    seed: int
    outcome: str
    detail: str = ""


def _query(table: Table) -> str:
    columns = ", ".join(f"IFNULL({SHOWN.get(name, name)}, 'NULL')" for name in table.display_name)
    return f"SELECT 'row', '{table.name}', {columns} FROM r.{table.name}"


def _states(lines: list[str], tables: list[Table]) -> dict[str, Counter[tuple[str, ...]]]:
    found: dict[str, Counter[tuple[str, ...]]] = {table.name: Counter() for table in tables}
    for line in lines:
        kind, name, *values = line.split("\t")
        if kind == "row":
            found[name][tuple(values)] += 1
    return found


def _keyed(rows: Counter[tuple[str, ...]], table: Table) -> State:
    places = [table.display_name.index(name) for name in table.identity]
    return {tuple(row[place] for place in places): row for row in rows}


def expected(
    table: Table, states: list[Counter[tuple[str, ...]]], chosen: list[int]
) -> Counter[tuple[str, ...]] | None:
    """The rows behind the undo of the chosen transactions, the last one first; None = they are not there any more."""
    if not table.identity:
        rows = states[-1].copy()
        for number in reversed(chosen):
            rows.subtract(states[number + 1] - states[number])
            rows.update(states[number] - states[number + 1])
            if min(rows.values(), default=0) < 0:
                return None
        return +rows
    now = _keyed(states[-1], table)
    for number in reversed(chosen):
        before, after = _keyed(states[number], table), _keyed(states[number + 1], table)
        for key in before.keys() | after.keys():
            old, new, row = before.get(key), after.get(key), now.get(key)
            if old == new:
                continue
            if (new is not None and row is None) or (new is None and row is not None):
                return None
            if old is None:
                del now[key]
            elif new is None or row is None:
                now[key] = old
            else:
                now[key] = tuple(o if o != n else r for o, n, r in zip(old, new, row, strict=True))
    return Counter(now.values())


def is_disturbed(table: Table, states: list[Counter[tuple[str, ...]]], chosen: list[int], *, whole: bool) -> bool:
    """Did a later transaction, not a chosen one, change what a chosen one did? whole: any column of the same row."""
    touched: dict[tuple[str, ...], set[str]] = {}
    for number in range(len(states) - 1):
        if not table.identity:
            rows = (states[number] - states[number + 1]).keys() | (states[number + 1] - states[number]).keys()
            changes = {row: {"*"} for row in rows}
        else:
            before, after = _keyed(states[number], table), _keyed(states[number + 1], table)
            changes = {}
            for key in before.keys() | after.keys():
                old, new = before.get(key), after.get(key)
                if old != new:
                    pairs = zip(table.display_name, old, new, strict=True) if old and new and not whole else ()
                    changes[key] = {name for name, o, n in pairs if o != n} or {"*"}
        for key, names in changes.items():
            if number in chosen:
                touched.setdefault(key, set()).update(names)
            elif key in touched and (touched[key] & names or "*" in touched[key] | names):
                return True
    return False


def images(servers: Pair, r: random.Random) -> tuple[str, dict[str, str]]:
    """How rows are logged: binlog_row_image and more settings."""
    kinds = ["FULL"] * 6 + ["MINIMAL", "NOBLOB"]
    if servers.programs.mysql:
        more = {"binlog_row_value_options": r.choice(("''", "'PARTIAL_JSON'"))}
    else:
        more = {"log_bin_compress": r.choice("01"), "log_bin_compress_min_len": "10"}
        kinds += ["FULL_NODUP"] * 6 if "11.8" in servers.name else []
    return r.choice(kinds), {**more, "binlog_row_metadata": r.choice(("MINIMAL", "FULL"))}


def _selection(r: random.Random, seed: int, gtids: list[str], places: list[int]) -> tuple[list[int], Selection, str]:
    """Which transactions, and how they are chosen. gtids: the last one before all of them, and behind each."""
    logged = [number for number in range(TRANSACTIONS) if gtids[number + 1] != gtids[number]]
    way, first = r.choice(("gtids", "gtids", "position", "time", "where")), r.randrange(TRANSACTIONS)
    last = r.randrange(first, TRANSACTIONS)
    chosen = list(range(first, last + 1))
    if way in ("gtids", "where"):
        chosen = sorted(r.sample(logged, r.randrange(1, 4)))  # what changes nothing is not logged
    names = [gtids[number + 1] for number in chosen]
    if way == "gtids":
        return chosen, Selection(include_gtids=",".join(names), on_damage="stop"), way
    if way == "where":
        return chosen, Selection(where=" or ".join(f"txn = '{one}'" for one in names), on_damage="stop"), way
    if way == "position":
        start, stop = str(places[first]), str(places[last + 1])
        return chosen, Selection(start=start, stop=stop, on_damage="stop"), way
    start_time, stop_time = (START + SECONDS * seed + 60 * number for number in (first, last + 1))
    return chosen, Selection(start_time=start_time * 10**6, stop_time=stop_time * 10**6, on_damage="stop"), way


def _tables(r: random.Random) -> list[Table]:
    tables = []
    for name in ("a", "b"):
        columns, key = r.sample(list(COLUMNS), r.randrange(2, 9)), r.choice(list(KEYS))
        if key in KEY_COLUMNS:
            columns.insert(r.randrange(len(columns) + 1), KEY_COLUMNS[key][0])
        tables.append(Table(name, key, columns))
    return tables


def _script(r: random.Random, seed: int, tables: list[Table], server: Server, settings: str) -> str:
    status = "SHOW BINARY LOG STATUS" if server.mysql else "SHOW MASTER STATUS"
    gtid = "SELECT 'gtid', @@GLOBAL.gtid_executed" if server.mysql else "SELECT 'gtid', @@GLOBAL.gtid_binlog_pos"
    looks = "; ".join([gtid, status, *map(_query, tables), "SELECT 'end'"])
    made = [f"CREATE DATABASE r; SET NAMES utf8mb4; SET time_zone='+00:00'; {settings}"]
    made += [table.definition() for table in tables]
    made += [table.insert(r) for table in tables for _ in range(6)]
    made += ["FLUSH BINARY LOGS", looks]
    for number in range(TRANSACTIONS):
        changes = [r.choice(tables).change(r) for _ in range(r.randrange(1, 4))]
        made += [f"SET TIMESTAMP={START + SECONDS * seed + 60 * number}", "BEGIN", *changes, "COMMIT", looks]
    return ";\n".join(made)


def trip(servers: Pair, seed: int) -> Trip:
    """One round trip."""
    r, server = random.Random(seed), servers.logging
    servers.clean(server)
    tables, (image, more) = _tables(r), images(servers, r)
    settings = f"SET SESSION binlog_format=ROW, SESSION binlog_row_image={image}; " + "; ".join(
        f"SET GLOBAL {k}={v}" for k, v in more.items()
    )
    settings += f"; SET SESSION binlog_row_value_options={more['binlog_row_value_options']}" if server.mysql else ""
    done = server.talk(_script(r, seed, tables, server, settings).encode(), "-N", "-B")
    assert done.stderr == b"", done.stderr
    looks = [part.splitlines() for part in done.stdout.decode().split("end\n")[:-1]]
    assert len(looks) == TRANSACTIONS + 1, done.stdout[-500:]
    found = [_states(lines, tables) for lines in looks]
    place = [next(line.split("\t") for line in lines if line.startswith("bin.")) for lines in looks]
    gtids = [_gtid(lines, mysql=server.mysql) for lines in looks]
    chosen, selection, way = _selection(r, seed, gtids, [int(one[1]) for one in place])
    rows = r.choice(("exact", "statements"))
    declared = rows == "statements" or more["binlog_row_metadata"] == "FULL" or r.random() < 0.7
    hints = Hints(schema=";".join(table.definition() for table in tables)) if declared else None
    about = f"{way} {rows} {image} {more} {chosen} {[(t.key, t.columns) for t in tables]}"
    out = Path(tempfile.mkdtemp(dir=servers.home)) / "undo.sql"
    assert server.run(b"FLUSH BINARY LOGS") == ""
    try:
        manifest = convert([server.data / place[0][0]], "flashback", out, selection=selection, rows=rows, hints=hints)
    except BinlogtoolError as error:
        return Trip(seed, "error", f"{error}; {about}")
    states = {table.name: [one[table.name] for one in found] for table in tables}
    disturbed = any(
        is_disturbed(
            table, states[table.name], chosen, whole=rows == "exact" or (not declared and bool(table.identity))
        )
        for table in tables
    )
    if not manifest.complete:
        refusable = image in ("MINIMAL", "NOBLOB") or more.get("binlog_row_value_options") == "'PARTIAL_JSON'"
        return Trip(seed, "refused" if refusable else "wrongly refused", f"{manifest.findings}; {about}")
    if "changed-later" in manifest.finding_counts:
        return Trip(seed, "reported" if disturbed else "needless report", f"{manifest.findings}; {about}")
    said = server.run(out.read_bytes())
    now = _states(server.talk("; ".join(map(_query, tables)).encode(), "-N", "-B").stdout.decode().splitlines(), tables)
    for table in tables:
        wanted = expected(table, states[table.name], chosen)
        if wanted is None or now[table.name] != wanted:
            missing, more_rows = (wanted or Counter()) - now[table.name], now[table.name] - (wanted or Counter())
            return Trip(seed, "WRONG", f"{table.name}: lacks {missing}, has {more_rows}; {said}; {about}")
    return Trip(seed, "exact" if not said else "client error", f"{said}; {about}")


def _gtid(lines: list[str], *, mysql: bool) -> str:
    """The last transaction: MySQL says a set "uuid:1-9"."""
    text = next(line.split("\t")[1] for line in lines if line.startswith("gtid\t"))
    if not mysql:
        return text
    source, _, numbers = text.partition(":")
    return f"{source}:{numbers.rpartition('-')[2]}"


def trips(servers: Pair, seeds: range) -> list[Trip]:
    """Many round trips."""
    return [trip(servers, seed) for seed in seeds]


BAD = ("WRONG", "client error", "wrongly refused", "needless report", "error")


def main() -> None:
    """Runs round trips, and prints what is wrong and how often what came of them."""
    parser = argparse.ArgumentParser(description="Undo of some transactions on real servers.")
    parser.add_argument("server")
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/dev/shm") as folder, ExitStack() as stack:
        servers = pair(given.server, Path(folder), stack)
        assert servers is not None, f"{given.server} is not here"
        counts = Counter[str]()
        for seed in range(given.first, given.first + given.count):
            found = trip(servers, seed)
            counts[found.outcome] += 1
            if found.outcome in BAD:
                print(found.seed, found.outcome, found.detail[:700], flush=True)
        print(given.server, dict(counts))


if __name__ == "__main__":
    main()
