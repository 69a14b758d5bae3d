"""Files that a limit kept from being read to their end: nothing is said of the end, and nothing is promised."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import binlogtool
from binlogtool.cli import dump
from binlogtool.core import scan_file
from binlogtool.errors import LimitError
from binlogtool.limits import Limits
from binlogtool.prediction import replay_options
from binlogtool.report.verify_and_plan_text import render_verify_text
from tests.cli.invoke import invoke
from tests.cli.samples import insert, plain_log

LOG = "drizzle/basic-checksum.log"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "plain.log"
    path.write_bytes(plain_log())
    return path


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes a second; small pieces of a file are read at a time."""
    ticks = itertools.count()
    monkeypatch.setattr(scan_file, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    monkeypatch.setattr(scan_file, "_CHUNK_BYTES", {})
    monkeypatch.setattr(scan_file, "MIB", 4096)


def partial(path: Path, looks: float, **options: Any) -> Any:
    return binlogtool.verify([path], limits=Limits(timeout=looks), **options)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("looks", [0.5, 1.5, 2.5])
def test_a_file_that_was_not_read_to_its_end_says_nothing_of_its_end(samples: Path, looks: float) -> None:
    path = samples / LOG
    size = path.stat().st_size
    report = partial(path, looks)
    (file,) = report.files
    assert report.status == "incomplete"
    assert (file.size, sum(file.bytes.values())) == (size, size)
    assert 0 < file.details["unread"] == file.bytes["unknown"] <= size
    assert (file.findings, file.durable_end, file.closed) == ((), None, None)
    text = "\n".join(render_verify_text(report, exit_code=6))
    assert "PARTIAL" in text and "not read after" in text and "the time limit" in text
    assert "100 %" not in text.splitlines()[2] and "accounted" not in text and "the file ends" not in text


@pytest.mark.usefixtures("hasty")
def test_no_log_of_any_format_has_findings_where_it_was_left(corpus: Path) -> None:
    """Sound logs of all formats, left after one piece: what is found must not be about the place where it was left."""
    logs = [
        "mysql-binlog/generated/mariadb-10.11/big-transaction/mariadb-bin.000001",
        "mysql-binlog/generated/mysql-9.7/mixed-ddl",
        "mariadb-innodb-binlog/generated/basic/binlog-000001.ibb",
        "tarantool/generated/chain/00000000000000000000.snap",
        "eblob/generated/api-large.binlog",
        "manticore/generated/v16/common-big-commit/binlog.0000",
    ]
    left = 0
    for name in logs:
        path = next(iter(sorted((corpus / name).glob("*.00000?")))) if (corpus / name).is_dir() else corpus / name
        for looks in (1.5, 2.5):
            (file,) = partial(path, looks).files
            if "unread" in file.details:
                left += 1
                assert [f for f in file.findings if f.severity > 0] == [], path
    assert left >= 6


@pytest.mark.usefixtures("hasty")
def test_nothing_is_missing_in_a_set_that_was_not_read_to_its_end(samples: Path) -> None:
    report = partial(samples / "tarantool/chain", 1.5)
    assert report.sets[0].findings == () and all(not f.findings for f in report.files)


def test_the_time_holds_for_a_directory_and_not_for_each_of_its_files(samples: Path, tmp_path: Path) -> None:
    shutil.copytree(samples / "tarantool/chain", tmp_path / "chain")
    report = partial(tmp_path / "chain", 1e-9)
    (failure,) = report.failures
    assert len(report.files) == 1 and failure.exit_code == 6 and "time limit" in failure.message


@pytest.mark.usefixtures("hasty")
def test_status_6_names_the_limit(samples: Path) -> None:
    done = invoke("verify", "--max-duration", "1ms", str(samples / LOG))
    assert done.code == 6 and "(--timeout, --max-duration)" in done.text + done.err


def test_paths_that_were_not_reached_are_counted(plain: Path) -> None:
    done = invoke("verify", "-O", "json", "--max-duration", "1ms", *[str(plain)] * 50)
    value = json.loads(done.out)
    assert (done.code, value["status"]) == (6, "incomplete")
    (failure,) = value["failures"]
    assert f"{50 - len(value['files'])} of 50 paths" in failure["message"] and "--max-duration" in done.err


@pytest.mark.usefixtures("hasty")
def test_the_json_report_tells_what_was_not_read(samples: Path) -> None:
    done = invoke("verify", "-O", "json", "--max-duration", "1ms", str(samples / LOG))
    (file,) = json.loads(done.out)["files"]
    assert sum(file["bytes"].values()) == file["size"] == file["details"]["unread"]
    assert "--max-duration" in file["details"]["incomplete"]


@pytest.mark.usefixtures("hasty")
def test_a_plan_needs_the_whole_log(samples: Path) -> None:
    with pytest.raises(LimitError, match="time limit"):
        binlogtool.plan_truncate(samples / LOG, limits=Limits(timeout=1.5))


# -- replays and other outputs -----------------------------------------------------------------------------------------


def test_a_replay_that_a_limit_ended_gives_what_it_has_and_says_so(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is over before the first record."""
    monkeypatch.setattr(replay_options, "time", SimpleNamespace(monotonic=iter([0.0, 9.0, 9.0]).__next__))
    (part,) = binlogtool.replay([plain], limits=Limits(timeout=5), format="drizzle")
    assert part.incomplete_reason is not None and "--timeout" in part.incomplete_reason
    assert (part.starts, part.digest) == (None, None)
    assert part.decisions == {"applied": 0, "skipped": 3, "rejected": 0} and part.reasons == {"limit": 3}


def test_a_replay_goes_no_further_than_the_look_at_the_log(samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(scan_file, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    monkeypatch.setattr(scan_file, "_CHUNK_BYTES", {})
    monkeypatch.setattr(scan_file, "MIB", 4096)
    (part,) = binlogtool.replay([samples / LOG], limits=Limits(timeout=5))
    (whole,) = binlogtool.replay([samples / LOG])
    assert part.incomplete_reason is not None and whole.incomplete_reason is None
    assert 0 < part.decisions["applied"] < whole.decisions["applied"]


@pytest.mark.parametrize("form", ["text", "json", "jsonl"])
def test_a_partial_replay_has_status_6_and_is_marked(plain: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    times = itertools.chain([0.0], itertools.repeat(9.0))
    monkeypatch.setattr(replay_options, "time", SimpleNamespace(monotonic=times.__next__))
    done = invoke("replay-dry-run", "-O", form, "--timeout", "5", str(plain))
    assert done.code == 6 and "partial" in done.err and "--timeout" in done.err
    marks = {"text": "PARTIAL   the time limit", "json": '"incomplete": "the time limit', "jsonl": ""}
    assert marks[form] in done.text


def test_a_dump_that_a_limit_ended_says_what_became_of_its_output(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(dump, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    target = tmp_path / "out"
    done = invoke("dump", "--timeout", "1s", "-o", str(target), str(plain))
    assert done.code == 6 and f"the time limit was reached (--timeout); {target} was not written" in done.err
    assert not target.exists()
    done = invoke("dump", "--timeout", "1s", str(plain))
    assert (
        done.code == 6
        and "the time limit was reached (--timeout); the printed output is partial" in done.err
        and done.out
    )


@pytest.mark.parametrize("words", ["dump", "verify", "stats", "truncate-to-durable"])
def test_status_6_comes_with_the_name_of_the_limit(tmp_path: Path, words: str) -> None:
    """A record of 200 KB is over the ceiling."""
    path = tmp_path / "long.log"
    path.write_bytes(plain_log() + insert(4, b"shop", b"t", b"x" * 200_000))
    done = invoke(words, "--max", "record=64KiB", str(path))
    assert done.code == 6 and "--max record" in done.text + done.err
