"""`--on-damage salvage`: what is well framed though unproven, each record marked with why; nothing unmarked."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.core import salvage_records as unproven_reader
from binlogtool.core.damage_causes import get_candidate_header_bits
from binlogtool.core.record_and_selection_types import Record
from tests.cli.invoke import invoke, program
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import image, rows_body, table_map_body
from tests.harness import oracle

TARANTOOL = "tarantool/chain/00000000000000000000.xlog"


def lines(path: Path, *options: str) -> list[dict[str, Any]]:
    done = invoke("dump", "-O", "jsonl", *options, str(path))
    assert done.code in (0, 1), done.err
    return [json.loads(line) for line in done.out.splitlines()]


def key(record: dict[str, Any]) -> tuple[int, int]:
    """Its place; records of a packed block have that of the block, and one of their own."""
    return record["offset"], (record.get("inner") or {}).get("offset", -1)


def marked(record: dict[str, Any]) -> bool:
    return bool(record["findings"])


def only_marks_are_added(path: Path) -> list[dict[str, Any]]:
    """The records that salvage gives beside those of skip, which it gives unchanged and in their order."""
    salvaged = lines(path, "--on-damage", "salvage")
    proven = [(r["offset"], r["type"], r["body"]) for r in salvaged if not marked(r)]
    assert proven == [(r["offset"], r["type"], r["body"]) for r in lines(path) if not marked(r)]
    assert [r["offset"] for r in salvaged] == sorted(r["offset"] for r in salvaged)
    return [r for r in salvaged if marked(r)]


@pytest.mark.full_corpus
def test_a_log_with_stale_checksums_is_given_whole_and_every_record_is_marked(corpus: Path) -> None:
    path = corpus / "found" / "third-party" / "myflash.binlog"
    found = only_marks_are_added(path)
    assert [(r["offset"], r["type"]) for r in found] == [(0x78, "TABLE_MAP"), (0xD4, "UPDATE_ROWS_V2")]
    assert found[1]["body"]["rows"][0]["before"]["@1"] == 11302
    for record in found:
        assert record["checksum"]["ok"] is False
        (why,) = record["findings"]
        assert (why["id"], why["facts"]["unproven"]) == ("checksum-mismatch", "stale checksum")
    text = invoke("dump", "--on-damage", "salvage", str(path)).out.decode()
    assert text.count("unproven (stale checksum)") == text.count("CHECKSUM-BAD") == 2
    table = invoke("dump", "-O", "csv", "--on-damage", "salvage", str(path)).out.decode().splitlines()
    assert [",BAD," in row for row in table[1:]] == [False, True, True]


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        "tarantool/generated/single/00000000000000001188.xlog",
        "drizzle/generated/server/basic-checksum.log",
        "mysql-binlog/generated/mariadb-10.11/row-full-types/mariadb-bin.000001",
        "sphinx/generated/clean-stop/binlog.001",
    ],
)
def test_a_record_with_one_flipped_bit_is_given_as_it_was_and_the_bit_is_told(
    corpus: Path, tmp_path: Path, name: str
) -> None:
    where = corpus / name
    source = next(p for p in (where, *sorted(where.parents[1].rglob(where.name))) if p.is_file())
    data, path = source.read_bytes(), tmp_path / source.name
    path.write_bytes(data)
    intact = {key(r): (r["type"], r["body"]) for r in lines(path)}
    rng, given = random.Random(5), 0
    for _ in range(12):
        place = rng.randrange(len(data) // 3, len(data))
        flipped = bytearray(data)
        flipped[place] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
        found = [(record, finding) for record in only_marks_are_added(path) for finding in record["findings"]]
        unproven = [(record, finding["facts"]) for record, finding in found if "unproven" in finding["facts"]]
        other = {finding["id"] for _, finding in found if "unproven" not in finding["facts"]}
        assert other <= {"meta-mismatch", "dangling-reference"}  # names and TABLE_MAPs from before the damage
        assert {facts["unproven"] for _, facts in unproven} <= {"one corrected bit", "stale checksum"}
        corrected = [one for one in unproven if one[1]["unproven"] == "one corrected bit"]
        given += len(corrected)
        assert [facts["flipped_byte"] for _, facts in corrected] == [place] * len(corrected)
        assert all((record["type"], record["body"]) == intact[key(record)] for record, _ in corrected)
    assert given >= 6


def test_outputs_without_a_place_for_a_mark_refuse_to_salvage(samples: Path, tmp_path: Path) -> None:
    path = samples / TARANTOOL
    path = path if path.exists() else next((samples / "tarantool").rglob("*.xlog"))
    for options in (("dump", "-O", "raw"), ("convert", "--to", "raw", "-o", str(tmp_path / "out"))):
        done = invoke(*options, "--on-damage", "salvage", str(path))
        assert done.code == 2, done.err
        assert "cannot mark unproven records" in done.err


@pytest.mark.full_corpus
def test_convert_gives_the_same_marked_records(corpus: Path, tmp_path: Path) -> None:
    path, out = corpus / "found" / "third-party" / "myflash.binlog", tmp_path / "out.jsonl"
    done = invoke("convert", "--to", "jsonl", "--on-damage", "salvage", str(path), "-o", str(out))
    assert done.code == 0, done.err
    (made,) = [out] if out.is_file() else sorted(out.glob("*.jsonl"))
    assert [json.loads(line) for line in made.read_text().splitlines()] == lines(path, "--on-damage", "salvage")


def test_a_damaged_payload_of_a_packed_block_is_not_made_up(tmp_path: Path, samples: Path) -> None:
    source = next(p for p in sorted((samples / "tarantool").rglob("*.xlog")) if oracle.PACKED in p.read_bytes())
    data = bytearray(source.read_bytes())
    frame = next(f for f in oracle.tarantool(bytes(data)).frames if data[f.start + 3] == 0xBA)
    middle = (frame.start + frame.end) // 2
    data[middle : middle + 8] = b"\xee" * 8
    path = tmp_path / source.name
    path.write_bytes(data)
    assert [r for r in only_marks_are_added(path) if r["offset"] == frame.start] == []


@pytest.mark.full
@pytest.mark.parametrize(("backend", "times"), [("python", 1), ("native", 1), ("native", 2_000_000)])
def test_a_stream_gives_what_the_file_gives(samples: Path, tmp_path: Path, backend: str, times: int) -> None:
    """Also where the damage is not in the first MiB, which is in memory when the next one is looked for."""
    data = (samples / TARANTOOL).read_bytes()
    head = data.index(b"\n\n") + 2
    blocks = data[head:].removesuffix(oracle.MARK)
    whole = bytearray(data[:head] + blocks * max(1, times // len(blocks)) + blocks)
    last = len(whole) - len(blocks)
    places = [at for at in range(last, len(whole)) if whole.startswith(b"\xd5\xba\x0b\xab", at)]
    for at in places[1:3]:
        whole[at + 30] ^= 4
    whole += blocks * max(1, times // len(blocks))
    path = tmp_path / "00000000000000000000.xlog"
    path.write_bytes(whole)
    options = ("--on-damage", "salvage", "-j", str(last), "--stop-position", str(last + len(blocks)))
    found = [r for r in lines(path, *options) if marked(r)]
    assert found
    done = program(
        "dump", "-O", "jsonl", "--backend", backend, "-f", "tarantool", *options, "-", input=bytes(whole), stdin=None
    )
    piped = [json.loads(line) for line in done.stdout.splitlines()]
    assert [r | {"file": ""} for r in piped if marked(r)] == [r | {"file": ""} for r in found]


@pytest.mark.parametrize(("memory", "given"), [("16MiB", True), ("8MiB", False)])
def test_a_stream_keeps_a_damaged_range_of_a_quarter_of_the_memory(
    samples: Path, tmp_path: Path, memory: str, given: bool
) -> None:
    """Of 3 MiB of blocks with a flipped bit, and noise, a file gives every block, a stream those that it may keep."""
    data, noise = (samples / TARANTOOL).read_bytes(), random.Random(1).randbytes(500_000)
    head = data.index(b"\n\n") + 2
    blocks = data[head:].removesuffix(oracle.MARK)
    at = blocks.index(b"\xd5\xba\x0b\xab", 1)
    first, bad = blocks[:at], bytearray(blocks[:at])
    bad[30] ^= 4
    whole = data[:head] + first + (bytes(bad) + noise) * 6 + bytes(bad) + first
    path = tmp_path / "00000000000000000000.xlog"
    path.write_bytes(whole)
    options = ("dump", "-O", "jsonl", "--on-damage", "salvage", "--max-memory", memory)
    found = [json.loads(line) for line in invoke(*options, str(path)).out.splitlines()]
    done = program(*options, "-f", "tarantool", "-", input=whole, stdin=None)
    piped = [json.loads(line) for line in done.stdout.splitlines()]
    marks = [one["offset"] for one in found if marked(one)]
    assert len(marks) == 7
    assert [one["offset"] for one in piped if marked(one)] == (marks if given else [])


def salvaged(path: Path) -> list[Record]:
    with binlogtool.open(path) as log:
        return list(log.records(on_damage="salvage"))


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        "manticore/sphinx-mixed/binlog.001", "manticore/v14-mixed/binlog.001", "manticore/v16-mixed/binlog.0000",
        TARANTOOL, "mysql_binlog/mysql-8.0-rows.000001",
    ],
)  # fmt: skip
def test_a_bit_that_hides_where_a_record_begins_or_ends_is_found(samples: Path, tmp_path: Path, name: str) -> None:
    """Every bit of the first bytes of a record: magic, operation, lengths, in all dialects."""
    source = next(p for p in (samples / name, *sorted(samples.glob(f"{name.split('/')[0]}/**/*00001"))) if p.is_file())
    data, path = source.read_bytes(), tmp_path / source.name
    path.write_bytes(data)
    whole = salvaged(path)
    assert not any(one.findings for one in whole)
    place = whole[len(whole) // 2].offset
    rows = [one.body for one in whole if one.offset == place]
    for number in range(8 * 13):
        byte, bit = place + number // 8, number % 8
        flipped = bytearray(data)
        flipped[byte] ^= 1 << bit
        path.write_bytes(flipped)
        given = [one for one in salvaged(path) if one.offset == place]
        assert [one.body for one in given] == rows, (hex(byte), bit)
        for one in given:
            facts = one.findings[0].facts if one.findings else {"flipped_byte": byte, "flipped_bit": bit}
            assert (facts["flipped_byte"], facts["flipped_bit"]) == (byte, bit)


def test_events_behind_a_description_inside_the_file_are_salvaged_by_that(tmp_path: Path) -> None:
    """Without checksums nothing tells of a flipped bit: what would explain it in the form of before is not made up."""
    xid, hidden = make.event(make.XID, bytes(8), checksum=False), bytearray(make.event(make.XID, bytes(8)))
    hidden[10] ^= 0x40
    path = tmp_path / "relay.000001"
    path.write_bytes(make.log([make.description(checksum=False), xid, bytes(hidden), xid]))
    assert [one.type for one in salvaged(path)] == ["FORMAT_DESCRIPTION", "FORMAT_DESCRIPTION", "XID", "XID"]


@pytest.mark.full
def test_no_more_bits_are_tried_than_a_file_of_its_size_is_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file in which every place looks like the beginning of a frame."""
    looks: list[int] = []
    real = unproven_reader.find_frame_hidden_by_bit_flip

    def counted(level: Any, *rest: Any) -> Any:
        looks.append(len(get_candidate_header_bits(level)))
        return real(level, *rest)

    monkeypatch.setattr(unproven_reader, "find_frame_hidden_by_bit_flip", counted)
    head = make.event(make.XID, bytes(8))[:19]
    (path := tmp_path / "binlog.000001").write_bytes(make.log([head[:9] + b"\xff\xff\0\0" + head[13:]] * 2000))
    assert [one.type for one in salvaged(path)] == ["FORMAT_DESCRIPTION"]
    assert 0 < sum(looks) <= 16_384 + path.stat().st_size // 256 + 32


@pytest.mark.parametrize("backend", ["native", "python"])
def test_what_an_unproven_statement_declares_is_not_known_of_proven_rows(backend: str, tmp_path: Path) -> None:
    bodies = (make.mariadb_gtid(9), table_map_body(bytes([3])), rows_body(1, image([bytes(4)])), bytes(8))
    usual = [
        make.event(code, body) for code, body in zip((make.GTID, make.TABLE_MAP, 23, make.XID), bodies, strict=True)
    ]
    created = usual[0] + make.event(make.QUERY, make.query(b"CREATE TABLE t (a INT)"))
    path = tmp_path / "bin.000001"
    path.write_bytes(make.log([*usual * 9, created[:-1] + bytes([created[-1] ^ 1]), *usual * 9]))
    found = lines(
        path, "--on-damage", "salvage", "--where", "type like 'WRITE%' or type = 'QUERY'", "--backend", backend
    )
    assert [one["type"] for one in found if marked(one)] == ["QUERY"] and len(found) == 19
    assert all(one["body"]["rows"][0]["after"] == {"@1": 0} for one in found if not marked(one))
