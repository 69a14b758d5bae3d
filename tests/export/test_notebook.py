"""`Log.rows`: what an analyst takes out of a log, held against what the servers were given and show themselves."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import struct
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import binlogtool
from binlogtool.errors import InputOutputError, UsageError
from tests.formats.mysql_binlog.make_log import TABLE_MAP, XID, event, log, mariadb_gtid
from tests.formats.mysql_binlog.row_building import image, optional, rows_body, sized, table_map_body

ROOT = Path(__file__).resolve().parents[2]
_CHANGE = re.compile(rb"^### (INSERT INTO|UPDATE|DELETE FROM) `(\w+)`\.`([^`]+)`$", re.MULTILINE)
_OPS = {b"INSERT INTO": "INSERT", b"UPDATE": "UPDATE", b"DELETE FROM": "DELETE"}
WRITE_ROWS_V1, GTID = 23, 162
LONG = b"\x03"
ORDERS = [
    ("INSERT", "Ada"), ("INSERT", "Björn"), ("INSERT", "Chen"), ("INSERT", "Dana"), ("DELETE", "Ada"),
    ("DELETE", "Björn"), ("DELETE", "Chen"), ("DELETE", "Dana"), ("INSERT", "Egil"),
]  # fmt: skip
"""What happened to shop.orders in tests/corpus/guides/mariadb, two files."""


@pytest.fixture
def orders(samples: Path) -> Any:
    with binlogtool.open(samples / "guides" / "mariadb") as opened:
        return opened.rows("shop.orders")


def inserted(names: list[bytes], rows: list[list[int]], table: bytes = b"t") -> bytes:
    """A log with one transaction: rows of INT columns with these names."""
    more = optional(4, b"".join(map(sized, names)))
    images = b"".join(image([struct.pack("<i", value) for value in row]) for row in rows)
    return log(
        [
            event(GTID, mariadb_gtid(1)),
            event(TABLE_MAP, table_map_body(LONG * len(names), more=more, table=table)),
            event(WRITE_ROWS_V1, rows_body(len(names), images)),
            event(XID, bytes(8)),
        ]
    )


def made(tmp_path: Path, data: bytes) -> Any:
    path = tmp_path / "log.000001"
    path.write_bytes(data)
    with binlogtool.open(path) as opened:
        return opened.rows("db.t")


# -- what they hold ----------------------------------------------------------------------------------------------------


def test_rows_of_a_table_have_its_columns_and_types(orders: Any) -> None:
    """The log is closed already."""
    kinds = {field.name: str(field.type) for field in orders.schema}
    assert (kinds["id"], kinds["total"], kinds["customer"]) == ("int32", "decimal128(10, 2)", "string")
    found = list(orders)
    assert [(row["op"], row["customer"]) for row in found] == ORDERS
    first = found[0]
    assert (first["id"], first["total"]) == (1, Decimal("120.00"))
    assert first["time"] == datetime(2026, 11, 20, 10, 12, tzinfo=UTC)
    assert [row["commit"] for row in found] == [False, False, True, True, False, False, False, True, True]
    assert orders.findings == ()


def test_records_are_rows_of_one_layout(samples: Path) -> None:
    with binlogtool.open(samples / "guides" / "mariadb") as opened:
        types = [one.type for one in opened.records()]
        found = opened.rows(columns=["type", "time"])
        assert found.schema.names == ["type", "time"]
        assert [row["type"] for row in found] == types
        assert found.to_arrow()["time"].type == pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("image", "shown"),
    [("before", [None] * 4 + ["Ada", "Björn", "Chen", "Dana", None]), ("changes", [name for _, name in ORDERS])],
)
def test_images(samples: Path, image: str, shown: list[Any]) -> None:
    with binlogtool.open(samples / "guides" / "mariadb") as opened:
        assert [row["customer"] for row in opened.rows("shop.orders", image=image)] == shown
        both = list(opened.rows("shop.orders", image="both"))
        assert both[4]["before"]["customer"] == "Ada" and both[4]["after"] is None


@pytest.mark.parametrize(
    "name", ["mysql-9.7/row-metadata-full", "mysql-9.7/compressed-transactions", "mariadb-10.11/compressed-events"]
)
def test_each_row_that_the_servers_own_tool_shows_is_there(corpus: Path, name: str) -> None:
    folder = corpus / "mysql-binlog" / "generated" / name
    path = next(one for one in sorted(folder.iterdir()) if re.search(r"\.\d{6}$", one.name))
    text = gzip.decompress((folder / f"{path.name}.txt.gz").read_bytes())
    shown = Counter((f"{db.decode()}.{table.decode()}", _OPS[op]) for op, db, table in _CHANGE.findall(text))
    with binlogtool.open(path) as opened:
        tables = {table for table, _ in shown}
        found = Counter((table, row["op"]) for table in tables for row in opened.rows(table, columns=["op"]))
    for told in (shown, found):  # docs/tables.md: mysqlbinlog -v leaves rows of this table out
        del told["db_east1.orders2_all", "INSERT"], told["db_east1.orders2_all", "UPDATE"]
        del told["db_east1.orders2_all", "DELETE"]
    assert shown and found == shown


@pytest.mark.parametrize(
    ("sample", "table", "least"),
    [
        ("guides/tarantool-torn", "orders", 40), ("drizzle/basic-checksum.log", "shop1.item", 1),
        ("eblob/instance-a.binlog", "records", 3), ("manticore/v16-mixed/binlog.0000", "rt_main", 1),
    ],
)  # fmt: skip
def test_each_format_has_tables(samples: Path, sample: str, table: str, least: int) -> None:
    with binlogtool.open(samples / sample) as opened:
        found = opened.rows(table).to_arrow()
        assert found.num_rows >= least and found["op"].null_count == 0


@pytest.mark.full
def test_memory_does_not_grow_with_the_log(corpus: Path) -> None:
    """MySQL 9.7: 2,000 rows in events of 8 KiB; the same file eight and forty times."""
    sample = corpus / "mysql-binlog" / "generated" / "mysql-9.7" / "big-transaction" / "binlog.000001"
    program = f"""
