"""The events of an InnoDB binlog as tables: every one, in every table format; notes are no rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from binlogtool import convert
from binlogtool.errors import InputOutputError, UsageError
from binlogtool.export import records_to_arrow, table_files
from binlogtool.export.convert_logs import TABLE_TARGETS
from binlogtool.export.write_record_tables import EventContiguityCheck
from binlogtool.format_api.format import Hints
from tests.cli.invoke import invoke

EVENTS = Hints(level="event")


@pytest.fixture
def ibb(corpus: Path) -> Path:
    return corpus / "mariadb-innodb-binlog" / "generated"


def expected(ibb: Path, name: str) -> list[tuple[int, int]]:
    """Type and size of each event, as the real server's reader took them out."""
    known = json.loads((ibb / "manifest.json").read_text())
    facts = next(one["facts"] for one in known["samples"] if one["dir"] == name)
    return [(code, size) for group in facts["event_groups"] for code, size in group["events"]]


def read(to: str, folder: Path) -> list[dict[str, Any]]:
    names = ["file", "record", "inner_offset", "inner_size", "type", "extras"]
    schema = pa.schema([records_to_arrow.SCHEMA.field(name) for name in names])
    made = [(path, table_files.read_tables(to, path, schema)) for path in folder.rglob("part-*")]
    found = [row for _, tables in made for table in tables for row in table.to_pylist()]
    return sorted(found, key=lambda row: (row["file"], row["record"], row["inner_offset"]))


@pytest.mark.full
@pytest.mark.parametrize("to", TABLE_TARGETS)
def test_every_event_is_a_row_of_every_table_format(ibb: Path, tmp_path: Path, to: str) -> None:
    done = convert([ibb / "edges"], to, tmp_path / "out", hints=EVENTS)
    found = read(to, tmp_path / "out")
    assert done.complete and done.damage == 0
    assert [(json.loads(row["extras"])["header"]["type_code"], row["inner_size"]) for row in found] == expected(
        ibb, "edges"
    )
    checks = {check.name: check.detail for check in done.checks}
    assert checks["events-without-holes"].startswith(f"{len(found)} events of ")
    assert done.finding_counts["preallocated-tail"] == 2
    assert not list((tmp_path / "out").glob("_notes*"))


@pytest.mark.full
def test_records_without_an_object_have_a_partition_with_a_name(ibb: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = convert([ibb / "edges"], "parquet", out, hints=EVENTS, partition_by=["object"])
    assert done.complete
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == [
        "object=__none__",
        "object=app1.t1",
        "object=app1.t2",
    ]


def test_an_object_of_an_ibb_chooses_the_events(ibb: Path) -> None:
    done = invoke("dump", "--object", "app1.t1", "-O", "jsonl", str(ibb / "edges"))
    assert {json.loads(line)["object"] for line in done.text.splitlines()} == {"app1.t1"}
    refused = invoke("dump", "--object", "app1.t1", "--level", "record", str(ibb / "edges"))
    assert refused.code == 2 and "--level event" in refused.err


def batch(*events: tuple[str, int | None, int | None, int | None]) -> Any:
    import pyarrow as pa

    names = ("file", "record", "inner_offset", "inner_size")
    schema = pa.schema([records_to_arrow.SCHEMA.field(name) for name in names])
    return pa.table([list(column) for column in zip(*events, strict=True)], schema=schema)


@pytest.mark.parametrize(
    ("events", "broken"),
    [
        ([("a", 1, 0, 10), ("a", 1, 10, 5), ("a", None, None, None), ("a", 2, 0, 7)], None),
        ([("a", 1, 0, 10), ("a", 1, 15, 5)], "record 1"),
        ([("a", 1, 0, 10), ("a", 1, 10, 5), ("a", 1, 10, 5)], "record 1"),
        ([("a", 1, 0, 10), ("b", 1, 10, 5)], "b: "),
        ([("a", 7, 10, 5)], "record 7"),
    ],
)
def test_an_event_that_is_missing_or_there_twice_is_found(events: list[Any], broken: str | None) -> None:
    whole, pieces = EventContiguityCheck(), EventContiguityCheck()
    whole.check_next_rows(batch(*events))
    for event in events:
        pieces.check_next_rows(batch(event))
    for tiles in (whole, pieces):
        if broken is None:
            assert tiles.to_check().detail.startswith("3 events of 2 groups")
        else:
            with pytest.raises(InputOutputError, match=broken):
                tiles.to_check()


def test_rule_breaks_are_noted_by_verify_and_written_on_demand_only(ibb: Path, tmp_path: Path) -> None:
    verified = invoke("verify", "-O", "json", str(ibb / "oob"))
    said = json.loads(verified.text)
    notes = [one for file in said["files"] for one in file["findings"] if one["facts"].get("diagnosis") == "no-gtid"]
    assert verified.code == 0 and [one["severity"] for one in notes] == ["note"]
    refused = invoke("convert", "--to", "mysql-binlog", "-o", f"{tmp_path}/log/", str(ibb / "oob"))
    assert refused.code == 1 and "--allow-rule-breaks" in refused.text
    done = invoke("convert", "--to", "mysql-binlog", "--allow-rule-breaks", "-o", f"{tmp_path}/log/", str(ibb / "oob"))
    assert done.code == 0 and "22 transactions" in done.text
    with pytest.raises(UsageError, match="--allow-rule-breaks is for mysql-binlog"):
        convert([ibb / "oob"], "raw", tmp_path / "raw", allow_rule_breaks=True)
