"""Spark's master: checks of its URL, and of whether it answers."""

from __future__ import annotations

import itertools
import re
import socket
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from binlogtool.errors import InputOutputError, UsageError
from binlogtool.pipeline.spark_settings import as_setting

_REACH_LIMIT_S = 5.0
_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d*)(, *[1-9]\d*)?\])?|local-cluster\[ *[1-9]\d* *(, *[1-9]\d* *){2}\]|spark://.+|yarn|k8s://.+"
)


class Master(msgspec.Struct, frozen=True):
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
    def said(cls, url: str, conf: Iterable[str] = (), wait_executors: float | None = None) -> Master:
        """Build the master from command line values. conf: texts "KEY=VALUE".

        Raises:
            UsageError: one of them is not a setting, or may not be set by the user.
        """
        made = cls(url, tuple(map(as_setting, conf)))
        return made if wait_executors is None else cls(url, made.conf, wait_executors)

    @classmethod
    def of(cls, given: str | Master | None) -> Master:
        """Return a Master for a Master, a URL, or None (the default)."""
        return cls() if given is None else cls(given) if isinstance(given, str) else given

    def doing(self, work: str) -> Master:
        """Return a copy whose application is named after its work."""
        return replace(self, name=f"binlogtool {work}")

    @property
    def is_local(self) -> bool:
        """True if Spark runs on this machine only, started for this work."""
        return is_local(self.url)


def work_of(command: str, paths: Sequence[str]) -> str:
    """Return a job's name: the command and what it reads."""
    more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
    return f"{command} {paths[0] if paths else ''}{more}"


def common_folder(paths: Sequence[str]) -> str:
    """Return the common directory (or bucket) of several files, or the only file; without one, the first path and a
    count.
    """
    if len(paths) == 1:
        return paths[0]
    folders = zip(*(one.split("/")[:-1] for one in paths), strict=False)
    folder = "/".join(names[0] for names in itertools.takewhile(lambda names: len(set(names)) == 1, folders))
    return folder if folder.strip("/") and not folder.endswith(("/", ":")) else work_of("", paths).strip()


def is_local(master: str) -> bool:
    """Return True if Spark runs on this machine only, started for this work."""
    return master.split("[")[0] == "local"


def is_loopback(master: str) -> bool:
    """Return True if no other machine needs to reach Spark."""
    hosts = [host for host, _ in _addresses(master)] or [""]
    return master.startswith("local") or all(host in ("127.0.0.1", "localhost") for host in hosts)


def demand_sense(master: str) -> None:
    """Raise UsageError if the URL is not a kind of master that Spark knows."""
    if not _MASTER.fullmatch(master):
        raise UsageError(
            f"--master {master}: write local[N], local-cluster[N,CORES,MB], spark://HOST:PORT, yarn or k8s://URL"
        )
    _addresses(master)


def _addresses(master: str) -> list[tuple[str, int]]:
    """Return hosts and ports of a standalone cluster's masters; empty for other masters."""
    hosts = master.removeprefix("spark://").split(",") if master.startswith("spark://") else ()
    found = [re.fullmatch(r"(.+):(\d{1,5})", host) for host in hosts]
    if None in found:
        raise UsageError(f"--master {master}: write spark://HOST:PORT")
    return [(match[1].strip("[]"), int(match[2])) for match in found if match]


def demand_answer(master: str) -> None:
    """Check that a standalone master accepts connections; Spark itself would retry for a minute.

    Raises:
        InputOutputError: it does not.
    """
    trouble: OSError | None = None
    for address in _addresses(master):
        try:
            socket.create_connection(address, _REACH_LIMIT_S).close()
            return
        except OSError as error:
            trouble = error
    if trouble is not None:
        raise InputOutputError(f"the master {master} does not answer: {trouble.strerror or trouble}") from trouble
