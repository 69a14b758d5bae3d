"""`rows`: typed rows of tables on standard output; `flashback`: the script that reverses them.

The log is tests/corpus/guides/mariadb: shop.orders gets Ada (120.00, paid), Björn (79.90, paid), Chen (15.25, open) and
Dana (300.00, open), loses all four in transaction 0-1-7, and gets Egil (42.00, open).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import binlogtool
from binlogtool.core.open_log import LogReader
from binlogtool.errors import UsageError
from tests.cli.invoke import ROOT, invoke, program
from tests.cli.terminal import on_terminal
from tests.harness.mysql_writer import begun, binlog, rows, table_map

LOG = str(ROOT / "tests" / "corpus" / "guides" / "mariadb")
ORDERS = ("--object", "shop.orders")
CUSTOMERS = ["Ada", "Björn", "Chen", "Dana", "Ada", "Björn", "Chen", "Dana", "Egil"]
DELETED = [
    "(4,'Dana',300.00,'open'),",
    "(3,'Chen',15.25,'open'),",
    "(2,'Björn',79.90,'paid'),",
    "(1,'Ada',120.00,'paid')",
]


def test_lines_have_the_columns_and_types_of_the_table() -> None:
    done = invoke("rows", "-O", "jsonl", *ORDERS, LOG)
    rows = [json.loads(line) for line in done.text.splitlines()]
    assert (done.code, done.err) == (0, "")
    assert [row["customer"] for row in rows] == CUSTOMERS
    first = {name: rows[0][name] for name in ("table", "op", "txn", "time", "id", "customer", "total", "state")}
    assert first == {
        "table": "shop.orders", "op": "INSERT", "txn": "0-1-4", "time": "2026-11-20T10:12:00.000000Z", "id": 1,
        "customer": "Ada", "total": 120.0, "state": "paid",
    }  # fmt: skip


def test_csv_has_a_heading_and_only_the_chosen_columns() -> None:
    done = invoke("rows", "-O", "csv", "--columns", "op,id", "--columns", "total", *ORDERS, "-n", "2", LOG)
    assert done.text == '"op","id","total"\n"INSERT",1,120.00\n"INSERT",2,79.90\n'


def test_an_arrow_stream_is_read_by_arrow() -> None:
    done = invoke("rows", "-O", "arrow", *ORDERS, LOG)
    table = pa.ipc.open_stream(done.out).read_all()
    assert table["customer"].to_pylist() == CUSTOMERS
    assert str(table.schema.field("total").type) == "decimal128(10, 2)"


def test_text_is_a_table_for_each_table_of_the_log() -> None:
    done = invoke("rows", "--ascii", LOG)
    titles = [line for line in done.text.splitlines() if line.startswith("shop.")]
    assert (done.code, titles) == (0, ["shop.orders", "shop.stock"])
    heading = next(line for line in done.text.splitlines() if "customer" in line)
    assert heading.replace("|", " ").split() == ["txn", "op", "time", "id", "customer", "total", "state"]


def test_a_null_and_control_characters_are_safe_in_text(tmp_path: Path) -> None:
    from tests.export.test_notebook import inserted

    (tmp_path / "log.000001").write_bytes(inserted([b"a\x1bb"], [[7]]))
    done = invoke("rows", str(tmp_path / "log.000001"))
    assert done.code == 0 and b"\x1b" not in done.out and "7" in done.text


@pytest.mark.parametrize("form", ["csv", "arrow"])
def test_an_output_of_one_table_wants_one_name(form: str) -> None:
    done = invoke("rows", "-O", form, LOG)
    assert (done.code, done.out) == (2, b"")
    assert "name one with --object: shop.orders, shop.stock" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--object", "shop.ordrs"), "shop.ordrs: the log contains no such table; did you mean shop.orders"),
        (("--table", "ordrs"), "ordrs: the log contains no such table; did you mean orders?"),
        (("--database", "shp"), "did you mean shop.*?"),
        (("--exclude-object", "*"), "--exclude-object leaves out all tables of the log: shop.orders, shop.stock"),
        ((*ORDERS, "--columns", "custmer"), "did you mean 'customer'?"),
        ((*ORDERS, "--where", "after.totl > 1"), "shop.orders has no column totl; did you mean total?"),
    ],
)
def test_a_table_that_the_log_does_not_have_is_an_error(words: tuple[str, ...], said: str) -> None:
    done = invoke("rows", *words, LOG)
    assert (done.code, done.out) == (2, b"") and said in done.err


def test_an_empty_selection_is_no_error_but_never_silent() -> None:
    done = invoke("rows", *ORDERS, "--start-datetime", "2030-01-01", LOG)
    assert (done.code, done.out) == (0, b"")
    assert "binlogtool: the selection contains no row of shop.orders\n" in done.err
    assert "the log, which goes from 2026-11-20T09:00:00Z to 2026-11-20T18:00:00Z" in done.err
    assert invoke("rows", *ORDERS, "--where", "after.total < 0", LOG).err.count("no row of shop.orders") == 1


def test_rows_go_to_a_file_that_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "orders.csv"
    words = ("rows", "-O", "csv", *ORDERS, "-o", str(target), LOG)
    assert invoke(*words)[:2] == (0, b"")
    assert [row["customer"] for row in csv.DictReader(io.StringIO(target.read_text()))] == CUSTOMERS
    assert invoke(*words).code == 5


def test_an_arrow_stream_is_kept_from_a_terminal() -> None:
    assert on_terminal("rows", "-O", "arrow", *ORDERS, LOG).code == 5


def test_damage_is_reported_and_the_rest_is_there(samples: Path) -> None:
    done = invoke("rows", "-O", "jsonl", str(samples / "guides" / "tarantool-flipped"))
    assert done.code == 1 and "checksum-mismatch" in done.err and done.text.count("\n") > 20


def test_a_finding_is_reported_once_however_many_tables_are_read(samples: Path) -> None:
    done = invoke("rows", str(samples / "guides" / "tarantool-flipped"))
    assert done.text.count("\n_") > 1  # several system spaces
    assert done.err.count("checksum-mismatch") == 1 and done.err.count("damaged-range") == 1


def test_tables_that_nobody_named_are_not_reported_as_empty(samples: Path) -> None:
    chain = str(samples / "tarantool" / "chain")
    assert "contains no row" not in invoke("rows", chain).err
    assert "the selection contains no row of _trigger" in invoke("rows", "--object", "_trigger", chain).err


def test_statements_in_place_of_rows_are_one_finding_for_each_table(corpus: Path) -> None:
    log = corpus / "mysql-binlog" / "generated" / "mariadb-11.8" / "mixed-ddl" / "mariadb-bin.000001"
    done = invoke("rows", str(log))
    told = [line.partition("error ")[2] for line in done.err.splitlines()]
    statement = "rows-not-logged: QUERY: db_east1.orders2: a statement that changes rows; the log does not record which"
    assert done.code == 1 and f"0x00001c08 {statement} (15 times; this is the first)" in told
    assert all("rows-not-logged" in line for line in told) and len(told) == 3


def test_an_encrypted_log_says_that_its_key_is_missing(samples: Path, corpus: Path) -> None:
    mysql = corpus / "mysql-binlog" / "generated" / "mysql-9.7" / "encrypted" / "enc-bin.000001"
    for log in (samples / "mysql_binlog" / "encrypted" / "aes-ctr.000001", mysql):
        for command in ("rows", "flashback", "rows --object shop.orders"):
            done = invoke(*command.split(), str(log))
            assert done.code == 6 and "the log is encrypted; give the key with --keyfile FILE" in done.err
            assert "binlog_format" not in done.err and "not-reversible" not in done.err


def test_rows_of_standard_input_are_those_of_the_file() -> None:
    log = f"{LOG}/mariadb-bin.000002"
    words = ("rows", "-O", "csv", "--columns", "op,id,customer,total", *ORDERS)
    with open(log, "rb") as plain:
        data = plain.read()
    expected = invoke(*words, log).out
    assert expected.count(b"\n") > 4
    for content in (data, gzip.compress(data)):
        done = program(*words, "-", stdin=None, input=content)
        assert (done.returncode, done.stdout, done.stderr) == (0, expected, b"")
    assert program("rows", "-", stdin=None, input=b"text").returncode == 3


def test_the_library_has_the_same_rows() -> None:
    with binlogtool.open(LOG) as log:
        assert log.tables() == ["shop.orders", "shop.stock"]
        rows = log.rows("shop.orders", columns=["customer"])
        assert b"".join(rows.encode("csv")).decode().split() == ['"customer"', *(f'"{name}"' for name in CUSTOMERS)]
        assert rows.row_count == 9
        with pytest.raises(UsageError, match="did you mean jsonl"):
            list(rows.encode("json"))


def test_partial_updates_of_json_are_the_functions_that_mysqlbinlog_prints(corpus: Path) -> None:
    log = str(corpus / "mysql-binlog" / "generated" / "mysql-9.7" / "partial-json" / "binlog.000001")
    changes = [  # as `mysqlbinlog -v` prints them, with the column's name in place of @2
        "JSON_REPLACE(j, '$.a', 99)",
        "JSON_REMOVE(j, '$.b.c[1]')",
        "JSON_REPLACE(j, '$.b.c[0]', CAST('{\"z\": 1.5}' AS JSON))",
        "JSON_INSERT(j, '$.new', 'v')",
    ]
    rows = [line.strip() for line in invoke("rows", log).text.splitlines()]
    assert [line for line in rows if line.startswith("j: JSON_")] == [f"j: {one}" for one in changes]
    dumped = [line for line in invoke("dump", log).text.splitlines() if line.startswith("  ~ ")]
    assert dumped == [
        f"  ~ id=1 j={changes[0]}",
        f"  ~ id=1 j={changes[1]} k: [1,2] → [1,2,7]",
        f"  ~ id=1 j={changes[2]}",
        f"  ~ id=1 j={changes[3]}",
    ]
    lines = [json.loads(line) for line in invoke("rows", "-O", "jsonl", log).text.splitlines()]
    assert json.loads(lines[2]["j"]) == {"$diff": [{"op": "REPLACE", "path": "$.a", "value": 99}]}


def test_a_text_that_looks_like_a_partial_update_stays_a_text(tmp_path: Path) -> None:
    from tests.export.test_notebook import inserted

    (tmp_path / "log.000001").write_bytes(inserted([b'{"$diff":[' + b"[" * 90], [[7]]))
    done = invoke("rows", str(tmp_path / "log.000001"))
    assert done.code == 0 and '{"$diff":[[[[' in done.text


# -- flashback ---------------------------------------------------------------------------------------------------------

FLASHBACK = ("flashback", "--include-gtids", "0-1-7", *ORDERS, "--rows", "statements")


def test_a_flashback_goes_to_standard_output_and_its_account_to_the_other_one() -> None:
    done = program(*FLASHBACK, LOG)
    lines = done.stdout.decode().splitlines()
    start = lines.index("INSERT INTO `shop`.`orders` (`id`,`customer`,`total`,`state`) VALUES")
    assert (done.returncode, lines[start + 1 : start + 5], done.stderr) == (0, DELETED, b"")
    told = program(*FLASHBACK, "-v", LOG).stderr.decode()
    assert "4 row changes" in told


def test_a_flashback_in_a_file_is_the_same_script(tmp_path: Path) -> None:
    target = tmp_path / "f.sql"
    done = invoke(*FLASHBACK, "-o", str(target), LOG)
    assert done.code == 0 and "4 row changes  1 file" in done.text
    assert target.read_bytes() == invoke(*FLASHBACK, LOG).out
    account = json.loads(invoke(*FLASHBACK, "-O", "json", "-o", str(tmp_path / "g.sql"), LOG).out)
    assert (account["to"], account["status"]) == ("flashback", "complete")


def test_what_cannot_be_reversed_is_reported_and_nothing_is_printed() -> None:
    done = invoke("flashback", LOG)
    assert (done.code, done.out) == (1, b"")
    assert "cannot be reversed" in done.err and "nothing was written" in done.err


def test_a_misspelt_table_of_a_flashback_is_suggested() -> None:
    done = invoke("flashback", "--object", "shop.ordrs", LOG)
    assert done.code == 2 and done.out == b"" and "did you mean shop.orders" in done.err


def test_text_tells_a_column_that_was_not_logged_from_null(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drizzle logs of an UPDATE what it sets, of a DELETE the key."""
    monkeypatch.setenv("COLUMNS", "120")
    log = str(ROOT / "tests" / "corpus" / "drizzle" / "basic-checksum.log")
    lines = invoke("rows", "--object", "shop1.order_line", log).text.splitlines()
    cells = [line.split()[1:] for line in lines if " UPDATE " in line or " DELETE " in line]  # after the transaction
    assert [one[2:] for one in cells[:2]] == [
        ["1", "0", "(not", "logged)", "7"],
        ["1", "1", "(not", "logged)", "(not", "logged)"],
    ]


