"""Jobs on Spark: a conversion beside Spark's own writer and beside parsed text, and a fleet beside one process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import binlogtool
from bench import mysql_log, text_parse
from bench.cases import MIB, Case, Figure, Result, Setting, Skipped, drizzle_samples
from bench.measure import ROOT, Series, cpu_of_child
from bench.mysql_cases import PEER
from bench.processes import Use, now, used
from binlogtool.spark.session import SparkJobSession, open_session

FLEET = 3000
MASTER = "local[2]"
CONVERTED_MIB = 1024
PARSED_MIB = 256
MOST_S = 900.0
"""So long rounds are begun, for each comparison; one round is always measured."""


def spark(setting: Setting) -> Result:
    """Jobs on the embedded Spark, with CPU time of all processes: tables, and a fleet of small files."""
    yield from convert(setting)
    yield from fleet(setting)


def text(setting: Setting) -> Result:
    """A log to Parquet, against the text of the server's own tool and a minimal parser of it in Python."""
    peer = next(filter(shutil.which, PEER), None)
    if peer is None:
        yield Skipped("convert against parsed text: not measured", f"{PEER[0]} is not installed")
        return
    log = mysql_log.synthetic(setting.directory, setting.size(PARSED_MIB), 1)
    rows, events = setting.directory / "rows.parquet", setting.directory / "text.parquet"
    pipeline = [*("bash", "-o", "pipefail", "-c", '"$1" "${@:5}" "$2" | "$3" -m bench.text_parse "$4"', "-")]
    pipeline += [peer, str(log), sys.executable, str(events), *text_parse.TEXT]
    demand_same_events(pipeline, log)
    began = now()
    with open_session(MASTER) as session:
        session.spark.range(1).count()
        start = now(session) - began
        first = used(session, lambda: converted(log, rows, session))
        seen = measured(
            setting.rounds,
            ours=lambda: used(session, lambda: once(rows, lambda: converted(log, rows, session))),
            parsed=of_child(pipeline),
            decoded=of_child([peer, *text_parse.TEXT, str(log)]),
        )
    title = f"{log.stat().st_size / MIB:.0f} MiB of small events to parquet"
    whole = Series((start.cpu + first.cpu,))
    yield from figures(f"{title}: convert, later job of a session", seen["ours"])
    yield Figure(f"{title}: convert, with the start of the session", whole, "s CPU")
    yield Figure(f"{title}: the same", Series((start.wall + first.wall,)), "s wall")
    yield from figures(f"{title}: {peer} {' '.join(text_parse.TEXT)} | parser", seen["parsed"])
    yield Figure(f"{title}: {peer} alone, its text thrown away", cpu(seen["decoded"]), "s CPU")
    yield Figure(f"{title}: speed of convert over the parser's", cpu(seen["parsed"]).over(cpu(seen["ours"])), "x")
    whole_over = Series(tuple(one / whole.median for one in cpu(seen["parsed"]).values))
    yield Figure(f"{title}: the same, with the start of the session", whole_over, "x")


def demand_same_events(pipeline: list[str], log: Path) -> None:
    """Both sides see the same events and rows."""
    done = subprocess.run(pipeline, check=True, capture_output=True, cwd=ROOT)
    told = json.loads(done.stdout)
    assert (told["events"], told["rows"]) == mysql_log.counted(log), told


def convert(setting: Setting) -> Result:
    """convert of a log of small MySQL events to Parquet, payload decoded, against Spark's writer alone."""
    from bench.prepared import Prepared, prepare

    log = mysql_log.synthetic(setting.directory, setting.size(CONVERTED_MIB), 1)
    out = setting.directory / "rows.parquet"
    with open_session(MASTER) as session:
        done = binlogtool.convert([log], "parquet", out, session=session)
        prepared = prepare(out, setting.directory / "prepared")
        session.spark.dataSource.register(Prepared)
        once(out, lambda: written(prepared, out, session))
        seen = measured(
            setting.rounds,
            convert=lambda: used(session, lambda: once(out, lambda: converted(log, out, session))),
            write=lambda: used(session, lambda: once(out, lambda: written(prepared, out, session))),
        )
    shutil.rmtree(prepared)
    shutil.rmtree(out)
    mib, thousands = log.stat().st_size / MIB, done.rows / 1e3
    log.unlink()
    title = f"{mib:.0f} MiB, {done.rows:,} rows"
    for name, what in (("convert", "convert to parquet"), ("write", "Spark's writer alone")):
        yield Figure(f"{title}: {what}", cpu(seen[name]).inverse(mib), "MiB/s CPU")
        yield Figure(f"{title}: {what}", cpu(seen[name]).inverse(thousands), "k rows/s CPU")
        yield Figure(f"{title}: {what}", wall(seen[name]), "s wall")
    ratio = cpu(seen["write"]).over(cpu(seen["convert"]))
    yield Figure(f"{title}: speed over that of the writer alone", ratio, "x", 0.85)
    clocks = wall(seen["write"]).over(wall(seen["convert"]))
    yield Figure(f"{title}: the same, by the clock", clocks, "x")


