"""Which files the figures are made of, and how much of the work is done in a run that must end in minutes."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from binlogtool.format_api.format import Hints
from tests.harness import oracle, oracle_ibb, oracle_mysql

FULL = os.environ.get("BINLOGTOOL_FULL") == "1"
"""True: every byte, every bit of every file. False: a stated part."""

_TARANTOOL = re.compile(r"\.(xlog|snap|vylog|run|index)(\.inprogress)?$")


class Sample(NamedTuple):
    """One file of the corpus. name: relative to the format's folder. hints: the keys of an encrypted log."""

    format: str
    name: str
    data: bytes
    hints: Hints = Hints()

    @property
    def walk(self) -> oracle.Walk:
        """What the harness' own reader sees in it."""
        return WALKERS[self.format](self.data)


WALKERS: dict[str, Callable[[bytes], oracle.Walk]] = {
    "tarantool": oracle.tarantool,
    "drizzle": oracle.drizzle,
    "mysql-binlog": oracle_mysql.mysql_binlog,
    "mariadb-innodb-binlog": oracle_ibb.ibb,
}
FORMATS = tuple(WALKERS)
HEADS = {"mysql-binlog": 6144, "mariadb-innodb-binlog": 32768}
"""How much of a long file is a piece, where 2 KiB hold too little."""


def samples(corpus: Path, format: str, limit: int) -> Iterator[Sample]:
    """Every log file of at most `limit` bytes, each content once, the smallest first."""
    seen: set[bytes] = set()
    for path in sorted((corpus / format).rglob("*"), key=lambda path: (path.is_file() and path.stat().st_size, path)):
        if not path.is_file() or path.stat().st_size > limit or not is_log(format, path):
            continue
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        if data not in seen and len(data) <= limit:
            seen.add(data)
            yield Sample(format, str(path.relative_to(corpus / format)).removesuffix(".gz"), data)


def is_log(format: str, path: Path) -> bool:
    """By its name: the corpus also holds oracles, manifests and scripts."""
    if "oracle" in str(path):
        return False
    if format == "mysql-binlog":
        with path.open("rb") as file:
            return path.suffix == ".bin" or file.read(4) in (b"\xfebin", b"\xfdbin")
    if format == "mariadb-innodb-binlog":
        return path.name.endswith((".ibb", ".ibb.gz"))
    return bool(_TARANTOOL.search(path.name)) if format == "tarantool" else path.suffix == ".log"


def keyed(corpus: Path, format: str, limit: int) -> Iterator[Sample]:
    """The encrypted files again, with their keys."""
    for sample in samples(corpus, format, limit) if format == "mysql-binlog" else ():
        folder = (corpus / format / sample.name).parent
        keys = [path for name in ("keys.txt", "keyring.json") if (path := folder / name).exists()]
        if keys and "encrypted/" in sample.name:
            yield sample._replace(hints=Hints(keyfile=keys[0].read_bytes()))


def pieces(corpus: Path, format: str, limit: int) -> Iterator[Sample]:
    """Every file of at most `limit` bytes, and of longer intact ones the first frames, 2 KiB or what HEADS says."""
    head = HEADS.get(format, 2048)
    seen: set[bytes] = set()
    for sample in samples(corpus, format, 1 << 30):
        if len(sample.data) > limit:
            walk = sample.walk
            ends = [frame.end for frame in walk.frames if frame.end <= head]
            if not walk.clean or not ends or sample.data[: ends[-1]] in seen:
                continue
            sample = sample._replace(data=sample.data[: ends[-1]])
            seen.add(sample.data)
        yield sample