def test_text_of_wide_tables_is_a_line_for_each_column_and_a_deletion_shows_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = invoke("rows", *ORDERS, LOG).text.splitlines()
    assert lines[:8] == [
        "shop.orders", "  row 1", "    txn: 0-1-4", "    op: INSERT", "    time: 2026-11-20T10:12:00.000000Z",
        "    id: 1", "    customer: Ada", "    total: 120.00",
    ]  # fmt: skip
    chain = str(ROOT / "tests" / "corpus" / "tarantool" / "chain")
    text = invoke("rows", "--object", "a", chain).text
    assert "    op: DELETE\n    time: 2026-11-21T03:42:24.900753Z\n    tuple: NULL\n    key: [200]\n" in text


def test_flashback_of_a_damaged_log_advises_what_it_has(tmp_path: Path) -> None:
    log = tmp_path / "mariadb-bin.000002"
    log.write_bytes((Path(LOG) / "mariadb-bin.000002").read_bytes()[:1500])
    done = invoke("flashback", str(log))
    assert done.code == 1
    assert "select whole transactions before or after the damage" in done.err
    assert "--on-damage" not in done.err


def test_logs_of_several_engines_and_servers_do_not_share_names() -> None:
    """The log of the second Tarantool has no snapshot: its space 512 is not the first one's space a."""
    corpus = ROOT / "tests" / "corpus"
    chain = sorted(map(str, (corpus / "tarantool" / "chain").glob("*.xlog")))
    other = str(corpus / "guides" / "tarantool-torn" / "00000000000000000003.xlog")
    alone = invoke("rows", "-O", "csv", "--object", "a", *chain)
    both = invoke("rows", "-O", "csv", "--object", "a", *chain, other)
    assert len(alone.text.splitlines()) == 366 and both.out == alone.out
    done = invoke("rows", "-O", "jsonl", "--object", "shop.orders", LOG, *chain)
    assert done.code == 0, done.err
    assert [json.loads(line)["op"] for line in done.text.splitlines()] == ["INSERT"] * 4 + ["DELETE"] * 4 + ["INSERT"]


