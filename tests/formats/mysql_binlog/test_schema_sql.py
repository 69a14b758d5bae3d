"""CREATE TABLE statements as hints about columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlogtool.errors import UsageError
from binlogtool.format_api.row_output_interfaces import join_schema_files
from binlogtool.formats.binlog_events.ddl.column_definitions import TableDefinition
from binlogtool.formats.binlog_events.ddl.split_sql_statements import split_statements
from binlogtool.formats.binlog_events.ddl.table_definitions import parse_schema_script
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory
from binlogtool.formats.binlog_events.rows.table_map import TableMap, parse_table_map
from binlogtool.formats.binlog_events.values.column_types import ColumnType, DeclaredColumn, LogicalType
from tests.cli.invoke import invoke
from tests.formats.mysql_binlog.row_building import table_map_body
from tests.harness.mysql_writer import MARIADB, binlog, query, rows, table_map, transaction

_C = ColumnType


def load(sql: str) -> dict[str, tuple[DeclaredColumn, ...]]:
    """The columns of each table that the statements of --schema define."""
    found = parse_schema_script(sql).tables
    return {name.removeprefix("."): one.columns for name, one in found.items() if isinstance(one, TableDefinition)}


def columns(definition: str, options: str = "") -> tuple[DeclaredColumn, ...]:
    return load(f"CREATE TABLE t ({definition}) {options};")["t"]


def one(definition: str, options: str = "") -> DeclaredColumn:
    (hint,) = columns(definition, options)
    return hint


DUMP = """\
-- MySQL dump 10.13
/*!40101 SET NAMES utf8mb4 */;
CREATE DATABASE /*!32312 IF NOT EXISTS*/ `shop` /*!40100 DEFAULT CHARACTER SET latin1 */;
USE `shop`;
DROP TABLE IF EXISTS `item`;
CREATE TABLE `item` (
  `id` bigint(20) unsigned NOT NULL AUTO_INCREMENT COMMENT 'a, b) `x`; -- no comment',
  `kind` enum('it''s','c,d','back\\\\slash') CHARACTER SET latin1 COLLATE latin1_bin DEFAULT NULL,
  `tags` set('x','y') NOT NULL DEFAULT 'x,y',
  `total` decimal(10,2) GENERATED ALWAYS AS (`id` * 2) STORED,
  `hidden` int DEFAULT '7' /*!80023 INVISIBLE */,
  PRIMARY KEY (`id`),
  UNIQUE KEY `k` (`kind`(3)) USING BTREE,
  CONSTRAINT `f` FOREIGN KEY (`id`) REFERENCES `other` (`id`) ON DELETE CASCADE,
  CHECK (`id` > 0)
) ENGINE=InnoDB AUTO_INCREMENT=5 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci
/*!50100 PARTITION BY RANGE (`id`)
(PARTITION p0 VALUES LESS THAN (10) ENGINE = InnoDB,
 PARTITION p1 VALUES LESS THAN MAXVALUE ENGINE = InnoDB) */;
