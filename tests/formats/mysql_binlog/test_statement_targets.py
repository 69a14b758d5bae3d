"""The one table that a statement changes, where it is plain to see; nothing where another one may be changed, too."""

from __future__ import annotations

import pytest

from binlogtool.formats.binlog_events.ddl.changed_table import find_changed_table
from binlogtool.formats.binlog_events.ddl.parse_ddl import parse_ddl


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("INSERT INTO t VALUES (1, 'f(2)')", "d.t"),
        ("insert low_priority into other.t (a, b) select a, max(b) from u", "other.t"),
        ("REPLACE t SET a = concat('x', lower(b))", "d.t"),
        ("UPDATE t AS x SET a = 1 WHERE b IN (2, 3)", "d.t"),
        ("DELETE FROM `x.y` WHERE a = (b + 1)", "d.`x.y`"),
        ("LOAD DATA LOCAL INFILE 'f' INTO TABLE t", "d.t"),
        ("CREATE TABLE t SELECT a FROM u", "d.t"),
    ],
)
def test_the_table_is_told(sql: str, name: str) -> None:
    assert find_changed_table(parse_ddl(sql, "d")) == name


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE t, u SET t.a = 1",
        "UPDATE t JOIN u ON t.a = u.a SET t.a = 1",
        "DELETE t, u FROM t JOIN u USING (a)",
        "DELETE FROM t USING t JOIN u USING (a)",
        "CALL p()",
        "INSERT INTO t VALUES ('not closed)",
        "",
    ],
)
def test_several_tables_and_procedures_are_not_one_table(sql: str) -> None:
    assert find_changed_table(parse_ddl(sql, "d")) is None


@pytest.mark.parametrize("name", ["f", "_f", "$f", "2f", "été", "`a b`", "d2.f", "_d.`f`"])
@pytest.mark.parametrize(
    "sql", ["INSERT INTO t VALUES ({})", "UPDATE t SET a = 1 + {}", "DELETE FROM t WHERE {} > 0", "REPLACE t SELECT {}"]
)
def test_a_function_that_may_be_a_stored_one_may_change_any_table(sql: str, name: str) -> None:
    assert find_changed_table(parse_ddl(sql.format(f"{name}(1)"), "d")) is None
    assert find_changed_table(parse_ddl(sql.format(f"{name} /* no */ (1)"), "d")) is None
