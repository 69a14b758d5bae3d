"""A checkout alone has the part of the corpus that the project made itself, and nothing of others."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import pytest

from tests.generated.packing import HERE, members, pack, unpack

ARCHIVES = sorted(HERE.glob("*.tar.xz"))

NOT_PACKED = ("tarantool-3.9",)
"""Corpora that are read in place only: their tests need the recorded verdicts of a server beside them."""


def content(path: Path) -> bytes:
    """Of a file that is packed, what is in it: the packing may be another one."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def test_all_of_them_are_small_and_hold_nothing_of_others() -> None:
    assert sum(path.stat().st_size for path in ARCHIVES) <= 4 << 20
    for path in ARCHIVES:
        with tarfile.open(path) as archive:
            names = archive.getnames()
        assert len(names) > 50
        assert all(name.startswith(f"{path.name.removesuffix('.tar.xz')}/generated/") for name in names)
        assert not [name for name in names if "third-party" in name]


@pytest.mark.full
@pytest.mark.full_corpus
def test_each_holds_what_the_corpus_holds(corpus: Path, tmp_path: Path) -> None:
    assert [path.name.removesuffix(".tar.xz") for path in ARCHIVES] == sorted(
        path.parent.name for path in corpus.glob("*/generated") if path.parent.name not in NOT_PACKED
    )
    for path in ARCHIVES:
        unpack(path, tmp_path)
    for home in (path for path in corpus.glob("*/generated") if path.parent.name not in NOT_PACKED):
        wanted = {path.relative_to(corpus) for path in members(home)}
        assert {
            p.relative_to(tmp_path) for p in (tmp_path / home.relative_to(corpus)).rglob("*") if p.is_file()
        } == wanted
        assert [name for name in wanted if content(corpus / name) != content(tmp_path / name)] == []


def test_what_is_packed_is_the_same_when_it_is_unpacked(tmp_path: Path) -> None:
    home = tmp_path / "corpus" / "some-log" / "generated"
    (home / "deep").mkdir(parents=True)
    (home / "oracle-third-party").mkdir()
    (home / "a.log").write_bytes(bytes(range(256)) * 9)
    (home / "deep" / "b.json.gz").write_bytes(gzip.compress(b"printed"))
    (home / "oracle-third-party" / "c").write_bytes(b"of others")
    archive = tmp_path / "one.tar.xz"
    pack(tmp_path / "corpus", home, archive)
    first = archive.read_bytes()
    unpack(archive, tmp_path / "again")
    again = tmp_path / "again" / "some-log" / "generated"
    assert sorted(p.relative_to(again).as_posix() for p in again.rglob("*") if p.is_file()) == [
        "a.log",
        "deep/b.json.gz",
    ]
    assert content(again / "deep" / "b.json.gz") == b"printed"
    assert (again / "a.log").read_bytes() == (home / "a.log").read_bytes()
    pack(tmp_path / "corpus", home, archive)
    assert archive.read_bytes() == first