LOCK TABLES `item` WRITE;
INSERT INTO `item` VALUES (1,'it\\'s; CREATE TABLE z (a int','x'),(2,NULL,'y');
UNLOCK TABLES;
DELIMITER ;;
CREATE TRIGGER tg BEFORE INSERT ON item FOR EACH ROW BEGIN CREATE TEMPORARY TABLE q; END ;;
DELIMITER ;
create table other.`odd ``name` (a int)
"""


def test_a_dump_gives_the_columns_of_its_tables() -> None:
    found = load(DUMP)
    assert list(found) == ["shop.item", "other.odd `name"]
    assert [hint.name for hint in found["shop.item"]] == ["id", "kind", "tags", "total", "hidden"]
    id_, kind, tags, total, hidden = found["shop.item"]
    assert (id_.types, id_.unsigned, id_.generated) == ({_C.LONGLONG}, True, False)
    assert (kind.values, kind.charset) == (("it's", "c,d", "back\\slash"), "latin1")
    assert (tags.types, tags.values, tags.charset) == ({_C.SET}, ("x", "y"), "utf8mb4")
    assert (total.types, total.generated, total.unsigned) == ({_C.NEWDECIMAL, _C.DECIMAL}, True, False)
    assert (hidden.types, hidden.unsigned) == ({_C.LONG}, False)


@pytest.mark.parametrize(
    ("type_", "codes"),
    [
        ("tinyint(1)", {_C.TINY}), ("bool", {_C.TINY}), ("smallint", {_C.SHORT}), ("mediumint", {_C.INT24}),
        ("integer", {_C.LONG}), ("bigint", {_C.LONGLONG}), ("float", {_C.FLOAT, _C.DOUBLE}),
        ("double precision", {_C.FLOAT, _C.DOUBLE}), ("numeric(5)", {_C.NEWDECIMAL, _C.DECIMAL}), ("bit(3)", {_C.BIT}),
        ("year", {_C.YEAR}), ("date", {_C.DATE, _C.NEWDATE}), ("time(3)", {_C.TIME, _C.TIME2}),
        ("datetime(6)", {_C.DATETIME, _C.DATETIME2}), ("timestamp", {_C.TIMESTAMP, _C.TIMESTAMP2}),
        ("point", {_C.GEOMETRY}), ("geometry not null srid 4326", {_C.GEOMETRY}),
    ],
)  # fmt: skip
def test_a_type_is_found_under_its_codes_in_the_log(type_: str, codes: set[ColumnType]) -> None:
    assert one(f"c {type_} default null").types == codes


@pytest.mark.parametrize(
    ("type_", "logical"),
    [
        ("uuid", LogicalType.UUID), ("inet4 not null", LogicalType.INET4), ("inet6", LogicalType.INET6),
        ("vector(3) not null", LogicalType.VECTOR), ("json", LogicalType.JSON), ("varchar(3)", None),
    ],
)  # fmt: skip
def test_types_that_the_log_does_not_name_come_from_the_statement(type_: str, logical: LogicalType | None) -> None:
    assert one(f"c {type_}").logical is logical


@pytest.mark.parametrize(
    ("definition", "options", "charset"),
    [
        ("c varchar(9)", "", None),
        ("c varchar(9)", "default charset=utf8mb4", "utf8mb4"),
        ("c varchar(9)", "CHARACTER SET latin1", "latin1"),
        ("c varchar(9)", "COLLATE = cp1251_general_ci", "cp1251"),
        ("c varchar(9)", "collate=utf8mb4_uca1400_ai_ci engine=InnoDB", "utf8mb4"),
        ("c varchar(9) charset utf8", "charset=latin1", "utf8mb3"),
        ("c text character set ucs2 collate ucs2_bin", "charset=latin1", "ucs2"),
        ("c varchar(9) collate utf8mb4_bin", "charset=latin1", "utf8mb4"),
        ("c varchar(9) comment 'charset ascii'", "charset=latin1 comment 'collate ascii_bin'", "latin1"),
        ("c char(3) ascii", "charset=utf8mb4", "latin1"),
        ("c national varchar(3)", "charset=latin1", "utf8mb3"),
        ("c varbinary(9)", "charset=latin1", "binary"),
        ("c blob", "charset=latin1", "binary"),
        ("c varchar(9) compressed", "charset=latin1", "latin1"),
        ("c varchar(9) charset nonsense", "charset=latin1", "latin1"),
        ("c int", "charset=latin1", None),
    ],
)
def test_the_character_set_is_the_columns_or_the_tables(definition: str, options: str, charset: str | None) -> None:
    assert one(definition, options).charset == charset


def test_numbers_say_if_they_are_unsigned() -> None:
    found = columns("a int, b int unsigned, c float zerofill, d serial, e year, f varchar(3)")
    assert [hint.unsigned for hint in found] == [False, True, True, True, None, None]


def test_generated_columns_are_marked_and_casts_are_none() -> None:
    found = columns("a int as (b+1), b int generated always as (1) virtual, c json default (cast('1' as json)), d int")
    assert [hint.generated for hint in found] == [True, True, False, False]


def test_a_versioned_table_has_two_more_columns_unless_they_are_declared() -> None:
    names = [hint.name for hint in columns("a int, b int without system versioning", "with system versioning")]
    assert names == ["a", "b", "row_start", "row_end"]
    declared = columns(
        "a int, s timestamp(6) generated always as row start, e timestamp(6) as row end, period for system_time (s, e)",
        "with system versioning",
    )
    assert [(hint.name, hint.generated) for hint in declared] == [("a", False), ("s", True), ("e", True)]


def test_an_unqualified_table_serves_every_database_unless_two_differ() -> None:
    assert TableHistory("create table t (a int);").complete_table_map(table()).column_keys == ("a",)
    assert TableHistory("create table t (a int); create table t (a int);").complete_table_map(table()).column_keys == (
        "a",
    )
    with pytest.raises(UsageError, match=r"line 1 and line 2 define the table t differently; .*USE"):
        parse_schema_script("create table t (a int);\ncreate table t (b int);")


def test_files_that_define_a_table_alike_are_joined() -> None:
    dump = "use shop;\ndrop table if exists t;\ncreate table t (a int);"
    joined = join_schema_files(
        [("all.sql", f"{dump}\nalter table t add b int;"), ("u.sql", "create table shop.u (c int)")]
    )
    assert sorted(parse_schema_script(joined).tables) == ["shop.t", "shop.u"]  # the default database ends with its file
    both = join_schema_files([("all.sql", dump), ("shop.sql", dump.replace("drop table if exists t;", ""))])
    assert [column.name for column in parse_schema_script(both).tables["shop.t"].columns] == ["a"]


@pytest.mark.parametrize("drop", ["drop table if exists t;", ""])
@pytest.mark.parametrize("create", ["create table t", "create table if not exists t", "create or replace table t"])
def test_files_that_define_a_table_differently_are_refused(drop: str, create: str) -> None:
    files = [
        ("old.sql", "\ncreate table shop.t (a int);"),
        ("new.sql", f"use shop;\n{drop}\n\n{create} (a int, b int);"),
    ]
    message = "--schema: old.sql line 2 and new.sql line 4 define the table shop.t differently; "
    with pytest.raises(UsageError) as error:
        parse_schema_script(join_schema_files(files))
    assert str(error.value) == message + "keep the definition from before the first log"


def test_a_script_may_drop_and_create_a_table_again() -> None:
    found = parse_schema_script("create table d.t (a int); drop table d.t; create table d.t (b int);").tables["d.t"]
    assert [column.name for column in found.columns] == ["b"]


def test_a_qualified_table_goes_before_an_unqualified_one() -> None:
    history = TableHistory("create table t (a int); create table db.t (b int); create table other.t (c int);")
    assert history.complete_table_map(table()).column_keys == ("b",)


def table(types: bytes = bytes([_C.LONG])) -> TableMap:
    return parse_table_map(table_map_body(types))


def test_a_table_of_another_shape_is_not_used_and_that_is_said() -> None:
    two = TableHistory("create table db.t (a int, b int)").complete_table_map(table())
    assert two.column_keys == ("@1",)
    assert two.uncertain == "--schema gives db.t 2 columns, the log 1"
    other = TableHistory("create table db.t (a date)").complete_table_map(table())
    assert other.column_keys == ("@1",)
    assert other.uncertain == "--schema gives column 1 of db.t (a) the type DATE or NEWDATE, the log LONG"
    assert TableHistory("create table db.t (a int)").complete_table_map(table()).uncertain == ""
    assert TableHistory("create table db.x (a date)").complete_table_map(table()).uncertain == ""


@pytest.mark.parametrize(
    ("sql", "line", "reason"),
    [
        ("-- one\n\ncreate table t (a int", 3, "a parenthesis is not closed"),
        ("set x=1;\ncreate table t (a)", 2, "column 'a' has no type"),
        ("create table t ()", 1, "has an empty definition"),
        ("create table t (a int,, b int)", 1, "has an empty definition"),
        ("create table t (primary key (a))", 1, "has no columns"),
        ("create table a.b.c (a int)", 1, "has no readable name"),
        ("\n\ninsert into t values ('x", 3, "quotation mark ' is not closed"),
    ],
)
def test_a_statement_that_cannot_be_understood_is_named_by_its_line(sql: str, line: int, reason: str) -> None:
    with pytest.raises(UsageError, match=f"line {line}: .*{reason}"):
        load(sql)
    with pytest.raises(UsageError, match="--schema: line"):
        TableHistory(sql).complete_table_map(table())


@pytest.mark.parametrize("sql", ["create table t like u;", "create table t (like u)", "create table t select 1"])
def test_statements_without_columns_give_none(sql: str) -> None:
    assert load(sql) == {}


@pytest.mark.parametrize("sql", ["", ";;", "alter table t add a int"])
def test_a_script_without_a_create_table_is_an_error(sql: str) -> None:
    with pytest.raises(UsageError, match="--schema: the file has no CREATE TABLE statement"):
        load(sql)


def test_the_statements_of_a_script_are_those_that_a_client_sends() -> None:
    script = "-- c\nselect ';' /* ; */, \"a;\", `b;`; # x;\ndelimiter //\nbegin; end //\ndelimiter ;\nx\n(delimiter\n);"
    assert [(s.line, s.text.split()[0]) for s in split_statements(script)] == [(2, "select"), (4, "begin;"), (6, "x")]


def test_many_quotation_marks_take_no_time() -> None:
    text = "insert into t values ('" + "\\'" * 200_000 + "');\ncreate table t (a int);" + "'x'," * 100_000
    assert list(load(text)) == ["t"]


@pytest.mark.parametrize(
    "definition",
    [
        b"a decimal(%b,%b)", b"a decimal(5,%b)", b"a datetime(%b)", b"a varchar(%b)", b"a int(%b)",
        b"a int, primary key (a(%b))", b"a int default %b", b"a bit(%b)", b"a int references x (a(%b))",
    ],
)  # fmt: skip
@pytest.mark.parametrize("words", [["dump"], ["dump", "-O", "sql", "--rows", "statements"], ["verify"]])
def test_a_definition_with_a_number_of_5000_digits_is_read(tmp_path: Path, definition: bytes, words: list[str]) -> None:
    """Servers refuse such definitions; a forged log can have them."""
    text = b"create table d.t (%b)" % definition.replace(b"%b", b"9" * 5000)
    log, schema = tmp_path / "bin.000001", tmp_path / "schema.sql"
    log.write_bytes(binlog([*transaction(query(text)), *transaction(table_map(b"\3"), rows(b"\0\1\0\0\0"))], MARIADB))
    schema.write_bytes(text + b";")
    for more in ([], ["--schema", str(schema)]):
        done = invoke(*words, *more, str(log))
        assert done.code in (0, 1, 2), done.err
