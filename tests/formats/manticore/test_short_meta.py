"""A binlog.meta that ends in its head: servers up to version 14 read what is not there as 0."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import binlogtool
from tests.formats.manticore import sphinx_server
from tests.formats.manticore.old_damages import Files
from tests.formats.manticore.version7 import SAMPLES, files, tree, written

STARTS = {3: False, 4: True, 5: True, 7: True, 8: True, 9: True}
"""Bytes of the meta file -> do Sphinx 2.2.11 and Manticore 2.8.2 start? If they do, it is with an empty list."""


def cut(content: Files, size: int) -> Files:
    return {**content, "binlog.meta": content["binlog.meta"][:size]}


@pytest.mark.parametrize(("size", "starts"), STARTS.items())
def test_what_is_missing_is_read_as_0(tmp_path: Path, size: int, starts: bool) -> None:
    folder = written(tmp_path / "log", cut(files("v7-mixed"), size))
    (replayed,) = binlogtool.replay([folder], format="manticore")
    assert replayed.starts is starts
    assert replayed.decisions["applied"] == 0


@pytest.mark.server
@pytest.mark.parametrize(("size", "starts"), STARTS.items())
def test_sphinx_does_so(corpus: Path, tmp_path: Path, size: int, starts: bool) -> None:
    if sphinx_server.program() is None:
        pytest.skip("searchd is not installed")
    home = corpus / "sphinx/generated"
    configuration = json.loads((home / "manifest.json").read_text())["datasets"]["mixed-kill9"]["tables_conf"]
    content = {path.name: path.read_bytes() for path in (home / "mixed-kill9").glob("binlog.*")}
    real = sphinx_server.start(written(tmp_path / "log", cut(content, size)), configuration)
    assert real.started is starts, real.reason
    assert sum(real.counts.values()) == 0


@pytest.mark.nightly
@pytest.mark.parametrize(("size", "starts"), STARTS.items())
def test_manticore_2_8_does_so(tmp_path: Path, size: int, starts: bool) -> None:
    if tree() is None:
        pytest.skip("the tree is not made")
    folder = written(tmp_path / "log", cut(files("v7-mixed"), size))
    real = sphinx_server.start(folder, (SAMPLES / "v7.conf").read_text(), server=tree())
    assert real.started is starts, real.reason
