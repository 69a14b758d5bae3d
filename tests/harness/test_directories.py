"""A directory of very many small files: what is kept of each is bounded, and the document is the same as ever."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from binlogtool import __version__, verify
from binlogtool.format_api.encode_json import encode_document
from binlogtool.report.verify_and_plan_text import encode_verify_report
from tests.harness.ceilings import MIB, SLACK, STATEMENT, run, unpacked
from tests.harness.slowness import slowness
from tests.sampling import take_sample

SMALL = "mysql-binlog/generated/mysql-9.7/relay/relay.000007"
KEPT = 3328
"""Bytes of one file at most, with what memory is rounded to: 100,000 files then fit below the default ceiling."""

MOST = 96 * MIB
"""For 6,000 files, whatever the command."""

pytestmark = pytest.mark.usefixtures("corpus")


def directory(corpus: Path, top: Path, count: int) -> Path:
    """Copies of one small log, numbered as a server does."""
    made = top / f"of-{count}"
    made.mkdir()
    data = (corpus / SMALL).read_bytes()
    for number in range(1, count + 1):
        (made / f"bin.{number:06d}").write_bytes(data)
    return made


@pytest.mark.full
@pytest.mark.parametrize("form", take_sample(["json", "text"], 2))
def test_what_is_kept_of_a_file_is_bounded(form: str, corpus: Path, tmp_path: Path) -> None:
    few, many = 1000, 3000
    peaks = []
    for count in (few, many):
        status, peak, _, said = run(
            tmp_path, "verify", "-O", form, str(directory(corpus, tmp_path, count)), backend="auto"
        )
        assert (status, said) == (0, "")
        peaks.append(peak)
    assert peaks[1] - peaks[0] <= KEPT * (many - few)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_document_written_in_pieces_is_the_document(corpus: Path, tmp_path: Path, count: int) -> None:
    found = verify([str(directory(corpus, tmp_path, count))]) if count else verify([str(tmp_path / "nothing")])
    assert len(found.files) == count
    text = b"".join(encode_verify_report(found, __version__))
    value = json.loads(text)
    assert text == encode_document(value)
    assert len(value["files"]) == value["summary"]["files"] == count


@pytest.mark.full_corpus
def test_a_refusal_names_a_ceiling_to_try(tmp_path: Path) -> None:
    status, _, _, said = run(tmp_path, "--max-memory", "64MiB", "dump", "-O", "sql", str(unpacked(STATEMENT, tmp_path)))
    assert status == 6 and said.count("\n") == 1
    assert "try --max-memory 256MiB" in said


@pytest.mark.nightly
def test_twenty_thousand_files_stay_far_below_the_ceiling(corpus: Path, tmp_path: Path) -> None:
    log = directory(corpus, tmp_path, 20_000)
    for form in ("text", "json"):
        status, peak, _, said = run(tmp_path, "verify", "-O", form, str(log), backend="auto")
        assert (status, said) == (0, "")
        assert peak <= 128 * MIB + SLACK


@pytest.mark.nightly
@pytest.mark.parametrize("words", ["dump -O jsonl", "dump -O sql", "stats"])
def test_six_thousand_files_need_no_more_in_other_commands(words: str, corpus: Path, tmp_path: Path) -> None:
    status, peak, _, _ = run(tmp_path, *words.split(), str(directory(corpus, tmp_path, 6_000)), backend="auto")
    assert status == 0
    assert peak <= MOST


@pytest.mark.full
@pytest.mark.parametrize("words", take_sample(["replay-dry-run", "truncate-to-durable", "diagnose"], 3))
def test_what_plans_and_replays_keep_of_a_file_is_bounded(words: str, corpus: Path, tmp_path: Path) -> None:
    """Plans kept 4.5 KB, and a replay took 6 ms of CPU more for the room of compiled code that few records need.

    Caches of 1,000 entries are full in both runs.
    """
    few_files, many_files = 2000, 4000
    few, many = (
        run(tmp_path, words, str(directory(corpus, tmp_path, count)), backend="auto")
        for count in (few_files, many_files)
    )
    assert (few[0], many[0]) == (0, 0)
    assert many[1] <= MOST
    assert many[1] - few[1] <= KEPT * (many_files - few_files)
    assert many[2] - few[2] <= (many_files - few_files) * 0.004 * slowness()


@pytest.mark.nightly
@pytest.mark.parametrize("words", ["truncate-to-durable", "diagnose", "replay-dry-run"])
def test_a_hundred_thousand_files_are_planned_and_replayed_below_the_default_ceiling(
    words: str, corpus: Path, tmp_path: Path
) -> None:
    status, peak, _, said = run(tmp_path, words, str(directory(corpus, tmp_path, 100_000)), backend="auto")
    assert (status, said) == (0, "")
    assert peak <= 256 * MIB + SLACK


@pytest.mark.nightly
def test_a_hundred_thousand_files_are_verified_below_the_default_ceiling(corpus: Path, tmp_path: Path) -> None:
    log = directory(corpus, tmp_path, 100_000)
    for form in ("text", "json"):
        status, peak, _, said = run(tmp_path, "verify", "-O", form, str(log), backend="auto")
        assert (status, said) == (0, "")
        assert peak <= 256 * MIB + SLACK
