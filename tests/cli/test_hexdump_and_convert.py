"""`binlogtool hexdump-annotate` and `binlogtool convert` from the outside."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.cli.invoke import ROOT, invoke
from tests.cli.samples import insert, plain_log, raw_sql


def test_a_record_is_shown_field_by_field(plain: Path) -> None:
    shown = invoke("hexdump-annotate", "--record", "1", "--ascii", str(plain)).text.splitlines()
    assert shown[0].split() == [f"{i:02x}" for i in range(16)]
    assert shown[1].startswith("00000050 |") and "entry[1].type = 1 (TRANSACTION)" in shown[1]
    assert any("transaction_id = 2" in line for line in shown)
    assert any("(crc32 of 0x" in line and "ok" in line for line in shown)


def test_the_fields_of_a_record_tile_it(plain: Path) -> None:
    value = json.loads(invoke("hexdump-annotate", "-O", "json", "--record", "1", str(plain)).out)
    assert (value["schema"], value["size"]) == ("binlogtool/annotate/1", 285)
    inside = {f["path"].rpartition(".")[0] for f in value["fields"]}
    leaves = [f for f in value["fields"] if f["path"] not in inside and f["end"] > f["start"]]
    assert leaves[0]["start"] == 95 and leaves[-1]["end"] == 190
    assert all(a["end"] == b["start"] for a, b in pairwise(leaves))


def test_damage_is_marked_and_makes_the_status_1(damaged: Path) -> None:
    done = invoke("hexdump-annotate", "--at", "0x5f", str(damaged))
    assert done.code == 1
    assert any(line[8:9] == "!" for line in done.text.splitlines())
    assert "checksum-mismatch" in done.text


def test_damage_only_leaves_intact_records_out(damaged: Path) -> None:
    whole, part = (invoke("hexdump-annotate", *o, "-O", "json", str(damaged)).out for o in ([], ["--damage-only"]))
    starts = [f["start"] for f in json.loads(part)["fields"]]
    assert 0 < len(starts) < len(json.loads(whole)["fields"])
    assert 95 in starts and max(starts) < 260


def test_a_field_can_be_named(plain: Path) -> None:
    done = invoke("hexdump-annotate", "-O", "json", "--record", "2", "--field", "length", str(plain))
    (field,) = json.loads(done.out)["fields"]
    assert (field["start"], field["end"], field["value"]) == (194, 198, 83)


def test_a_field_can_be_named_with_its_record_and_in_full(plain: Path) -> None:
    short, full, alone = (
        invoke("hexdump-annotate", "-O", "json", *words, str(plain)).out
        for words in (
            ["--record", "2", "--field", "length"],
            ["--record", "2", "--field", "entry[2].length"],
            ["--field", "entry[2].length"],
        )
    )
    assert short == full == alone
    assert invoke("hexdump-annotate", "--record", "1", "--field", "entry[2].length", str(plain)).code == 2


def fields(*words: str) -> list[dict[str, Any]]:
    done = invoke("hexdump-annotate", "-O", "json", *words)
    assert done.code == 0, done.err
    found: list[dict[str, Any]] = json.loads(done.out)["fields"]
    return found


def tops(*words: str) -> list[str]:
    """Paths of the outermost fields."""
    return [field["path"] for field in fields(*words) if "." not in field["path"]]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """INSERT, RAW_SQL, INSERT into another table, INSERT."""
    path = tmp_path / "mixed.log"
    entries = [insert(1, b"shop", b"t", b"1"), raw_sql(2, b"FLUSH"), insert(3, b"shop", b"u", b"3")]
    path.write_bytes(b"".join([*entries, insert(4, b"shop", b"t", b"4")]))
    return path


@pytest.mark.parametrize(
    ("words", "entries"),
    [
        ([], [0, 1, 2, 3]),
        (["-n", "2"], [0, 1]),
        (["-n", "0"], []),
        (["--skip", "1", "--limit", "2"], [1, 2]),
        (["--type", "RAW_SQL"], [1]),
        (["--object", "shop.t"], [0, 3]),
        (["--exclude-object", "shop.t"], [1, 2]),
        (["--object", "shop.t", "--skip", "1"], [3]),
        (["-j", "record:2"], [2, 3]),
        (["--start-position", "seq:2", "--stop-position", "seq:4"], [1, 2]),
        (["--stop-position", "0x5f"], [0]),
        (["--start-position", "0x60", "--stop-position", "end"], [2, 3]),
        (["--start-datetime", "2012-02-23T12:26:43Z"], [2, 3]),
        (["--live"], [0, 1, 2, 3]),
    ],
)
def test_the_options_of_dump_choose_records_here_too(mixed: Path, words: list[str], entries: list[int]) -> None:
    assert tops(*words, str(mixed)) == [f"entry[{i}]" for i in entries]
    dumped = invoke("dump", "-O", "jsonl", *words, str(mixed)).out.splitlines()
    assert [json.loads(line)["record"] for line in dumped] == entries


def test_a_field_of_the_chosen_records(mixed: Path) -> None:
    found = fields("--object", "shop.t", "--field", "length", str(mixed))
    assert [field["path"] for field in found] == ["entry[0].length", "entry[3].length"]
    assert [field["path"] for field in fields("--skip", "1", "--field", "entry[3].length", str(mixed))] == [
        "entry[3].length"
    ]
    assert invoke("hexdump-annotate", "--limit", "1", "--field", "entry[3].length", str(mixed)).code == 2


def test_a_choice_by_position_shows_the_damage_in_it(damaged: Path) -> None:
    def shown(*words: str) -> list[str]:
        found = json.loads(invoke("hexdump-annotate", "-O", "json", *words, str(damaged)).out)["fields"]
        return [field["path"] for field in found if "." not in field["path"]]

    everything = ["entry[0]", "damaged", "entry[1]", "entry[2]", "entry[3]"]
    assert shown() == everything
    assert shown("-j", "0x10") == everything[1:]
    assert shown("--stop-position", "95") == everything[:1]
    assert shown("--stop-position", "96") == everything[:2]
    assert shown("--start-position", "190") == everything[2:]
    assert shown("--stop-position", "record:1") == everything[:2]
    assert shown("--on-damage", "stop") == everything[:2]
    assert shown("-n", "2") == ["entry[0]", "entry[1]"]


def test_damage_between_chosen_records_is_told(damaged: Path) -> None:
    done = invoke("hexdump-annotate", "-n", "2", "--depth", "0", str(damaged))
    assert done.code == 1 and "checksum-mismatch" in done.text and "damaged.entry" not in done.text
    assert invoke("hexdump-annotate", "-n", "1", str(damaged)).code == 0


def test_an_unfinished_tail_of_a_live_file_is_no_finding(torn: Path) -> None:
    assert "torn-tail" in invoke("hexdump-annotate", str(torn)).text
    assert "torn-tail" not in invoke("hexdump-annotate", "--live", str(torn)).text


def test_the_types_of_a_format_are_listed(plain: Path) -> None:
    assert "INSERT" in invoke("hexdump-annotate", "--type", "list", str(plain)).text


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_long_file_needs_the_memory_of_one_record(tmp_path: Path, form: str) -> None:
    path = tmp_path / "long.log"
    path.write_bytes(plain_log(400))
    done = invoke("hexdump-annotate", "-O", form, "--max-memory", "100KiB", str(path))
    assert done.code == 0, done.err
    if form == "json":
        value = json.loads(done.out)
        assert len([f for f in value["fields"] if "." not in f["path"]]) == 400
        assert done.out == json.dumps(value, indent=2).encode() + b"\n"
    else:
        assert "entry[399].crc32" in done.text and done.text.count("00 01 02 03 04 05 06 07  08") == 1


@pytest.mark.full
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_reader_that_has_enough_ends_it_at_once(tmp_path: Path, form: str) -> None:
    path = tmp_path / "huge.log"
    path.write_bytes(plain_log(3000) * 100)  # some minutes of output
    command = [sys.executable, "-m", "binlogtool", "hexdump-annotate", "-O", form, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": "/nonexistent"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as running:
        assert running.stdout is not None and running.stderr is not None
        assert b"entry[0].type" in running.stdout.read(4000)
        running.stdout.close()
        assert running.wait(timeout=60) == 0
        assert running.stderr.read() == b""


def test_a_place_that_is_not_there_leaves_the_output_empty(plain: Path) -> None:
    for words in (["--record", "99"], ["--field", "nothing"], ["-O", "json", "--at", "99999"]):
        done = invoke("hexdump-annotate", *words, str(plain))
        assert (done.code, done.out) == (2, b"")


@pytest.mark.parametrize(
    "words",
    [
        ["--record", "99"],
        ["--record", "1", "--limit", "2"],
        ["--at", "5", "--type", "INSERT"],
        ["--start-position", "somewhere"],
        ["--tail", "3"],
        ["--at", "99999"],
        ["--field", "nothing"],
        ["--record", "1", "--at", "5"],
        ["--at", "somewhere"],
    ],
)
def test_a_place_that_is_not_there_is_a_usage_error(plain: Path, words: list[str]) -> None:
    done = invoke("hexdump-annotate", *words, str(plain))
    assert (done.code, done.err.count("\n")) == (2, 1)


def test_the_width_can_be_chosen(plain: Path) -> None:
    lines = invoke("hexdump-annotate", "--width", "8", "--record", "0", str(plain)).text.splitlines()
    assert lines[0].strip() == "00 01 02 03 04 05 06 07"
    assert len(lines) > 10


def test_ascii_output_has_no_box_characters(plain: Path) -> None:
    assert invoke("hexdump-annotate", "--ascii", "--record", "0", str(plain)).out.isascii()


def test_json_lines_come_with_an_account(plain: Path, tmp_path: Path) -> None:
    target, account = tmp_path / "out.jsonl", tmp_path / "out.json"
    done = invoke("convert", "--to", "jsonl", "-o", str(target), "--manifest", str(account), "-O", "json", str(plain))
    assert done.code == 0
    value = json.loads(done.out)
    assert json.loads(account.read_bytes()) == value
    assert value["rows"] == len(target.read_bytes().splitlines()) == 3
    assert value["inputs"][0]["sha256"] == hashlib.sha256(plain.read_bytes()).hexdigest()
    assert target.read_bytes() == invoke("dump", "-O", "jsonl", str(plain)).out


@pytest.mark.parametrize("words", [[], ["--output", "-"]])
def test_json_lines_are_printed_where_no_output_is_named(plain: Path, words: list[str]) -> None:
    done = invoke("convert", "--to", "jsonl", *words, str(plain))
    assert (done.code, done.err) == (0, "")
    assert done.out == invoke("dump", "-O", "jsonl", str(plain)).out != b""


def test_nothing_is_printed_of_a_damaged_log(damaged: Path) -> None:
    done = invoke("convert", "--to", "jsonl", str(damaged))
    assert (done.code, done.out) == (1, b"")
    assert "nothing was written: the input is damaged" in done.err


@pytest.mark.parametrize("words", [["--to", "parquet"], ["--to", "jsonl", "--append"], ["-O", "json", "--to", "sql"]])
def test_what_is_no_single_text_needs_an_output(plain: Path, words: list[str]) -> None:
    done = invoke("convert", *words, str(plain))
    assert (done.code, done.out) == (2, b"")
    assert "--output is required; only jsonl and sql can be printed as one file" in done.err


def test_damage_stops_a_conversion_and_nothing_is_written(damaged: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    done = invoke("convert", "--to", "jsonl", "-o", str(target), str(damaged))
    assert done.code == 1 and "nothing was written" in done.text
    assert not target.exists()
    assert invoke("convert", "--to", "jsonl", "-o", str(target), "--on-damage", "skip", str(damaged)).code == 0
    assert len(target.read_bytes().splitlines()) == 4


def test_an_existing_output_is_kept(plain: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    target.write_text("mine")
    assert invoke("convert", "--to", "jsonl", "-o", str(target), str(plain)).code == 5
    assert target.read_text() == "mine"
    assert invoke("convert", "--to", "jsonl", "-o", str(plain), "--overwrite", str(plain)).code == 5
    assert plain.stat().st_size == 285


@pytest.mark.full
@pytest.mark.spark
def test_parquet_comes_from_the_embedded_spark(plain: Path, tmp_path: Path) -> None:
    import pyarrow.parquet

    target = tmp_path / "rows.parquet"
    done = invoke("convert", "--to", "parquet", "-o", str(target), "-O", "json", str(plain))
    assert done.code == 0, done.err
    assert json.loads(done.out)["rows"] == 3
    assert pyarrow.parquet.read_table(target).num_rows == 3


def test_rows_of_a_transaction_without_end_are_noted(corpus: Path, tmp_path: Path) -> None:
    """The log was cut inside transaction 12, before its XID; the same log in use ends with a complete transaction."""
    logs = corpus / "mysql-binlog" / "generated" / "damaged" / "mysql-9.7"
    for name, is_noted in (("crc-truncated-in-transaction.bin", True), ("crc-in-use.bin", False)):
        done = invoke("convert", "--to", "csv", "--per-table", "-o", str(tmp_path / name), str(logs / name))
        text = "0001:12 has no end in the part read; its rows are included, with commit = false"
        assert (done.code, text in done.text + done.err) == (0, is_noted)


def test_json_lines_of_records_name_the_ways_to_rows(tmp_path: Path) -> None:
    log, out = str(ROOT / "tests" / "corpus" / "guides" / "mariadb"), str(tmp_path / "out.jsonl")
    done = invoke("convert", "--to", "jsonl", "--object", "shop.orders", "-o", out, log)
    assert done.code == 0 and "for rows with the table's columns use `binlogtool rows -O jsonl`" in done.text
    refused = invoke("convert", "--to", "jsonl", "--per-table", "-o", out + "2", log)
    assert refused.code == 2 and "rows as JSON lines: --to json, or `binlogtool rows -O jsonl`" in refused.err


def test_names_that_damage_removes_give_one_note(corpus: Path, tmp_path: Path) -> None:
    """The bytes before the rows of a table with 58 columns are zeros: its CREATE TABLE may be followed by another."""
    log = corpus / "mysql-binlog" / "generated" / "damaged" / "mysql-9.7" / "crc-zero-hole.bin"
    out = str(tmp_path / "out")
    done = invoke("convert", "--to", "csv", "--per-table", "--on-damage", "skip", "-o", out, str(log))
    assert done.code == 0 and "is new" not in done.text
    assert done.text.count("the names of the columns of db_east1.orders2_all are assumed") == 1


def test_unknown_column_names_are_no_damage_in_the_last_line(corpus: Path, tmp_path: Path) -> None:
    logs = str(corpus / "mysql-binlog" / "generated" / "mariadb-11.8" / "rotated-set")
    words = ("convert", "--to", "jsonl", "--envelope", "debezium", "--append", "-o", str(tmp_path / "out"), logs)
    done = invoke(*words)
    assert done.code == 1 and "give their CREATE TABLE statements with --schema FILE.sql" in done.text.splitlines()[-1]


def test_assumed_column_names_in_a_compressed_payload_are_a_note_and_nothing_lost() -> None:
    from binlogtool.cli.convert import summary_lines
    from binlogtool.export.manifest import Manifest

    found = {
        "id": "meta-mismatch",
        "severity": "warning",
        "offset": None,
        "length": 0,
        "message": "assumed",
        "facts": {},
    }
    counts, findings = {"meta-mismatch": 1}, ({"file": "bin.000001", **found},)
    manifest = Manifest("jsonl", "out", True, "skip", (), (), 0, 0, findings, counts)
    expected = ["found  1 meta-mismatch", "note   bin.000001  meta-mismatch: assumed"]
    assert list(summary_lines(manifest))[:-1] == expected
