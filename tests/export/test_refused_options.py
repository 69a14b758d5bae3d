"""Options that would do nothing, or something else than they say, are refused with what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlogtool.errors import InputOutputError, UsageError
from binlogtool.export.manifest import parse_data_source_options
from tests.cli.invoke import invoke
from tests.cli.samples import plain_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "transaction.log"
    path.write_bytes(plain_log())
    return path


@pytest.mark.parametrize("to", ["jsonl", "raw", "sql", "mysql-binlog"])
@pytest.mark.parametrize("master", ["spark://127.0.0.1:1", "local[2]"])
def test_master_is_refused_where_no_spark_is_used(log: Path, tmp_path: Path, to: str, master: str) -> None:
    done = invoke("convert", "--to", to, "--master", master, "-o", str(tmp_path / "out"), str(log))
    assert done.code == 2 and "--master is for parquet, orc, csv, json, avro" in done.err
    assert not (tmp_path / "out").exists()


def test_master_is_refused_for_lines_and_for_append(log: Path, tmp_path: Path) -> None:
    for words in (["--to", "jsonl"], ["--to", "jsonl", "--envelope", "maxwell", "--append"]):
        done = invoke("convert", *words, "--master", "spark://127.0.0.1:1", "-o", str(tmp_path / "out"), str(log))
        assert done.code == 2 and "--master is for" in done.err


@pytest.mark.parametrize("words", [["convert", "--jobs", "2"], ["--jobs", "2", "convert"], ["convert", "--jobs=2"]])
def test_jobs_are_refused_for_convert(log: Path, tmp_path: Path, words: list[str]) -> None:
    done = invoke(*words, "--to", "jsonl", "-o", str(tmp_path / "out"), str(log))
    assert done.code == 2 and "--jobs" in done.err and not (tmp_path / "out").exists()


def test_jobs_of_a_configuration_are_meant_for_other_commands(log: Path, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("jobs = 2\n")
    words = ["convert", "--config", str(tmp_path / "c.toml"), "--to", "jsonl", "-o", str(tmp_path / "out"), str(log)]
    assert invoke(*words).code == 0


@pytest.mark.parametrize(
    ("name", "near"),
    [("objcet", "object"), ("splitsize_", "splitSize"), ("start_time", "startTime"), ("zzz", "object")],
)
def test_an_option_of_the_data_source_that_does_not_exist_is_refused(log: Path, name: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"there is no option '{name}'.*{near}"):
        parse_data_source_options({"path": str(log), name: "x"})


def test_options_in_small_letters_are_known(log: Path) -> None:
    assert len(parse_data_source_options({"path": str(log), "startTime": "1", "SPLITSIZE": "1MiB"}).members) == 1


def test_a_path_that_is_not_there_is_an_error_and_a_pattern_means_the_files(log: Path, tmp_path: Path) -> None:
    (tmp_path / "transaction.log.2").write_bytes(plain_log())
    for path in (tmp_path / "none", tmp_path / "none*", tmp_path / "trans[x]*"):
        with pytest.raises(InputOutputError, match=r"no such file or directory|no file matches this pattern"):
            parse_data_source_options({"path": str(path)})
    found = parse_data_source_options({"path": str(tmp_path / "transaction*")})
    assert [Path(one.path).name for one in found.members] == ["transaction.log", "transaction.log.2"]
    odd = tmp_path / "transaction.log.[1]"
    odd.write_bytes(plain_log())
    assert [one.path for one in parse_data_source_options({"path": str(odd)}).members] == [str(odd)]
