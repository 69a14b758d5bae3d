"""Spark's settings: those that the results require, the user's, and our defaults, in this order of precedence.

The user's are `--conf KEY=VALUE` and, with lower precedence, `spark-defaults.conf` (in the directory SPARK_CONF_DIR, or
in `conf` of SPARK_HOME).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from binlogtool.errors import InputOutputError, UsageError

REQUIRED_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.executorEnv.PYTHONSAFEPATH": "1",
}
"""Other values would change what is in the tables, or let Python workers import modules from a working directory, which
may contain files of other users."""

_FIXED_SETTINGS = ("spark.master", "spark.submit.pyFiles", *REQUIRED_SETTINGS)
_PATH_SETTINGS = ("spark.jars", "spark.files", "spark.archives")
"""Settings of the user that name files: Spark's Java works in a directory of its own."""

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CONF_LINE = re.compile(r"\s*([^\s#!=:][^\s=:]*)(?:\s*[=:]\s*|\s+)(.*)")
_MAX_CONF_BYTES = 1 << 20


SMALL_JOB_SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.metrics.staticSources.enabled": "false",
    "spark.metrics.executorMetricsSource.enabled": "false",
}
"""For a job of seconds: compiling, re-planning or measuring a query would take longer than its rows."""


def build_settings(
    folder: Path, user_conf: Mapping[str, str], *, loopback: bool, name: str = "binlogtool", small: bool = False
) -> dict[str, str]:
    """Return the settings that Spark starts with: quiet, UTC, everything temporary in `folder`.

    loopback: only listen on this machine. name: of the application. small: for one short job.
    """
    java = f"-Dlog4j2.configurationFile=file:{folder / 'log4j2.properties'} -Djava.io.tmpdir={folder}"
    # relative paths refer to the user's directory, though Java runs elsewhere
    java += f" {shlex.quote(f'-Duser.dir={os.getcwd()}')}"
    defaults = {
        "spark.app.name": name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
    }
    if small:
        defaults |= SMALL_JOB_SETTINGS
    if loopback:
        defaults |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    user_values = {
        key: _make_paths_absolute(value) if key in _PATH_SETTINGS else value
        for key, value in user_conf.items()
        if key not in _FIXED_SETTINGS
    }
    return {
        **defaults,
        **user_values,
        **REQUIRED_SETTINGS,
        JAVA_OPTIONS: " ".join(filter(None, [java, user_conf.get(JAVA_OPTIONS)])),
    }


def _make_paths_absolute(paths: str) -> str:
    """Make comma-separated local paths absolute; URLs stay unchanged."""
    return ",".join(one if "://" in one or not one else os.path.abspath(one) for one in paths.split(","))


def read_user_settings(conf: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the settings of the user's file, overridden by `conf`.

    Raises:
        InputOutputError: the file cannot be read.
    """
    return {**_read_defaults_file(), **dict(conf)}


def parse_setting(text: str) -> tuple[str, str]:
    """Return (key, value) of "KEY=VALUE".

    Raises:
        UsageError: it is not a setting, or one that the user may not change.
    """
    key, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"spark\.[\w.\-]+", key):
        raise UsageError(f"--conf {text}: write spark.NAME=VALUE")
    if key in _FIXED_SETTINGS:
        raise UsageError(f"--conf {key}: binlogtool sets this itself, as its results depend on it")
    return key, value


def _read_defaults_file() -> dict[str, str]:
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and os.path.join(home, "conf"))
    path = Path(folder or "", "spark-defaults.conf")
    if not folder or not path.is_file():
        return {}
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = file.read(_MAX_CONF_BYTES).splitlines()
    except OSError as error:
        raise InputOutputError(f"{path}: {error.strerror}") from error
    return {found[1]: found[2].strip() for found in map(_CONF_LINE.fullmatch, lines) if found}
