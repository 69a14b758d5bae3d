"""A block whose checksum is right and some of whose rows cannot be decoded: the others are read, one by one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import binlogtool
from binlogtool.formats.tarantool.spaces.definitions import RowRefusedError, parse_space
from binlogtool.limits import Limits
from tests.cli.invoke import Result, invoke
from tests.formats.tarantool.make import block, dml, header, log, row, verify
from tests.sampling import EXHAUSTIVE

HEADER = {0: 3, 2: 1, 4: 1.5}


def framed(lsn: int) -> bytes:
    """A row whose header is right and whose body has a text as the number of its space."""
    return row(HEADER | {3: lsn}, {0x10: "x"})


def unframed() -> bytes:
    """A row whose header is none."""
    return row({"x": 1}, {})


@pytest.mark.full_corpus
@pytest.mark.parametrize("backend", ["python", "native"])
def test_all_rows_of_the_servers_own_test_file_but_the_corrupted_one_are_read(corpus: Path, backend: str) -> None:
    path = corpus / "third-party-2" / "gh7974" / "00000000000000000004.snap"
    (report,) = binlogtool.verify([path], backend=backend).files
    assert (report.records, report.first_seq, report.last_seq) == (390, 0, 389)
    assert [f.id for f in report.findings] == ["payload-undecodable", "valid-after-damage"]
    with binlogtool.open(path, backend=backend) as opened:
        assert [record.seq for record in opened.records()] == list(range(390))


def test_plans_count_the_good_rows_of_a_bad_block(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.xlog"
    path.write_bytes(log([block(dml(1) + dml(2) + framed(3) + dml(4))]))
    (file,) = binlogtool.plan_truncate(path).files
    assert (file.durable_end, file.cut_valid_records) == (len(header()), 3)


@pytest.mark.full_corpus
def test_a_body_with_a_text_as_key_is_read_as_the_server_reads_it(corpus: Path) -> None:
    """Tarantool 3.9 (case row_str_body_key) and 2.6 pass over the key; this row has no space id beside."""
    path = corpus / "found" / "third-party" / "tarantool-bad-row" / "00000000000000000000.xlog"
    (report,) = binlogtool.verify([path]).files
    assert report.records == 5
    assert [one.facts["diagnosis"] for one in report.findings] == ["missing_body_key"]


@pytest.mark.parametrize("backend", ["python", "native"])
@pytest.mark.parametrize("zstd", [False, True])
@pytest.mark.parametrize("bad", [(0,), (1,), (4,), (0, 1), (1, 3), (0, 2, 4), (2, 3, 4)])
def test_rows_around_bad_ones_are_read_wherever_these_stand(bad: tuple[int, ...], zstd: bool, backend: str) -> None:
    rows = [framed(i + 2) if i in bad else dml(i + 2) for i in range(5)]
    data = log([block(dml(1)), block(b"".join(rows), zstd=zstd), block(dml(7))])
    report = verify(data, backend=backend)
    assert report.records == 7 - len(bad)
    told = [f for f in report.findings if f.id == "payload-undecodable"]
    assert len(told) == len(bad)
    assert sum(report.bytes.values()) == len(data)
    assert report.bytes["damaged"] == (0 if zstd else sum(len(rows[i]) for i in bad))


def test_rows_behind_one_whose_header_is_none_are_not_guessed() -> None:
    data = log([block(dml(1) + unframed() + dml(3)), block(dml(4))])
    assert verify(data).records == 2


def test_a_block_of_nothing_but_bad_rows_is_damage_as_before() -> None:
    report = verify(log([block(dml(1)), block(framed(2) + framed(3)), block(dml(4))]))
    assert (report.records, report.bytes["damaged"]) == (2, len(block(framed(2) + framed(3))))


@pytest.mark.full
def test_many_bad_rows_in_one_block_are_read_in_linear_time_and_told_in_bounds() -> None:
    count = 20_000 if EXHAUSTIVE else 4_000
    rows = b"".join(framed(2 * i + 2) + dml(2 * i + 3) for i in range(count))
    report = verify(log([block(dml(1)), block(rows)]))
    assert report.records == count + 1
    told = [f for f in report.findings if f.id == "payload-undecodable"]
    assert len(told) <= Limits().max_findings_per_id + 1


def test_decode_header_and_salvage_show_the_bad_row_at_its_place_and_marked(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.xlog"
    path.write_bytes(log([block(dml(1) + framed(2) + dml(3))]))
    for options in (("--decode", "header"), ("--on-damage", "salvage")):
        done = invoke("dump", "-O", "jsonl", *options, str(path))
        shown = [json.loads(line) for line in done.out.splitlines()]
        assert [(r["seq"], len(r["findings"])) for r in shown] == [(1, 0), (2, 1), (3, 0)], options
        assert shown[1]["findings"][0]["id"] == "payload-undecodable"
        assert shown[1].get("body") is None
    plain = invoke("dump", "-O", "jsonl", str(path))
    assert [json.loads(line)["seq"] for line in plain.out.splitlines()] == [1, 3]
    text = invoke("dump", "-O", "csv", "--on-damage", "salvage", str(path)).out.decode()
    assert [",UNPROVEN," in line for line in text.splitlines()] == [False, False, True, False]


def salvaged(path: Path, new: Path) -> Result:
    return invoke("truncate-to-durable", "--keep-after-damage", "--to-file", str(new), "--yes", str(path))


def test_a_salvaged_copy_leaves_out_a_block_with_a_bad_row(tmp_path: Path) -> None:
    path, new = tmp_path / "00000000000000000000.xlog", tmp_path / "new"
    blocks = [block(dml(1)), block(unframed()), block(dml(2))]
    path.write_bytes(log(blocks))
    done = salvaged(path, new)
    assert done.code == 0, done.err
    assert new.read_bytes() == log([blocks[0], blocks[2]])


def test_a_salvaged_copy_that_would_hide_a_missing_lsn_is_refused(tmp_path: Path) -> None:
    path, new = tmp_path / "00000000000000000000.xlog", tmp_path / "new"
    path.write_bytes(log([block(dml(1)), block(dml(2) + framed(3)), block(dml(4))]))
    done = salvaged(path, new)
    assert done.code == 5 and "gap-in-sequence: LSN 3 of replica 1 is missing" in done.err
    assert not new.exists()


def test_a_space_whose_name_is_not_utf_8_is_refused_as_by_the_server() -> None:
    """Tarantool 2.6: `box.schema.space.create("a\\xff")`."""
    row = [512, 1, b"a\xff", "memtx", 0, {}, []]
    with pytest.raises(RowRefusedError, match="Invalid identifier 'a\ufffd'"):
        parse_space(row, None, is_version_3=False)
