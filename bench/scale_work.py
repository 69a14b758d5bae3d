"""One point of `bench.scale` in its own process: python -m bench.scale_work JOB DATA CORES AMOUNT; prints JSON."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

import binlogtool
from bench.processes import now
from binlogtool.core.resolve_paths import resolve_logs
from binlogtool.export.manifest import GROUPS_PER_CORE, ProgressStep
from binlogtool.spark.session import SparkJobSession, open_session
from binlogtool.spark.verify_and_replay_jobs import make_log_tasks

"""As in pipeline.fleet and pipeline.table."""

FORMAT = "mysql-binlog"


@dataclass
class Stages:
    """When each stage of a job began."""

    began: float = field(default_factory=time.monotonic)
    seen: dict[str, float] = field(default_factory=dict)

    def __call__(self, step: ProgressStep) -> None:
        self.seen.setdefault(step.stage, time.monotonic() - self.began)


def main(job: str, data: str, cores: str, amount: str) -> None:
    before = now()
    with open_session(f"local[{cores}]") as session:
        session.spark.range(1).count()
        start = now(session)
        before_job = shuffled(session)
        stages = Stages()
        result = JOBS[job](session, Path(data), int(float(amount)), stages)
        done = now(session)
        wall = time.monotonic() - stages.began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        facts = FACTS[job](result, Path(data), int(cores), stages, wall)
        facts["shuffle"] = shuffled(session) - before_job
    use, started = done - start, start - before
    told = {
        "start_cpu": started.cpu,
        "start_wall": started.wall,
        "cpu": use.cpu,
        "wall": use.wall,
        "peak": peak,
    } | facts
    print(json.dumps({name: round(value, 5) for name, value in told.items()}))


# -- the jobs ------------------------------------------------------------------------------------------------------


def convert(session: SparkJobSession, data: Path, _: int, stages: Stages) -> Any:
    done = binlogtool.convert(
        sorted(data.iterdir()), "parquet", data.parent / "rows", session=session, on_step=stages, format=FORMAT
    )
    assert done.complete
    return done


def verify(session: SparkJobSession, data: Path, _: int, stages: Stages) -> Any:
    (report,) = binlogtool.verify_fleet([data], session=session, on_step=stages, format=FORMAT)
    assert report is not None and not report.failures
    return report


def replay(session: SparkJobSession, data: Path, _: int, stages: Stages) -> Any:
    return binlogtool.replay([data], session=session, on_step=stages, format=FORMAT)


def tasks(session: SparkJobSession, data: Path, count: int, _: Stages) -> Any:
    from bench.prepared import Prepared, nothing

    session.spark.dataSource.register(Prepared)
    session.spark.read.format("prepared").load(str(nothing(data / "none", count))).count()
    return count


JOBS: dict[str, Callable[[SparkJobSession, Path, int, Stages], Any]] = {
    "convert": convert, "verify": verify, "replay": replay, "tasks": tasks
}  # fmt: skip


# -- what is known of them -----------------------------------------------------------------------------------------


def of_convert(done: Any, data: Path, cores: int, stages: Stages, _: float) -> dict[str, Any]:
    """list: seconds until all logs are found. tasks: those that survey, that read and write, and that read back."""
    sizes, parts, most = [path.stat().st_size for path in data.iterdir()], len(done.outputs), GROUPS_PER_CORE * cores
    return {
        "bytes": sum(sizes), "files": len(sizes), "rows": done.rows,
        "tasks": min(2 * len(sizes), most) + parts + min(parts, most),
        "list": min(stages.seen.values()), "output": sum(output.size for output in done.outputs),
    }  # fmt: skip


def of_fleet(result: Any, data: Path, cores: int, stages: Stages, rows: int, jobs: int) -> dict[str, Any]:
    """list: seconds until all logs are found. gather: seconds to read the results, which are `reports` bytes on their
    way to the driver. jobs: stages of Spark's."""
    units = list(make_log_tasks(0, str(data), resolve_logs(str(data), FORMAT)))
    sent = cloudpickle.dumps(result)
    began = time.monotonic()
    cloudpickle.loads(sent)
    return {
        "bytes": sum(unit.size for unit in units), "files": len(units), "rows": rows,
        "tasks": jobs * min(len(units), GROUPS_PER_CORE * cores), "list": min(stages.seen.values()),
        "gather": time.monotonic() - began, "reports": len(sent),
    }  # fmt: skip


def of_verify(report: Any, data: Path, cores: int, stages: Stages, _: float) -> dict[str, Any]:
    return of_fleet(report, data, cores, stages, sum(file.records or 0 for file in report.files), 1)


def of_replay(found: Any, data: Path, cores: int, stages: Stages, _: float) -> dict[str, Any]:
    keys = sum(tally.keys or 0 for one in found for tally in one.objects)
    return of_fleet(found, data, cores, stages, sum(sum(one.decisions.values()) for one in found), 2) | {"keys": keys}


def of_tasks(count: int, *_: Any) -> dict[str, Any]:
    return {"bytes": 0, "files": 0, "rows": 0, "tasks": count}


FACTS: dict[str, Callable[..., dict[str, Any]]] = {
    "convert": of_convert, "verify": of_verify, "replay": of_replay, "tasks": of_tasks
}  # fmt: skip


def shuffled(session: SparkJobSession) -> int:
    """Bytes that all tasks so far have written for other tasks."""
    executors = session.spark.sparkContext._jsc.sc().statusStore().executorList(False)
    return sum(executors.apply(i).totalShuffleWrite() for i in range(executors.size()))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        raise SystemExit(130) from None
