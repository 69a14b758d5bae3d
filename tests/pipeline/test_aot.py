"""Java's cache of small jobs: only where it is asked for, safe, and made by a Java that can."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from binlogtool.errors import UsageError
from binlogtool.spark import java


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "java"
    path.write_text("#!/bin/sh\n")
    return path


def test_nothing_is_kept_unless_a_folder_is_named(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(java.CACHE_VARIABLE, raising=False)
    with java.open_jvm_cache(program, 25, java.SMALL_JOB_OPTIONS) as cache:
        assert cache is None


def test_an_older_java_keeps_nothing(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(java.CACHE_VARIABLE, str(tmp_path / "kept"))
    with java.open_jvm_cache(program, 24, java.SMALL_JOB_OPTIONS) as cache:
        assert cache is None and not (tmp_path / "kept").exists()


def test_the_first_job_makes_what_the_next_ones_use(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(java.CACHE_VARIABLE, str(tmp_path / "kept"))
    with java.open_jvm_cache(program, 25, java.SMALL_JOB_OPTIONS) as first:
        assert first is not None and not first.exists and (tmp_path / "kept").stat().st_mode & 0o777 == 0o700
        (option,) = first.options
        new = Path(option.removeprefix("-XX:AOTCacheOutput="))
        assert new.parent == tmp_path / "kept"
        for status, is_kept in ((1, False), (0, True)):
            new.write_bytes(b"classes")
            first.finish(subprocess.Popen(["sh", "-c", f"exit {status}"]))
            assert first.path.exists() is is_kept and not new.exists()
    with java.open_jvm_cache(program, 25, java.SMALL_JOB_OPTIONS) as second:
        assert second is not None and second.options == (f"-XX:AOTCache={first.path}",)
    with java.open_jvm_cache(program, 25, ("-Xint",)) as other:
        assert other is not None and not other.exists


def test_one_job_makes_it_and_those_beside_it_go_without(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(java.CACHE_VARIABLE, str(tmp_path / "kept"))
    with java.open_jvm_cache(program, 25, java.SMALL_JOB_OPTIONS) as first:
        assert first is not None and not first.exists
        with java.open_jvm_cache(program, 25, java.SMALL_JOB_OPTIONS) as second:
            assert second is None
    with java.open_jvm_cache(program, 25, java.SMALL_JOB_OPTIONS) as third:  # the first one came to nothing
        assert third is not None and not third.exists


def test_a_folder_of_others_is_refused(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    kept.chmod(0o777)
    monkeypatch.setenv(java.CACHE_VARIABLE, str(kept))
    with (
        pytest.raises(UsageError, match="the directory is writable by other users"),
        java.open_jvm_cache(program, 25, java.SMALL_JOB_OPTIONS),
    ):
        pass
    monkeypatch.setenv(java.CACHE_VARIABLE, str(program / "below"))
    with (
        pytest.raises(UsageError, match="BINLOGTOOL_JAVA_CACHE"),
        java.open_jvm_cache(program, 25, java.SMALL_JOB_OPTIONS),
    ):
        pass


@pytest.mark.nightly
@pytest.mark.spark
def test_a_job_with_what_java_kept_says_the_same(samples: Path, tmp_path: Path) -> None:
    log = samples / "mysql_binlog" / "sets" / "mariadb" / "rot-bin.000003"
    words = [sys.executable, "-m", "binlogtool", "convert", "--to", "parquet", "--overwrite", "-O", "json", log]
    environment = {**os.environ, java.CACHE_VARIABLE: str(tmp_path / "kept")}
    found = []
    for _ in range(2):
        done = subprocess.run([*words, "-o", tmp_path / "out"], capture_output=True, env=environment, timeout=500)
        assert done.returncode == 0 and done.stderr == b""
        (kept,) = (tmp_path / "kept").iterdir()
        said = json.loads(done.stdout)
        found.append({name: said[name] for name in ("status", "rows", "checks", "inputs")})
    assert kept.suffix == ".aot" and found[0] == found[1]
