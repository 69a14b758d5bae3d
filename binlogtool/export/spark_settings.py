"""Spark master URL and Spark settings, as values.

The user's settings come from `--conf KEY=VALUE` and, with lower precedence, from `spark-defaults.conf` (in the
directory SPARK_CONF_DIR, or in `conf` of SPARK_HOME).
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from binlogtool.errors import InputOutputError, UsageError, name_os_errors

# --- Spark's settings ---

REQUIRED_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.executorEnv.PYTHONSAFEPATH": "1",
}
"""Settings that the user cannot change. Other values would change the content of tables, or let Python workers import
modules from a working directory, which may contain files of other users."""

_FIXED_SETTINGS = ("spark.master", "spark.submit.pyFiles", *REQUIRED_SETTINGS)
_PATH_SETTINGS = ("spark.jars", "spark.files", "spark.archives")
"""Settings of the user that name files; they are made absolute, because Spark's Java runs in another directory."""

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CONF_LINE = re.compile(r"\s*([^\s#!=:][^\s=:]*)(?:\s*[=:]\s*|\s+)(.*)")
_MAX_CONF_BYTES = 1 << 20


def build_settings(
    folder: Path, user_conf: Mapping[str, str], *, loopback: bool, name: str = "binlogtool"
) -> dict[str, str]:
    """Return the settings with which Spark starts: quiet, UTC, all temporary files in `folder`.

    loopback: listen on this machine only. name: name of the application.
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
        UsageError: the text is no setting, or a setting that the user may not change.
    """
    key, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"spark\.[\w.\-]+", key):
        raise UsageError(f"--conf {text}: use spark.NAME=VALUE")
    if key in _FIXED_SETTINGS:
        raise UsageError(f"--conf {key}: cannot be changed, because the results depend on it")
    return key, value


def _read_defaults_file() -> dict[str, str]:
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and os.path.join(home, "conf"))
    path = Path(folder or "", "spark-defaults.conf")
    if not folder or not path.is_file():
        return {}
    with name_os_errors(path), path.open(encoding="utf-8", errors="replace") as file:
        lines = file.read(_MAX_CONF_BYTES).splitlines()
    return {found[1]: found[2].strip() for found in map(_CONF_LINE.fullmatch, lines) if found}


# --- Spark's master ---

_CONNECT_TIMEOUT_S = 5.0
_MASTER_URL = re.compile(
    r"local(\[(\*|[1-9]\d*)(, *[1-9]\d*)?\])?|local-cluster\[ *[1-9]\d* *(, *[1-9]\d* *){2}\]|spark://.+|yarn|k8s://.+"
)


class SparkMaster(msgspec.Struct, frozen=True):
    """Spark master that runs the jobs, and its settings.

    conf: settings of the user. wait_executors: seconds that a cluster may be without executors. name: name of the
    application, unless the settings contain one.
    """

    url: str = "local[*]"
    conf: tuple[tuple[str, str], ...] = ()
    wait_executors: float = 120.0
    name: str = "binlogtool"

    @classmethod
    def parse(cls, url: str, conf: Iterable[str] = (), wait_executors: float | None = None) -> SparkMaster:
        """Build the master from command line values. conf: texts "KEY=VALUE".

        Raises:
            UsageError: a text is no setting, or a setting that the user may not change.
        """
        master = cls(url, tuple(map(parse_setting, conf)))
        return master if wait_executors is None else cls(url, master.conf, wait_executors)

    @classmethod
    def coerce(cls, master: str | SparkMaster | None) -> SparkMaster:
        """Return a `SparkMaster` for a master, a URL, or None (the default)."""
        return cls() if master is None else cls(master) if isinstance(master, str) else master

    def named_for(self, work: str) -> SparkMaster:
        """Return a copy whose application is named after its work (`binlogtool WORK`)."""
        return replace(self, name=f"binlogtool {work}")

    @property
    def is_local(self) -> bool:
        """True if Spark runs on this machine only, started for this work."""
        return is_local_url(self.url)


def format_spark_job_name(command: str, paths: Sequence[str]) -> str:
    """Return the name of a job: the command and its inputs."""
    rest = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
    return f"{command} {paths[0] if paths else ''}{rest}"


def summarize_input_paths(paths: Sequence[str]) -> str:
    """Return the common directory (or bucket) of several files, or the only file.

    Without a common directory, return the first path and a count.
    """
    if len(paths) == 1:
        return paths[0]
    folders = zip(*(one.split("/")[:-1] for one in paths), strict=False)
    folder = "/".join(names[0] for names in itertools.takewhile(lambda names: len(set(names)) == 1, folders))
    return folder if folder.strip("/") and not folder.endswith(("/", ":")) else format_spark_job_name("", paths).strip()


def is_local_url(master: str) -> bool:
    """Return True if Spark runs on this machine only, started for this work."""
    return master.split("[")[0] == "local"


def is_loopback_sufficient(master: str) -> bool:
    """Return True if no other machine needs to reach Spark."""
    hosts = [host for host, _ in _parse_addresses(master)] or [""]
    return master.startswith("local") or all(host in ("127.0.0.1", "localhost") for host in hosts)


def check_master_url(master: str) -> None:
    """Raise UsageError if the URL is of no kind of master that Spark supports."""
    if not _MASTER_URL.fullmatch(master):
        raise UsageError(
            f"--master {master}: use local[N], local-cluster[N,CORES,MB], spark://HOST:PORT, yarn or k8s://URL"
        )
    _parse_addresses(master)


def _parse_addresses(master: str) -> list[tuple[str, int]]:
    """Return hosts and ports of a standalone cluster's masters; empty for other masters."""
    hosts = master.removeprefix("spark://").split(",") if master.startswith("spark://") else ()
    matches = [re.fullmatch(r"(.+):(\d{1,5})", host) for host in hosts]
    if None in matches:
        raise UsageError(f"--master {master}: use spark://HOST:PORT")
    return [(match[1].strip("[]"), int(match[2])) for match in matches if match]


def check_master_answers(master: str) -> None:
    """Check that a standalone master accepts connections; Spark itself would retry for a minute.

    Raises:
        InputOutputError: the master does not answer.
    """
    last_error: OSError | None = None
    for address in _parse_addresses(master):
        try:
            socket.create_connection(address, _CONNECT_TIMEOUT_S).close()
            return
        except OSError as error:
            last_error = error
    if last_error is not None:
        raise InputOutputError(
            f"the master {master} does not answer: {last_error.strerror or last_error}"
        ) from last_error
