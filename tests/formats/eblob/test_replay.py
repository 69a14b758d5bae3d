"""What a replay is said to do, against traces of the real library and of a real data-sort."""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.errors import LimitError, UsageError
from binlogtool.formats.eblob.format import FORMAT
from binlogtool.formats.eblob.replay import parse_blob_index
from binlogtool.limits import Limits
from binlogtool.prediction.predict_replay import ReplayDecision, ReplayResult

CORPUS = Path("eblob", "generated")
ERRNO = {"EINVAL": -22, "EOPNOTSUPP": -95, "EINTR": -4}


def replay(path: Path, format: str = "eblob", **how: Any) -> ReplayResult:
    (result,) = binlogtool.replay([path], format=format, backend="python", **how)
    return result


def decided(path: Path, **how: Any) -> list[ReplayDecision]:
    found: list[ReplayDecision] = []
    replay(path, on_decision=found.append, digest=False, **how)
    return found


# -- the recorded behaviour --------------------------------------------------------------------------------------------


def test_damaged_logs_end_where_they_end_for_the_library(corpus: Path) -> None:
    """Opened or not, records handed over, the error of apply, and the place where it stopped."""
    cases = json.loads((corpus / CORPUS / "manifest.json").read_text())["damaged"]
    for name, case in cases.items():
        result, real = replay(corpus / CORPUS / name), case["real_reader"]
        assert result.decisions["applied"] == real["records_delivered"], name
        opened = json.loads(real["open"] or '{"open": null}')["open"]
        (position,) = result.position["lsn"].values() or [None]
        if opened is None:  # killed: an endless loop
            assert result.stop is not None and "open loops forever" in result.stop.why and position is None, name
        elif opened < 0:
            assert result.stop is not None and ERRNO[result.stop.why.rpartition(" ")[2]] == opened, name
        else:
            end = json.loads(real["result"])
            assert (result.stop is not None and "EIO" in result.stop.why) == (end["apply"] == -5), name
            stopped = end["stopped_at"] if end["apply"] else json.loads(real["open"])["next_lsn"]
            assert position == stopped, name
    assert len(cases) == 37


def test_records_that_are_lost_without_a_word_are_told(corpus: Path) -> None:
    cases = json.loads((corpus / CORPUS / "manifest.json").read_text())["damaged"]
    told = {}
    for name, case in cases.items():
        losses = [found for _, found in replay(corpus / CORPUS / name).findings if found.id == "silent-loss"]
        if losses:
            told[name] = losses[0].facts["lost_records"], losses[0].severity.name
            # the manifest counts with a resync that begins inside the last record; from the damage on it is one less
            assert case["expected"]["good_records_after_damage"] - told[name][0] in (0, 1), name
    assert told.pop("damaged/stale-records-after-append.binlog") == (59, "WARNING")
    assert {severity for _, severity in told.values()} == {"ERROR"}
    assert sorted(name[8:-7] for name in told) == [
        "rec-data-negative", "rec-flags", "rec-meta-flip", "rec-type-2", "rec-type-65535", "rec-type-zero", "zero-hole",
    ]  # fmt: skip


def base_of(trace: list[dict[str, Any]]) -> dict[str, list[int]]:
    """The index of the sorted base, as far as what was applied shows it: start, and bytes that are surely in it."""
    base: dict[str, list[int]] = {}
    for row in trace:
        if row.get("outcome") == "applied":
            old = base.setdefault(row["key"], [row["unsorted_record_offset"], 0, 5000])
            assert old[0] == row["unsorted_record_offset"]
            old[1] = max(old[1], row["relative"] + row["data_size"])
    return base