import resource, sys, binlogtool
with binlogtool.open([{str(sample)!r}] * int(sys.argv[1])) as log:
    try:
        log.rows("none").schema
    except binlogtool.BinlogtoolError as error:
        table = str(error).partition("it has ")[2].split(", ")[0]
    count = sum(batch.num_rows for rows in (log.rows(table), log.rows()) for batch in rows.batches())
print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    done = [
        subprocess.run([sys.executable, "-c", program, n], capture_output=True, text=True, cwd=ROOT, check=True).stdout
        for n in ("8", "40")
    ]
    (one, least), (many, most) = (map(int, text.split()) for text in done)
    assert many == 5 * one > 40 * 2000 and most - least < 32 * 1024  # KiB


def test_a_time_that_no_datetime_can_be_is_none() -> None:
    from binlogtool.export.read_rows_as_arrow import _to_dictionaries

    times = pa.array([0, 253_402_300_800_000_000, -(1 << 62)], pa.timestamp("us", tz="UTC"))
    found = _to_dictionaries(pa.record_batch([times, pa.array([1, 2, 3])], names=["time", "n"]))
    assert [(row["time"], row["n"]) for row in found] == [(datetime(1970, 1, 1, tzinfo=UTC), 1), (None, 2), (None, 3)]


# -- names -------------------------------------------------------------------------------------------------------------


def test_columns_that_are_called_like_ours_and_hostile_names(tmp_path: Path) -> None:
    names = [b"op", b"seq", b"Time", b"a'); DROP--", "ü\x1b[31m\n".encode(), b"", b"before"]
    found = made(tmp_path, inserted(names, [[1, 2, 3, 4, 5, 6, 7]]))
    (row,) = found
    assert (row["op"], row["op_"], row["seq_"], row["Time_"]) == ("INSERT", 1, 2, 3)
    assert (row["a'); DROP--"], row["ü\x1b[31m\n"], row["before"]) == (4, 5, 7)
    assert found.to_arrow().num_columns == len(found.schema.names) == len({n.casefold() for n in found.schema.names})