def test_nested_values_and_bytes_are_base64_in_csv_as_in_json_lines(tmp_path: Path) -> None:
    packed = ROOT / "tests" / "corpus" / "mysql_binlog" / "workloads" / "mysql-9" / "types.full.000001.gz"
    (log := tmp_path / "types.full.000001").write_bytes(gzip.decompress(packed.read_bytes()))
    words = ("--columns", "a", "-n", "1", "--object", "w.shapes", str(log))
    point = {"srid": 0, "wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA"}  # POINT(1 2)
    assert json.loads(invoke("rows", "-O", "jsonl", *words).text)["a"] == point
    (row,) = csv.DictReader(io.StringIO(invoke("rows", "-O", "csv", *words).text))
    assert json.loads(row["a"]) == point


def test_a_float_has_the_digits_of_its_32_bits(tmp_path: Path) -> None:
    packed = ROOT / "tests" / "corpus" / "mysql_binlog" / "workloads" / "mysql-9" / "types.full.000001.gz"
    (log := tmp_path / "types.full.000001").write_bytes(gzip.decompress(packed.read_bytes()))
    done = invoke("rows", "-O", "jsonl", "-n", "1", "--columns", "f", "--object", "w.numbers", str(log))
    assert b'"f":1234.567' in done.out


def test_names_of_a_selection_that_the_log_does_not_have_are_errors_and_nothing_is_printed() -> None:
    for words, said in (
        (("--where", "before.totl > 1"), "did you mean total?"),
        (("--include-gtids", "0-1-99"), "the log has no such transaction; it has 0-1-1 to 0-1-8"),
    ):
        done = invoke("rows", "-O", "csv", *ORDERS, *words, LOG)
        assert (done.code, done.out) == (2, b"") and said in done.err
        assert "contains no row" not in done.err
    with binlogtool.open(LOG) as log, pytest.raises(UsageError, match="did you mean total"):
        list(log.rows("shop.orders", selection=binlogtool.Selection(where="before.totl > 1")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "--schema: the file has no CREATE TABLE"),
        ("CREATE TABEL t (a int);", "--schema: the file has no CREATE TABLE"),
        ("create table db_east1.orders2_s (a int, A int);", "defines the column a twice"),
    ],
)
def test_a_schema_without_definitions_is_an_error(text: str, said: str, tmp_path: Path) -> None:
    (schema := tmp_path / "s.sql").write_text(text)
    done = invoke("rows", "--schema", str(schema), str(ROOT / "tests" / "corpus" / "mysql_binlog" / "sets" / "mariadb"))
    assert (done.code, done.out) == (2, b"") and said in done.err


