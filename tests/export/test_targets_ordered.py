"""Targets that are one file: raw bytes, scripts and their undo; and what an interrupt leaves of them."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from binlogtool import convert
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import InputOutputError, UsageError
from binlogtool.export.manifest import Manifest, ProgressStep
from binlogtool.export.sql_script_output import count_statements
from binlogtool.export.write_json_sql_raw import ReverseSpool
from binlogtool.report.dump_output_formats import CompiledLineEncoder
from tests.cli.invoke import invoke
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import image, optional, rows_body, sized, table_map_body
from tests.harness import oracle_ibb
from tests.harness.slowness import scale_limit

ROOT = Path(__file__).resolve().parents[2]
NAMES = optional(1, b"\0") + optional(4, sized(b"id") + sized(b"n")) + optional(2, b"\x2d")
MAP = make.event(make.TABLE_MAP, table_map_body(b"\x03\x0f", b"\x40\0", NAMES))
INSERT, UPDATE, DELETE = 23, 24, 25


@pytest.fixture
def good(samples: Path) -> Path:
    return samples / "drizzle" / "basic-checksum.log"


def row(number: int, text: bytes) -> bytes:
    return image([struct.pack("<i", number), bytes([len(text)]) + text])


def insert(*numbers: int) -> bytes:
    return make.event(INSERT, rows_body(2, b"".join(row(n, b"x") for n in numbers)))


def transaction(number: int, *events: bytes, end: bytes = make.event(make.XID, bytes(8))) -> list[bytes]:
    """events: row events, each one a statement."""
    return [make.event(make.GTID, make.mariadb_gtid(number)), *(MAP + event for event in events), end]


def undone(tmp_path: Path, *transactions: list[bytes], **options: object) -> tuple[Manifest, list[str]]:
    """The manifest, and the lines of the script but for comments, its head and its end."""
    log, out = tmp_path / "bin.000001", tmp_path / "undo.sql"
    log.write_bytes(make.log(event for events in transactions for event in events))
    done = convert([log], "flashback", out, **options)  # type: ignore[arg-type]
    lines = out.read_text().splitlines() if out.exists() else []
    own = [line for line in lines if line != "/*!*/;" and not line.startswith("#")]
    return done, own[own.index("START TRANSACTION") : len(own) - own[::-1].index("COMMIT")] if "COMMIT" in own else []


def test_the_newest_row_of_the_newest_transaction_comes_first(tmp_path: Path) -> None:
    changed = make.event(UPDATE, rows_body(2, row(1, b"x") + row(9, b"new"), [[True, True], [True, True]]))
    gone = make.event(DELETE, rows_body(2, row(2, b"it's")))
    done, lines = undone(
        tmp_path, transaction(1, insert(1, 2), insert(3)), transaction(2, changed, gone), rows="statements"
    )
    assert done.complete, done.findings
    is_x = "CAST(`n` AS BINARY) <=> 'x'"
    assert lines == [
        "START TRANSACTION",
        "INSERT INTO `db`.`t` (`id`,`n`) VALUES", "(2,'it''s')",
        "UPDATE `db`.`t` SET `id`=1, `n`='x' WHERE `id` <=> 9 AND CAST(`n` AS BINARY) <=> 'new' LIMIT 1",
        "COMMIT",
        "START TRANSACTION",
        f"DELETE FROM `db`.`t` WHERE `id` <=> 3 AND {is_x} LIMIT 1",
        f"DELETE FROM `db`.`t` WHERE `id` <=> 2 AND {is_x} LIMIT 1",
        f"DELETE FROM `db`.`t` WHERE `id` <=> 1 AND {is_x} LIMIT 1",
        "COMMIT",
    ]  # fmt: skip


def test_checks_that_were_off_are_off_for_the_same_rows_only(tmp_path: Path) -> None:
    body = bytearray(rows_body(2, row(1, b"x")))
    body[6] |= 2  # NO_FOREIGN_KEY_CHECKS
    _, lines = undone(tmp_path, transaction(1, make.event(INSERT, bytes(body)), insert(2)), rows="statements")
    assert [line for line in lines if "`id` <=> 2" not in line][1:4] == [
        "SET @@session.foreign_key_checks=0",
        "DELETE FROM `db`.`t` WHERE `id` <=> 1 AND CAST(`n` AS BINARY) <=> 'x' LIMIT 1",
        "SET @@session.foreign_key_checks=1",
    ]


def test_a_rollback_that_was_logged_is_refused(tmp_path: Path) -> None:
    rollback = make.event(make.QUERY, make.query(b"ROLLBACK"))
    done, lines = undone(tmp_path, transaction(1, insert(1), end=rollback), transaction(2, insert(2)))
    assert not done.complete and lines == []
    (found,) = done.findings
    start = "transaction 0-1-1: QUERY cannot be reversed: it rolls back changes, "
    assert found["message"] == start + "and the log does not say which ones remained"
    assert done.details["stopped_by"] == "flashback"


def test_a_server_that_stopped_in_a_transaction_is_told(tmp_path: Path) -> None:
    done, _ = undone(tmp_path, transaction(1, insert(1), end=b""), transaction(2, insert(2)))
    assert not done.complete
    assert "the transaction has no end" in str(done.findings[0]["message"])


@pytest.mark.parametrize("change", [{"on_damage": "skip"}, {"types": ("XID",)}, {"limit": 3}, {"skip": 1}, {"tail": 2}])
def test_an_undo_is_of_whole_transactions_without_damage(change: dict[str, object], tmp_path: Path) -> None:
    chosen = Selection(**{"on_damage": "stop", **change})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=f"--{next(iter(change)).rstrip('s').replace('_', '-')}"):
        undone(tmp_path, transaction(1, insert(1)), selection=chosen)


def test_damage_stops_an_undo(tmp_path: Path) -> None:
    events = b"".join([*transaction(1, insert(1)), *transaction(2, insert(2)), *transaction(3, insert(3))])
    data = bytearray(make.log([events]))
    data[-40] ^= 1  # in the last row
    (tmp_path / "bin.000001").write_bytes(data)
    done = convert([tmp_path / "bin.000001"], "flashback", tmp_path / "undo.sql")
    assert not done.complete and "checksum-mismatch" in done.finding_counts
    assert "stopped_by" not in done.details
    assert os.listdir(tmp_path) == ["bin.000001"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--stop-before", "drop table x"), "--stop-before 'drop table x': the log has no such statement"),
        (("--object", "db.t"), "1 statement was left out: --object selects row changes"),
    ],
)
def test_what_an_option_leaves_out_is_no_damage(options: tuple[str, ...], why: str, tmp_path: Path) -> None:
    log, ddl = tmp_path / "bin.000001", make.event(make.QUERY, make.query(b"create table u (a int)"))
    log.write_bytes(make.log([*transaction(1, insert(1)), ddl]))
    done = invoke("convert", "--to", "sql", *options, "-o", str(tmp_path / "x.sql"), str(log))
    assert done.code == 1 and why in done.text
    assert "nothing was written: an option excludes statements" in done.text
    assert "--on-damage" not in done.text


def test_a_text_with_a_rewritten_name_in_it_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "bin.000001"
    for sql, complete in ((b"insert into db.t values (1)", False), (b"insert into t values (1)", True)):
        log.write_bytes(make.log(transaction(1, make.event(make.QUERY, make.query(sql)))))
        done = convert([log], "sql", tmp_path / "out.sql", rewrite=["db->other"])
        assert done.complete == complete
    text = (tmp_path / "out.sql").read_text()
    assert "\n/*! */USE `other`\n" in text and "`db`" not in text
    assert done.checks[0].detail == f"{count_statements(tmp_path / 'out.sql')} statements of 5 records"


def test_sql_is_what_dump_writes(tmp_path: Path) -> None:
    log = tmp_path / "bin.000001"
    log.write_bytes(make.log([*transaction(1, insert(1, 2)), *transaction(2, insert(3))]))
    done = convert([log], "sql", tmp_path / "out.sql")
    assert (tmp_path / "out.sql").read_bytes() == invoke("dump", "-O", "sql", str(log)).out
    assert done.rows == 9 == done.inputs[0].records


def test_raw_is_the_records_bytes_in_their_order(good: Path, tmp_path: Path) -> None:
    steps: list[ProgressStep] = []
    done = convert([good], "raw", tmp_path / "all", on_step=steps.append)
    whole = good.read_bytes()
    assert (tmp_path / "all").read_bytes() == whole
    assert done.outputs[0].sha256 == hashlib.sha256(whole).hexdigest() == done.inputs[0].sha256
    assert (steps[-1].done, steps[-1].total, steps[-1].records) == (len(whole), len(whole), 67)
    part = convert([good], "raw", tmp_path / "part", selection=Selection(start="44", stop="669", on_damage="stop"))
    assert (tmp_path / "part").read_bytes() == whole[44:669]
    assert part.rows == 2
    assert part.checks[0].detail == "2 records of 625 bytes, 625 written"


@pytest.mark.parametrize("hole", [None, 3])
def test_raw_of_records_in_pages_is_their_data_without_chunk_headers(tmp_path: Path, hole: int | None) -> None:
    """A record's size in the file includes the headers of its chunks: 25,989 bytes where the data has 25,935."""
    packed = ROOT / "tests" / "corpus" / "mariadb-innodb-binlog" / "page4k" / "binlog-000001.ibb.gz"
    data = bytearray(gzip.decompress(packed.read_bytes()))
    if hole is not None:
        data[4096 * hole : 4096 * (hole + 1)] = bytes(4096)
    log = tmp_path / "binlog-000001.ibb"
    log.write_bytes(data)
    done = convert([log], "raw", tmp_path / "raw", selection=Selection(on_damage="skip"))
    size = (tmp_path / "raw").stat().st_size
    assert (done.complete, done.outputs[0].size) == (True, size)
    if hole is None:
        fields = (one for frame in oracle_ibb.ibb(bytes(data)).frames for one in frame.fields)
        chunks = [(data[one.start - 3], one.end - one.start) for one in fields if one.name == "payload"]
        from_previous_file = next(length for flags, length in chunks if flags & oracle_ibb.CONT)
        assert size == sum(length for _, length in chunks) - from_previous_file == 25_935
    assert (tmp_path / "raw").read_bytes() == invoke("dump", "-O", "raw", "--on-damage", "skip", str(log)).out