def test_a_table_is_named_not_matched(tmp_path: Path) -> None:
    found = made(tmp_path, inserted([b"id"], [[5]], table=b"a*[b]?"))
    with binlogtool.open(tmp_path / "log.000001") as opened:
        assert [row["id"] for row in opened.rows("db.a*[b]?")] == [5]
        with pytest.raises(UsageError, match=r"db\.\*: the log contains no such table; did you mean db\.a\*\[b\]\?"):
            opened.rows("db.*").schema  # noqa: B018
    with pytest.raises(UsageError, match=r"db\.t: the log contains no such table"):
        list(found)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"columns": ["custmer"]}, "there is no 'custmer' in shop.orders; did you mean 'customer'"),
        ({"columns": ["qqq"]}, "there is no 'qqq' in shop.orders; there are op, seq"),
        ({"columns": ["id", "id"]}, "a name is given twice"),
        ({"image": "old"}, "choose one of after, before, both, changes"),
        ({"selection": binlogtool.Selection(where="body.x = 1")}, "use before.COLUMN or after.COLUMN"),
        ({"selection": binlogtool.Selection(tail=3)}, "--tail"),
        ({"table": None, "image": "after"}, "applies to the rows of a table"),
        ({"table": None, "columns": ["id"]}, "'id' is none of file, format"),
        ({"start": "nonsense"}, "nonsense"),
        ({"start": 1795183510000000}, "start=1795183510000000: must be a position as a string, or a datetime"),
        ({"table": 5}, "the name of a table must be a string"),
        ({"columns": "id"}, "write a list of names"),
        ({"selection": binlogtool.Selection(objects=("shop.other",))}, "selection names objects"),
    ],
)
def test_what_makes_no_sense_is_said(samples: Path, options: dict[str, Any], why: str) -> None:
    with binlogtool.open(samples / "guides" / "mariadb") as opened, pytest.raises(UsageError, match=why):
        opened.rows(**{"table": "shop.orders", **options}).to_arrow()


