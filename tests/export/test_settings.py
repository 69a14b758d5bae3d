"""Spark's settings: what the results need, `--conf`, the user's file, ours; and a cluster without executors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from binlogtool.errors import InputOutputError, UsageError
from binlogtool.export.spark_settings import REQUIRED_SETTINGS, build_settings, parse_setting, read_user_settings
from binlogtool.spark import session
from binlogtool.spark.session import ExecutorWatch
from tests.cli.invoke import invoke
from tests.export.cluster import cluster

FILE = """
# a comment
spark.driver.memory      3g
spark.app.name=of the file
spark.ui.enabled: true
  spark.sql.session.timeZone Europe/Berlin
spark.driver.extraJavaOptions -Da=b
nonsense
"""


def test_the_word_goes_before_the_file_before_ours_and_nothing_before_what_results_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(FILE)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    made = build_settings(tmp_path, read_user_settings([parse_setting("spark.app.name=typed = here")]), loopback=True)
    assert made["spark.app.name"] == "typed = here"
    assert (made["spark.driver.memory"], made["spark.ui.enabled"]) == ("3g", "true")
    assert made["spark.sql.shuffle.partitions"] == "8" and made["spark.driver.host"] == "127.0.0.1"
    assert {key: made[key] for key in REQUIRED_SETTINGS} == dict(REQUIRED_SETTINGS) and made[
        "spark.sql.session.timeZone"
    ] == "UTC"
    assert made["spark.driver.extraJavaOptions"].endswith(" -Da=b")
    assert "log4j2.configurationFile" in made["spark.driver.extraJavaOptions"]


def test_the_file_is_also_found_in_the_home_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert read_user_settings(()) == {}
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.executor.cores 2\r\n")
    assert read_user_settings(()) == {"spark.executor.cores": "2"}


@pytest.mark.parametrize(
    "text", ["", "spark.a", "a=b", "=", "spark.=1", "spark.master=local", *(f"{n}=x" for n in REQUIRED_SETTINGS)]
)
def test_what_is_no_setting_of_the_user_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--conf"):
        parse_setting(text)


@pytest.mark.parametrize(
    "words", [("--conf", "spark.ui.enabled=true"), ("--conf", "spark.binlogtool.waitExecutors=5s")]
)
@pytest.mark.parametrize("command", ["verify", "replay-dry-run"])
def test_settings_without_spark_are_a_wrong_word(command: str, words: tuple[str, ...], samples: Path) -> None:
    done = invoke(command, *words, str(samples))
    assert done.code == 2 and "--conf needs --master" in done.err


class Context:
    """A Spark context that says how many block managers there are, the driver's among them."""

    def __init__(self, *counts: int) -> None:
        self.counts = list(counts)

    def __getattr__(self, name: str) -> Any:
        return lambda: self

    def size(self) -> int:
        return self.counts.pop(0)


def test_a_cluster_without_executors_is_waited_for_so_long_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 0.5, 1.5, 3.0, 4.5, 6.0, 8.0, 9.0, 15.0])
    monkeypatch.setattr(session.time, "monotonic", lambda: next(now))
    watch = ExecutorWatch(Context(1, 1, 2, 1, 1, 1, 1), 5.0)
    context: Any = watch._context
    context._jsc = context
    assert [watch.is_without_executors() for _ in range(7)] == [False, True, True, False, True, True, True]
    with pytest.raises(InputOutputError, match="no executor for 5 seconds"):
        watch.is_without_executors()


@pytest.mark.nightly
@pytest.mark.parametrize("command", ["verify", "convert"])
def test_a_cluster_without_a_worker_is_one_line_and_leaves_nothing(command: str, samples: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("--to", "parquet", "-o", str(out)) if command == "convert" else ()
    (tmp_path / "cluster").mkdir()
    with cluster(tmp_path / "cluster", workers=0) as url:
        master = ("--master", url, "--conf", "spark.binlogtool.waitExecutors=3s")
        done = invoke(command, *words, *master, "--progress", "plain", str(samples / "guides" / "mariadb"))
    *steps, last = done.err.splitlines()
    assert done.code == 4 and last == (
        "binlogtool: no executor for 3 seconds: the cluster has none free, or lost them all"
        " (--conf spark.binlogtool.waitExecutors=SECONDS waits longer)"
    )
    assert any("waiting for executors" in step for step in steps)
    assert [path.name for path in tmp_path.iterdir()] == ["cluster"]