def test_pieces_come_back_in_the_opposite_order_whatever_fits_into_memory(tmp_path: Path) -> None:
    chance = random.Random(7)
    pieces = [chance.randbytes(chance.choice((0, 1, 30, 5000))) for _ in range(400)]
    for held in (1, 700, 100_000, 1 << 30):
        with ReverseSpool(tmp_path, held) as backwards:
            backwards.add(pieces[:150])
            backwards.add(pieces[150:])
            assert b"".join(backwards.read_in_reverse_order()) == b"".join(reversed(pieces))
            assert os.listdir(tmp_path) == []


def test_a_script_that_ends_in_a_statement_is_found_out(tmp_path: Path) -> None:
    path = tmp_path / "s.sql"
    path.write_bytes(b"# x\nDELIMITER $$\nBEGIN\n$$\nDELIMITER $1$\na\n$$\n$1$\nDELIMITER $$\nDELIMITER ;\n")
    assert count_statements(path) == 2
    path.write_bytes(b"DELIMITER $$\nBEGIN\n$$\nINSERT\n")
    with pytest.raises(InputOutputError, match="inside a statement"):
        count_statements(path)


SLOW = """
import sys, time
from binlogtool import convert
options = {"lines": lambda block: b"\\n" * len(block)} if sys.argv[2] == "jsonl" else {}
steps = []
def report(step):
    steps.append(step)
    if len(steps) == 1:
        print("go", flush=True)
    elif len(steps) == 3:
        time.sleep(600)  # until the signal comes, if it did not come before
try:
    convert([sys.argv[1]], sys.argv[2], sys.argv[3], on_step=report, **options)
except KeyboardInterrupt:
    sys.exit(130)
print("finished")
"""