@pytest.mark.parametrize(("name", "counts"), [("instance-a", (294, 34)), ("instance-b", (112, 6))])
def test_each_record_is_applied_or_skipped_as_in_the_real_data_sort(
    corpus: Path, name: str, counts: tuple[int, int]
) -> None:
    lines = (corpus / CORPUS / "oracle" / f"{name}.apply.jsonl").read_text().splitlines()
    trace = [row for row in map(json.loads, lines) if "outcome" in row]
    ours = decided(corpus / CORPUS / f"{name}.binlog", against={"base": base_of(trace)})
    said = {"applied": "applied", "skip-key-not-in-sorted-base": "key-not-in-base"}
    assert [(one.offset, one.reason) for one in ours] == [(row["offset"], said[row["outcome"]]) for row in trace]
    assert tuple(Counter(one.verb for one in ours).values()) in (counts, counts[::-1])


def test_healthy_logs_are_handed_over_to_the_last_record(corpus: Path) -> None:
    files = json.loads((corpus / CORPUS / "manifest.json").read_text())["files"]
    final = {name: one for name, one in files.items() if one["dialect"].startswith("B (final")}
    assert len(final) == 9
    for name, one in final.items():
        result = replay(corpus / CORPUS / name)
        assert result.decisions["applied"] == one["records"] and result.stop is None and result.starts is None
        assert result.position == {"lsn": {name: one["end_of_records"]}}


@pytest.mark.parametrize("name", ["dialect-a-api", "dialect-b-rawtypes-api", "dialect-p-packed"])
def test_other_dialects_are_not_replayed(corpus: Path, name: str) -> None:
    result = replay(corpus / CORPUS / f"{name}.binlog")
    assert result.decisions["applied"] == 0 and set(result.reasons) == {"dialect"}
    assert result.stop is not None and "dialect" in result.stop.why


# -- rules, one by one -------------------------------------------------------------------------------------------------


def record(key: bytes, target: int, data: bytes, kind: int = 1) -> bytes:
    head = struct.pack("<4Q64s32x", kind, 8, len(data), 0, key.ljust(64, b"\0"))
    return head + struct.pack("<Q", target) + data


def binlog(*records: bytes) -> bytes:
    return struct.pack("<8sH6xQ232x", b"1337833\0", 1, 4) + b"".join(records)


def written(path: Path, *records: bytes) -> Path:
    path.write_bytes(binlog(*records))
    return path


A, B = b"a", b"b"


def test_what_was_another_incarnation_of_the_key_is_skipped(tmp_path: Path) -> None:
    path = written(tmp_path / "x.binlog", *(record(A, at, b"data") for at in (99, 100, 199, 200)), record(B, 150, b"d"))
    base = {A.ljust(64, b"\0").hex().upper(): [100, 100, 0]}
    assert [one.reason for one in decided(path, against={"base": base})] == [
        "other-incarnation", "applied", "applied", "other-incarnation", "key-not-in-base",
    ]  # fmt: skip


def test_an_index_file_says_what_is_in_the_base(tmp_path: Path) -> None:
    path = written(tmp_path / "x.binlog", record(A, 1000, b"data"), record(B, 1000, b"data"))
    entries = ((A, 0, 1000), (B, 1, 1000))
    data = b"".join(struct.pack("<64s4Q", key.ljust(64, b"\0"), flags, 4, 200, at) for key, flags, at in entries)
    index = tmp_path / "data-0.0.index"
    index.write_bytes(data)
    assert [one.reason for one in decided(path, against=str(index))] == ["applied", "key-not-in-base"]
    for name, wrong in (("x", data), ("a.index", b""), ("a.index", data[:-1]), ("a.index", b"\xff" * 96)):
        assert parse_blob_index(name, wrong) is None


def test_a_replay_goes_on_where_another_one_ended(tmp_path: Path) -> None:
    path = written(tmp_path / "x.binlog", record(A, 0, b"1"), record(A, 1, b"2"))
    before = replay(path, until="record:1")
    assert before.decisions["applied"] == 1
    assert [one.reason for one in decided(path, against=before.position)] == ["done", "applied"]


