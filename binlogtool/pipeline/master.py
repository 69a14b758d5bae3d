"""Spark's master: checks of its URL, and of whether it answers."""

from __future__ import annotations

import itertools
import re
import socket
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from binlogtool.errors import InputOutputError, UsageError
from binlogtool.pipeline.spark_settings import parse_setting

_CONNECT_TIMEOUT_S = 5.0
_MASTER_URL = re.compile(
    r"local(\[(\*|[1-9]\d*)(, *[1-9]\d*)?\])?|local-cluster\[ *[1-9]\d* *(, *[1-9]\d* *){2}\]|spark://.+|yarn|k8s://.+"
)


class SparkMaster(msgspec.Struct, frozen=True):
    """Where Spark runs.

    conf: settings of the user. wait_executors: seconds that a cluster may be without executors. name: of the
      application, if
    the settings have none.
    """

    url: str = "local[*]"
    conf: tuple[tuple[str, str], ...] = ()
    wait_executors: float = 120.0
    name: str = "binlogtool"

    @classmethod
    def parse(cls, url: str, conf: Iterable[str] = (), wait_executors: float | None = None) -> SparkMaster:
        """Build the master from command line values. conf: texts "KEY=VALUE".

        Raises:
            UsageError: one of them is not a setting, or may not be set by the user.
        """
        master = cls(url, tuple(map(parse_setting, conf)))
        return master if wait_executors is None else cls(url, master.conf, wait_executors)

    @classmethod
    def coerce(cls, master: str | SparkMaster | None) -> SparkMaster:
        """Return a Master for a Master, a URL, or None (the default)."""
        return cls() if master is None else cls(master) if isinstance(master, str) else master

    def named_for(self, work: str) -> SparkMaster:
        """Return a copy whose application is named after its work."""
        return replace(self, name=f"binlogtool {work}")

    @property
    def is_local(self) -> bool:
        """True if Spark runs on this machine only, started for this work."""
        return is_local_url(self.url)


def describe_work(command: str, paths: Sequence[str]) -> str:
    """Return a job's name: the command and what it reads."""
    rest = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
    return f"{command} {paths[0] if paths else ''}{rest}"


def describe_paths(paths: Sequence[str]) -> str:
    """Return the common directory (or bucket) of several files, or the only file; without one, the first path and a
    count.
    """
    if len(paths) == 1:
        return paths[0]
    folders = zip(*(one.split("/")[:-1] for one in paths), strict=False)
    folder = "/".join(names[0] for names in itertools.takewhile(lambda names: len(set(names)) == 1, folders))
    return folder if folder.strip("/") and not folder.endswith(("/", ":")) else describe_work("", paths).strip()


def is_local_url(master: str) -> bool:
    """Return True if Spark runs on this machine only, started for this work."""
    return master.split("[")[0] == "local"


def is_loopback(master: str) -> bool:
    """Return True if no other machine needs to reach Spark."""
    hosts = [host for host, _ in _parse_addresses(master)] or [""]
    return master.startswith("local") or all(host in ("127.0.0.1", "localhost") for host in hosts)


def check_master_url(master: str) -> None:
    """Raise UsageError if the URL is not a kind of master that Spark knows."""
    if not _MASTER_URL.fullmatch(master):
        raise UsageError(
            f"--master {master}: write local[N], local-cluster[N,CORES,MB], spark://HOST:PORT, yarn or k8s://URL"
        )
    _parse_addresses(master)


def _parse_addresses(master: str) -> list[tuple[str, int]]:
    """Return hosts and ports of a standalone cluster's masters; empty for other masters."""
    hosts = master.removeprefix("spark://").split(",") if master.startswith("spark://") else ()
    matches = [re.fullmatch(r"(.+):(\d{1,5})", host) for host in hosts]
    if None in matches:
        raise UsageError(f"--master {master}: write spark://HOST:PORT")
    return [(match[1].strip("[]"), int(match[2])) for match in matches if match]


def check_master_answers(master: str) -> None:
    """Check that a standalone master accepts connections; Spark itself would retry for a minute.

    Raises:
        InputOutputError: it does not.
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
