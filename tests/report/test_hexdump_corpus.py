"""Annotated real files: no byte is left out, and the fields say what the format's specification says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binlogtool import formats
from binlogtool.annotation.annotate_file import AnnotateRequest, annotate_file, annotate_path
from binlogtool.core.open_file import BytesSource, LogFile, open_file
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import LimitError, UsageError
from binlogtool.format_api.encode_json import encode_document
from binlogtool.limits import Limits
from binlogtool.report.render_annotated_bytes import encode_annotation
from binlogtool.schema.annotation_types import Annotation, FieldRow
from binlogtool.terminal.hexdump import HexdumpOptions, render_hexdump

LARGEST = 24 * 1024


@contextmanager
def opened(path: Path, name: str) -> Iterator[LogFile]:
    file = open_file(str(path), str(path), formats.load_format(name), Limits())
    try:
        yield file
    finally:
        file.source.close()


def annotate(file: LogFile, request: AnnotateRequest | None = None, limits: Limits = Limits()) -> Annotation:
    return annotate_file(file, request or AnnotateRequest(), limits=limits).collect_annotation(limits)


def files(corpus: Path, name: str) -> list[Path]:
    suffixes = {"drizzle": {".log"}, "tarantool": {".xlog", ".snap", ".vylog", ".run", ".index"}}[name]
    found = [p for p in sorted((corpus / name / "generated").rglob("*")) if p.suffix in suffixes and p.is_file()]
    assert len(found) > 20
    return [p for p in found if p.stat().st_size <= LARGEST]


def tiles(rows: tuple[FieldRow, ...], start: int) -> int:
    """The end of the leaves, which must follow each other without holes."""
    for row in rows:
        if row.leaf and not row.space:
            assert row.start == start, row
            start = row.end
    return start


def whole(file: LogFile) -> Annotation:
    found = annotate(file)
    assert tiles(found.rows, 0) == found.size
    return found


@pytest.mark.full
@pytest.mark.parametrize("name", ["drizzle", "tarantool"])
def test_every_byte_is_drawn_once(corpus: Path, name: str) -> None:
    for path in files(corpus, name)[::4]:
        with opened(path, name) as file:
            found = whole(file)
        assert found.size == path.stat().st_size
        drawn = list(render_hexdump(found.rows, found.spaces, HexdumpOptions(border="ascii", squeeze=False)))
        assert all(line.isprintable() for line in drawn)
        hexes = "".join(line.split("|")[1] for line in drawn[1:] if "(decompressed" not in line)
        spaces = sum(len(space.data) for space in found.spaces)
        assert len(hexes.replace(" ", "")) == 2 * spaces, path


@pytest.mark.full
@pytest.mark.parametrize("name", ["drizzle", "tarantool"])
def test_intact_files_have_no_marks_and_named_bytes_only(corpus: Path, name: str) -> None:
    seen = 0
    for path in files(corpus, name):
        if {"damaged", "damaged_vinyl", "killed", "appended_after_torn"} & set(path.parts):
            continue
        with opened(path, name) as file:
            found = whole(file)
        if found.findings:
            continue
        seen += 1
        assert all(row.ok for row in found.rows), path
        assert not [row for row in found.rows if "unmapped" in row.path], path
    assert seen >= 5


@pytest.mark.full
@pytest.mark.parametrize("name", ["drizzle", "tarantool"])
def test_every_byte_has_one_leaf_and_damage_is_marked_where_the_findings_are(corpus: Path, name: str) -> None:
    seen = 0
    for path in files(corpus, name):
        with opened(path, name) as file:
            found = whole(file)
        for finding in found.findings:
            if finding.id in ("damaged-range", "torn-tail", "checksum-mismatch") and finding.length:
                assert finding.offset is not None
                end = finding.offset + finding.length
                bad = [row for row in found.rows if not row.ok and row.start < end and row.end > finding.offset]
                assert bad, (path, finding)
                seen += 1
    assert seen > 10


@pytest.mark.full
@pytest.mark.parametrize("name", ["drizzle", "tarantool"])
def test_damaged_copies_are_annotated_without_a_hole(corpus: Path, name: str) -> None:
    originals = [path.read_bytes()[:4000] for path in files(corpus, name)[::6]]

    @settings(max_examples=60, deadline=None)
    @given(st.sampled_from(originals), st.lists(st.tuples(st.integers(0, 4000), st.binary(max_size=8)), max_size=4))
    def run(data: bytes, changes: list[tuple[int, bytes]]) -> None:
        for at, new in changes:
            data = data[:at] + new + data[at + len(new) + at % 3 :]
        source = BytesSource("copy", data)
        found = annotate(open_file("copy", "copy", formats.load_format(name), Limits(), source))
        assert tiles(found.rows, 0) == found.size == len(data)
        assert all(line.isprintable() for line in render_hexdump(found.rows, found.spaces))

    run()


def test_only_damage_is_drawn_with_some_fields_around_it(corpus: Path) -> None:
    path = corpus / "drizzle/generated/damaged/bitflip-payload.log"
    with opened(path, "drizzle") as file:
        found = annotate(file, AnnotateRequest(damage_only=True, context=16))
        (mismatch,) = (f for f in found.findings if f.id == "checksum-mismatch")
        leaves = [row for row in found.rows if row.leaf]
        assert mismatch.offset is not None
        start, end = mismatch.offset, mismatch.offset + mismatch.length
        assert tiles(found.rows, leaves[0].start) == leaves[-1].end
        assert start - 32 < leaves[0].start <= start - 16 and end + 16 <= leaves[-1].end < end + 64
        wrong = [row for row in leaves if not row.ok]
        assert [row.path for row in wrong] == ["damaged.entry[0].crc32"] and wrong[0].meaning.startswith("WRONG")


@pytest.mark.parametrize(("record", "name"), [(0, "entry[0]"), (5, "entry[5]")])
def test_one_record_is_one_frame(corpus: Path, record: int, name: str) -> None:
    with opened(corpus / "drizzle/generated/basic-checksum.log", "drizzle") as file:
        found = annotate(file, AnnotateRequest(record=record))
        top = [row for row in found.rows if row.depth == 0]
        assert [row.path for row in top] == [name]
        assert tiles(found.rows, top[0].start) == top[0].end
        inside = annotate(file, AnnotateRequest(at=top[0].start + 3))
        assert inside.rows == found.rows
        assert annotate(file, AnnotateRequest(at=hex(top[0].end - 1))).rows == found.rows
        assert annotate(file, AnnotateRequest(at=f"record:{record}")).rows == found.rows


def test_one_field_is_found_with_and_without_its_frame(corpus: Path) -> None:
    with opened(corpus / "drizzle/generated/basic-checksum.log", "drizzle") as file:
        full = annotate(file, AnnotateRequest(field="entry[2].message.transaction_context"))
        short = annotate(file, AnnotateRequest(record=2, field="message.transaction_context"))
        assert full.rows == short.rows
        paths = [row.path for row in full.rows]
        assert paths[0] == "entry[2].message.transaction_context"
        assert "entry[2].message.transaction_context.server_id.value" in paths
        assert len(annotate(file, AnnotateRequest(field="crc32")).rows) > 10


def test_what_is_not_there_is_a_usage_error(corpus: Path) -> None:
    path = corpus / "drizzle/generated/basic-checksum.log"
    with opened(path, "drizzle") as file:
        for wanted in ({"record": 10**6}, {"at": 1 << 40}, {"field": "nothing"}, {"at": "seq:99999999"}):
            with pytest.raises(UsageError):
                annotate(file, AnnotateRequest(**wanted))
        with pytest.raises(LimitError):
            annotate(file, limits=Limits(max_memory=10_000))


def test_a_packed_record_shows_its_own_rows_only(corpus: Path) -> None:
    for path in files(corpus, "tarantool"):
        with opened(path, "tarantool") as file:
            found = annotate(file)
            packed = [row for row in found.rows if row.unit == "decompressed" and row.path.endswith("rows[1]")]
            if not packed:
                continue
            log_rows = [
                row for row in found.rows if row.path.endswith("]") and row.path.rpartition(".")[2][:5] == "rows["
            ]
            number = log_rows.index(packed[0])
            one = annotate(file, AnnotateRequest(record=number))
            kept = {row.path for row in one.rows if row.unit == "decompressed"}
            assert packed[0].path in kept
            other = packed[0].path.replace("rows[1]", "rows[0]")
            assert not [path for path in kept if path.startswith(other)]
            assert tiles(one.rows, one.rows[0].start) == one.rows[0].end
            chosen = Selection(start=f"record:{number}", limit=1)
            assert annotate(file, AnnotateRequest(selection=chosen)).rows == one.rows
            both = annotate(file, AnnotateRequest(selection=Selection(start=f"record:{number - 1}", limit=2)))
            assert {row.path for row in both.rows} >= {packed[0].path, other}
            assert "rows[2]" not in {row.path.rpartition(".")[2] for row in both.rows}
            return
    pytest.fail("no file with a packed block of two rows")


def test_the_worked_example_of_the_specification_reads_as_written_there(corpus: Path) -> None:
    path = corpus / "tarantool/generated/chain/00000000000000000000.xlog"
    with opened(path, "tarantool") as file:
        found = annotate(file, AnnotateRequest(at=97))
    leaves = {
        row.path.partition(".")[2]: (row.start, row.end, row.value, row.meaning) for row in found.rows if row.leaf
    }
    assert leaves["magic"] == (97, 101, 0xD5BA0BAB, "plain")
    assert leaves["header.length"] == (101, 102, 40, "")
    assert leaves["header.crc32c"][:3] == (103, 108, 0xE565F642)
    assert leaves["header.crc32c"][3] == "ok (crc32c of 0x74..0x9c)"
    assert leaves["payload.rows[0].header.type"] == (118, 119, 4, "UPDATE")
    assert leaves["payload.rows[0].header.timestamp"][2] == 1795232544.8979197
    assert leaves["payload.rows[0].body.space_id"][:3] == (135, 138, 272)
    assert leaves["payload.rows[0].body.tuple[0].op"][2] == "+"


def test_the_json_form_has_the_members_of_the_contract(corpus: Path) -> None:
    path = corpus / "drizzle/generated/damaged/bitflip-payload.log"
    annotation = annotate_path(path, format="drizzle")
    pieces = encode_annotation(annotation.file, annotation.size, annotation.rows, lambda: annotation.findings)
    text = b"".join(pieces)
    value: dict[str, Any] = json.loads(text)
    assert text == encode_document(value)
    assert list(value) == ["schema", "file", "size", "fields", "findings"]
    assert value["schema"] == "binlogtool/annotate/1"
    assert (value["file"], value["size"]) == (str(path), path.stat().st_size)
    required = {"path", "start", "end", "value", "meaning", "unit", "bits"}
    assert all(required <= set(field) <= required | {"space", "ok"} for field in value["fields"])
    first = value["fields"][1]
    assert first == {
        "path": "entry[0].type", "start": 0, "end": 4, "value": 1, "meaning": "TRANSACTION", "unit": "file",
        "bits": None,
    }  # fmt: skip
    levels: dict[tuple[str, int], int] = {}
    for field in value["fields"]:
        level = (field.get("space", ""), field["path"].count(".") + field["path"].count("["))
        assert field["start"] >= levels.get(level, 0), field
        levels[level] = field["end"]
