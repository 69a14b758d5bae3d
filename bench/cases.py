"""One function per promise. Each makes its files, measures, and yields figures."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import binlogtool
from bench import make
from bench.measure import ROOT, Series, cpu_of, cpu_of_child, rounds, run_child

MIB = 1 << 20
TOOL = [sys.executable, "-m", "binlogtool"]
PEER = "tarantoolctl"


@dataclass(frozen=True)
class Figure:
    """A measured value. target: what is promised; at_least: the direction of the promise."""

    name: str
    series: Series
    unit: str
    target: float | None = None
    at_least: bool = True

    @property
    def kept(self) -> bool | None:
        """Was the promise kept by the median?"""
        if self.target is None:
            return None
        return self.series.median >= self.target if self.at_least else self.series.median <= self.target


@dataclass(frozen=True)
class Skipped:
    """A case that cannot run here, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Setting:
    """Where files go, how big they are (a factor of the full size), how many rounds.

    logs: where logs that servers wrote are kept for the next run; None = nowhere.
    """

    directory: Path
    scale: float
    rounds: int
    logs: Path | None = None

    def size(self, mib: float) -> int:
        return max(int(mib * self.scale * MIB), 300_000)

    def tarantool(self, mib: float) -> tuple[Path, int, int]:
        """A log of small rows: path, bytes, blocks (one row in each)."""
        path = self._new(make.xlog_name())
        return path, (blocks := make.tarantool_small(path, self.size(mib))) and path.stat().st_size, blocks

    def mixed(self, mib: float) -> tuple[Path, int, int]:
        """A log with packed blocks: path, bytes, rows."""
        path = self._new(make.xlog_name())
        return path, (rows := make.tarantool_mixed(path, self.size(mib))) and path.stat().st_size, rows

    def drizzle(self, mib: float) -> tuple[Path, int, int]:
        """A log of small transactions: path, bytes, entries."""
        path = self._new("transaction.log")
        return path, (entries := make.drizzle(path, self.size(mib), drizzle_samples())) and path.stat().st_size, entries

    def _new(self, name: str) -> Path:
        number = sum(1 for _ in self.directory.iterdir())
        folder = self.directory / f"{number:02d}"
        folder.mkdir()
        return folder / name


Result = Iterator[Figure | Skipped]
Case = Callable[[Setting], Result]


def drizzle_samples() -> list[Path]:
    """Logs of real messages: those of the project's tests, else those of the corpus beside it."""
    corpus = Path(os.environ.get("BINLOGTOOL_CORPUS", ROOT.parent / "shared" / "corpus"))
    found = [
        *(ROOT / "tests/corpus/drizzle").glob("**/basic-checksum.log"),
        *(corpus / "drizzle/third-party").glob("*.log"),
    ]
    if not found:
        raise FileNotFoundError("no Drizzle samples: neither tests/corpus/drizzle nor the corpus is there")
    return found


def verified(path: Path, backend: str, depth: str, records: int | None = None) -> Callable[[], object]:
    """One `verify` through the library, which must find the file clean."""

    def run() -> object:
        report = binlogtool.verify([path], depth=depth, backend=backend)
        assert report.status == "clean", (report.findings[:3], report.failures)
        assert records is None or report.files[0].records == records, (report.files[0].records, records)
        return report

    return run


def crc_from_file(path: Path) -> Callable[[], object]:
    """One ISA-L CRC over the file, read in pieces of 1 MiB into one buffer."""
    from isal import isal_zlib

    def run() -> int:
        crc, buffer = 0, memoryview(bytearray(MIB))
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                crc = isal_zlib.crc32(buffer[:count], crc)
        return crc

    return run


def crc_in_memory(path: Path) -> Callable[[], object]:
    """One ISA-L CRC over the file's bytes, already in memory: the limit of the machine, without any reading."""
    from isal import isal_zlib

    data = path.read_bytes()
    return lambda: isal_zlib.crc32(data)


