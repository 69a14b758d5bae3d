"""`convert --object`, `--per-table`: rows of tables, held against the servers' readings and what they were given."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

import binlogtool
from binlogtool import convert
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import RefusedError, UsageError
from binlogtool.export.output_options import COMPRESSIONS
from tests.cli.invoke import invoke
from tests.export.typed_logs import rows, tables, without_checksums
from tests.formats.mysql_binlog import make_log
from tests.formats.tarantool import make as make_tarantool
from tests.harness.mysql_writer import MARIADB, binlog, query, table_map, transaction
from tests.harness.mysql_writer import rows as write

_CHANGE = re.compile(rb"^### (INSERT INTO|UPDATE|DELETE FROM) `(\w+)`\.`([^`]+)`$", re.MULTILINE)
_OPS = {b"INSERT INTO": "INSERT", b"UPDATE": "UPDATE", b"DELETE FROM": "DELETE"}


def workload(samples: Path, tmp_path: Path, name: str) -> Path:
    log = tmp_path / "binlog.000001"
    log.write_bytes(gzip.decompress((samples / "mysql_binlog/workloads" / f"{name}.000001.gz").read_bytes()))
    return log


@pytest.fixture
def logs(corpus: Path) -> Path:
    return corpus / "mysql-binlog" / "generated"


@pytest.mark.parametrize(
    "name",
    [
        "mysql-9.7/row-metadata-full", "mysql-9.7/row-full-types", "mysql-9.7/compressed-transactions", "mysql-9.7/xa",
        "mysql-9.7/gtid-tagged", "mysql-9.7/row-noblob-rowsquery", "mysql-9.7/savepoint-nontrans-row",
        "mariadb-10.11/row-metadata-full", "mariadb-10.11/row-minimal-types", "mariadb-10.11/compressed-events",
        "mariadb-10.11/domains", "mariadb-10.11/xa",
    ],
)  # fmt: skip
def test_each_row_that_the_servers_own_tool_shows_is_a_row_of_its_table(logs: Path, tmp_path: Path, name: str) -> None:
    log = next(one for one in sorted((logs / name).iterdir()) if re.search(r"\.\d{6}$", one.name))
    text = gzip.decompress((logs / name / f"{log.name}.txt.gz").read_bytes())
    shown = Counter((f"{db.decode()}.{table.decode()}", _OPS[op]) for op, db, table in _CHANGE.findall(text))
    found, done = tables(log, tmp_path / "out")
    untold = [row["op"] for row in found.pop("DAMAGE", [])]  # statements that change rows
    made = Counter((table, row["op"]) for table, given in found.items() for row in given)
    assert done.complete and done.rows == made.total() + len(untold) and done.exit_code == bool(untold)
    assert len(untold) == (19 if name == "mariadb-10.11/compressed-events" else 0)
    if name.startswith("mysql"):  # of events with several rows of all types mysqlbinlog shows the first one only
        shown, made = (Counter({k: n for k, n in c.items() if k[0] != "db_east1.orders2_all"}) for c in (shown, made))
    assert shown and made == shown


def test_where_mysqlbinlog_leaves_rows_out_they_are_those_of_the_same_statements_on_mariadb(
    corpus: Path, tmp_path: Path
) -> None:
    """mysqlbinlog 9.7 -v ends each event of this table at its GEOMETRY, and so shows the first row only: both servers
    were given the same statements, and mariadb-binlog shows all rows."""
    logs, table = corpus / "mysql-binlog" / "generated", "db_east1.orders2_all"
    texts = {
        name: gzip.decompress((logs / path).read_bytes())
        for name, path in (
            ("mysql", "mysql-9.7/row-metadata-full/binlog.000001.txt.gz"),
            ("mariadb", "mariadb-10.11/row-metadata-full/mariadb-bin.000001.txt.gz"),
        )
    }
    shown = {
        name: Counter(_OPS[op] for op, db, one in _CHANGE.findall(text) if f"{db.decode()}.{one.decode()}" == table)
        for name, text in texts.items()
    }
    assert b"Don't know how to handle column type=255" in texts["mysql"]
    assert shown["mysql"].total() < shown["mariadb"].total()
    found, _ = tables(logs / "mysql-9.7" / "row-metadata-full" / "binlog.000001", tmp_path / "out")
    assert Counter(row["op"] for row in found[table]) == shown["mariadb"]


def test_conditions_and_counts_choose_rows_in_the_order_of_the_log(samples: Path, tmp_path: Path) -> None:
    """tests/corpus/guides/README.md: three orders, then another one in the second file, then all four deleted."""
    log = samples / "guides" / "mariadb"
    wanted = Selection(objects=("shop.orders",), where="before.total > 100 or after.customer = 'Egil'")
    convert([log], "parquet", tmp_path / "where", selection=wanted)
    assert [(row["customer"], row["row"]) for row in rows(tmp_path / "where")] == [("Ada", 0), ("Dana", 3), ("Egil", 0)]
    convert([log], "parquet", tmp_path / "some", selection=Selection(objects=("shop.orders",), skip=2, limit=3))
    assert [row["customer"] for row in rows(tmp_path / "some")] == ["Chen", "Dana", "Ada"]
    done = convert([log], "parquet", tmp_path / "first", per_table=True, selection=Selection(limit=4))
    assert done.rows == 4


@pytest.mark.parametrize("condition", ["before.v = 1 or after.v = 1", "seq > 1", "object = 'w.e'", "not (txn = 'x')"])
def test_a_condition_leaves_the_same_rows_with_compiled_code(samples: Path, tmp_path: Path, condition: str) -> None:
    log = workload(samples, tmp_path, "mysql-9/ddl-mysql.row")
    found = [
        tables(log, tmp_path / one, backend=one, selection=Selection(where=condition))[0]
        for one in ("native", "python")
    ]
    assert found[0] == found[1] and any(found[0].values())


def test_the_rows_of_a_big_event_end_at_the_limit(samples: Path, tmp_path: Path) -> None:
    """Events that compiled code takes as a whole."""
    log = workload(samples, tmp_path, "mysql-9/types.full")
    whole = [(row["record"], row["row"]) for one in tables(log, tmp_path / "whole")[0].values() for row in one]
    _, done = tables(log, tmp_path / "out", selection=Selection(limit=len(whole) - 1))
    assert done.rows == len(whole) - 1


def test_the_last_row_of_each_transaction_is_marked(logs: Path, tmp_path: Path) -> None:
    """The server's own tool shows BEGIN and COMMIT around the rows of a transaction."""
    folder = logs / "mysql-9.7" / "row-metadata-full"
    text = gzip.decompress((folder / "binlog.000001.txt.gz").read_bytes())
    whole = [part for part in re.split(rb"^BEGIN", text, flags=re.MULTILINE)[1:] if b"\nCOMMIT" in part]
    with_rows = sum(bool(_CHANGE.search(part.partition(b"\nCOMMIT")[0])) for part in whole)
    found, _ = tables(folder / "binlog.000001", tmp_path / "out")
    made = [row for table in found.values() for row in table]
    assert with_rows > 3 and sum(row["commit"] for row in made) == with_rows
    last = {row["txn"]: (row["record"], row["row"]) for row in sorted(made, key=lambda r: (r["record"], r["row"]))}
    assert {row["txn"]: (row["record"], row["row"]) for row in made if row["commit"]} == last