def test_logs_in_one_directory_have_nothing_to_do_with_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.binlog").write_bytes(binlog(record(A, 0, b"1")) + record(B, 1, b"22")[:-1])
    (tmp_path / "b.binlog").write_bytes(binlog(record(A, 0, b"1"), record(B, 1, b"2")))
    (tmp_path / "c.binlog").write_bytes(b"X" + binlog(record(A, 0, b"1"))[1:])
    (tmp_path / "d.binlog").write_bytes(binlog())
    result = replay(tmp_path)
    assert result.reasons == {"applied": 3, "refused": 1}
    assert result.position == {"lsn": {"a.binlog": 393, "b.binlog": 530, "d.binlog": 256}}


def test_the_state_does_not_depend_on_how_often_a_log_is_replayed(tmp_path: Path) -> None:
    writes = [record(A, 0, b"old"), record(A, 9, b"x"), record(A, 0, b"new"), record(B, 3, b"y")]
    once = replay(written(tmp_path / "1.binlog", *writes))
    assert replay(written(tmp_path / "2.binlog", *writes, *writes)).digest == once.digest
    assert replay(written(tmp_path / "3.binlog", *writes[1:])).digest == once.digest  # overwritten later
    for number, other in enumerate(([*writes[::-1]], writes[:3], [*writes, record(B, 3, b"z")])):
        assert replay(written(tmp_path / f"x{number}.binlog", *other)).digest != once.digest


def test_the_state_is_the_same_before_and_after_a_cut_of_the_torn_tail(corpus: Path, tmp_path: Path) -> None:
    torn = corpus / CORPUS / "damaged" / "torn-data.binlog"
    (tmp_path / "cut.binlog").write_bytes(torn.read_bytes()[:45982])
    cut = replay(tmp_path / "cut.binlog")
    assert cut.stop is None and cut.digest == replay(torn).digest


# -- bad input ---------------------------------------------------------------------------------------------------------

BASE_SHAPE = re.escape('{"base": {KEY: [old start, disk_size, new start]}} is expected')
LSN_SHAPE = re.escape('{"lsn": {FILE: offset}} is expected')


@pytest.mark.parametrize(
    ("against", "expected"),
    [
        ({"base": []}, BASE_SHAPE), ({"base": {"00": 1}}, BASE_SHAPE), ({"base": {"00": [1, 2]}}, BASE_SHAPE),
        ({"base": {"00": [1, 2, "x"]}}, BASE_SHAPE), ({"lsn": 5}, LSN_SHAPE), ({"lsn": {"a": "b"}}, LSN_SHAPE),
    ],
)  # fmt: skip
def test_a_base_that_is_none_is_refused(tmp_path: Path, against: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        replay(written(tmp_path / "x.binlog", record(A, 0, b"1")), against=against)


def test_a_record_above_the_ceiling_ends_the_work(tmp_path: Path) -> None:
    path = written(tmp_path / "x.binlog", record(A, 0, b"1"), record(A, 1, b"2" * 4000), record(A, 2, b"3"))
    with pytest.raises(LimitError, match="max record"):
        replay(path, limits=Limits(max_record=1000))


@pytest.mark.parametrize("policy", ["server", "strict", "force"])
def test_hostile_sizes_end_in_decisions(tmp_path: Path, policy: str) -> None:
    for number, size in enumerate((2**64 - 128, 2**64 - 1, 2**63, 2**64 - 400, 2**64 - 256 - 137, 2**40, 0)):
        bad = struct.pack("<4Q64s32x", 1, size, 0, 0, b"x")
        path = written(tmp_path / f"{policy}{number}.binlog", record(A, 0, b"1"), bad, record(A, 0, b"2"))
        assert sum(replay(path, policy=policy).decisions.values()) >= 2


def test_every_reason_is_explained() -> None:
    assert FORMAT.replay is not None
    assert all(len(text) > 40 for text in FORMAT.replay.reasons.values())