def test_unknown_column_names_are_said_once_for_each_table(tmp_path: Path) -> None:
    (schema := tmp_path / "s.sql").write_text("create table other.t (a int);")
    done = invoke("rows", "--schema", str(schema), str(ROOT / "tests" / "corpus" / "mysql_binlog" / "sets" / "mariadb"))
    assert done.code == 0
    assert done.err.count("db_east1.orders2_s: its column names are unknown; give its CREATE TABLE with --schema") == 1


@pytest.mark.parametrize("backend", ["native", "python"])
@pytest.mark.parametrize(("name", "rows"), [("crc-table-map-removed.bin", 24), ("nocrc-table-map-removed.bin", 19)])
def test_rows_of_a_statement_without_a_table_map_are_damage_and_no_rows_of_another_statement(
    corpus: Path, name: str, rows: int, backend: str
) -> None:
    """The intact logs have 25 and 20 rows of this table; the TABLE_MAP of an event with one row was removed."""
    path = str(corpus / "mysql-binlog" / "generated" / "damaged" / "mysql-9.7" / name)
    done = invoke("rows", "--backend", backend, "-O", "jsonl", "--object", "db_east1.orders2_all", path)
    assert done.code == 1 and "ROWS_V2: its TABLE_MAP is missing" in done.err
    assert len(done.text.splitlines()) == rows