def test_columns_come_and_go_by_name_and_are_told(samples: Path, tmp_path: Path) -> None:
    """What tests/workloads/ddl-mysql.sql did to the table `e`."""
    found, done = tables(workload(samples, tmp_path, "mysql-9/ddl-mysql.row"), tmp_path / "out")
    shown = [(row["op"], row["id"], row["v"], row["w"], row["w w"]) for row in found["w.e"]]
    assert shown == [
        ("INSERT", 1, 1, None, None), ("INSERT", 2, -1, None, None), ("INSERT", 3, 3, 3, None),
        ("UPDATE", 1, None, 8, None), ("INSERT", 4, None, None, 4),
    ]  # fmt: skip
    (told,) = [one["changes"] for one in done.details["tables"] if one["name"] == "w.e"]
    assert [text.partition(": ")[2] for text in told] == [
        "the column w (int) is new", "the column v no longer exists",
        "the column w w (int) is new", "the column w no longer exists",
    ]  # fmt: skip


def test_other_names_and_columns_are_told_in_the_text(samples: Path, tmp_path: Path) -> None:
    """RENAME TABLE, and what tests/workloads/ddl-mysql.sql did to columns."""
    renaming, altering = tmp_path / "log.000001", workload(samples, tmp_path, "mysql-9/ddl-mysql.row")
    sql = make_log.query(b"RENAME TABLE t TO `u\x1b[1m`")
    renaming.write_bytes(make_log.log([make_log.event(make_log.QUERY, sql)]))
    renamed = [r"log\.000001 at \d+: db\.t is called db\.u\\x1b\[1m from this event on"]
    altered = [
        r"w\.e: .+ at [\d,]+: the column w \(int\) is new", "the column v no longer exists",
        r"the column w w \(int\) is new", "the column w no longer exists",
    ]  # fmt: skip
    for log, wanted in ((renaming, renamed), (altering, altered)):
        out = invoke("convert", "--to", "json", "--per-table", "-o", str(tmp_path / f"out-{log.name}"), str(log))
        told = [line for line in out.out.decode().splitlines() if line.startswith("note ")]
        assert out.code == 0 and len(told) == len(wanted)
        assert all(re.search(pattern, line) for pattern, line in zip(wanted, told, strict=True)), told


