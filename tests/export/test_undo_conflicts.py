"""An undo of some transactions reports rows that others changed later; statements set only what was changed.

The logs are of MariaDB 10.11 (changed-later, one-column), 11.8 (full-nodup) and MySQL 9.7 (partial-json); cascades-*
of MariaDB 10.11, and of MySQL 9.7 with innodb_native_foreign_keys ON (native) and OFF (sql).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from binlogtool import convert
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.format_api.format import Hints
from tests.cli.invoke import invoke

LOGS = Path(__file__).parent.parent / "corpus" / "mysql_binlog" / "undo"
LATER = str(LOGS / "changed-later.000016")


def undo(*options: str, out: Path) -> tuple[int, str]:
    """The status and the text of a command."""
    done = invoke("flashback", *options, "-o", str(out))
    return done.code, done.text


@pytest.mark.parametrize("rows", ["exact", "statements"])
@pytest.mark.parametrize(
    "selection",
    [
        ("--include-gtids", "0-1-7794"),
        ("--where", "txn = '0-1-7794'"),
        ("--xid", "0-1-7794"),
        ("--start-position", "834", "--stop-position", "1105"),
        ("--start-position", "gtid:0-1-7793", "--stop-position", "gtid:0-1-7794"),
        ("--exclude-gtids", "0-1-7795,0-1-7796,0-1-7792,0-1-7793"),
    ],
)
def test_later_changes_are_reported_however_the_transaction_is_chosen(
    selection: tuple[str, ...], rows: str, tmp_path: Path
) -> None:
    code, text = undo(*selection, "--rows", rows, LATER, out=tmp_path / "u.sql")
    assert code == 1
    assert (
        "shop.acc: 2 rows were changed again later by changes that are not selected: "
        "id=2 (UPDATE by transaction 0-1-7795" in text
    )
    assert "id=3 (DELETE by transaction 0-1-7796" in text


def test_a_whole_log_has_no_later_changes(tmp_path: Path) -> None:
    code, text = undo("--start-position", "gtid:0-1-7793", LATER, out=tmp_path / "u.sql")
    assert (code, "changed again" in text) == (0, False)
    assert "wrote" in text


def test_later_logs_are_looked_at_behind_the_selection(tmp_path: Path) -> None:
    first, second = tmp_path / "bin.000016", tmp_path / "bin.000017"
    data = Path(LATER).read_bytes()
    first.write_bytes(data)
    second.write_bytes(data)
    where = ("--start-position", "gtid:0-1-7795", "--stop-position", "bin.000016:end")
    code, text = undo(*where, "--rows", "exact", str(first), str(second), out=tmp_path / "u.sql")
    assert code == 1
    assert "CREATE OR by transaction 0-1-7792 at bin.000017" in text


def test_an_update_sets_only_the_columns_that_changed(tmp_path: Path) -> None:
    """What the server logged: `UPDATE m SET age=…` changed one of three columns."""
    out = tmp_path / "u.sql"
    log = LOGS / "one-column.000001"
    schema = "CREATE TABLE t.m (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, age INT NOT NULL, u INT UNIQUE)"
    chosen, hints = Selection(on_damage="stop"), Hints(schema=schema)
    done = convert([log], "flashback", out, selection=chosen, rows="statements", hints=hints)
    assert done.complete
    made = [line for line in out.read_text().splitlines() if line.startswith("UPDATE")]
    images = [
        row for text in invoke("dump", "--fields", "body.rows", str(log)).text.split("\n") for row in rows_of(text)
    ]
    changed = [[name for name in row["after"] if row["before"][name] != row["after"][name]] for row in images]
    places = {"@1": "id", "@2": "age", "@3": "u"}
    named = [[places.get(name, name) for name in names] for names in changed[::-1]]
    assert [re.findall(r"`(\w+)`=", line.partition(" WHERE ")[0]) for line in made] == named
    assert [len(names) for names in named].count(1) > 3


def rows_of(text: str) -> list[dict[str, dict[str, int]]]:
    """The updated rows of a line."""
    return [row for row in json.loads(text) if len(row) == 2] if text.startswith("[") else []


def test_changes_inside_of_json_are_taken_back_by_the_key_of_the_schema(tmp_path: Path) -> None:
    out, schema = tmp_path / "u.sql", tmp_path / "schema.sql"
    schema.write_text("USE t; CREATE TABLE j (id INT NOT NULL, a INT, j JSON, k JSON, PRIMARY KEY (id));")
    log = str(LOGS / "partial-json.000001")
    code, text = undo(log, out=out)
    assert (code, out.exists()) == (1, False)
    assert "its primary key is not known" in text
    for rows in ("exact", "statements"):
        code, text = undo("--schema", str(schema), "--rows", rows, "--overwrite", log, out=out)
        assert code == 0, text


@pytest.mark.parametrize("rows", ["exact", "statements"])
def test_images_after_that_hold_only_changes_are_completed(rows: str, tmp_path: Path) -> None:
    out = tmp_path / "u.sql"
    schema = Hints(
        schema="CREATE TABLE t.m (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, age INT, u INT, b BLOB, c TEXT);"
        "CREATE TABLE t.n (a INT, b INT, c VARCHAR(9))"
    )
    log = LOGS / "full-nodup.000001"
    done = convert([log], "flashback", out, selection=Selection(on_damage="stop"), rows=rows, hints=schema)
    assert done.complete and not done.finding_counts


def test_later_logs_that_are_not_given_are_named(tmp_path: Path) -> None:
    for name in ("bin.000016", "bin.000017", "bin.000018"):
        (tmp_path / name).write_bytes(Path(LATER).read_bytes())
    chosen = ("--include-gtids", "0-1-7796", "--overwrite")
    code, text = undo(*chosen, str(tmp_path / "bin.000016"), out=tmp_path / "u.sql")
    assert code == 0
    assert (
        "not checked: whether the selected rows were changed again in bin.000017 and 1 more; also name the later logs"
        in text
    )
    _, last = undo(*chosen, str(tmp_path / "bin.000018"), out=tmp_path / "u.sql")
    assert "not checked" not in last


CASCADES = {
    "mariadb": ("0-1-6", "d.c: ON DELETE CASCADE of d.p by transaction 0-1-9"),
    "mysql-native": ("85c316ba-ebbc-11f1-be02-02fc00000001:6", "d.c: ON DELETE CASCADE of d.p by transaction"),
    "mysql-sql": ("8b67c33f-ebbc-11f1-aa11-02fc00000001:6", "d.c: 1 row was changed again later"),
}
"""Log -> update of d.c, and what the second file did to it: the server deleted a row with that of d.p."""


@pytest.mark.parametrize("log", CASCADES)
def test_rows_that_a_foreign_key_changed_later_are_reported_where_the_server_followed_it(
    log: str, tmp_path: Path
) -> None:
    """After the update the first file has a DELETE with foreign_key_checks=0, and a change of d.p.n: d.c kept all."""
    first, second = (str(LOGS / f"cascades-{log}.00000{number}") for number in (1, 2))
    gtid, said = CASCADES[log]
    code, text = undo("--include-gtids", gtid, first, out=tmp_path / "first.sql")
    assert (code, "changed-later" in text) == (0, False)
    code, text = undo("--include-gtids", gtid, first, second, out=tmp_path / "both.sql")
    assert (code, said in text) == (1, True), text
