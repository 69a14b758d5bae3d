"""What the DDL of a log says of its tables' columns, keys and triggers. Expected values are written out."""

from __future__ import annotations

import pytest

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.column_definitions import TableDefinition
from binlogtool.formats.binlog_events.ddl.parse_ddl import parse_ddl
from binlogtool.formats.binlog_events.ddl.split_sql_statements import (
    ANSI_QUOTES,
    NO_BACKSLASH_ESCAPES,
    rewrite_to_default_quotes,
)
from binlogtool.formats.binlog_events.ddl.table_definitions import DdlStatement, TableDefinitions
from binlogtool.formats.binlog_events.ddl.table_dependencies import Triggers
from binlogtool.formats.binlog_events.ddl.table_history import TableCatalog, TableHistory
from binlogtool.formats.binlog_events.event_schemas import QueryParts
from binlogtool.formats.binlog_events.rows.table_map import parse_table_map
from binlogtool.formats.binlog_events.values.column_types import ColumnType
from binlogtool.formats.binlog_events.wire_format import parse_format_description
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import optional, sized, table_map_body

FIRST = "create table t (id int unsigned primary key, a varchar(9) charset latin1, g int as (id + 1) stored)"


def get_definition(known: TableDefinitions, name: str) -> TableDefinition | None:
    """The definition of a table; None if nothing declares it. Raises UsageError: its columns are uncertain."""
    state = known.get_definition_or_reason(name)
    if isinstance(state, str) and state:
        raise UsageError(state)
    return None if isinstance(state, str) else state


def columns(*statements: str, table: str = "d.t") -> list[tuple[str | None, bool | None]] | None:
    """(name, generated) of each column behind these statements."""
    known = TableDefinitions()
    for statement in statements:
        known.apply_statement(DdlStatement("d", statement))
    found = get_definition(known, table)
    return None if found is None else [(column.name, column.generated) for column in found.columns]


def key(*statements: str) -> tuple[tuple[str, int], ...]:
    known = TableDefinitions()
    for statement in statements:
        known.apply_statement(DdlStatement("d", statement))
    found = get_definition(known, "d.t")
    assert found is not None
    return found.key


OLD = [("id", False), ("a", False), ("g", True)]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("alter table t add column b int", [*OLD, ("b", False)]),
        ("alter table t add b int first, add c int after id", [("b", False), ("id", False), ("c", False), *OLD[1:]]),
        ("alter table t add (b int, c int generated always as (b) virtual)", [*OLD, ("b", False), ("c", True)]),
        ("alter table d.t drop column g, drop primary key, drop index x", OLD[:2]),
        ("alter table t drop if exists nothing", OLD),
        ("alter table t modify g int", [*OLD[:2], ("g", False)]),
        ("alter table t modify column g int first", [("g", False), *OLD[:2]]),
        ("alter table t change a `a b` text after g", [OLD[0], OLD[2], ("a b", False)]),
        ("alter table t rename column a to z, rename index i to j", [OLD[0], ("z", False), OLD[2]]),
        ("alter table t add column if not exists a int, add index (a), add constraint c check (id > 0)", OLD),
        ("alter table t engine=innodb, comment='add column x int', auto_increment=5, order by a", OLD),
        ("alter table t add system versioning", [*OLD, ("row_start", True), ("row_end", True)]),
        ("alter table t alter column a set default 'x', alter a drop default", OLD),
        ("alter table t partition by hash (id) partitions 3", OLD),
        ("alter online table t add b int /* , drop a */ -- , drop id", [*OLD, ("b", False)]),
        ("alter table other drop column a", OLD),
        ("alter table t convert to character set utf8mb4", OLD),
        ("truncate table t", OLD),
        ("create table if not exists t (other int)", OLD),
        ("create or replace table t (other int)", [("other", False)]),
        ("drop table if exists x, t", None),
        ("drop database d", None),
        ("rename table t to u, u to x.t", None),
    ],
)
def test_a_definition_follows_a_statement(statement: str, expected: list[tuple[str, bool]] | None) -> None:
    assert columns(FIRST, statement) == expected


