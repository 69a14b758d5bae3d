"""`--on-damage salvage` of an InnoDB binlog: records of pages with a wrong CRC, each marked with why."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.cli.invoke import invoke, program
from tests.formats.mariadb_innodb_binlog.ibb_logs import copied

PAGE = 16384
LEVELS = ("record", "page", "event")
STALE, BIT = "stale checksum", "one corrected bit"


def lines(path: Path, level: str, *options: str) -> list[dict[str, Any]]:
    done = invoke("dump", "-O", "jsonl", "--level", level, *options, str(path))
    assert done.code in (0, 1), done.err
    return [json.loads(line) for line in done.out.splitlines()]


def why(record: dict[str, Any]) -> str | None:
    return next((one["facts"]["unproven"] for one in record["findings"] if "unproven" in one["facts"]), None)


def key(record: dict[str, Any]) -> tuple[str, int, int]:
    return record["file"], record["offset"], (record.get("inner") or {}).get("offset", -1)


def told(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in ("record", "file")}


def content(record: dict[str, Any]) -> Any:
    """Its type and body, without the names of columns: behind damage no statement of the log names them any more."""
    body = record["body"]
    if "rows" in body:
        return record["type"], [[list(image.values()) for image in row.values()] for row in body["rows"]]
    if record["type"] == "TABLE_MAP":
        return record["type"], body["table"], [column["type"] for column in body["columns"]]
    return record["type"], body


def salvaged(path: Path, level: str) -> list[dict[str, Any]]:
    """The marked ones; all others are those of skip, unchanged and in their order."""
    found = lines(path, level, "--on-damage", "salvage")
    assert [told(one) for one in found if why(one) is None] == [told(one) for one in lines(path, level)]
    marked = [one for one in found if why(one) is not None]
    assert all(one["checksum"]["ok"] is False for one in marked)
    return marked


@pytest.fixture
def log(corpus: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return copied(corpus / "mariadb-innodb-binlog/generated" / request.param, tmp_path / "log")


def used_pages(path: Path) -> list[int]:
    data = path.read_bytes()
    return [page for page in range(1, len(data) // PAGE) if any(data[page * PAGE : (page + 1) * PAGE])]


@pytest.mark.full
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("log", ["basic", "oob", "xa", "flush"], indirect=True)
def test_pages_with_one_flipped_bit_or_a_stale_crc_are_given_as_they_were(log: Path, level: str) -> None:
    """Also records that go on in such a page, of this file or the next one, and groups whose data is out of band."""
    whole, rng, given = {key(one): content(one) for one in lines(log, level)}, random.Random(7), 0
    for path in sorted(log.glob("*.ibb")):
        intact = path.read_bytes()
        for page in rng.sample(used_pages(path), min(2, len(used_pages(path)))):
            for said, at, mask in ((BIT, rng.randrange(PAGE), 1 << rng.randrange(8)), (STALE, PAGE - 4, 0xFF)):
                data = bytearray(intact)
                data[page * PAGE + at] ^= mask
                path.write_bytes(data)
                kept = {key(one) for one in lines(log, level)}
                marked = salvaged(log, level)
                assert {key(one): content(one) for one in marked} == {
                    place: record for place, record in whole.items() if place not in kept
                }
                assert {why(one) for one in marked} <= {said}
                given += len(marked)
        path.write_bytes(intact)
    assert given > 5


@pytest.mark.parametrize("log", ["basic"], indirect=True)
def test_what_is_behind_rubbish_in_a_page_is_not_given_and_what_is_before_it_is(log: Path) -> None:
    path = log / "binlog-000000.ibb"
    data = bytearray(path.read_bytes())
    begun = [one["offset"] for one in lines(path, "record") if one["offset"] // PAGE == 1]
    border = begun[4]
    data[border : 2 * PAGE - 4] = b"\xee" * (2 * PAGE - 4 - border)
    path.write_bytes(data)
    given = [one["offset"] for one in salvaged(path, "record")]
    assert given == [place for place in begun if place < border][:-1]
    assert salvaged(path, "page") == []


@pytest.mark.parametrize("log", ["basic"], indirect=True)
@pytest.mark.parametrize("level", LEVELS)
def test_noise_and_zeros_give_nothing(log: Path, level: str) -> None:
    path = log / "binlog-000000.ibb"
    intact, rng = path.read_bytes(), random.Random(3)
    for page in (rng.randbytes(PAGE), bytes(PAGE), b"\x41\x10\0" * 5461 + b"\0"):
        path.write_bytes(intact[: 2 * PAGE] + page + intact[3 * PAGE :])
        assert [one for one in salvaged(path, level) if one["offset"] // PAGE == 2] == []


@pytest.mark.parametrize("log", ["xa"], indirect=True)
def test_convert_and_a_stream_give_the_same(log: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "binlog-000000.ibb", tmp_path / "out.jsonl"
    data = bytearray((log / "binlog-000000.ibb").read_bytes())
    data[3 * PAGE + 700] ^= 1
    path.write_bytes(data)
    found = lines(path, "record", "--on-damage", "salvage")
    assert [why(one) for one in found if why(one)] == [BIT] * 5
    done = invoke("convert", "--to", "jsonl", "--on-damage", "salvage", "--level", "record", str(path), "-o", str(out))
    assert done.code == 0, done.err
    assert [json.loads(line) for line in out.read_text().splitlines()] == found
    words = ("dump", "-O", "jsonl", "-f", "mariadb-innodb-binlog", "--on-damage", "salvage", "-")
    piped = [json.loads(line) for line in program(*words, input=bytes(data), stdin=None).stdout.splitlines()]
    assert [one | {"file": ""} for one in piped] == [one | {"file": ""} for one in found]