@pytest.mark.full
@pytest.mark.parametrize("to", ["jsonl", "flashback"])
def test_an_interrupt_leaves_nothing(to: str, tmp_path: Path) -> None:
    log, work = tmp_path / "bin.000001", tmp_path / "work"
    work.mkdir()
    events = b"".join(transaction(1, insert(*range(50)), insert(*range(50))))
    log.write_bytes(make.log([events] * 20_000))
    command = [sys.executable, "-c", SLOW, str(log), to, str(work / "out")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "go\n"
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=120)[0] == ""
    assert process.returncode == 130
    assert time.monotonic() - sent < scale_limit(3)
    assert os.listdir(work) == []


@pytest.mark.parametrize("name", ["mysql_binlog/sets/mariadb", "drizzle/basic-checksum.log"])
def test_json_lines_are_those_of_dump_and_are_made_by_the_same_code(
    name: str, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[str] = []
    encode = CompiledLineEncoder.encode_ranges

    def record_encoding(encoder: CompiledLineEncoder, parts: Any) -> Any:
        for part in encode(encoder, parts):
            encoded.append(type(part).__name__)
            yield part

    monkeypatch.setattr(CompiledLineEncoder, "encode_ranges", record_encoding)
    log = str(samples / name)
    for words in ((), ("--append", "--final")):
        encoded.clear()
        done = invoke("convert", *words, "--to", "jsonl", "-o", str(tmp_path / f"out{len(words)}"), log)
        assert done.code == 0 and "EncodedLines" in encoded, done.err
    dumped = invoke("dump", "-O", "jsonl", log).out
    assert (tmp_path / "out0").read_bytes() == dumped
    (part,) = (tmp_path / "out2").glob("part-*.jsonl")
    appended = [json.loads(line) for line in part.read_bytes().splitlines()]
    expected = [json.loads(line) for line in dumped.splitlines()]
    names = [
        {**one, "file": Path(one["file"]).name} for one in (*appended, *({"generation": 0, **one} for one in expected))
    ]
    assert sorted(map(str, names[: len(appended)])) == sorted(map(str, names[len(appended) :]))