OLD, NEW = {"id": 1, "v": 1}, {"id": 1, "v": 2}


@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        ("after", [{"v": 1}, {"v": 2}, {"v": 2}]),
        ("before", [{"v": None}, {"v": 1}, {"v": 2}]),
        ("both", [{"before": None, "after": OLD}, {"before": OLD, "after": NEW}, {"before": NEW, "after": None}]),
        ("changes", [{"id": 1, "v": 1, "changed": None}, {"id": None, "v": 2, "changed": ["v"]},
                     {"id": 1, "v": 2, "changed": None}]),
    ],
)  # fmt: skip
def test_an_image_is_what_its_name_says(image: str, wanted: list[dict[str, Any]]) -> None:
    """A row that is inserted with 1, updated to 2 and deleted; its key is not known."""
    from binlogtool.export.typed_columns import TableLayout, TypedColumn, build_table_batch

    fields = (TypedColumn("id", "int"), TypedColumn("v", "int"))
    images: list[dict[str, Any]] = [
        {"before": None, "after": OLD}, {"before": OLD, "after": NEW}, {"before": NEW, "after": None},
    ]  # fmt: skip
    made = TableLayout(fields, (), image, operations=False).to_table(build_table_batch(fields, images)).to_pylist()
    assert [{name: row[name] for name in one} for row, one in zip(made, wanted, strict=True)] == wanted


def test_the_key_stands_in_each_row_of_changes(samples: Path, tmp_path: Path) -> None:
    found, _ = tables(workload(samples, tmp_path, "mysql-9/ddl-mysql.row"), tmp_path / "out", image="changes")
    (update,) = [row for row in found["w.e"] if row["op"] == "UPDATE"]
    assert (update["id"], update["w"], update["changed"]) == (1, 8, ["w"])


@pytest.mark.parametrize("to", sorted(set(COMPRESSIONS) - {"parquet"}))
def test_all_targets_have_the_same_rows(samples: Path, tmp_path: Path, to: str) -> None:
    """MySQL 9, tests/workloads/types.sql; read back by pyarrow, csv, fastavro and json."""
    log = workload(samples, tmp_path, "mysql-9/types.full")
    whole, done = tables(log, tmp_path / "parquet")
    _, other = tables(log, tmp_path / "out", to)
    assert {o.path.rpartition("/")[0]: o.rows for o in other.outputs} == {k: len(v) for k, v in whole.items()}
    assert other.rows == done.rows and other.complete
    given = read(to, next((tmp_path / "out" / "w.ints").glob("part-*")))
    names = ("op", "id", "j")
    shown = [[[_plain(row[name]) for name in names] for row in some] for some in (given, whole["w.ints"])]
    assert shown[0] == shown[1]


