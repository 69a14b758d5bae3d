"""Heads with one flipped bit: where it is proven which, the log is read whole, and every report says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import binlogtool
from binlogtool.findings import Severity
from tests.cli.invoke import invoke
from tests.sampling import take_sample

LOGS = {
    "mysql-binlog": "mysql-binlog/generated/mariadb-10.11/rotated-set/rot-bin.000003",
    "mysql": "mysql-binlog/generated/mysql-9.7/rotated-set/rot-bin.000003",
    "mariadb-innodb-binlog": "mariadb-innodb-binlog/generated/dbase/binlog-000000.ibb",
    "tarantool": "tarantool/generated/chain/00000000000000000111.xlog",
    "snapshot": "tarantool/generated/chain/00000000000000000000.snap",
    "manticore": "manticore/generated/v16/common-mixed-kill9/binlog.0000",
    "manticore-14": "manticore/generated/v14/mixed-kill9/binlog.001",
    "sphinx": "sphinx/generated/mixed-kill9/binlog.001",
}
SPECS = {"mysql": "mysql-binlog", "snapshot": "tarantool", "manticore-14": "manticore", "sphinx": "manticore"}


def flipped(data: bytes, byte: int, bit: int) -> bytes:
    return data[:byte] + bytes([data[byte] ^ 1 << bit]) + data[byte + 1 :]


def original(corpus: Path, format_: str) -> Path:
    found = [path for path in sorted(corpus.glob(LOGS[format_])) if path.stat().st_size > 200]
    return found[0]


def types(path: Path, format_: str) -> list[tuple[int, str]]:
    """Where each record stands, and what it is."""
    with binlogtool.open(path, format=format_) as log:
        return [(record.offset, record.type) for record in log.records()]


CASES = [
    ("mysql-binlog", (8, 13, 14, 23, 79)),  # type, size, version, length of headers
    ("mysql", (8, 13, 79)),
    ("mariadb-innodb-binlog", (0, 4, 16, 40, 300, 508, 700, 16381)),
    ("tarantool", (0, 4, 6, 9)),  # type, end of its line, version, end of its line
    ("snapshot", (3, 5)),
    ("manticore", (0, 3, 4, 7)),  # magic, version
    ("manticore-14", (1, 4, 6)),
    ("sphinx", (2, 5)),
]


@pytest.mark.full
@pytest.mark.parametrize(("format_", "byte"), [(name, byte) for name, places in CASES for byte in places])
def test_the_log_is_read_as_if_the_bit_were_right(corpus: Path, tmp_path: Path, format_: str, byte: int) -> None:
    source, spec = original(corpus, format_), SPECS.get(format_, format_)
    whole, path = source.read_bytes(), tmp_path / source.name
    path.write_bytes(whole)
    expected = types(path, spec)
    assert len(expected) > 1
    for bit in range(8):
        new = tmp_path / f"{bit}.new"
        path.write_bytes(flipped(whole, byte, bit))
        report = binlogtool.verify([path], format=spec)
        (found,) = [one for one in report.findings if one.severity is Severity.ERROR]
        assert (found.facts["flipped_byte"], found.facts["flipped_bit"]) == (byte, bit)
        assert types(path, spec) == expected
        done = invoke("-f", spec, "truncate-to-durable", "--keep-after-damage", "--to-file", str(new), str(path))
        assert done.code == 0 and new.read_bytes() == whole, done.text + done.err


@pytest.mark.full_corpus
def test_the_header_length_of_a_real_log_is_no_unsupported_version(corpus: Path, tmp_path: Path) -> None:
    path = corpus / "found" / "resync" / "fde-bitflip-src-bin.000004"
    told = "one flipped bit explains the damaged header: bit 7 of byte 0x4f"
    verified = json.loads(invoke("verify", "-O", "json", str(path)).out)["files"][0]
    assert [one["id"] for one in verified["findings"]] == ["bad-header"] and verified["records"] == 10
    for command, code in (("dump", 0), ("stats", 1), ("hexdump-annotate", 1), ("replay-dry-run", 1), ("verify", 1)):
        done = invoke(command, str(path))
        assert told in done.text + done.err and done.code in (code, 1), command
    plan = invoke("truncate-to-durable", str(path))
    assert plan.code == 1 and told in plan.text and "--to-file NEW --keep-after-damage" in plan.text


@pytest.mark.parametrize(
    ("format_", "byte", "words"),
    [
        ("tarantool", 1, "Invalid xlog type: expected XLOG, got"),
        ("tarantool", 5, "unsupported file format version"),
        ("manticore", 2, "the log does not start with SPBL"),
        ("manticore-14", 4, "the log is of version 15, the server of version 14"),
        ("sphinx", 6, "the server of version 5"),
    ],
)
def test_a_server_refuses_the_file_all_the_same(
    corpus: Path, tmp_path: Path, format_: str, byte: int, words: str
) -> None:
    source, spec = original(corpus, format_), SPECS.get(format_, format_)
    whole, path = source.read_bytes(), tmp_path / source.name
    path.write_bytes(whole)
    (intact,) = binlogtool.verify([path], format=spec).files
    path.write_bytes(flipped(whole, byte, 0))
    (file,) = binlogtool.verify([path], format=spec).files
    assert (file.records, file.durable_end, file.bytes) == (intact.records, intact.durable_end, intact.bytes)
    (replay,) = binlogtool.replay([path], format=spec)
    assert not replay.starts and replay.stop is not None and words in replay.stop.why
    for command in ("verify", "dump", "replay-dry-run", "truncate-to-durable", "hexdump-annotate"):
        done = invoke("-f", spec, command, str(path))
        assert "one flipped bit explains the damaged header" in done.text + done.err, command
    plan = invoke("-f", spec, "truncate-to-durable", str(path))
    assert plan.code == 1 and "--to-file NEW --keep-after-damage writes a copy with the bit corrected" in plan.text


HEADS = {"tarantool": range(125), "snapshot": range(97), "manticore": range(8), "manticore-14": range(8),
         "sphinx": range(8), "mysql-binlog": range(4, 120, 5), "mysql": range(4, 120, 5),
         "mariadb-innodb-binlog": range(0, 520, 40)}  # fmt: skip
"""Bytes of heads in which every bit is flipped."""


@pytest.mark.full
@pytest.mark.parametrize("format_", HEADS)
def test_no_flipped_bit_of_a_head_hides_or_invents_a_record(corpus: Path, tmp_path: Path, format_: str) -> None:
    """All records are read wherever a report names the bit; whatever the bit, no record is read that is not there."""
    source, spec = original(corpus, format_), SPECS.get(format_, format_)
    whole, path = source.read_bytes(), tmp_path / source.name
    path.write_bytes(whole)
    expected, proven = types(path, spec), 0
    bytes_ = HEADS[format_]
    for byte in take_sample(bytes_, 4) if len(bytes_) > 50 else bytes_:
        for bit in range(8):
            path.write_bytes(flipped(whole, byte, bit))
            (file,) = binlogtool.verify([path], format=spec).files
            found = types(path, spec)
            assert set(found) <= set(expected), (byte, bit)
            if any("proof" in one.facts for one in file.findings) or spec in ("tarantool", "manticore"):
                assert found == expected and file.durable_end is not None, (byte, bit)
                proven += 1
    assert proven >= 8  # all bits of one byte, of the magic, at least


@pytest.mark.parametrize("format_", ["mysql-binlog", "mariadb-innodb-binlog", "tarantool", "manticore"])
def test_two_flipped_bits_are_not_guessed(corpus: Path, tmp_path: Path, format_: str) -> None:
    source = original(corpus, format_)
    places = {"mysql-binlog": (8, 79), "mariadb-innodb-binlog": (16, 300), "tarantool": (0, 6), "manticore": (0, 4)}
    first, second = places[format_]
    path = tmp_path / source.name
    path.write_bytes(flipped(flipped(source.read_bytes(), first, 6), second, 5))
    found = binlogtool.verify([path], format=format_).findings
    assert found and not [one for one in found if "proof" in one.facts]