def checksum(setting: Setting) -> Result:
    """verify --depth checksum with the compiled scanner, against one ISA-L CRC over the same file."""
    # Rows of 75 bytes and entries of 180: docs/scale.md has the reason of what is promised.
    for name, (path, size, records), of_file, in_memory in (
        ("tarantool small rows", setting.tarantool(300), 0.15, 0.12),
        ("drizzle", setting.drizzle(300), 0.2, 0.15),
    ):
        seen = rounds(
            setting.rounds,
            ours=cpu_of(verified(path, "native", "checksum", None if name.startswith("tar") else records)),
            crc=cpu_of(crc_from_file(path)),
            limit=cpu_of(crc_in_memory(path)),
            process=cpu_of_child([*TOOL, "verify", "--depth", "checksum", str(path)]),
        )
        ours = seen["ours"]
        yield Figure(f"{name}: verify --depth checksum, fast", ours.inverse(size / MIB), "MiB/s")
        yield Figure(f"{name}: the same", ours.inverse(records / 1e6), "M records/s")
        yield Figure(f"{name}: speed over that of ISA-L CRC of the file", seen["crc"].over(ours), "x", of_file)
        limit = seen["limit"].over(ours)
        yield Figure(f"{name}: speed over that of ISA-L CRC in memory, no reading", limit, "x", in_memory)
        yield Figure(f"{name}: whole process, start-up included", seen["process"], "s CPU")
        path.unlink()


def plain(setting: Setting) -> Result:
    """The scanner that needs no compiled extra."""
    for name, (path, size, records) in (
        ("tarantool small rows", setting.tarantool(40)),
        ("drizzle", setting.drizzle(100)),
    ):
        seen = rounds(
            setting.rounds, ours=cpu_of(verified(path, "python", "checksum")), crc=cpu_of(crc_from_file(path))
        )
        blocks, unit = seen["ours"].inverse(records / 1e6), "M blocks/s" if name.startswith("tar") else "M entries/s"
        yield Figure(f"{name}: verify --depth checksum, plain", blocks, unit, 0.8 if name.startswith("tar") else None)
        yield Figure(f"{name}: the same", seen["ours"].inverse(size / MIB), "MiB/s")
        path.unlink()


def rows(setting: Setting) -> Result:
    """verify at its default depth (rows, LSNs, transactions) against `tarantoolctl cat`."""
    if not shutil.which(PEER):
        yield Skipped("default depth against tarantoolctl cat", f"{PEER} is not installed")
        return
    for name, make_log, target in (
        ("small rows", Setting.tarantool, 100.0),
        ("mixed with zstd blocks", Setting.mixed, None),
    ):
        (path, size, count), (slice_, slice_size, _) = make_log(setting, 300 if target else 60), make_log(setting, 16)
        seen = rounds(
            setting.rounds,
            ours=cpu_of(verified(path, "native", "set", count)),
            plain=cpu_of(verified(slice_, "python", "set")),
            cat=cpu_of_child([PEER, "cat", str(slice_)]),
        )
        cat, plain_ = seen["cat"].scaled(size / slice_size), seen["plain"].scaled(size / slice_size)
        yield Figure(f"tarantool {name}: verify, fast", seen["ours"].inverse(size / MIB), "MiB/s")
        yield Figure(f"tarantool {name}: the same", seen["ours"].inverse(count / 1e6), "M rows/s")
        yield Figure(f"tarantool {name}: verify, plain", plain_.inverse(size / MIB), "MiB/s")
        yield Figure(f"tarantool {name}: tarantoolctl cat", cat.inverse(size / MIB), "MiB/s")
        yield Figure(f"tarantool {name}: fast over tarantoolctl cat", cat.over(seen["ours"]), "x", target)
        yield Figure(f"tarantool {name}: plain over tarantoolctl cat", cat.over(plain_), "x")
        path.unlink()


