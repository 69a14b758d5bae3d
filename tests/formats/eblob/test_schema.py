"""The schemas: every byte named, built back, and scanned alike by construct, Python and native code (goal R12)."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from construct import ConstructError

from binlogtool.format_api.format import FileHead
from binlogtool.format_api.layout import LogFileLayout
from binlogtool.formats.eblob.decode import DIALECTS
from binlogtool.formats.eblob.format import FORMAT
from binlogtool.formats.eblob.schema import RECORD, RECORD_A
from binlogtool.limits import Limits
from binlogtool.schema import backends
from binlogtool.schema.annotated_parse import parse_to_field_rows
from binlogtool.schema.frame_scan_loop import StopReason
from tests.formats.eblob.files import FILES
from tests.formats.eblob.make import key, overwrite, record, remove, total

SHIPPED = ("api-sync", "dialect-a-instance", "dialect-b-rawtypes-api", "dialect-p-packed", "empty", "instance-a")
U64 = (1 << 64) - 1


def layout_of(data: bytes) -> LogFileLayout:
    return FORMAT.reading.layout(
        FileHead(data[:4096], "data-0.0.binlog", len(data), peek=lambda at, n: data[at : at + n]), Limits()
    )


def by_construct(layout: LogFileLayout, data: bytes) -> tuple[list[tuple[int, ...]], int, list[Any]]:
    """Offset, end and columns of every record, where the walk ended, and the parsed records."""
    stream, rows, parsed, at = BytesIO(data), [], [], layout.frames_at
    while at < len(data):
        stream.seek(at)
        try:
            one = layout.frame.schema.parse_stream(stream)
        except (ConstructError, OverflowError, MemoryError):
            break
        rows.append((at, stream.tell(), *(int(one[name]) & U64 for name in layout.frame.columns)))
        parsed.append(one)
        at = stream.tell()
    return rows, at, parsed


def by_scanner(layout: LogFileLayout, data: bytes, backend: str) -> tuple[list[tuple[int, ...]], int]:
    scanner = backends.choose_backend(backend).make_scanner(layout.frame.schema, layout.frame.columns)
    rows: list[tuple[int, ...]] = []
    at = layout.frames_at
    while True:
        table, stop = scanner.scan(data, at, len(data))
        columns = [
            [int(value) & U64 for value in table[name][: table.count]]
            for name in ("offset", "end", *layout.frame.columns)
        ]
        rows += zip(*columns, strict=True)
        at = stop.at
        if stop.reason != StopReason.FULL:
            return rows, at


def agree(data: bytes) -> int:
    """Raises where the three engines differ; returns the number of records."""
    layout = layout_of(data)
    rows, end, _ = by_construct(layout, data)
    assert by_scanner(layout, data, "python") == (rows, end)
    assert by_scanner(layout, data, "native") == (rows, end)
    return len(rows)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_engines_agree_on_the_samples(samples: Path, name: str) -> None:
    counts = {"api-sync": 25, "dialect-a-instance": 67, "dialect-b-rawtypes-api": 40, "dialect-p-packed": 6}
    data = (samples / "eblob" / f"{name}.binlog").read_bytes()
    assert agree(data) == ({"empty": 0, "instance-a": 328} | counts)[name]


@pytest.mark.parametrize("name", FILES)
def test_the_engines_agree_on_each_dialect(name: str) -> None:
    assert agree(FILES[name]) == {"b": 4, "b4": 3}.get(name, 2)


def test_the_engines_agree_on_every_file_of_the_corpus(corpus: Path) -> None:
    files = sorted((corpus / "eblob" / "generated").rglob("*.binlog"))
    listed = json.loads((corpus / "eblob/generated/manifest.json").read_text())
    assert len(files) == len(listed["files"]) + len(listed["damaged"])
    for path in files:
        data = path.read_bytes()
        if len(data) >= 256:
            agree(data)


def damaged(rng: random.Random, data: bytes) -> Iterator[bytes]:
    """The file with one change each: a bit, a number, a cut, bytes taken out."""
    places = [at for at in range(255, len(data)) if at < 700 or rng.random() < 0.2]
    for _ in range(60):
        at, changed = rng.choice(places), bytearray(data)
        kind = rng.randrange(4)
        if kind == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            number = rng.choice((0, 1, 2, 5, 1 << 31, 1 << 56, (1 << 56) + 1, 1 << 63, U64 - 127, U64))
            changed[at : at + 8] = struct.pack("<Q", number)
        elif kind == 2:
            del changed[at:]
        else:
            del changed[at : at + rng.randrange(1, 200)]
        yield bytes(changed)


@pytest.mark.parametrize("name", FILES)
def test_the_engines_agree_on_damaged_files(name: str) -> None:
    rng = random.Random(name)
    for data in damaged(rng, FILES[name]):
        if len(data) >= DIALECTS[name].frames_at:
            agree(data)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_record_of_the_samples_builds_back(samples: Path, name: str) -> None:
    data = (samples / "eblob" / f"{name}.binlog").read_bytes()
    layout = layout_of(data)
    built = b"".join(layout.frame.schema.build(one) for one in by_construct(layout, data)[2])
    assert layout.header is not None
    assert layout.header.build(layout.header.parse(data)) + built == data


@pytest.mark.parametrize("name", FILES)
def test_every_record_of_each_dialect_builds_back(name: str) -> None:
    layout = layout_of(FILES[name])
    built = b"".join(layout.frame.schema.build(one) for one in by_construct(layout, FILES[name])[2])
    assert FILES[name][: layout.frames_at] + built == FILES[name]


def leaves(schema: Any, data: bytes) -> dict[str, object]:
    """Path and value of every leaf; they must tile the bytes."""
    traced = parse_to_field_rows(schema, data, 0, Limits())
    assert traced.errors == []
    end, out = 0, {}
    for row in traced.rows:
        if row.leaf and row.end > row.start:
            assert row.start == end
            end, out[row.path] = row.end, row.value
    assert end == len(data)
    return out


def test_an_annotated_overwrite_shows_target_footer_and_control_block() -> None:
    data = overwrite(1, b"user data", start=7000)
    first, second = 136 + 9, 136 + 9 + 136 + 72
    assert leaves(RECORD, data[:first])["metadata.target_offset"] == 7096
    footer = leaves(RECORD, data[first:second])
    assert (footer["data.record_start"], len(bytes(footer["data.sha512"]))) == (7000, 64)  # type: ignore[call-overload]
    control = leaves(RECORD, data[second:])
    assert (control["data.key"], control["data.position"], control["data.data_size"]) == (key(1), 7000, 9)
    assert control["data.disk_size"] == 96 + 9 + 40 + 72


def test_an_annotated_removal_shows_its_flag() -> None:
    assert leaves(RECORD, remove(1))["data.flags"] == 1


@pytest.mark.parametrize("size", [8, 72, 96])
def test_user_data_of_a_telling_size_stays_data(size: int) -> None:
    shown = leaves(RECORD, record(key(1), (7000).to_bytes(8, "little"), b"\xee" * size))
    assert shown["data"] == b"\xee" * size
    assert list(shown)[-1] == "data"


def test_an_annotated_update_of_dialect_a_shows_the_write_control() -> None:
    meta = struct.pack("<3Q4i5Qi4x", 360, 1, 2, 0, 1, 6, 7, 1000, 900, 96, 528, 360, 1)
    shown = leaves(RECORD_A, total(key(1), meta, b"", 1))
    names = (
        "size",
        "data_fd",
        "index_fd",
        "data_offset",
        "ctl_data_offset",
        "total_size",
        "total_data_size",
        "on_disk",
    )
    assert [shown[f"metadata.{name}"] for name in names] == [360, 6, 7, 1000, 900, 528, 360, 1]


def test_every_schema_that_the_format_names_can_be_shown() -> None:
    assert {f"record-{name}" for name in DIALECTS} < set(FORMAT.reading.schemas)
