"""Jobs on Spark: what a conversion costs beside Spark's own writer, and a fleet beside one process."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import binlogtool
from bench import mysql_log
from bench.cases import MIB, Case, Figure, Result, Setting, drizzle_samples
from bench.measure import Series, rounds
from binlogtool.pipeline import java
from binlogtool.pipeline.session import Session, open_session

FLEET = 3000
MASTER = "local[2]"


def convert(setting: Setting) -> Result:
    """convert of a log of small MySQL events to Parquet, payload decoded, against Spark's writer alone."""
    from bench.prepared import Prepared, prepare

    size = setting.size(128)
    path = setting._new("log.000001")
    log = mysql_log.synthetic(path.parent, size, 1)
    with open_session(MASTER) as session:
        out = setting.directory / "rows.parquet"
        done = binlogtool.convert([log], "parquet", out, session=session)
        prepared = prepare(out, setting.directory / "prepared")
        session.spark.dataSource.register(Prepared)
        seen = rounds(
            setting.rounds,
            convert=cpu_of_tree(session, lambda: once(out, lambda: converted(log, out, session))),
            write=cpu_of_tree(session, lambda: once(out, lambda: written(prepared, out, session))),
        )
    title = f"{log.stat().st_size / MIB:.0f} MiB, {done.rows:,} rows"
    yield Figure(f"{title}: convert to parquet", seen["convert"].inverse(log.stat().st_size / MIB), "MiB/s CPU")
    yield Figure(f"{title}: the same", seen["convert"].inverse(done.rows / 1e3), "k rows/s CPU")
    yield Figure(f"{title}: Spark's writer alone", seen["write"].inverse(done.rows / 1e3), "k rows/s CPU")
    yield Figure(f"{title}: speed over that of the writer alone", seen["write"].over(seen["convert"]), "x", 0.5)


def fleet(setting: Setting) -> Result:
    """verify --master of 3,000 small files against the same call in one process."""
    samples = [path for path in drizzle_samples() if path.stat().st_size < 100_000]
    paths = []
    for number in range(FLEET):
        path = setting.directory / f"{number:04d}.log"
        shutil.copyfile(samples[number % len(samples)], path)
        paths.append(path)
    began = time.process_time() + cpu_of_children()
    with open_session(MASTER) as session:
        session.spark.range(1).count()
        start = time.process_time() + cpu_of_children() + tree_seconds(jvm(session)) - began
        first = cpu_of_tree(session, lambda: binlogtool.verify_fleet(paths, session=session))()
        seen = rounds(
            setting.rounds,
            fleet=cpu_of_tree(session, lambda: binlogtool.verify_fleet(paths, session=session)),
            here=cpu_of_tree(session, lambda: binlogtool.verify(paths)),
        )
    yield Figure("start of a session, with its first query", Series((start,)), "s CPU")
    yield Figure(f"{FLEET:,} files, {MASTER}, first job of a session", Series((first,)), "s CPU")
    yield Figure(f"{FLEET:,} files, {MASTER}, later jobs", seen["fleet"], "s CPU")
    yield Figure(f"{FLEET:,} files, in one process", seen["here"], "s CPU")
    first_over = Series(tuple(first / here for here in seen["here"].values))
    yield Figure(f"{FLEET:,} files: first job over one process", first_over, "x", 3.0, at_least=False)


def converted(log: Path, out: Path, session: Session) -> None:
    assert binlogtool.convert([log], "parquet", out, session=session).complete


def written(prepared: Path, out: Path, session: Session) -> None:
    frame = session.spark.read.format("prepared").load(str(prepared))
    frame.write.option("compression", "zstd").parquet(str(out))


def once(out: Path, work: Callable[[], object]) -> None:
    """The work, with nothing in its way."""
    shutil.rmtree(out, ignore_errors=True)
    work()


# -- CPU of processes that are not ours to wait for ----------------------------------------------------------------


def cpu_of_tree(session: Session, work: Callable[[], object]) -> Callable[[], float]:
    """A candidate: CPU seconds of this process, of Spark's and of all below it during one call."""

    def run() -> float:
        before = time.process_time() + tree_seconds(jvm(session))
        work()
        return time.process_time() + tree_seconds(jvm(session)) - before

    return run


def jvm(session: Session) -> int:
    return int(java.pid_file(session.folder).read_text())


def cpu_of_children() -> float:
    """CPU seconds of children that have ended."""
    used = os.times()
    return used.children_user + used.children_system


def tree_seconds(pid: int) -> float:
    """CPU seconds of a process and of all its descendants, also of those that have ended."""
    parents: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
            spent[int(entry.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    total, waiting = 0.0, [pid]
    while waiting:
        one = waiting.pop()
        total += spent.get(one, 0.0)
        waiting += parents.get(one, [])
    return total


def spark(setting: Setting) -> Result:
    """Jobs on the embedded Spark."""
    yield from convert(setting)
    yield from fleet(setting)


CASES: dict[str, Case] = {"spark": spark}