def test_text_shows_values_that_no_column_type_can_hold_and_short_floats_and_bytes(tmp_path: Path) -> None:
    """The workload inserts '0000-00-00', -3.4028235e38 into a FLOAT, and eight bytes from 0 to 7 into a BINARY(8)."""
    workload = ROOT / "tests" / "corpus" / "mysql_binlog" / "workloads" / "mysql-9" / "types.row.000001.gz"
    path = tmp_path / "log.000001"
    path.write_bytes(gzip.decompress(workload.read_bytes()))
    done = invoke("rows", "--object", "w.times", "--columns", "id,a,d", str(path))
    assert ["4", "0000-00-00", "0000-00-00", "00:00:00"] in [line.split() for line in done.text.splitlines()]
    assert "\n    a: -3.4028235e+38\n" in invoke("rows", "--object", "w.numbers", str(path)).text
    assert "\n    g: x'0001020304050607'\n" in invoke("rows", "--object", "w.texts", str(path)).text


def test_a_table_outside_of_the_selected_time_has_no_row_and_its_columns(tmp_path: Path) -> None:
    late = ("--object", "shop.orders", "--start-datetime", "2030-01-01T00:00:00Z", LOG)
    rows = invoke("rows", "-O", "csv", *late)
    assert rows.code == 0 and '"id","customer","total","state"' in rows.text and len(rows.text.splitlines()) == 1
    files = invoke("convert", "--to", "csv", "-o", str(tmp_path / "out"), *late)
    assert files.code == 0 and "the selection contains no row of shop.orders" in files.text + files.err
    wrong = invoke("convert", "--to", "csv", "-o", str(tmp_path / "none"), "--object", "shop.order", *late[2:])
    assert wrong.code == 2 and "did you mean shop.orders" in wrong.err
    with binlogtool.open(LOG) as log:
        table = log.rows("shop.orders", start=datetime(2030, 1, 1, tzinfo=UTC)).to_arrow()
    assert table.num_rows == 0 and "customer" in table.schema.names