def test_a_definition_keeps_its_name_through_renames_and_copies() -> None:
    assert columns(FIRST, "rename table t to u, u to x.v", table="x.v") == OLD
    assert columns(FIRST, "alter table t rename to u, drop column g", table="d.u") == OLD[:2]
    assert columns(FIRST, "create table c like t", table="d.c") == OLD


def test_a_column_goes_before_hidden_times_of_rows() -> None:
    found = columns(
        FIRST + " with system versioning", "alter table t add b int", "alter table t drop system versioning"
    )
    assert found == [*OLD, ("b", False)]


@pytest.mark.parametrize(
    "statement",
    ["alter table t no such clause", "alter table t modify nothing int", "create or replace table t select 1"],
)
def test_what_cannot_be_followed_is_no_longer_known(statement: str) -> None:
    with pytest.raises(UsageError, match=r"fit the table's definition|does not declare all of its columns"):
        columns(FIRST, statement)


def test_keys_follow_their_columns() -> None:
    assert key(FIRST) == (("id", 0),)
    assert key(FIRST, "alter table t drop primary key, add primary key (a(3), id)") == (("a", 3), ("id", 0))
    assert key(FIRST, "alter table t change id number bigint") == (("number", 0),)
    assert key(FIRST, "alter table t rename column id to n") == (("n", 0),)
    assert key(FIRST, "alter table t drop primary key") == ()


def test_new_columns_take_the_character_set_of_their_table() -> None:
    known = TableDefinitions()
    known.apply_statement(DdlStatement("d", "create table t (a text) default charset latin2"))
    known.apply_statement(DdlStatement("d", "alter table t add b text"))
    known.apply_statement(DdlStatement("d", "alter table t default character set = greek, add c text"))
    found = get_definition(known, "d.t")
    assert found is not None and [column.charset for column in found.columns] == ["latin2", "latin2", "greek"]


IN_D = QueryParts(0, 0, 0, b"", b"d", b"")
TRIGGER = "create definer=`r``oot`@`%` trigger if not exists tr before insert on t for each row set @x=1"


@pytest.mark.parametrize(
    ("statement", "table", "expected"),
    [
        ("flush tables", "d.t", ["d.tr"]), ("drop trigger tr", "d.t", []), ("drop trigger if exists d.tr", "d.t", []),
        ("drop table t", "d.t", []), ("drop database d", "d.t", []), ("rename table t to u", "d.u", ["d.tr"]),
        ("alter table t rename x.u", "x.u", ["d.tr"]), ("drop table other", "d.t", ["d.tr"]),
    ],
)  # fmt: skip
def test_triggers_are_known_as_long_as_they_are_there(statement: str, table: str, expected: list[str]) -> None:
    known = TableCatalog()
    known.apply_statement(TRIGGER.encode(), IN_D)
    known.apply_statement(statement.encode(), IN_D)
    assert known.triggers.list_triggers(table) == expected


def test_a_word_inside_of_a_trigger_is_not_its_table() -> None:
    known = Triggers()
    known.apply_statement(
        parse_ddl("create trigger a after delete on `t``1` for each row insert into on_t values (1)", "d")
    )
    assert known.tables == {"d.a": "d.t`1"}


PLAIN = parse_table_map(table_map_body(bytes([ColumnType.LONG, ColumnType.VARCHAR, ColumnType.LONG]), b"\x09\0"))
NAMES = optional(4, sized(b"ID") + sized(b"a") + sized(b"g"))
NAMED = parse_table_map(table_map_body(bytes([ColumnType.LONG, ColumnType.VARCHAR, ColumnType.LONG]), b"\x09\0", NAMES))


ORACLE = b"\x01" + (ANSI_QUOTES | NO_BACKSLASH_ESCAPES).to_bytes(8, "little")
"""A status variable: sql_mode."""


