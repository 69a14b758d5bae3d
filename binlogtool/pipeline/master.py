"""Spark's master: what its URL may be, and whether one is there."""

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
    """Where Spark runs, and how. conf: settings of the user. wait_executors: seconds that a cluster may have none.

    name: of the application, where the settings give none.
    """

    url: str = "local[*]"
    conf: tuple[tuple[str, str], ...] = ()
    wait_executors: float = 120.0
    name: str = "binlogtool"

    @classmethod
    def said(cls, url: str, conf: Iterable[str] = (), wait_executors: float | None = None) -> Master:
        """As the command line says it. conf: texts "KEY=VALUE".

        Raises:
            UsageError: one of them is no setting, or none of the user's.
        """
        made = cls(url, tuple(map(as_setting, conf)))
        return made if wait_executors is None else cls(url, made.conf, wait_executors)

    @classmethod
    def of(cls, given: str | Master | None) -> Master:
        """The same, also of a bare URL, and of nothing."""
        return cls() if given is None else cls(given) if isinstance(given, str) else given

    def doing(self, work: str) -> Master:
        """The same for an application that is named after its work."""
        return replace(self, name=f"binlogtool {work}")

    @property
    def is_local(self) -> bool:
        """Does Spark run on this machine only, started for this?"""
        return is_local(self.url)


def work_of(command: str, paths: Sequence[str]) -> str:
    """A piece of work in words: the command and what it reads."""
    more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
    return f"{command} {paths[0] if paths else ''}{more}"


def common_folder(paths: Sequence[str]) -> str:
    """The folder (or bucket) of several files; of one, itself. Where there is none in common, the first, in words."""
    if len(paths) == 1:
        return paths[0]
    folders = zip(*(one.split("/")[:-1] for one in paths), strict=False)
    folder = "/".join(names[0] for names in itertools.takewhile(lambda names: len(set(names)) == 1, folders))
    return folder if folder.strip("/") and not folder.endswith(("/", ":")) else work_of("", paths).strip()


def is_local(master: str) -> bool:
    """Does Spark run on this machine only, started for this?"""
    return master.split("[")[0] == "local"


def is_loopback(master: str) -> bool:
    """Does nothing of it need to be heard from other machines?"""
    hosts = [host for host, _ in _addresses(master)] or [""]
    return master.startswith("local") or all(host in ("127.0.0.1", "localhost") for host in hosts)


def demand_sense(master: str) -> None:
    """Raises UsageError: there is no such kind of master."""
    if not _MASTER.fullmatch(master):
        raise UsageError(
            f"--master {master}: write local[N], local-cluster[N,CORES,MB], spark://HOST:PORT, yarn or k8s://URL"
        )
    _addresses(master)


def _addresses(master: str) -> list[tuple[str, int]]:
    """Hosts and ports of a standalone cluster's masters; of other masters none is known."""
    hosts = master.removeprefix("spark://").split(",") if master.startswith("spark://") else ()
    found = [re.fullmatch(r"(.+):(\d{1,5})", host) for host in hosts]
    if None in found:
        raise UsageError(f"--master {master}: write spark://HOST:PORT")
    return [(match[1].strip("[]"), int(match[2])) for match in found if match]


def demand_answer(master: str) -> None:
    """A standalone master must listen: Spark itself would try for a minute.

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