def test_columns_that_only_some_tables_have_are_null_in_the_others() -> None:
    done = invoke("rows", "-O", "jsonl", "--columns", "op,customer", LOG)
    rows = [json.loads(line) for line in done.text.splitlines()]
    assert done.code == 0 and {(row["table"], row["customer"]) for row in rows} >= {
        ("shop.orders", "Ada"),
        ("shop.stock", None),
    }
    refused = invoke("rows", "-O", "jsonl", "--columns", "op,custmer", LOG)
    assert (refused.code, refused.text) == (2, "") and "none of the tables shop.orders, shop.stock has" in refused.err


def test_a_wrong_column_of_one_table_is_compared_with_its_own_columns() -> None:
    """shop.stock has a column `item`, shop.orders has not."""
    done = invoke("rows", "--object", "shop.orders", "--where", "after.item = 'x'", LOG)
    assert done.code == 2 and "shop.orders has no column item; it has customer, id, state, total" in done.err
    named = invoke("rows", "--object", "shop.orders", "--columns", "idd", LOG)
    assert named.code == 2 and "there is no 'idd' in shop.orders; did you mean 'id'?" in named.err
    placed = invoke("rows", "--object", "shop.orders", "--start-position", "x", LOG)
    assert placed.code == 2 and "'x' is not a position" in placed.err


def test_a_limit_counts_the_rows_of_all_tables() -> None:
    """shop.orders has nine changed rows in the log, shop.stock has more than one."""
    for limit, orders, stock in (("1", 1, 0), ("9", 9, 0), ("10", 9, 1)):
        lines = [json.loads(line) for line in invoke("rows", "-O", "jsonl", "-n", limit, LOG).out.splitlines()]
        assert (sum("customer" in line for line in lines), sum("item" in line for line in lines)) == (orders, stock)


def test_many_tables_are_read_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """300 tables in 47 KB took 16 s, as the log was read twice for each. The last row of a table in a transaction has
    its commit, whatever other tables follow."""
    events = [table_map(b"\x03", table_id=number, name=b"t%d" % number) for number in range(1, 13)]
    images = [(value, number) for value in (7, 8) for number in range(1, 13)]
    events += [
        rows(b"\0" + value.to_bytes(4, "little"), table_id=number, flags=int((value, number) == images[-1]))
        for value, number in images
    ]
    log = tmp_path / "bin.000001"
    log.write_bytes(binlog(begun(*events)))
    passes = list[int]()
    row_batches = LogReader.row_batches
    monkeypatch.setattr(
        LogReader, "row_batches", lambda self, *a, **b: [passes.append(1), row_batches(self, *a, **b)][1]
    )
    done = invoke("rows", "-O", "jsonl", str(log))
    found = [(row["table"], row["@1"], row["commit"]) for row in map(json.loads, done.text.splitlines())]
    assert found == [(f"d.t{number}", value, value == 8) for number in range(1, 13) for value in (7, 8)]
    assert len(passes) <= 3
    first = [json.loads(line) for line in invoke("rows", "-O", "jsonl", "-n", "5", str(log)).text.splitlines()]
    assert [(row["table"], row["@1"]) for row in first] == [(table, value) for table, value, _ in found[:5]]