def dump(setting: Setting) -> Result:
    """dump -O jsonl of Tarantool rows against `tarantoolctl cat --format=json`, both as whole processes."""
    path, size, count = setting.tarantool(60)
    slice_, slice_size, _ = setting.tarantool(16)
    peer = shutil.which(PEER)
    candidates = {"ours": cpu_of_child([*TOOL, "dump", "-O", "jsonl", str(path)])}
    if peer:
        candidates["cat"] = cpu_of_child([PEER, "cat", str(slice_), "--format=json"])
    seen = rounds(setting.rounds, **candidates)
    yield Figure("tarantool small rows: dump -O jsonl", seen["ours"].inverse(count / 1e3), "k rows/s")
    yield Figure("tarantool small rows: the same", seen["ours"].inverse(size / MIB), "MiB/s")
    if peer:
        cat = seen["cat"].scaled(size / slice_size)
        yield Figure("tarantool small rows: tarantoolctl cat --format=json", cat.inverse(size / MIB), "MiB/s")
        yield Figure("tarantool small rows: dump over tarantoolctl cat", cat.over(seen["ours"]), "x", 6.0)
    else:
        yield Skipped("dump against tarantoolctl cat --format=json", f"{PEER} is not installed")


ROOMY = binlogtool.Limits(max_memory=4096 * MIB)
"""For calls whose result is as large as it is: all fields of a file at once."""


def annotate(setting: Setting) -> Result:
    """Annotated parse (in the process) and hexdump-annotate (whole process), scaled to ten fields in a record."""
    for name, (path, _, records) in (
        ("tarantool small rows", setting.tarantool(0.3)),
        ("drizzle", setting.drizzle(0.3)),
    ):
        fields = sum(row.leaf for row in binlogtool.annotate(path, limits=ROOMY).rows) / records
        seen = rounds(
            setting.rounds,
            parse=cpu_of(lambda path=path: binlogtool.annotate(path, limits=ROOMY)),
            render=cpu_of_child([*TOOL, "hexdump-annotate", str(path)]),
        )
        title = f"{name}, {fields:.1f} fields in a record"
        for what, target in (("parse", 15.0), ("render", 3.0)):
            rate = seen[what].inverse(records / 1e3)
            yield Figure(f"{title}: {what}", rate, "k records/s")
            yield Figure(f"{title}: {what}, per ten fields", rate.scaled(fields / 10), "k records/s", target)


def memory(setting: Setting) -> Result:
    """Peak memory of a whole process on a large file."""
    for name, words, make_log in (
        ("tarantool small rows", ["verify"], Setting.tarantool),
        ("tarantool small rows", ["verify", "--depth", "checksum"], Setting.tarantool),
        ("drizzle", ["verify", "--depth", "checksum"], Setting.drizzle),
    ):
        path, size, _ = make_log(setting, 2048)
        child = run_child([*TOOL, *words, str(path)])
        assert child.code == 0, child
        title = f"{name}: {' '.join(words)} of {size / (1 << 30):.2f} GiB"
        yield Figure(f"{title}, peak", Series((child.peak / MIB,)), "MiB", 48, at_least=False)
        yield Figure(title, Series((child.seconds,)), "s CPU")
        path.unlink()


STARTS = {"--help": 0.15, "verify of 100 kB": 0.15, "dump of 100 kB": 0.25}
"""Seconds that the smallest jobs may take."""


def start(setting: Setting) -> Result:
    """What the smallest jobs cost."""
    path = setting._new(make.xlog_name())
    make.tarantool_small(path, 100_000)
    commands = {
        "--help": [*TOOL, "--help"],
        "verify of 100 kB": [*TOOL, "verify", str(path)],
        "dump of 100 kB": [*TOOL, "dump", "-O", "jsonl", str(path)],
    }
    seen = rounds(max(setting.rounds, 5), **{name: cpu_of_child(command) for name, command in commands.items()})
    for name, series in seen.items():
        yield Figure(name, series, "s CPU", STARTS[name], at_least=False)


CASES: dict[str, Case] = {
    case.__name__: case for case in (checksum, plain, rows, dump, annotate, memory, start)
}  # fmt: skip