def _plain(value: Any) -> str:
    return "" if value is None else str(value)


def read(to: str, path: Path) -> list[Mapping[str, Any]]:
    if to == "csv":
        import csv

        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    if to == "avro":
        import fastavro

        with path.open("rb") as data:
            return list(fastavro.reader(data))
    if to == "orc":
        import pyarrow.orc as orc

        table: list[Mapping[str, Any]] = orc.read_table(path).to_pylist()
        return table
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_one_table_by_name_is_the_output_and_a_pattern_gives_a_directory_each(samples: Path, tmp_path: Path) -> None:
    log = workload(samples, tmp_path, "mysql-9/types.full")
    one = convert([log], "parquet", tmp_path / "one", selection=Selection(objects=("w.ints",), on_damage="stop"))
    some = convert([log], "parquet", tmp_path / "some", selection=Selection(objects=("w.[in]*",), on_damage="stop"))
    assert [o.path for o in one.outputs] == ["part-00000.parquet"]
    assert {o.path.partition("/")[0] for o in some.outputs} == {"w.ints", "w.numbers"}
    assert rows(tmp_path / "one") == rows(tmp_path / "some" / "w.ints")


def test_tables_are_replaced_where_that_is_allowed_and_nothing_else_is(samples: Path, tmp_path: Path) -> None:
    log, out = workload(samples, tmp_path, "mysql-9/ddl-mysql.row"), tmp_path / "out"
    first = tables(log, out)[0]
    with pytest.raises(RefusedError, match="exists"):
        tables(log, out)
    assert tables(log, out, overwrite=True)[0] == first
    (out / "mine").mkdir()
    with pytest.raises(RefusedError, match="holds other files"):
        tables(log, out, overwrite=True)


def test_partitions_are_directories_and_no_longer_columns(samples: Path, tmp_path: Path) -> None:
    log, wanted = workload(samples, tmp_path, "mysql-9/types.full"), Selection(objects=("w.ints",), on_damage="stop")
    whole = convert([log], "parquet", tmp_path / "whole", selection=wanted)
    parted = convert([log], "parquet", tmp_path / "out", selection=wanted, partition_by=["op"])
    counts = Counter(row["op"] for row in rows(tmp_path / "whole"))
    assert {o.path.partition("/")[0]: o.rows for o in parted.outputs} == {f"op={op}": n for op, n in counts.items()}
    assert "op" not in parquet.read_schema(tmp_path / "out" / parted.outputs[0].path).names
    assert parted.rows == whole.rows


def test_a_column_that_is_called_like_one_of_ours_gets_another_name(samples: Path, tmp_path: Path) -> None:
    from binlogtool.export.typed_columns import TableLayout, TypedColumn

    form = TableLayout(
        (TypedColumn("Time", "int"), TypedColumn("time_", "int"), TypedColumn("x", "int")),
        (),
        "after",
        operations=False,
    )
    assert form.column_names == ["Time_", "time__", "x"]


