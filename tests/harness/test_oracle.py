"""The harness' own readers against what the corpus' makers wrote down: an oracle that is wrong proves nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import oracle, oracle_ibb

each_folder = pytest.mark.parametrize(
    "folder", ["generated", pytest.param("third-party", marks=pytest.mark.full_corpus)]
)


def tarantool_entries(home: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    listing = json.loads((home / "manifest.json").read_text())
    if home.name == "generated":
        for name, files in listing["sets"].items():
            yield from ((home / name / listed["file"], listed) for listed in files["files"])
    else:
        yield from ((home / listed["file"], listed["parsed"]) for listed in listing if listed.get("parsed"))


@each_folder
def test_the_tarantool_reader_sees_the_rows_and_blocks_of_the_manifests(corpus: Path, folder: str) -> None:
    compared = 0
    for path, listed in tarantool_entries(corpus / "tarantool" / folder):
        if not path.exists() or listed.get("problems") or "rows" not in listed:
            continue
        walk = oracle.tarantool(path.read_bytes())
        if not walk.clean:
            continue
        assert walk.head == listed["header_bytes"], path
        assert sum(frame.records for frame in walk.frames) == listed["rows"], path
        assert len(walk.frames) == sum(listed["blocks"].values()), path
        assert (walk.mark is not None) == listed["eof_marker"], path
        compared += 1
    print(f"\n{compared} Tarantool files: blocks and rows as listed")
    assert compared > 80


@each_folder
def test_the_drizzle_reader_sees_the_entries_of_the_manifests(corpus: Path, folder: str) -> None:
    compared = 0
    manifest = json.loads((corpus / "drizzle" / folder / "manifest.json").read_text())
    for name, listed in manifest["files"].items():
        walk = oracle.drizzle((corpus / "drizzle" / folder / name).read_bytes())
        starts = [frame.start for frame in walk.frames]
        assert len(starts) == listed["entries"], name
        assert starts[: len(listed["first_offsets"])] == listed["first_offsets"], name
        compared += 1
    for name, listed in manifest.get("damaged", {}).items():
        walk = oracle.drizzle((corpus / "drizzle" / folder / name).read_bytes())
        expected = listed["expected"]
        assert len(walk.frames) == expected["good_entries_before"] + expected["good_entries_after_damage"], name
        compared += 1
    print(f"\n{compared} Drizzle files: entries and offsets as listed")
    assert compared > 25 if folder == "generated" else compared == 1


def test_the_reader_of_ibb_sees_the_pages_records_and_ends_of_the_manifest(corpus: Path) -> None:
    """A record that goes on in the next file ends in none of this one: they are what the total is short of."""
    root = corpus / "mariadb-innodb-binlog" / "generated"
    compared = 0
    for sample in json.loads((root / "manifest.json").read_text())["samples"]:
        walks = {name: oracle_ibb.ibb((root / sample["dir"] / name).read_bytes()) for name in sample["facts"]["files"]}
        for name, facts in sample["facts"]["files"].items():
            written = sum(frame.fields[0].name != "never written" for frame in walks[name].frames)
            assert facts["non_empty_pages"] == (written + 1 if facts["header"] is not None else 0), name
            started = sum(facts["records_starting_here"].values())
            ended = sum(frame.records for frame in walks[name].frames)
            assert started - ended in (0, 1), (sample["dir"], name)
            compared += 1
        end = sample["facts"]["end_of_log"]
        if end is not None:
            last = f"binlog-{end['file']:06}.ibb"
            assert oracle.durable_ends(walks[last])[-1] == end["offset"], (sample["dir"], end)
    print(f"\n{compared} .ibb files: pages, records and ends as listed")
    assert compared == 39


@pytest.mark.parametrize("format", ["tarantool", "drizzle", "mariadb-innodb-binlog"])
def test_the_fields_of_the_readers_tile_each_frame(corpus: Path, format: str) -> None:
    from tests.harness.samples import samples

    frames = [frame for sample in samples(corpus, format, 1 << 16) for frame in sample.walk.frames]
    assert frames
    for frame in frames:
        borders = [frame.start, *(field.end for field in frame.fields)]
        assert [field.start for field in frame.fields] == borders[:-1]
        assert borders[-1] == frame.end
