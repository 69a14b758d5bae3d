"""Fleets on Spark: the same reports and the same states as in one process, whatever the files are like."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.errors import BinlogtoolError, InputOutputError, UsageError
from binlogtool.export.manifest import balance_indexes_by_size
from binlogtool.export.spark_settings import SparkMaster
from binlogtool.format_api.replay_rules import ADD, DELETE, DROP, PATCH, PUT, REMOVE, StateChange
from binlogtool.limits import Limits
from binlogtool.prediction.row_store import ReplayState
from binlogtool.report.diagnosis_and_replay import replay_to_json
from binlogtool.spark import session as session_module
from binlogtool.spark import verify_and_replay_jobs
from binlogtool.spark.session import SparkJobSession
from binlogtool.verification.verify_report import Report
from tests.cli.invoke import invoke
from tests.export.reports import as_json
from tests.harness.slowness import scale_limit
from tests.sampling import EXHAUSTIVE, take_sample

ROOT = Path(__file__).resolve().parents[2]


def shipped(samples: Path) -> list[str]:
    """Every file and every directory of the samples, the ones that are no logs included."""
    return [str(p) for p in sorted(samples.rglob("*")) if p.is_file() or any(c.is_file() for c in p.iterdir())]


def assert_same_reports(paths: list[str], session: SparkJobSession) -> list[Report]:
    here = [binlogtool.verify([path]) for path in paths]
    there = binlogtool.verify_fleet(paths, session=session)
    for path, mine, other in zip(paths, here, there, strict=True):
        assert other is not None and as_json(other) == as_json(mine), path
    return here


@pytest.mark.full
@pytest.mark.spark
def test_a_fleet_gets_the_reports_that_each_log_gets_alone(
    samples: Path, tmp_path: Path, spark_session: SparkJobSession
) -> None:
    unreadable = tmp_path / "loop.xlog"
    unreadable.symlink_to(unreadable)
    (tmp_path / "empty.xlog").write_bytes(b"")
    paths = [*take_sample(shipped(samples), 4), str(unreadable), str(tmp_path / "empty.xlog"), "/nonexistent"]
    paths.append(str(samples))
    reports = assert_same_reports(paths, spark_session)
    statuses = {report.status for report in reports}
    assert statuses == {"clean", "findings", "incomplete"} and len(reports) > (100 if EXHAUSTIVE else 25)
    assert len(reports[-1].sets) > 5  # one path, many logs: they are shared out one by one


@pytest.mark.full
@pytest.mark.spark
def test_the_damaged_corpus_gets_the_same_reports(corpus: Path, spark_session: SparkJobSession) -> None:
    damaged = sorted(str(p) for p in corpus.glob("*/generated/**/*damaged*/*") if not p.name.endswith((".md", ".json")))
    reports = assert_same_reports(take_sample(damaged[::2], 5), spark_session)
    assert sum(report.status != "clean" for report in reports) > (100 if EXHAUSTIVE else 20)


@pytest.mark.spark
def test_logs_of_a_fleet_can_be_urls(samples: Path, spark_session: SparkJobSession) -> None:
    log = samples / "drizzle" / "basic-checksum.log"
    here, (there, missing) = (
        binlogtool.verify([log]),
        binlogtool.verify_fleet([log.as_uri(), "file:///nowhere.log"], session=spark_session),
    )
    assert there is not None and missing is not None and missing.failures[0].exit_code == 4
    assert as_json(there).replace("file://", "") == as_json(here)


@pytest.fixture
def on_the_shared_spark(spark_session: SparkJobSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line starts a Spark of its own; here it gets the one that runs."""

    @contextlib.contextmanager
    def opened(master: SparkMaster) -> Iterator[SparkJobSession]:
        assert master.url == "local[2]" and master.name.startswith("binlogtool ")
        yield spark_session

    monkeypatch.setattr(session_module, "open_session", opened)


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.usefixtures("on_the_shared_spark")
def test_verify_says_the_same_with_a_master(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(samples)
    words = ["verify", "drizzle/damaged/zero-hole.log", "tarantool", "drizzle/basic-checksum.log", "nowhere.log"]
    for more in ([], ["--fail-on", "never"], ["--depth", "checksum"], ["-O", "json"]):
        here, there = invoke(*words, *more), invoke(*words, *more, "--master", "local[2]")
        assert (there.code, there.out, there.err) == (here.code, here.out, here.err), more
    reports = [tmp_path / "here.xml", tmp_path / "there.xml"]
    invoke(*words, "--report", f"junit={reports[0]}")
    invoke(*words, "--report", f"junit={reports[1]}", "--master", "local[2]")
    mine, other = (re_timed(path.read_text()) for path in reports)
    assert other == mine


def re_timed(text: str) -> str:
    import re

    return re.sub(r' time="[^"]*"', "", text)


@pytest.mark.spark
@pytest.mark.usefixtures("on_the_shared_spark")
def test_a_state_file_remembers_what_the_fleet_verified(samples: Path, tmp_path: Path) -> None:
    log, state = str(samples / "drizzle" / "basic-checksum.log"), str(tmp_path / "state")
    words = ["verify", "-v", "-O", "json", "--master", "local[2]", "--state", state, log]
    first, second = invoke(*words), invoke(*words)
    (file,), (unchanged,) = (json.loads(one.out)["files"] for one in (first, second))
    assert (first.code, second.code, unchanged["details"].pop("unchanged")) == (0, 0, True)
    assert unchanged == file
    assert "unchanged since it was verified" not in first.err and "unchanged since it was verified" in second.err


@pytest.mark.spark
def test_files_beyond_the_time_limit_are_reported(samples: Path, spark_session: SparkJobSession) -> None:
    log = str(samples / "drizzle" / "basic-checksum.log")
    limits = Limits(timeout=1e-3)
    began = time.monotonic()
    assert binlogtool.verify_fleet([log] * 3000, session=spark_session, limits=limits)[-1] is None
    assert time.monotonic() - began < 60


@pytest.mark.full
@pytest.mark.spark
def test_replays_of_a_fleet_leave_the_same_states(samples: Path, spark_session: SparkJobSession) -> None:
    paths, here = [], []
    for path in [*take_sample(shipped(samples), 4, 1), str(samples / "mysql_binlog" / "sets")]:
        with contextlib.suppress(BinlogtoolError):
            here += [replay_to_json(one) for one in binlogtool.replay([path])]
            paths.append(path)
    there = [replay_to_json(one) for one in binlogtool.replay(paths, session=spark_session)]
    assert there == here
    digests = {one["digest"] for one in here}
    least = (20, 100) if EXHAUSTIVE else (5, 25)
    assert len(digests) > least[0] and sum(len(one["objects"]) for one in here) > least[1]


@pytest.mark.full
@pytest.mark.spark
def test_replays_of_the_generated_corpus_leave_the_same_states(corpus: Path, spark_session: SparkJobSession) -> None:
    paths, here = [], []
    for path in take_sample(sorted(corpus.glob("*/generated/*"))[::2], 4):
        with contextlib.suppress(BinlogtoolError):
            here += [replay_to_json(one) for one in binlogtool.replay([path])]
            paths.append(str(path))
    assert len(here) > (20 if EXHAUSTIVE else 5)
    assert [replay_to_json(one) for one in binlogtool.replay(paths, session=spark_session)] == here


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.usefixtures("on_the_shared_spark")
def test_replay_dry_run_says_the_same_with_a_master(samples: Path) -> None:
    words = ["replay-dry-run", str(samples / "drizzle" / "basic-checksum.log"), str(samples / "readme" / "flipped-bit")]
    other = str(samples / "drizzle" / "basic-nochecksum.log")
    for more in ([], ["-O", "json"], ["--no-digest"], ["--compare", other]):
        here, there = invoke(*words, *more), invoke(*words, *more, "--master", "local[2]")
        assert (there.code, there.out, there.err) == (here.code, here.out, here.err), more
    missing = [*words, "/nonexistent"]
    here, there = invoke(*missing), invoke(*missing, "--master", "local[2]")
    assert (there.code, there.out, there.err) == (here.code, here.out, here.err) and here.code == 4


def test_single_decisions_are_not_for_a_cluster(samples: Path) -> None:
    log = str(samples / "drizzle" / "basic-checksum.log")
    assert invoke("replay-dry-run", "--master", "local[2]", "-O", "jsonl", log).code == 2
    assert invoke("replay-dry-run", "--master", "local[2]", "--explain", "3", log).code == 2
    assert invoke("verify", "--master", "local[2]", "-").code == 2
    assert invoke("replay-dry-run", "--master", "local[2]", "-").code == 2


# -- the fold, without Spark ---------------------------------------------------------------------------------------


def appended(image: bytes, operation: bytes) -> bytes | None:
    return None if not image and operation[:1] == b"-" else image + operation


def changes_of(seed: int) -> list[StateChange]:
    """Keys, rows without keys, and objects that are emptied now and then."""
    source, rows, found = random.Random(seed), list[StateChange](), list[StateChange]()
    for _ in range(3000):
        name, image = source.choice("abc"), source.choice([b"-", b"+"]) + b"%d" % source.randrange(9)
        kind = source.choice([PUT] * 5 + [DELETE] * 2 + [PATCH] * 5 + [ADD] * 3 + [REMOVE])
        if source.random() < 0.002:
            found.append(StateChange(name, DROP, b"", b""))
            rows = [row for row in rows if row.object != name]
        elif kind == ADD:
            rows.append(StateChange("bag", ADD, b"", image))
            found.append(rows[-1])
        elif kind == REMOVE:
            found += [rows.pop(source.randrange(len(rows)))._replace(kind=REMOVE)] if rows else []
        else:
            found.append(StateChange(name, kind, b"%d" % source.randrange(60), image))
    return found


@pytest.mark.parametrize("memory", [1 << 30, 3000])
@pytest.mark.parametrize("seed", range(5))
def test_entries_that_meet_again_in_any_order_give_the_state_of_one_fold(
    seed: int, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Rules:
        patch = staticmethod(appended)

    monkeypatch.setattr(verify_and_replay_jobs, "_replay_rules", lambda _format: Rules)
    whole, part = ReplayState(1 << 30, appended), ReplayState(memory, appended)
    for change in changes_of(seed):
        whole.apply_changes([change])
        part.apply_changes([change])
    pairs = [((0, "f", *place), (i, entry)) for i, (place, entry) in enumerate(part.iter_entries())]
    assert (len({place for place, _ in pairs}) < len(pairs)) == (memory == 3000)  # some keys are there more than once
    random.Random(seed).shuffle(pairs)
    grouped: dict[Any, list[Any]] = {}
    for place, value in pairs:
        grouped.setdefault(place, []).append(value)
    tasks = [dict(list(grouped.items())[i::3]) for i in range(3)]
    sums = [row for task in tasks for row in verify_and_replay_jobs._fold_entries_and_sum_rows(task.items())]
    found: dict[str, tuple[int, int]] = {
        name: (rows.keys, rows.total) for name, (_, rows) in part.get_emptied_or_keyless_objects().items()
    }
    for _, name, epoch, rows in sums:
        keys, total = found.setdefault(name, (0, 0))
        if epoch == part.get_emptied_or_keyless_objects().get(name, (0, None))[0]:
            found[name] = (keys + rows.keys, (total + rows.total) % (1 << 256))
    wanted = {name: (one.keys, one.total) for name, one in whole.sum_object_states().items()}
    assert found == wanted and sum(keys for keys, _ in found.values()) > 20
    whole.close()
    part.close()


@pytest.mark.parametrize(("sizes", "groups"), [([5, 1, 1, 1, 1, 1], 2), ([0] * 10, 4), ([7], 8), ([], 3)])
def test_logs_are_shared_out_by_bytes(sizes: list[int], groups: int) -> None:
    shares = balance_indexes_by_size(sizes, groups)
    assert sorted(i for share in shares for i in share) == list(range(len(sizes)))
    assert len(shares) == min(groups, len(sizes)) and all(shares)
    assert all(a < b for share in shares for a, b in pairwise(share))
    loads = [sum(sizes[i] for i in share) for share in shares]
    assert max(loads, default=0) - min(loads, default=0) <= max(sizes, default=0)


# -- clusters ------------------------------------------------------------------------------------------------------


def test_the_zip_holds_the_package_and_works_where_it_is_not_installed(tmp_path: Path, samples: Path) -> None:
    import click

    one, two = (
        session_module.write_package_zip(tmp_path / "one.zip"),
        session_module.write_package_zip(tmp_path / "two.zip"),
    )
    assert one.read_bytes() == two.read_bytes()
    names = zipfile.ZipFile(one).namelist()
    assert {
        "binlogtool/__init__.py",
        "binlogtool/formats/tarantool/schema.py",
        "binlogtool/cli/click_command_tree.py",
    } <= set(names)
    assert not [name for name in names if "__pycache__" in name]
    program = (
        "import binlogtool; print(binlogtool.__file__)\n"
        f"print(binlogtool.verify([{str(samples / 'readme' / 'intact')!r}], backend='python').status)"
    )
    env = {"PYTHONPATH": f"{one}:{Path(click.__file__).parent.parent}", "PATH": os.environ["PATH"]}
    command = [sys.executable, "-S", "-c", program]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == [f"{one}/binlogtool/__init__.py", "clean"], done.stderr


@pytest.mark.spark
def test_a_master_that_does_not_answer_is_reported_at_once(samples: Path) -> None:
    log = str(samples / "drizzle" / "basic-checksum.log")
    began = time.monotonic()
    result = invoke("verify", "--master", "spark://127.0.0.1:1", log)
    assert (result.code, result.out) == (4, b"")
    assert "the master spark://127.0.0.1:1 does not answer: Connection refused" in result.err
    assert invoke("verify", "--master", "spark://nothing", log).code == 2
    assert time.monotonic() - began < scale_limit(10)


def test_errors_cross_to_the_driver() -> None:
    error = verify_and_replay_jobs.make_picklable_error(InputOutputError("x"))
    assert isinstance(error, InputOutputError)
    bug = verify_and_replay_jobs.make_picklable_error(KeyError("seven"))
    assert isinstance(bug, RuntimeError) and "KeyError: 'seven'" in str(bug)
    with pytest.raises(UsageError, match="y"):
        verify_and_replay_jobs.result_or_raise(UsageError("y"))


@pytest.mark.nightly
@pytest.mark.spark(alone=True)
def test_ctrl_c_ends_a_fleet_in_seconds(samples: Path, tmp_path: Path) -> None:
    logs = [str(samples / "drizzle" / "basic-checksum.log")] * 20_000
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(ROOT)}
    words = ["verify", "--master", "local[2]", "--progress", "json", "-o", str(tmp_path / "out.txt")]
    command = [sys.executable, "-m", "binlogtool", *words, *logs]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        lines = read_until(process, lambda line: json.loads(line)["what"] == "verify")
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        rest = process.communicate(timeout=60)[1]
        took = time.monotonic() - began
    assert process.returncode == 130, (lines, rest)
    assert rest.splitlines()[-1] == "binlogtool: interrupted; no partial output file was left"
    assert took < scale_limit(3)
    assert [p.name for p in tmp_path.iterdir()] == ["tmp"]


def read_until(process: subprocess.Popen[str], wanted: Callable[[str], bool]) -> list[str]:
    lines = []
    assert process.stderr is not None
    for line in process.stderr:
        lines.append(line)
        if wanted(line):
            break
    return lines