@pytest.mark.parametrize("image", ["after", "both", "changes"])
def test_damage_is_a_row_of_its_own_and_stops_what_does_not_pass_over_it(
    samples: Path, tmp_path: Path, image: str
) -> None:
    log = workload(samples, tmp_path, "mysql-9/types.full")
    data = bytearray(log.read_bytes())
    with binlogtool.open(log) as opened:
        hit = [one for one in opened.records() if one.type == "WRITE_ROWS_EVENT" or "WRITE_ROWS" in one.type][3]
    data[hit.offset + hit.size - 6] ^= 0xFF
    log.write_bytes(data)
    stopped = convert([log], "parquet", tmp_path / "stopped", per_table=True)
    assert not stopped.complete and stopped.exit_code == 1 and not (tmp_path / "stopped").exists()
    found, done = tables(log, tmp_path / "out", selection=Selection(on_damage="skip"), image=image)
    assert {(row["op"], row["offset"]) for row in found["DAMAGE"]} == {("DAMAGE", hit.offset)}
    assert done.damage == len(found["DAMAGE"]) and "checksum-mismatch" in found["DAMAGE"][0]["findings"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"selection": Selection(objects=("w.no*",))}, r"no such table; it has w\.bare"),
        ({"per_table": True, "to": "jsonl"}, "--per-table is for tables"),
        ({"image": "after", "to": "raw"}, "--image is for tables"),
        ({"image": "old"}, "choose one of after, before, both, changes"),
        ({"per_table": True, "selection": Selection(where="body.rows.after.v > 1")}, "--where: body.rows.after.v:"),
        ({"per_table": True, "selection": Selection(tail=3)}, "--tail"),
        ({"per_table": True, "partition_by": ["type"]}, "choose of op, server, file, date, hour"),
        ({"per_table": True, "to": "csv", "image": "both"}, "--image both"),
    ],
)
def test_what_makes_no_sense_is_refused(samples: Path, tmp_path: Path, options: dict[str, Any], why: str) -> None:
    log = workload(samples, tmp_path, "mysql-9/types.full")
    with pytest.raises(UsageError, match=why):
        convert([log], options.pop("to", "parquet"), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_tables_of_an_ibb_are_those_of_its_events(corpus: Path, tmp_path: Path) -> None:
    found, done = tables(corpus / "mariadb-innodb-binlog" / "generated" / "edges", tmp_path / "out")
    assert found["app1.t1"][0]["@2"] == "y2c7hex2hcrk8cydduuubvsi7somd3i36"
    assert [row["op"] for row in found["DAMAGE"]] == ["QUERY"] * 3 and done.exit_code == 1  # its log has statements


def test_a_space_is_called_as_an_older_file_says(corpus: Path, tmp_path: Path) -> None:
    """Tarantool 2.6: 00000000000000000512.xlog does not say that space 512 is `shared`."""
    log = corpus / "tarantool" / "generated" / "repl" / "a" / "00000000000000000512.xlog"
    found, _ = tables(log, tmp_path / "out")
    assert len(found["shared"]) == 11


def test_each_record_of_an_eblob_log_is_a_row_with_its_key(samples: Path, tmp_path: Path) -> None:
    """Held against eblob's own reading of the log."""
    text = gzip.decompress((samples / "eblob/oracle/instance-a.read.jsonl.gz").read_bytes()).decode()
    read_by_it = [json.loads(line) for line in text.split("\n") if line.startswith('{"offset"')]
    found, done = tables(samples / "eblob" / "instance-a.binlog", tmp_path / "out")
    wanted = [(one["offset"], one["key"]) for one in read_by_it]
    assert wanted and [(row["offset"], row["key"]) for row in found["records"]] == wanted
    sizes = {one["offset"]: one["data_size"] for one in read_by_it}
    data = {row["offset"]: len(row["data"]) for row in found["records"] if row["data"] is not None}
    assert data and data == {offset: sizes[offset] for offset in data}
    assert {row["commit"] for row in found["records"]} == {None} and done.exit_code == 0


def test_documents_of_manticore_come_and_go_as_its_log_says(samples: Path, tmp_path: Path) -> None:
    """Held against the reading of an independent decoder, whose counts are those of the server."""
    folder = samples / "manticore" / "v16-mixed"
    lines = [json.loads(line) for line in (folder / "expected.jsonl").read_text().splitlines()]
    wanted = Counter[str]()
    for one in lines:
        if one.get("payload", {}).get("kind") == "commit":
            wanted[one["table"]] += one["payload"]["rows"]
    found, _ = tables(folder / "binlog.0000", tmp_path / "out")
    came = Counter(name for name, made in found.items() for row in made if row["op"] in ("INSERT", "REPLACE"))
    assert +wanted and came == +wanted


def test_stored_fields_of_documents_have_the_words_of_their_dictionary(samples: Path, tmp_path: Path) -> None:
    """The other decoder tells the first keywords of each commit; the server made them of the fields."""
    folder = samples / "manticore" / "v16-mixed"
    lines = [json.loads(line) for line in (folder / "expected.jsonl").read_text().splitlines()]
    found, _ = tables(folder / "binlog.0000", tmp_path / "out")
    texts = {
        (name, row["offset"]): " ".join(str(row[column]) for column in row if column.startswith("@")).lower()
        for name, made in found.items()
        for row in made
    }
    seen = 0
    for one in lines:
        payload = one.get("payload", {})
        if payload.get("has_docstore") and payload["rows"] == 1 and payload["dict_guess"] == "keywords":
            words = set(re.findall(r"\w+", texts[one["table"], one["offset"]]))
            assert {word for word in payload["keywords_head"] if word.isalnum()} <= words
            seen += len(payload["keywords_head"])
    assert seen > 20


def test_rows_of_drizzle_are_the_records_of_its_statements(corpus: Path, tmp_path: Path) -> None:
    """Held against the text that Drizzle's own reader wrote of the first entries, of which it broke off the last."""
    folder = corpus / "drizzle" / "generated"
    text = (folder / "oracle" / "basic-checksum.log.raw.txt").read_bytes()
    text = text[: text.rindex(b"\ntransaction_context") + 1]
    found, _ = tables(folder / "basic-checksum.log", tmp_path / "out")
    shown = len(re.findall(rb"^transaction_context \{$", text, re.MULTILINE))
    made = [row for table in found.values() for row in table if row["record"] < shown]
    assert len(made) == len(re.findall(rb"^ +record \{$", text, re.MULTILINE)) > 0
    assert {row["op"] for row in made} == {"INSERT", "UPDATE", "DELETE"}


def row_events_of_compiled_code(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Gets an entry for each row event: did compiled code make its rows?"""
    from binlogtool.export.table_router import TableRouter
    from binlogtool.formats.binlog_events.changes.typed_column_kernels import RowCellFillers

    made, cells, crowd = list[bool](), RowCellFillers.try_store_row_event, TableRouter._add_row_batch

    def counted(*arguments: Any) -> Any:
        made.append((found := cells(*arguments)) is not None)
        return found

    def counted_at_once(self: Any, one: Any) -> None:
        made.extend([True] * len(one.rows.record_indexes))
        crowd(self, one)

    monkeypatch.setattr(RowCellFillers, "try_store_row_event", counted)
    monkeypatch.setattr(TableRouter, "_add_row_batch", counted_at_once)
    return made


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    ["mysql-9/types.full", "mysql-9/types-hard.full", "mysql-9/charsets.full", "mariadb/types.full",
     "mariadb/types.row", "mariadb/types-mariadb.full", "mariadb/charsets.full"],
)  # fmt: skip
def test_compiled_code_makes_the_rows_that_python_makes(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    made = row_events_of_compiled_code(monkeypatch)
    log = workload(samples, tmp_path, name)
    by_code, _ = tables(log, tmp_path / "native", backend="native", image="both")
    assert made.count(True) > 2
    made.clear()
    in_python, _ = tables(log, tmp_path / "python", backend="python", image="both")
    assert not made and by_code == in_python


@pytest.mark.parametrize(
    ("name", "column"),
    [("mysql-9.7/row-minimal-types", "absent"), ("mysql-9.7/row-noblob-rowsquery", "absent"),
     ("mariadb-10.11/row-minimal-types", "absent"), ("mariadb-10.11/compressed-events", "op")],
)  # fmt: skip
def test_compiled_code_makes_the_rows_of_partial_images_and_compressed_events(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, column: str
) -> None:
    made = row_events_of_compiled_code(monkeypatch)
    log = next(one for one in sorted((logs / name).iterdir()) if re.search(r"\.\d{6}$", one.name))
    by_code, _ = tables(log, tmp_path / "native", backend="native", image="both")
    assert made.count(True) > len(made) * 3 // 4
    in_python, _ = tables(log, tmp_path / "python", backend="python", image="both")
    assert by_code == in_python and any(row[column] for table in by_code.values() for row in table)


@pytest.mark.parametrize("image", ["after", "before", "changes"])
def test_images_of_compiled_rows_are_those_of_python(samples: Path, tmp_path: Path, image: str) -> None:
    log = workload(samples, tmp_path, "mysql-9/types.full")
    found = [tables(log, tmp_path / one, backend=one, image=image)[0] for one in ("native", "python")]
    assert found[0] == found[1]


def test_many_rows_of_large_events_keep_their_order(logs: Path, tmp_path: Path) -> None:
    """MySQL 9.7: one transaction of 2,000 rows in events of 8 KiB, then UPDATE and DELETE."""
    log = logs / "mysql-9.7" / "big-transaction" / "binlog.000001"
    found = [tables(log, tmp_path / one, backend=one, image="both")[0] for one in ("native", "python")]
    assert found[0] == found[1] and sum(map(len, found[0].values())) > 2000


@pytest.mark.full
@pytest.mark.parametrize("name", ["mysql-9/types.full", "mariadb/types.full", "mysql-9/charsets.full"])
def test_damaged_images_without_checksums_are_told_alike(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Flipped bits in row events that no checksum proves."""

    log = workload(samples, tmp_path, name)
    data, events = without_checksums(log.read_bytes())
    chosen = random.Random(7)
    for number in range(4):
        made = bytearray(data)
        for _ in range(8):
            at, size = chosen.choice([one for one in events if one[1] < 4000])
            made[at + chosen.randrange(27, size)] ^= 1 << chosen.randrange(8)
        log.write_bytes(made)
        wanted = Selection(on_damage="skip")
        found = [
            tables(log, tmp_path / f"{one}{number}", backend=one, image="both", selection=wanted)[0]
            for one in ("native", "python")
        ]
        assert found[0] == found[1]


@pytest.mark.parametrize("behind", [{}, {"tsn": 3, "commit": True}], ids=["a row alone", "a transaction"])
def test_the_end_of_another_transaction_is_not_that_of_one_of_tarantool_that_has_none(
    behind: dict[str, Any], tmp_path: Path
) -> None:
    dml, block = make_tarantool.dml, make_tarantool.block
    broken = block(dml(1, tsn=1) + dml(2, tsn=1, space=513))
    whole = block(dml(4, tsn=4) + dml(5, tsn=4, space=513, commit=True))
    log = tmp_path / f"{0:020}.xlog"
    log.write_bytes(make_tarantool.header() + broken + block(dml(3, space=513, **behind)) + whole + make_tarantool.END)
    found, _ = tables(log, tmp_path / "out", selection=Selection(on_damage="skip"))
    assert {row["seq"]: row["commit"] for table in found.values() for row in table} == {
        1: False, 2: False, 3: True, 4: False, 5: True,
    }  # fmt: skip
    with binlogtool.open(log) as opened:
        assert [row["commit"] for row in opened.rows("512")] == [False, True]


@pytest.mark.parametrize("backend", ["native", "python"])
def test_a_row_has_the_finding_about_the_names_of_its_columns(tmp_path: Path, backend: str) -> None:
    """Compiled code counted the finding, and left it out of the row."""
    log = tmp_path / "bin.000001"
    created, altered = b"create table t (a int, b int)", b"alter table t change c d int"
    insert = table_map(b"\3\3"), write(b"\0\1\0\0\0\2\0\0\0", 2)
    inserts = transaction(*insert, number=1) + transaction(*insert, number=2)
    log.write_bytes(binlog([query(created), query(altered), *inserts], MARIADB))
    convert([log], "json", tmp_path / "out", per_table=True, image="both", backend=backend)
    (file,) = (tmp_path / "out" / "d.t").glob("*.json")
    first, second = map(json.loads, file.read_text().splitlines())
    assert first["after"] == second["after"] == {"@1": 1, "@2": 2}
    (found,) = json.loads(first["findings"])
    assert found["id"] == "meta-mismatch" and "there is no column c" in found["message"]
    assert second["findings"] is None
