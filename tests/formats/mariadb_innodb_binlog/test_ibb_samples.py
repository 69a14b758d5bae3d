"""The samples that ship with the project, end to end: the library and the commands."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cli.invoke import invoke
from tests.formats.mariadb_innodb_binlog import ibb_logs as logs

SETS = ("page4k", "xa", "dbase")


@pytest.fixture(scope="module")
def home(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The samples, unpacked."""
    top = tmp_path_factory.mktemp("ibb")
    for name in SETS:
        (top / name).mkdir()
        for path in (samples / logs.FORMAT / name).glob("*.gz"):
            (top / name / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    return top


@pytest.fixture(scope="module")
def expected(samples: Path) -> Any:
    return json.loads((samples / logs.FORMAT / "expected.json").read_bytes())


@pytest.mark.parametrize("name", SETS)
def test_records_groups_and_ends_are_those_that_other_readers_saw(home: Path, expected: Any, name: str) -> None:
    known = expected[name]
    report = logs.verified(home / name)
    assert {Path(one.path).name: one.record_types for one in report.files} == {
        file: facts["records"] for file, facts in known["files"].items()
    }
    said = [
        {"file": one.position.file_no, "offset": one.position.offset, "gtid": str(one.gtid), "bytes": len(one.data)}
        | {"sha256": logs.digest(one.data)}
        for one in logs.whole(home / name)
    ]
    assert said == [{key: one[key] for key in said[0]} for one in known["groups"]]
    last = known["end_of_log"]
    ends = {Path(one.path).name: one.durable_end for one in report.files}
    assert ends[f"binlog-{last['file']:06d}.ibb"] == last["offset"]


def test_a_packed_file_is_read_as_a_stream(samples: Path, home: Path) -> None:
    packed = samples / logs.FORMAT / "dbase" / "binlog-000003.ibb.gz"
    plain = home / "dbase" / "binlog-000003.ibb"
    as_stream, as_file = logs.records(packed), logs.records(plain)
    assert [(one.offset, one.type, one.body) for one in as_stream] == [
        (one.offset, one.type, one.body) for one in as_file if one.offset != as_file[-1].offset
    ]  # the last record goes on in the next file, which a stream has not


def test_dump_prints_a_line_for_each_record_page_or_event(home: Path, expected: Any) -> None:
    folder = str(home / "dbase")
    counts = {}
    for level in ("record", "page", "event"):
        result = invoke("dump", "-O", "jsonl", "--level", level, folder)
        assert result.code == 0
        counts[level] = Counter(json.loads(line)["type"] for line in result.text.splitlines())
    assert counts["record"] == sum((Counter(one["records"]) for one in expected["dbase"]["files"].values()), Counter())
    assert counts["page"] == {"PAGE": 13}
    assert counts["event"].total() == sum(len(one["events"]) for one in expected["dbase"]["groups"])
    assert counts["event"]["GTID"] == len(expected["dbase"]["groups"])


def test_a_record_that_lies_in_two_files_is_a_record_of_the_first(home: Path) -> None:
    found = [one for one in logs.records(home / "dbase") if one.type == "COMMIT" and one.body["chunks"] > 1]
    borders = [one for one in found if one.offset + one.size > 65532]
    assert borders and all(Path(one.file).name != "binlog-000005.ibb" for one in borders)


def test_levels_are_refused_where_a_format_has_none(samples: Path) -> None:
    result = invoke("dump", "--level", "event", str(samples / "drizzle" / "basic-checksum.log"))
    assert result.code == 2
    assert "--level event: drizzle has only one" in result.err


def test_hexdump_annotate_names_every_byte_of_a_page(home: Path) -> None:
    result = invoke("hexdump-annotate", "-O", "json", "--at", "4096", str(home / "page4k" / "binlog-000000.ibb"))
    assert result.code == 0
    rows = json.loads(result.text)["fields"]
    leaves = [row for row in rows if row["unit"] == "file" and not any(
        other["path"].startswith(row["path"] + sign) for other in rows for sign in (".", "["))]  # fmt: skip
    covered = 4096
    for row in sorted(leaves, key=lambda row: row["start"]):
        assert row["start"] == covered, row["path"]
        covered = row["end"]
    assert covered == 8192
    paths = {row["path"] for row in rows}
    assert {"page[0].data.chunk[0].type", "page[0].data.chunk[0].data.count", "page[0].crc32c"} <= paths
    assert any(path.endswith("event[0].body.seq_no") for path in paths)


def test_hexdump_annotate_covers_a_whole_file(home: Path) -> None:
    path = home / "dbase" / "binlog-000004.ibb"
    result = invoke("hexdump-annotate", "-O", "json", str(path))
    rows = json.loads(result.text)["fields"]
    top = sorted((row["start"], row["end"]) for row in rows if "." not in row["path"] and row["unit"] == "file")
    reached = 0
    for start, end in top:
        assert start <= reached
        reached = max(reached, end)
    assert reached == path.stat().st_size


def test_verify_says_that_an_intact_log_is_fine(home: Path) -> None:
    result = invoke("verify", "-O", "json", str(home / "xa"))
    assert result.code == 0
    report = json.loads(result.text)
    assert [one["transactions"] for one in report["files"]] == [9, 2, 0]
    assert [one["variant"] for one in report["files"]] == ["ibb 1.0", "ibb 1.0", "held in reserve"]
    (garbage,) = [f for one in report["files"] for f in one["findings"] if f["facts"].get("diagnosis") == "oob-garbage"]
    assert (garbage["facts"]["records"], garbage["facts"]["xa_pending"]) == (2, 1)


@pytest.mark.parametrize("text", ["0-11-12", "0-11-5..9", "7"])
def test_groups_are_chosen_by_gtid(home: Path, text: str) -> None:
    result = invoke("dump", "-O", "jsonl", "--include-gtids", text, str(home / "dbase"))
    every = [one.txn for one in logs.records(home / "dbase") if one.txn]
    wanted = {"0-11-12": ["0-11-12"], "0-11-5..9": [f"0-11-{n}" for n in range(5, 10)]}.get(
        text, [one for one in every if str(one).startswith("7-")]
    )
    assert [json.loads(line)["txn"] for line in result.text.splitlines()] == wanted
