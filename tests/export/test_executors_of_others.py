"""Executors that have neither this package nor its Python nor keys: an archive brings the one, settings the others."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

import binlogtool
from binlogtool.export.spark_settings import SparkMaster
from binlogtool.spark.session import _write_python_stub, open_session
from tests.export.cluster import bare_python, cluster
from tests.export.store import put, serving


def test_a_python_of_an_archive_is_this_one_for_the_driver(tmp_path: Path) -> None:
    _write_python_stub(tmp_path, "python3")
    _write_python_stub(tmp_path, "/usr/bin/python3")
    assert list(tmp_path.iterdir()) == []
    _write_python_stub(tmp_path, "./environment/bin/python")
    words = [tmp_path / "environment" / "bin" / "python", "-c", "import msgspec; print(7)"]
    assert subprocess.run(words, capture_output=True, text=True, timeout=60).stdout == "7\n"


@pytest.mark.nightly
@pytest.mark.spark
def test_an_archive_brings_a_python_and_settings_bring_keys(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cluster").mkdir()
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as archive:
        archive.add(bare_python(tmp_path), "bin/python")
    data = (samples / "drizzle" / "basic-checksum.log").read_bytes()
    with cluster(tmp_path / "cluster") as url, serving() as store:  # the workers know nothing of the store
        names = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        keys = tuple((f"spark.executorEnv.{name}", os.environ[name]) for name in names)
        logs = [put(store, f"fleet/{number}.log", data) for number in range(3)]
        monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
        conf = (("spark.archives", f"{tmp_path}/env.tar.gz#environment"), *keys)
        with open_session(SparkMaster(url, conf)) as session:
            done = binlogtool.convert(logs, "parquet", tmp_path / "rows", session=session)
            reports = binlogtool.verify_fleet(logs, session=session)
    assert done.complete and [i.records for i in done.inputs] == [67] * 3
    observed = done.details["spark"]["observed"]
    assert (observed["rows"], observed["records"], observed["damage"]) == (201, 201, 0)
    assert observed["bytes"] == 3 * len(data)  # a log of this format has nothing but records
    assert [report and report.status for report in reports] == ["clean"] * 3
    assert done.details["spark"]["lost"] == [] and done.details["spark"]["tried_again"] == 0