@pytest.mark.parametrize(
    ("written", "usual"),
    [
        ("""CREATE TABLE "a""b`c" (x INT)""", """CREATE TABLE `a"b``c` (x INT)"""),
        (r"""SELECT 'x\', "it's", 'say "y"' -- "no" \
""", r"""SELECT 'x\\', `it's`, 'say "y"' -- "no" \
"""),
        ("""SELECT `a"b`, 'it''s' /* " ' */, "c" """, """SELECT `a"b`, 'it''s' /* " ' */, `c` """),
    ],
)  # fmt: skip
def test_a_statement_in_another_mode_is_read_as_if_it_was_in_the_usual_one(written: str, usual: str) -> None:
    assert rewrite_to_default_quotes(written, ANSI_QUOTES | NO_BACKSLASH_ESCAPES) == usual
    assert rewrite_to_default_quotes(written, 0) == written


def test_backslashes_escape_where_only_quotation_marks_are_names() -> None:
    assert rewrite_to_default_quotes(r"""SELECT '\'"', "a" """, ANSI_QUOTES) == r"""SELECT '\'"', `a` """
    assert rewrite_to_default_quotes(r"""SELECT "x\", 'y\'""", NO_BACKSLASH_ESCAPES) == r"""SELECT "x\\", 'y\\'"""


def test_a_table_between_quotation_marks_is_declared() -> None:
    known = TableCatalog()
    known.apply_statement(
        rb"""CREATE TABLE "t" (id INT DEFAULT '\', "a" TEXT, g INT AS (id + 1))""", IN_D._replace(status_vars=ORACLE)
    )
    definition = get_definition(known.history.get_definitions(), "d.t")
    assert definition is not None
    assert [(one.name, one.generated) for one in definition.columns] == [("id", False), ("a", False), ("g", True)]


def knowledge(*statements: str, schema: str | None = None) -> TableCatalog:
    known = TableCatalog()
    known.load_starting_definitions(TableHistory(schema))
    for statement in statements:
        known.apply_statement(statement.encode(), IN_D._replace(db=b"db"))
    return known


def test_columns_without_names_get_those_of_the_definition() -> None:
    found = knowledge(FIRST).history.complete_table_map(PLAIN)
    assert [(c.name, c.generated, c.unsigned) for c in found.columns] == [
        ("id", False, True),
        ("a", False, None),
        ("g", True, False),
    ]
    assert found.primary_key == ((0, 0),)


def test_columns_with_names_are_looked_up_by_them() -> None:
    found = knowledge("create table t (g int as (id) stored, a varchar(9), id int)").add_known_column_facts(NAMED)
    assert [(c.name, c.generated) for c in found.columns] == [("ID", False), ("a", False), ("g", True)]


def test_a_schema_is_followed_through_the_statements_of_the_log() -> None:
    schema = f"use db; {FIRST}; create trigger x after insert on t for each row set @a=1;"
    known = knowledge("alter table t modify g int", schema=schema)
    assert [c.generated for c in known.add_known_column_facts(NAMED).columns] == [False, False, False]
    assert known.triggers.list_triggers("db.t") == ["db.x"]


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        (("create table t (id int, a text, g int) with system versioning",), True),
        (("create table t (id int, a text with system versioning, g int)",), True),
        (("create table t (id int, a text, g int)", "alter table t add system versioning"), True),
        (
            ("create table t (id int, a text, g int) with system versioning", "alter table t drop system versioning"),
            False,
        ),
        (("create table t (id int, a text, g int) comment 'WITH SYSTEM VERSIONING'",), False),
    ],
)
def test_the_history_of_rows_cannot_be_said_in_statements(statements: tuple[str, ...], told: bool) -> None:
    known = knowledge(*statements)
    doubt = known.explain_why_not_as_statements(
        known.add_known_column_facts(NAMED), parse_format_description(make.description())
    )
    assert (doubt == "the table is system-versioned, and no statement can set the times of its rows") == told


def test_a_sequence_is_one_until_a_table_is_called_so() -> None:
    known = knowledge("create or replace sequence if not exists T start 1", "alter sequence other.s restart 5")
    assert known.history.get_definitions().sequences == {"db.T", "other.s"}
    assert known.is_sequence(parse_table_map(table_map_body(b"\x08", table=b"T")))
    known.apply_statement(b"create table T (id int)", IN_D._replace(db=b"db"))
    assert not known.is_sequence(parse_table_map(table_map_body(b"\x08", table=b"T")))