def fleet(setting: Setting) -> Result:
    """verify --master of 3,000 small files against the same call in one process."""
    samples = [path for path in drizzle_samples() if path.stat().st_size < 100_000]
    folder = setting.directory / "fleet"
    folder.mkdir()
    paths = [folder / f"{number:04d}.log" for number in range(FLEET)]
    for number, path in enumerate(paths):
        shutil.copyfile(samples[number % len(samples)], path)
    began = now()
    with open_session(MASTER) as session:
        session.spark.range(1).count()
        start = now(session) - began
        first = used(session, lambda: binlogtool.verify_fleet(paths, session=session))
        seen = measured(
            setting.rounds,
            warm=1,
            fleet=lambda: used(session, lambda: binlogtool.verify_fleet(paths, session=session)),
            here=lambda: used(session, lambda: binlogtool.verify(paths)),
        )
    yield Figure("start of a session, with its first query", Series((start.cpu,)), "s CPU")
    yield Figure(f"{FLEET:,} files, {MASTER}, first job of a session", Series((first.cpu,)), "s CPU")
    yield from figures(f"{FLEET:,} files, {MASTER}, later jobs", seen["fleet"])
    yield from figures(f"{FLEET:,} files, in one process", seen["here"])
    first_over = Series(tuple(first.cpu / here for here in cpu(seen["here"]).values))
    yield Figure(f"{FLEET:,} files: first job over one process", first_over, "x", 3.0, at_least=False)


# -- the work ------------------------------------------------------------------------------------------------------


def converted(log: Path, out: Path, session: SparkJobSession) -> None:
    assert binlogtool.convert([log], "parquet", out, session=session).complete


def written(prepared: Path, out: Path, session: SparkJobSession) -> None:
    frame = session.spark.read.format("prepared").load(str(prepared))
    frame.write.option("compression", "zstd").parquet(str(out))


def once(out: Path, work: Callable[[], object]) -> None:
    """The work, with nothing in its way."""
    shutil.rmtree(out, ignore_errors=True)
    work()


# -- measuring -----------------------------------------------------------------------------------------------------


def measured(count: int, *, warm: int = 0, **candidates: Callable[[], Use]) -> dict[str, list[Use]]:
    """Like `measure.rounds`, but no round is begun when the time is over. warm: rounds that are not counted."""
    seen: dict[str, list[Use]] = {name: [] for name in candidates}
    end = time.monotonic() + MOST_S
    for number in range(-warm, count):
        if number > 0 and time.monotonic() > end:
            break
        for name, candidate in candidates.items():
            use = candidate()
            if number >= 0:
                seen[name].append(use)
    return seen


def of_child(command: list[str]) -> Callable[[], Use]:
    """A candidate: a command, with its output thrown away."""
    run = cpu_of_child(command)

    def use() -> Use:
        began = time.monotonic()
        return Use(run(), time.monotonic() - began)

    return use


def cpu(uses: list[Use]) -> Series:
    return Series(tuple(use.cpu for use in uses))


def wall(uses: list[Use]) -> Series:
    return Series(tuple(use.wall for use in uses))


def figures(name: str, uses: list[Use]) -> Result:
    """Both clocks."""
    yield Figure(name, cpu(uses), "s CPU")
    yield Figure(name, wall(uses), "s wall")


CASES: dict[str, Case] = {"spark": spark, "text": text}
