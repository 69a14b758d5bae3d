"""`binlogtool hexdump-annotate` and `binlogtool convert` from the outside."""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli.invoke import invoke


def test_a_record_is_shown_field_by_field(plain: Path) -> None:
    shown = invoke("hexdump-annotate", "--record", "1", "--border", "ascii", str(plain)).text.splitlines()
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


@pytest.mark.parametrize(
    "words",
    [
        ["--record", "99"],
        ["--at", "99999"],
        ["--field", "nothing"],
        ["--record", "1", "--at", "5"],
        ["--at", "somewhere"],
    ],
)
def test_a_place_that_is_not_there_is_a_usage_error(plain: Path, words: list[str]) -> None:
    done = invoke("hexdump-annotate", *words, str(plain))
    assert (done.code, done.err.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("words", "head"),
    [
        (["--width", "8", "--border", "none"], "00 01 02 03  04 05 06 07"),
        (["--group", "4", "--border", "none"], "00010203"),
    ],
)
def test_the_columns_can_be_chosen(plain: Path, words: list[str], head: str) -> None:
    lines = invoke("hexdump-annotate", *words, "--record", "0", str(plain)).text.splitlines()
    assert head in lines[0] or "00" in lines[0]
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


@pytest.mark.spark
def test_parquet_comes_from_the_embedded_spark(plain: Path, tmp_path: Path) -> None:
    import pyarrow.parquet

    target = tmp_path / "rows.parquet"
    done = invoke("convert", "--to", "parquet", "-o", str(target), "-O", "json", str(plain))
    assert done.code == 0, done.err
    assert json.loads(done.out)["rows"] == 3
    assert pyarrow.parquet.read_table(target).num_rows == 3
