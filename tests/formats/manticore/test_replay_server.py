"""What a replay is said to do, against a real Sphinx server that does it now."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

import binlogtool
from binlogtool.formats.manticore.replay.replayer import read_saved_tid
from binlogtool.prediction.predict_replay import ReplayDecision
from tests.cli.invoke import invoke
from tests.formats.manticore import sphinx_server

pytestmark = pytest.mark.server

CASES = (
    "flip-payload", "table-id-wrong", "torn-mid-txn", "torn-in-magic", "lost-txn", "dup-last-txn", "swapped-txns",
    "no-add-index", "flip-first-add-index", "log-header-only", "log-missing", "meta-no-files", "orphan-log",
)  # fmt: skip


@pytest.fixture(scope="module")
def configuration(corpus: Path) -> str:
    """Of the indexes that the logs speak of; skipped without a server, unless BINLOGTOOL_SERVER=1."""
    if sphinx_server.program() is None:
        if os.environ.get("BINLOGTOOL_SERVER") == "1":
            pytest.fail("BINLOGTOOL_SERVER=1, and searchd is not installed")
        pytest.skip("searchd is not installed")
    manifest = json.loads((corpus / "sphinx" / "generated" / "manifest.json").read_text())
    text: str = manifest["datasets"]["mixed-kill9"]["tables_conf"]
    return text


def check(path: Path, configuration: str) -> None:
    """Indexes that are empty: started or not, the last TID and the number of rows of each."""
    real = sphinx_server.start(path, configuration)
    (ours,) = binlogtool.replay([path], format="manticore")
    assert ours.starts == real.started, (real.reason, ours.stop)
    if not real.started:
        return
    for name, tid in real.tids.items():
        assert ours.position["tables"][name] == tid
    keys = {one.name: one.keys or 0 for one in ours.objects}
    for name, count in real.counts.items():
        assert keys.get(name, 0) - strays(ours.path, name, keys) == count, name


def strays(path: str, name: str, keys: dict[str, int]) -> int:
    """Keys that are not documents: the settings of an index whose log has a RECONFIGURE that is applied."""
    applied: list[ReplayDecision] = []
    binlogtool.replay([path], format="manticore", on_decision=applied.append, digest=False)
    return int(any(one.type == "RECONFIGURE" and one.verb == "applied" and one.object == name for one in applied))


@pytest.mark.parametrize("dataset", ["mixed-kill9", "rotation-24k", "clean-stop"])
def test_healthy_logs_give_the_rows_and_tids_of_the_server(corpus: Path, configuration: str, dataset: str) -> None:
    check(corpus / "sphinx" / "generated" / dataset, configuration)


@pytest.mark.parametrize("case", CASES)
def test_damaged_logs_end_as_in_the_server(corpus: Path, configuration: str, case: str) -> None:
    check(corpus / "sphinx" / "generated" / "damaged" / case, configuration)


@pytest.mark.parametrize(
    ("name", "byte", "bit"),
    [("binlog.001", 0, 1), ("binlog.001", 3, 5), ("binlog.001", 4, 3), ("binlog.001", 4, 4), ("binlog.001", 7, 0),
     ("binlog.001", 4, 0), ("binlog.meta", 0, 2), ("binlog.meta", 4, 1), ("binlog.meta", 8, 0)],
)  # fmt: skip
def test_a_flipped_bit_in_a_head_ends_as_in_the_server(
    corpus: Path, configuration: str, tmp_path: Path, name: str, byte: int, bit: int
) -> None:
    folder = tmp_path / "binlog"
    shutil.copytree(corpus / "sphinx" / "generated" / "mixed-kill9", folder, copy_function=shutil.copyfile)
    data = bytearray((folder / name).read_bytes())
    data[byte] ^= 1 << bit
    (folder / name).write_bytes(data)
    check(folder, configuration)


def test_a_copy_with_the_bit_of_the_head_put_right_starts(corpus: Path, configuration: str, tmp_path: Path) -> None:
    folder = tmp_path / "binlog"
    shutil.copytree(corpus / "sphinx" / "generated" / "mixed-kill9", folder, copy_function=shutil.copyfile)
    log = folder / "binlog.001"
    data = bytearray(whole := log.read_bytes())
    data[6] ^= 1
    log.write_bytes(data)
    assert not sphinx_server.start(folder, configuration).started
    done = invoke("truncate-to-durable", "--keep-after-damage", "--to-file", str(tmp_path / "new"), str(log))
    assert done.code == 0, done.text + done.err
    log.write_bytes((tmp_path / "new").read_bytes())
    assert log.read_bytes() == whole
    check(folder, configuration)


def test_the_saved_tid_of_an_index_stands_where_it_is_read(corpus: Path, configuration: str, tmp_path: Path) -> None:
    """The server saves an index with a known TID; its own file must give that TID."""
    data = tmp_path / "data"
    data.mkdir()
    kept = re.sub(r"path=<DIR>/data/", f"path={data}/", configuration)
    path = corpus / "sphinx" / "generated" / "rotation-24k"
    real = sphinx_server.start(path, kept, statements=("FLUSH RTINDEX rt1",))
    assert read_saved_tid("rt1.meta", (data / "rt1.meta").read_bytes()) == {"tables": {"rt1": real.tids["rt1"]}}
