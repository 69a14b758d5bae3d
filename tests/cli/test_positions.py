"""Positions over several files, as the servers' own tools have them; tables by the names that their users type."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.invoke import invoke
from tests.cli.samples import insert, plain_log

ROTATED = "mysql-binlog/generated/mariadb-10.11/rotated-set"
NAMES = [f"rot-bin.{number:06}" for number in range(3, 9)]
IBB = "mariadb-innodb-binlog/generated/basic/binlog-000000.ibb"
_AT = re.compile(rb"^# at (\d+)$", re.MULTILINE)


@pytest.fixture
def rotated(corpus: Path) -> Path:
    """The six logs of a MariaDB server, with what its own tool printed of each beside it."""
    return corpus / ROTATED


def events(log: Path) -> list[int]:
    """The positions that mariadb-binlog printed of one log."""
    return sorted({int(at) for at in _AT.findall(gzip.decompress(log.with_name(f"{log.name}.txt.gz").read_bytes()))})


def told(rotated: Path, start: int, stop: int) -> list[tuple[str, int]]:
    """File and position of the events that are wanted: start counts in the first log, stop in the last."""
    found = [(name, at) for name in NAMES for at in events(rotated / name)]
    return [(n, at) for n, at in found if (n != NAMES[0] or at >= start) and (n != NAMES[-1] or at < stop)]


def read(*words: str | Path) -> list[tuple[str, int]]:
    done = invoke("dump", "-O", "jsonl", "--fields", "file,offset", *map(str, words))
    assert done.code == 0, done.err
    return [(Path(r["file"]).name, r["offset"]) for r in map(json.loads, done.out.splitlines())]


def borders(rotated: Path) -> tuple[int, int]:
    """A position in the first log that lies behind the end of others, and one early in the last log."""
    start, stop = events(rotated / NAMES[0])[-3], events(rotated / NAMES[-1])[6]
    assert stop < 1000 < 4000 < start
    return start, stop


def test_a_start_counts_in_the_first_file_and_a_stop_in_the_last(rotated: Path) -> None:
    start, stop = borders(rotated)
    words = ("--start-position", str(start), "--stop-position", str(stop))
    files = [rotated / name for name in NAMES]
    assert read(*words, *files) == told(rotated, start, stop)
    assert read("-j", str(start), *files) == told(rotated, start, 1 << 62)
    assert read("--stop-position", str(stop), *files) == told(rotated, 0, stop)


def test_the_files_of_a_directory_count_like_files_that_are_named(rotated: Path) -> None:
    """The list of files beside the logs is none of them."""
    start, stop = borders(rotated)
    assert read("-j", str(start), "--stop-position", str(stop), rotated) == told(rotated, start, stop)


def test_a_record_number_counts_in_the_first_and_in_the_last_file(rotated: Path) -> None:
    two = [rotated / name for name in NAMES[:2]]
    first, second = ([(name, at) for at in events(rotated / name)] for name in NAMES[:2])
    assert read("-j", "record:5", "--stop-position", "record:2", *two) == first[5:] + second[:2]


def test_a_sequence_number_counts_in_all_files(rotated: Path) -> None:
    done = invoke("dump", "-O", "csv", "--fields", "seq", "-j", "seq:25", "--type", "GTID", str(rotated))
    assert done.text.split() == ["seq", *map(str, range(25, 54))]


def test_a_position_that_names_its_file_counts_there(rotated: Path) -> None:
    start, stop = events(rotated / NAMES[2])[4], events(rotated / NAMES[3])[7]
    found = read("-j", f"{NAMES[2]}:{start}", "--stop-position", f"{rotated / NAMES[3]}:{stop}", rotated)
    wanted = [(name, at) for name in NAMES[2:4] for at in events(rotated / name)]
    assert found == [(n, at) for n, at in wanted if (n, at) >= (NAMES[2], start) and (n, at) < (NAMES[3], stop)]


def test_a_name_that_several_files_have_is_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.log").write_bytes(plain_log())
    files = [str(tmp_path / folder / "x.log") for folder in ("a", "b")]
    assert invoke("dump", "-j", "x.log:95", *files).code == 2
    assert len(read("-j", f"{files[1]}:190", *files)) == 1


@pytest.mark.skipif(shutil.which("mariadb-binlog") is None, reason="mariadb-binlog is not installed")
def test_the_servers_own_tool_reads_the_same_events(rotated: Path) -> None:
    start, stop = borders(rotated)
    files = [str(rotated / name) for name in NAMES]
    words = [f"--start-position={start}", f"--stop-position={stop}"]
    shown = subprocess.run(["mariadb-binlog", *words, *files], capture_output=True, check=True, timeout=60).stdout
    theirs = [int(at) for at in _AT.findall(shown)]
    assert theirs[1:] == [at for _, at in told(rotated, start, stop)] and theirs[0] == 4  # its FORMAT_DESCRIPTION


def gtids(sql: bytes) -> list[str]:
    return [m.decode() for m in re.findall(rb"gtid_seq_no=(\d+)", sql)]


def test_a_script_has_the_transactions_behind_the_start_of_the_first_log(rotated: Path) -> None:
    start, _ = borders(rotated)
    two = [str(rotated / name) for name in NAMES[:2]]
    done = invoke("dump", "-O", "sql", "--with-gtids", "-j", str(start), *two)
    both = invoke("dump", "-O", "sql", "--with-gtids", two[1])
    assert gtids(done.out) == gtids(both.out) != []


def stats(*words: str) -> int:
    return sum(one["records"] for one in json.loads(invoke("stats", "-O", "json", *words).out)["groups"])


def test_stats_and_conversions_use_the_same_positions(rotated: Path, tmp_path: Path) -> None:
    start, stop = borders(rotated)
    words = ["-j", str(start), "--stop-position", str(stop), *(str(rotated / name) for name in NAMES)]
    wanted = told(rotated, start, stop)
    assert stats(*words) == len(wanted)
    done = invoke("convert", "--to", "jsonl", "-o", str(tmp_path / "out"), *words)
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in (tmp_path / "out").read_bytes().splitlines()]
    assert [(Path(one["file"]).name, one["offset"]) for one in lines] == wanted


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("named", [False, True])
def test_a_table_on_spark_has_the_same_records(rotated: Path, tmp_path: Path, named: bool) -> None:
    start, stop = borders(rotated)
    wanted = told(rotated, start, stop)
    words = [str(start), str(stop)]
    if named:
        stop = events(rotated / NAMES[3])[7]
        words = [f"{NAMES[0]}:{start}", f"{NAMES[3]}:{stop}"]
        known = [one for one in told(rotated, start, 1 << 62) if one[0] <= NAMES[3]]
        wanted = [(n, at) for n, at in known if n != NAMES[3] or at < stop]
    done = invoke(
        "convert", "--to", "csv", "-o", str(tmp_path / "out"), "-j", words[0], "--stop-position", words[1],
        *(str(rotated / name) for name in NAMES),
    )  # fmt: skip
    assert done.code == 0, done.err
    rows: list[tuple[str, int]] = []
    for part in (tmp_path / "out").rglob("*.csv"):
        rows += [(Path(row["file"]).name, int(row["offset"])) for row in csv.DictReader(io.StringIO(part.read_text()))]
    assert sorted(rows) == wanted


def until(*words: str) -> Sequence[dict[str, int]]:
    done = invoke("replay-dry-run", "-O", "json", *words)
    values = [json.loads(done.out)] if done.out.count(b"binlogtool/replay/1") == 1 else None
    return [one["decisions"] for one in values or map(json.loads, done.out.splitlines())]


def test_a_replay_of_several_logs_ends_in_the_last(tmp_path: Path) -> None:
    files = [tmp_path / "a.log", tmp_path / "b.log"]
    for file in files:
        file.write_bytes(plain_log())
    size = str(len(insert(1, b"shop", b"t", b"1")))
    names = list(map(str, files))
    assert [one["applied"] for one in until("--until", size, *names)] == [3, 1]
    assert [one["applied"] for one in until("--until", f"b.log:{size}", *names)] == [3, 1]
    assert invoke("replay-dry-run", "--until", f"a.log:{size}", *names).code == 2


def test_a_member_of_a_set_is_annotated_by_position(rotated: Path) -> None:
    at, behind = events(rotated / NAMES[1])[4:6]
    words = ("-j", f"{NAMES[1]}:{at}", "--stop-position", f"{NAMES[1]}:{behind}")
    found = json.loads(invoke("hexdump-annotate", "-O", "json", *words, str(rotated)).out)
    assert Path(found["file"]).name == NAMES[1]
    assert (found["fields"][0]["start"], found["fields"][-1]["end"]) == (at, behind)


# -- pages -------------------------------------------------------------------------------------------------------------


def test_a_page_is_a_position_where_there_are_pages(corpus: Path) -> None:
    """Pages of an InnoDB binlog have 16 KiB."""
    found = read("-j", "page:1", "--stop-position", "page:2", corpus / IBB)
    assert found == [one for one in read(corpus / IBB) if 16384 <= one[1] < 32768] != []
    shown = json.loads(invoke("hexdump-annotate", "-O", "json", "--at", "page:1", str(corpus / IBB)).out)
    assert (shown["fields"][0]["start"], shown["fields"][-1]["end"]) == (16384, 32768)


def test_a_page_is_refused_where_there_are_none(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(plain_log())
    for words in (["dump", "-j", "page:1"], ["hexdump-annotate", "--at", "page:1"]):
        done = invoke(*words, str(path))
        assert (done.code, done.out) == (2, b"") and "no pages" in done.err


# -- fields ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["text", "jsonl", "json", "table", "csv", "raw", "sql"])
@pytest.mark.parametrize("name", ["nosuch", "seq,nosuch", "nosuch.x"])
def test_a_field_that_no_record_has_is_a_usage_error_in_every_output(plain: Path, form: str, name: str) -> None:
    done = invoke("dump", "-O", form, "--fields", name, str(plain))
    assert (done.code, done.out) == (2, b"") and done.err.count("\n") == 1


def test_fields_of_the_body_are_columns(plain: Path) -> None:
    """transaction() of tests/cli/samples.py writes segment_id 1 and end_segment 1."""
    words = ("--fields", "seq,body.segment_id,body.nosuch,body.transaction_context.server_id", str(plain))
    (row, *_) = csv.DictReader(io.StringIO(invoke("dump", "-O", "csv", *words).text))
    assert list(row.values()) == ["1", "1", "", "7"]
    assert invoke("dump", *words).text.splitlines()[0] == "1\t1\t\t7"
    table = invoke("dump", "-O", "table", *words).text.splitlines()
    assert table[1].split() == words[1].split(",") and table[3].split() == ["1", "1", "7"]


def test_a_table_shows_the_columns_that_are_asked_for(plain: Path) -> None:
    assert invoke("dump", "-O", "table", "--fields", "file,checksum", str(plain)).text.count(" ok") == 3


# -- tables and databases ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--database", "shop"], ["shop.a", "shop.b"]),
        (["--table", "a"], ["shop.a", "work.a"]),
        (["--database", "shop", "--table", "a", "--table", "c"], ["shop.a"]),
        (["--database", "shop", "--database", "work", "--table", "a"], ["shop.a", "work.a"]),
        (["--table", "b", "--object", "work.*"], ["shop.b", "work.a"]),
        (["--database", "shop", "--exclude-object", "*.a"], ["shop.b"]),
        (["--table", "nosuch"], []),
    ],
)
def test_database_and_table_choose_objects(tmp_path: Path, words: list[str], wanted: list[str]) -> None:
    path = tmp_path / "x.log"
    tables = [(b"shop", b"a"), (b"shop", b"b"), (b"work", b"a")]
    path.write_bytes(b"".join(insert(n, *table, b"1") for n, table in enumerate(tables, 1)))
    done = invoke("dump", "-O", "csv", "--fields", "object", *words, str(path))
    assert done.text.split()[1:] == wanted


def test_a_table_name_is_also_that_of_a_space(samples: Path) -> None:
    log = str(samples / "tarantool/chain")
    named = invoke("dump", "-O", "csv", "--table", "_space", log)
    assert named.out == invoke("dump", "-O", "csv", "--object", "_space", log).out and named.out.count(b"\n") > 5
