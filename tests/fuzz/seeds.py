"""What is mutated: real files, the small ones whole and of the longer ones the beginning."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from binlogtool.format_api.format import Hints
from tests.fuzz.search import FORMAT, frames
from tests.harness.samples import HEADS, WALKERS, Sample, keyed, pieces

KIB = 1024
LONGEST = 16 * KIB
HEAD = 4 * KIB
NAMES: dict[str, tuple[str, re.Pattern[str]]] = {
    "manticore": ("manticore", re.compile(r"binlog\.\d+")),
    "sphinx": ("sphinx", re.compile(r"binlog\.\d+")),
    "eblob": ("eblob", re.compile(r".*\.binlog")),
}
TARGETS = (*WALKERS, *NAMES, "mariadb-redo")


class Seed(NamedTuple):
    """A file of one target. beside: files of the same directory, by name; of these the redo log is mutated, too.

    known: whole frames of intact files, the version in front (see `search`).
    """

    target: str
    name: str
    data: bytes
    hints: Hints = Hints()
    beside: tuple[tuple[str, bytes], ...] = ()
    known: frozenset[bytes] = frozenset()

    @property
    def format(self) -> str:
        """The name of its format."""
        return FORMAT.get(self.target, self.target)

    @property
    def sample(self) -> Sample:
        """As the other harnesses call it."""
        return Sample(self.format, self.name, self.data, self.hints)


def seeds(corpus: Path, target: str) -> list[Seed]:
    """The files of one target, each content once."""
    inputs = list(MADE.get(target, _of_the_harness)(corpus, target))
    if target not in NAMES:
        return inputs
    sound = (seed for seed in inputs if "damaged" not in seed.name)
    known = frozenset(seed.data[4:8] + seed.data[a:b] for seed in sound for a, b in frames(target, seed.data))
    return [seed._replace(known=known) for seed in inputs]


def _of_the_harness(corpus: Path, target: str) -> Iterator[Seed]:
    limit = LONGEST if target not in HEADS else max(LONGEST, HEADS[target])
    for seed in (*pieces(corpus, target, limit), *keyed(corpus, target, limit)):
        yield Seed(target, seed.name, seed.data, seed.hints)


def _by_name(corpus: Path, target: str) -> Iterator[Seed]:
    folder, pattern = NAMES[target]
    seen: set[bytes] = set()
    for path in sorted((corpus / folder).rglob("*")):
        if not path.is_file() or not pattern.fullmatch(path.name):
            continue
        data = path.read_bytes()
        if len(data) > LONGEST:
            ends = [end for _, end in frames(target, data) if end <= HEAD]
            data = data[: ends[-1]] if ends else b""
        if data and data not in seen:
            seen.add(data)
            yield Seed(target, str(path.relative_to(corpus / folder)), data)


def _crashed(corpus: Path, target: str) -> Iterator[Seed]:
    """Directories as a crash left them, with their redo log."""
    for folder in sorted((corpus / "mariadb-innodb-binlog/generated/crash").iterdir()):
        inputs = {path.name.removesuffix(".gz"): gzip.decompress(path.read_bytes()) for path in folder.glob("*.gz")}
        redo = inputs.pop("ib_logfile0", b"")
        if redo and inputs:
            name = max(name for name in inputs)
            others = tuple((other, data) for other, data in inputs.items() if other != name)
            yield Seed(target, f"{folder.name}/{name}", inputs[name], beside=(("ib_logfile0", redo), *others))


MADE: dict[str, Callable[[Path, str], Iterator[Seed]]] = {
    **dict.fromkeys(NAMES, _by_name),
    "mariadb-redo": _crashed,
}