@pytest.mark.full
def test_a_stream_is_refused(samples: Path) -> None:
    sample = samples / "guides" / "mariadb" / "mariadb-bin.000001"
    program = (
        "import binlogtool\nwith binlogtool.open('-') as log:\n"
        "    try: log.rows()\n    except binlogtool.BinlogtoolError as error: print(error.exit_code, error)"
    )
    with sample.open("rb") as data:
        done = subprocess.run([sys.executable, "-c", program], stdin=data, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "2 a stream can be read only once, and this takes several passes; save it to a file first\n"


def test_a_compressed_file_is_read_again_and_again(samples: Path, tmp_path: Path) -> None:
    data = (samples / "guides" / "mariadb" / "mariadb-bin.000001").read_bytes()
    (tmp_path / "log.gz").write_bytes(gzip.compress(data))
    with binlogtool.open(tmp_path / "log.gz") as opened:
        found = opened.rows("shop.orders")
        assert [row["customer"] for _ in range(2) for row in found] == ["Ada", "Björn", "Chen"] * 2


# -- what is chosen ----------------------------------------------------------------------------------------------------


def test_from_a_time_or_a_position_on(samples: Path) -> None:
    with binlogtool.open(samples / "guides" / "mariadb") as opened:
        for start in (datetime(2026, 11, 20, 14, 6), datetime(2026, 11, 20, 14, 6, tzinfo=UTC), "gtid:0-1-7"):
            assert [row["customer"] for row in opened.rows("shop.orders", start=start)] == ["Egil"], start


def test_conditions_and_counts_speak_of_rows(samples: Path) -> None:
    chosen = binlogtool.Selection
    with binlogtool.open(samples / "guides" / "mariadb") as opened:
        where = chosen(where="before.total > 100 or after.customer = 'Egil'")
        assert [row["customer"] for row in opened.rows("shop.orders", selection=where)] == ["Ada", "Dana", "Egil"]
        assert [row["row"] for row in opened.rows("shop.orders", selection=where)] == [0, 3, 0]
        some = opened.rows("shop.orders", selection=chosen(skip=2, limit=3))
        assert [row["customer"] for row in some] == ["Chen", "Dana", "Ada"]
        none = opened.rows("shop.orders", selection=chosen(limit=0))
        assert list(none) == [] and none.to_arrow().schema == opened.rows("shop.orders").schema
        assert opened.rows(selection=chosen(limit=7)).to_arrow().num_rows == 7


# -- passes ------------------------------------------------------------------------------------------------------------


def handles() -> int:
    """How many files of a log are open."""
    links = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return sum("mariadb-bin" in os.readlink(link) for link in links if link.is_symlink())


def test_iterations_do_not_know_of_each_other_and_leave_nothing_open(orders: Any, samples: Path) -> None:
    assert handles() == 0
    one, other = iter(orders), iter(orders)
    mixed = [next(one), next(one), *other, *one]
    assert [row["customer"] for row in mixed[2:11]] == [name for _, name in ORDERS] and len(mixed) == 18
    with binlogtool.open(samples / "guides" / "mariadb") as opened:
        broken = opened.rows().batches(2)
    assert next(broken).num_rows == 2 and handles() > 0
    broken.close()
    assert handles() == 0
    assert [batch.num_rows for batch in orders.batches(4)] == [4, 4, 1]
    assert sum(batch.num_rows for batch in orders.batches(1)) == 9
    with pytest.raises(UsageError, match="must be at least 1"):
        orders.batches(0)


def test_what_comes_behind_the_schema_is_not_lost(tmp_path: Path) -> None:
    """The log grew meanwhile: a table of the same name has one more column."""
    found = made(tmp_path, inserted([b"id"], [[5]]))
    assert found.schema.names[10] == "id"
    (tmp_path / "log.000001").write_bytes(inserted([b"id", b"more"], [[5, 6]]))
    (row,) = found
    assert row["id"] == 5 and row["unfit"] == '{"after.more":6}'


def test_a_file_that_vanished_is_an_error_of_the_work(samples: Path, tmp_path: Path) -> None:
    shutil.copytree(samples / "guides" / "mariadb", tmp_path / "log")
    with binlogtool.open(tmp_path / "log") as opened:
        found, records = opened.rows("shop.orders"), opened.rows()
    assert found.to_arrow().num_rows == 9
    (tmp_path / "log" / "mariadb-bin.000002").unlink()
    for rows in (found, records):
        with pytest.raises(InputOutputError, match=r"mariadb-bin\.000002"):
            rows.to_arrow()
        with pytest.raises(Exception, match=r"mariadb-bin\.000002"):
            pa.RecordBatchReader.from_stream(rows).read_all()


def test_damage_stands_in_findings(samples: Path) -> None:
    """A flipped bit at 0x542: "customer 20" became "customer 60"."""
    with binlogtool.open(samples / "guides" / "tarantool-flipped") as opened:
        found, records = opened.rows("orders"), opened.rows()
    ids = [(Path(file).name, one.id, one.offset) for file, one in found.findings]
    assert ("00000000000000000003.xlog", "checksum-mismatch", 0x50C) in ids
    assert {one.id for _, one in records.findings} >= {"checksum-mismatch"}
    rows = found.to_arrow()
    assert "DAMAGE" not in rows["op"].to_pylist() and "DAMAGE" not in records.to_arrow()["type"].to_pylist()
    assert "customer 60" not in rows["customer"].to_pylist() and "customer 21" in rows["customer"].to_pylist()
    assert "findings" in repr(found)


def test_a_row_event_that_cannot_be_decoded_is_a_finding(tmp_path: Path) -> None:
    good = inserted([b"id"], [[5]])
    torn = event(WRITE_ROWS_V1, rows_body(1, image([b"\1\0"])))  # an INT of two bytes
    data = good + event(GTID, mariadb_gtid(2)) + event(TABLE_MAP, table_map_body(LONG, more=optional(4, sized(b"id"))))
    found = made(tmp_path, data + torn + event(XID, bytes(8)))
    assert [row["id"] for row in found] == [5]
    assert [(one.severity.label, one.record is not None) for _, one in found.findings] == [("error", True)]


# -- other libraries ---------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_duckdb_reads_rows_by_name_again_and_again(orders: Any) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    text = "select op, count(*), sum(total) from orders group by op order by op"
    for _ in range(2):
        assert duckdb.sql(text).fetchall() == [
            ("DELETE", 4, Decimal("515.15")), ("INSERT", 5, Decimal("557.15"))
        ]  # fmt: skip
    assert duckdb.sql("select count(*) from (select * from orders limit 2)").fetchall() == [(2,)]


@pytest.mark.full
def test_polars_reads_rows_without_a_copy_of_its_own(orders: Any) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = polars.DataFrame(orders)
    assert frame["customer"].to_list() == [name for _, name in ORDERS]
    assert frame.equals(orders.to_polars()) and frame["total"].sum() == Decimal("1072.30")
    assert frame["time"].dtype == polars.Datetime("us", "UTC")


@pytest.mark.full
def test_a_file_that_is_gone_is_said_in_each_library(samples: Path, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    shutil.copy(samples / "guides" / "mariadb" / "mariadb-bin.000001", tmp_path / "log.000001")
    with binlogtool.open(tmp_path / "log.000001") as opened:
        gone = opened.rows()
    (tmp_path / "log.000001").unlink()
    with pytest.raises(InputOutputError, match=r"log\.000001: cannot be opened"):
        gone.to_polars()
    with pytest.raises(polars.exceptions.ComputeError, match=r"log\.000001: cannot be opened"):
        polars.DataFrame(gone)
    with pytest.raises(duckdb.Error, match=r"log\.000001: cannot be opened"):
        duckdb.sql("select count(*) from gone").fetchall()


@pytest.mark.full
def test_names_that_differ_in_their_case_only(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    rows = made(tmp_path, inserted([b"A", b"a"], [[1, 2]]))  # noqa: F841 - DuckDB finds it by its name
    assert duckdb.sql('select "A", a_ from rows').fetchall() == [(1, 2)]


@pytest.mark.full
def test_pandas_has_times_with_their_zone(orders: Any) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = orders.to_pandas()
    assert list(frame["customer"]) == [name for _, name in ORDERS]
    assert frame["time"][0].to_pydatetime() == datetime(2026, 11, 20, 10, 12, tzinfo=UTC)


@pytest.mark.full
@pytest.mark.parametrize("missing", ["pyarrow", "numpy", "pandas", "polars"])
def test_what_is_not_installed_is_said_in_one_line(missing: str) -> None:
    program = f"""
import sys, importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == {missing!r} else found(name, *more)
import binlogtool
with binlogtool.open("tests/corpus/guides/mariadb") as log:
    try:
        rows = log.rows("shop.orders")
        rows.to_pandas() if {missing!r} == "pandas" else rows.to_polars()
    except binlogtool.BinlogtoolError as error:
        print(error.exit_code, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    is_extra = missing not in ("pandas", "polars")
    command = "run `pip install '.[arrow]'` in a checkout" if is_extra else f"install it with `pip install {missing}`"
    assert re.fullmatch(rf"\d (rows|to_\w+)\(\) needs {missing}: {re.escape(command)}\n", done.stdout)


def test_a_log_that_is_opened_loads_no_heavy_module() -> None:
    program = "import sys, binlogtool; binlogtool.open('tests/corpus/guides/mariadb').close(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert not {"pyarrow", "numpy", "pandas", "polars", "pyspark"} & set(done.stdout.split())
