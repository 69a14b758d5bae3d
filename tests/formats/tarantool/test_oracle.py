"""Agreement with the real server's own tool: every row of every intact file."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.core.record_and_selection_types import Record
from binlogtool.formats.tarantool import codes, schema
from binlogtool.formats.tarantool.msgpack.parse import encode_value
from binlogtool.formats.tarantool.rows.parse_rows import ParsedRow, parse_row
from binlogtool.formats.tarantool.schema import parse_header_lines, unpack_zstd
from binlogtool.limits import Limits
from tests.formats.tarantool import oracle
from tests.formats.tarantool.readings import as_expected, as_printed, ours

SETS = ("single", "rotated", "chain", "killed", "repl")
_SUFFIX = ".json.gz"


FOLDERS = {"oracle": "generated", "oracle-third-party": "third-party"}
each_folder = pytest.mark.parametrize(
    "folder", ["oracle", pytest.param("oracle-third-party", marks=pytest.mark.full_corpus)]
)


def pairs(corpus: Path, folder: str) -> Iterator[tuple[Path, Path]]:
    """(oracle file, log file) of everything that the tool printed in whole."""
    root = corpus / "tarantool"
    base = root / "generated" / folder
    for path in sorted(base.rglob(f"*{_SUFFIX}")):
        if ".user." not in path.name:
            yield path, root / FOLDERS[folder] / path.relative_to(base).with_name(path.name.removesuffix(_SUFFIX))


@pytest.mark.full
@each_folder
def test_every_row_is_what_the_servers_tool_prints(corpus: Path, folder: str) -> None:
    files = rows = 0
    for printed, path in pairs(corpus, folder):
        expected = list(map(as_expected, oracle.rows(printed)))
        assert [as_printed(record) for record in ours(path)] == expected, path
        files += 1
        rows += len(expected)
    assert (files, rows) == {"oracle": (97, 26447), "oracle-third-party": (130, 24411)}[folder]


@pytest.mark.full
@pytest.mark.parametrize("backend", ["python", "native"])
def test_times_and_bodies_are_exact_to_the_bit(corpus: Path, backend: str) -> None:
    base = corpus / "tarantool" / "generated" / "oracle"
    rows = 0
    for printed in sorted(base.rglob("*.exact.tsv.gz")):
        path = base.parent / printed.relative_to(base).with_name(printed.name.removesuffix(".exact.tsv.gz"))
        expected = gzip.decompress(printed.read_bytes()).decode().splitlines()
        assert [exact(record) for record in ours(path, backend, raw=True)] == expected, path
        rows += len(expected)
    assert rows == 16180


def exact(record: Record) -> str:
    """The line that make/exact.lua prints for a record."""
    assert record.raw is not None and record.extras is not None
    header = record.extras["header"]
    row, _ = parse_row(record.raw, 0, len(record.raw))
    shown = [
        oracle.TYPE_NUMBERS.get(record.type, record.type),
        *(
            record.body.get("space_id", "-"),
            header.get("replica_id", "-"),
            header.get("lsn", "-"),
            header.get("tsn", "-"),
        ),
        header.get("flags", 0) & 1,
        f"{header['timestamp']:.17g}" if "timestamp" in header else "-",
        *digest(row, 0x21),
        *digest(row, 0x20),
    ]
    return "\t".join(map(str, shown))


def digest(row: ParsedRow, key: int) -> tuple[Any, str]:
    value = row.body.get(key) if row.body else None
    raw = encode_value(value) if value else b""
    return (len(raw), hashlib.md5(raw).hexdigest()) if value else ("-", "-")


def test_counts_are_those_of_the_manifest(corpus: Path) -> None:
    root = corpus / "tarantool" / "generated"
    checked = 0
    for name, stored in json.loads((root / "manifest.json").read_text())["sets"].items():
        if name not in (*SETS, "repl/a", "repl/b", "killed_restarted"):
            continue
        (group,) = binlogtool.verify([root / name]).sets
        reports = {report.path: report for report in binlogtool.verify([root / name]).files}
        for expected in stored["files"]:
            report = reports.get(str(root / name / expected["file"]))
            if report is None:
                assert expected.get("same_as"), expected["file"]
                continue
            assert report.records == expected["rows"]
            assert report.record_types == expected["rows_by_type"]
            assert report.closed == expected["eof_marker"]
            assert sum(report.bytes.values()) == report.size == expected["size"]
            assert report.durable_end == report.size - 4 * expected["eof_marker"]
            if expected["type"] == "XLOG":
                assert report.transactions == expected["transactions"]
            assert all(f.id == "unclean-close" for f in report.findings)
            checked += 1
        assert group.findings == ()
    assert checked > 80


@pytest.mark.full
@each_folder
def test_every_block_and_row_of_the_corpus_builds_the_same_bytes(corpus: Path, folder: str) -> None:
    blocks = rows = 0
    for _, path in pairs(corpus, folder):
        data = path.read_bytes()
        at = parse_header_lines(data).end
        assert at is not None
        assert schema.HEADER.build(schema.HEADER.parse(data)) == data[:at]
        while data[at : at + 4] in (b"\xd5\xba\x0b\xab", b"\xd5\xba\x0b\xba"):
            block = schema.BLOCK.parse(data[at:])
            built = schema.BLOCK.build(block)
            assert built == data[at : at + len(built)]
            if not block.checksum.ok:
                break
            payload = (
                block.payload if block.magic == codes.PLAIN_MAGIC else unpack_zstd(memoryview(block.payload), Limits())
            )
            parsed = schema.PAYLOAD.parse(payload)
            assert schema.PAYLOAD.build(parsed) == payload
            at, blocks, rows = at + len(built), blocks + 1, rows + len(parsed.rows)
    least = {"oracle": (4250, 26_000), "oracle-third-party": (550, 24_000)}[folder]
    assert blocks > least[0]
    assert rows > least[1]
