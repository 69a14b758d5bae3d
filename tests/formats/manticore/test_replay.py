"""What a replay is said to do, against what the real servers logged when they did it."""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.errors import UsageError
from binlogtool.formats.manticore.format import FORMAT
from binlogtool.formats.manticore.replay.replayer import read_saved_tid
from binlogtool.prediction.predict_replay import ReplayResult
from tests.formats.manticore.make import add_cache, add_index, add_txn, killed, log, meta, old_index, old_txn, txn, zint
from tests.formats.manticore.server_log import compare, replay, saved_at_start

VERSIONS = {"v16": "manticore/generated/v16", "v15": "manticore/generated/v15", "v14": "manticore/generated/v14",
            "sphinx": "sphinx/generated"}  # fmt: skip


@cache
def manifest(root: Path) -> dict[str, Any]:
    """What was recorded about one version."""
    found: dict[str, Any] = json.loads((root / "manifest.json").read_text())
    return found


def datasets(root: Path) -> list[str]:
    return [name for name in manifest(root)["datasets"] if (root / name / "binlog.meta").is_file()]


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_healthy_directories_are_replayed_as_the_servers_did(corpus: Path, version: str) -> None:
    root = corpus / VERSIONS[version]
    assert datasets(root)
    for name in datasets(root):
        says = manifest(root)["datasets"][name]["server_replay"]
        result = compare(root / name, says, saved_at_start(says["log"]), "server")
        assert not [found for _, found in result.findings if found.id == "silent-loss"], name


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_each_damage_ends_as_with_the_real_server_without_and_with_its_flags(corpus: Path, version: str) -> None:
    root, cases = corpus / VERSIONS[version], 0
    base = {name: one["server_replay"]["log"] for name, one in manifest(root)["datasets"].items()}
    for case in manifest(root)["damaged"]:
        for says, policy in (("server_says", "server"), ("server_says_with_flags", "force")):
            if says in case:
                saved = saved_at_start(base.get(case["based_on"], case[says]["log"]))
                compare(root / "damaged" / case["name"], case[says], saved, policy)
                cases += 1
    assert cases >= {"v16": 59, "v15": 15, "v14": 13, "sphinx": 40}[version]


COUNT = re.compile(r"SELECT COUNT\(\*\) FROM (\w+)$")


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_as_many_documents_are_there_as_the_server_counted(corpus: Path, version: str) -> None:
    """Percolate tables apart: which queries have a tag is not in the log."""
    root, checked = corpus / VERSIONS[version], 0
    for name in datasets(root):
        says = manifest(root)["datasets"][name]["server_replay"]
        saved = saved_at_start(says["log"])
        keys = {one.name: one.keys for one in replay(root / name, against={"tables": saved}).objects}
        for question, answer in says.get("results", {}).items():
            asked = COUNT.match(question)
            if asked and not saved.get(asked[1]) and keys.get(asked[1]) is not None and asked[1] != "pq_rules":
                assert keys[asked[1]] == answer[0][0], (name, asked[1])
                checked += 1
    assert checked >= {"v16": 14, "v15": 12, "v14": 4, "sphinx": 3}[version]


def test_repaired_directories_are_replayed_as_the_server_did(corpus: Path, tmp_path: Path) -> None:
    root = corpus / VERSIONS["v16"]
    based_on = {case["name"]: case["based_on"] for case in manifest(root)["damaged"]}
    cases = 0
    for name, repaired in manifest(root)["repaired"].items():
        file = root / "damaged" / name / "binlog.0000"
        saved = saved_at_start(manifest(root)["datasets"][based_on[name]]["server_replay"]["log"])
        for way in ("truncate", "salvage"):
            if way not in repaired:
                continue
            copy = tmp_path / name / way
            shutil.copytree(file.parent, copy)
            data = file.read_bytes()[: repaired["durable_end"]] if way == "truncate" else salvage(file)
            (copy / "binlog.0000").write_bytes(data)
            assert len(data) == repaired[way]["size"]
            compare(copy, repaired[way]["server"], saved, "server")
            cases += 1
    assert cases >= 15


def salvage(path: Path) -> bytes:
    """The header and the good transactions."""
    data = path.read_bytes()
    with binlogtool.open(path, format="manticore", backend="python") as opened:
        places = [(one.offset, one.size) for one in opened.records(on_damage="skip")]
    return data[:8] + b"".join(data[at : at + size] for at, size in places)


def test_a_server_of_another_version_takes_empty_logs_only(corpus: Path) -> None:
    older, newer = corpus / VERSIONS["v15"], corpus / VERSIONS["v16"]
    for path, server, key in (
        (older / "common-mixed-kill9", 16, "v16 server on v15 directory with data (common-mixed-kill9)"),
        (older / "clean-stop", 16, "v16 server on v15 directory after a clean stop (clean-stop)"),
        (newer / "common-mixed-kill9", 15, "v15 server on v16 directory with data"),
    ):
        for policy in ("server", "force"):
            result = replay(path, against={"version": server}, policy=policy)
            assert result.starts == manifest(older)["cross_version"][key]["server_started"]
    assert replay(corpus / VERSIONS["v14"] / "mixed-kill9", against={"version": 16}).starts is False


def test_a_meta_file_in_ascending_order_gives_the_same_rows(corpus: Path, tmp_path: Path) -> None:
    root = corpus / VERSIONS["v16"]
    (says,) = [one for key, one in manifest(root)["special"].items() if key.startswith("meta of pertable-rotation")]
    copy = tmp_path / "log"
    shutil.copytree(root / "pertable-rotation-16k-digits6", copy)
    before = replay(copy)
    (copy / "binlog.meta").write_bytes(struct.pack("<4sIB", b"SPLI", 16, 6) + bytes((6, *range(6))))
    after = compare(copy, says, {}, "server")
    assert (before.digest, before.position) == (after.digest, after.position)
    assert before.read != after.read


# -- rules, one by one -------------------------------------------------------------------------------------------------


def directory(path: Path, *logs: bytes, numbers: tuple[int, ...] | None = None, version: int = 16) -> Path:
    """Logs 0, 1, ..., and a meta file that lists them (or these numbers)."""
    path.mkdir()
    for number, data in enumerate(logs):
        (path / f"binlog.{number:04d}").write_bytes(data)
    (path / "binlog.meta").write_bytes(meta(numbers or range(len(logs)), version=version))
    return path


def txns(*tids: int, table: int = 0) -> list[bytes]:
    return [add_txn(table, tid, killed(tid)) for tid in tids]


def reasons(result: ReplayResult) -> dict[str, int]:
    return {key: count for key, count in result.reasons.items() if key != "no-data"}


def test_a_table_that_is_not_served_or_has_no_binlog_is_passed_over(tmp_path: Path) -> None:
    path = directory(tmp_path / "log", log(add_index(0, b"a"), *txns(1, 2), add_index(1, b"b"), *txns(1, 2, table=1)))
    result = replay(path, against={"tables": {"a": None, "b": -1}})
    assert reasons(result) == {"not-served": 2, "binlog-off": 2}
    assert result.position == {"tables": {"a": None, "b": -1}}
    assert result.starts


def test_what_a_table_has_saved_is_not_applied_again_and_its_position_goes_on(tmp_path: Path) -> None:
    path = directory(tmp_path / "log", log(add_index(0, b"a"), *txns(1, 2, 3)))
    result = replay(path, against={"tables": {"a": 2, "elsewhere": 7}})
    assert reasons(result) == {"applied": 1, "saved": 2}
    assert result.position == {"tables": {"a": 3, "elsewhere": 7}}
    again = replay(path, against=result.position)
    assert again.decisions["applied"] == 0 and again.position == result.position


def test_a_lost_transaction_is_told_from_a_repeated_one(tmp_path: Path) -> None:
    path = directory(tmp_path / "log", log(add_index(0, b"a"), *txns(1, 2, 4, 3, 4, 5)))
    result = replay(path)
    assert reasons(result) == {"applied": 3, "unexpected-tid": 1, "lost-order": 1, "repeated": 1}
    (loss,) = [found for _, found in result.findings if found.id == "silent-loss"]
    assert loss.facts["lost_records"] == 1 and loss.facts["tables"] == {"a": [3, 3]} and loss.record == 4


def test_files_in_a_wrong_order_lose_the_earlier_ones(tmp_path: Path) -> None:
    logs = log(add_index(0, b"a"), *txns(1, 2, 3)), log(add_index(0, b"a"), *txns(4, 5))
    assert reasons(replay(directory(tmp_path / "right", *logs))) == {"applied": 5}
    wrong = replay(directory(tmp_path / "wrong", *logs, numbers=(1, 0)))
    assert reasons(wrong) == {"applied": 1, "unexpected-tid": 1, "lost-order": 3}


def test_damage_in_what_is_saved_drops_the_rest_and_lets_the_server_start(tmp_path: Path) -> None:
    parts = [add_index(0, b"a"), *txns(1, 2, 3), add_index(1, b"b"), *txns(1, table=1)]
    parts[2] = parts[2][:-1] + bytes([parts[2][-1] ^ 1])
    path = directory(tmp_path / "log", log(*parts))
    assert replay(path).starts is False
    result = replay(path, against={"tables": {"a": 2}})
    assert result.starts and reasons(result) == {"saved": 1, "dropped": 3}
    (loss,) = [found for _, found in result.findings if found.id == "silent-loss"]
    assert loss.facts["lost_records"] == 3


def test_a_payload_that_cannot_be_parsed_is_fatal_only_where_it_is_applied(tmp_path: Path) -> None:
    path = directory(tmp_path / "log", log(add_index(0, b"a"), *txns(1), add_txn(0, 2, b"\x09abc"), *txns(3)))
    result = replay(path)
    assert not result.starts and reasons(result) == {"applied": 1, "payload": 1, "not-reached": 1}
    assert reasons(replay(path, against={"tables": {"a": 2}})) == {"saved": 2, "applied": 1}
    forced = replay(path, policy="force")
    assert forced.starts and reasons(forced) == {"applied": 1, "payload": 1, "dropped": 1}


def test_a_file_before_one_that_is_missing_is_still_replayed(tmp_path: Path) -> None:
    logs = log(add_index(0, b"a"), *txns(1)), log(add_index(0, b"a"), *txns(2))
    path = directory(tmp_path / "log", *logs, numbers=(0, 7, 1))
    result = replay(path)
    assert result.stop is not None and result.stop.file == "binlog.0007" and not result.starts
    assert reasons(result) == {"applied": 1, "not-reached": 2}
    assert replay(path, policy="force").decisions["applied"] == 2


def test_nothing_is_read_behind_an_add_cache_whose_checksum_is_zero(tmp_path: Path) -> None:
    path = directory(tmp_path / "log", log(add_index(0, b"a"), *txns(1), add_cache((b"a", 1, 1, 0)), *txns(2)))
    result = replay(path)
    assert result.starts and reasons(result) == {"applied": 1, "dropped": 1}
    assert [found.facts["lost_records"] for _, found in result.findings if found.id == "silent-loss"] == [1]


def test_a_log_is_adopted_and_not_deleted_behind_one_that_was_replayed(tmp_path: Path) -> None:
    broken = bytearray(log(add_index(0, b"a"), *txns(2)))
    broken[14] ^= 1
    path = directory(tmp_path / "log", log(add_index(0, b"a"), *txns(1)), bytes(broken))
    assert reasons(replay(path)) == {"applied": 1, "dropped": 1}
    alone = directory(tmp_path / "alone", bytes(broken))
    assert reasons(replay(alone)) == {"deleted": 1}


@pytest.mark.parametrize(("policy", "starts"), [("server", False), ("force", True)])
def test_a_falling_time_is_fatal_in_old_logs_unless_accepted(tmp_path: Path, policy: str, starts: bool) -> None:
    parts = [old_index(0, b"t", 1, 50), old_txn(1, 0, 1, 50, payload=b"\0\0"), old_txn(1, 0, 2, 40, payload=b"\0\0")]
    (tmp_path / "binlog.001").write_bytes(log(*parts, version=5))
    result = replay(tmp_path / "binlog.001", policy=policy)
    assert result.starts is starts
    assert reasons(result) == ({"applied": 2} if starts else {"applied": 1, "descending-time": 1})


def test_single_files_are_replayed_without_a_list(tmp_path: Path) -> None:
    (tmp_path / "binlog.0003").write_bytes(log(add_index(0, b"a"), *txns(1, 2)))
    assert reasons(replay(tmp_path / "binlog.0003")) == {"applied": 2}


def test_until_a_place_nothing_behind_it_is_judged(tmp_path: Path) -> None:
    parts = [add_index(0, b"a"), *txns(1, 2, 3)]
    path = directory(tmp_path / "log", log(*parts, b"\xee" * 20, *txns(5, 4)))
    result = replay(path, until="record:2")
    assert result.stop is None and result.starts and result.decisions["applied"] == 1
    assert not [found for _, found in result.findings if found.id == "silent-loss"]


# -- effects -----------------------------------------------------------------------------------------------------------


def commit(*docids: int, text: bytes = b"") -> bytes:
    """A commit of rows that are ids only."""
    rows = b"".join(struct.pack("<q", docid) for docid in docids)
    body = b"\x01" + zint(len(docids)) + zint(len(text)) + b"\0\0\0\0" + zint(len(rows) // 4) + rows
    body += zint(len(text)) + text + b"\0" + b"\0" + b"\0"
    return body + zint(len(docids)) + rows


def update(docid: int, name: bytes, value: int) -> bytes:
    head = b"\x00\x01" + zint(len(name)) + name + b"\x01\x01" + struct.pack("<I", value)
    return head + b"\x01" + struct.pack("<q", docid) + b"\x00\x00"


def test_one_log_and_the_same_log_split_in_files_give_the_same_state(tmp_path: Path) -> None:
    a = [commit(1, 2), commit(2, text=b"xy"), update(1, b"gid", 7), killed(2), update(9, b"gid", 7)]
    b = [commit(5), update(5, b"j", 1), update(5, b"j.k", 1)]
    whole = [add_index(0, b"a"), add_index(1, b"b")]
    whole += [add_txn(0, tid, payload) for tid, payload in enumerate(a, 1)]
    whole += [add_txn(1, tid, payload) for tid, payload in enumerate(b, 1)]
    one = replay(directory(tmp_path / "one", log(*whole)))
    first = [add_index(0, b"a"), *(add_txn(0, tid, payload) for tid, payload in enumerate(a, 1))]
    second = [add_index(0, b"b"), *(add_txn(0, tid, payload) for tid, payload in enumerate(b, 1))]
    two = replay(directory(tmp_path / "two", log(*second), log(*first)))
    assert one.digest == two.digest
    assert [(o.name, o.keys) for o in one.objects] == [
        ("a", 1),
        ("b", 1),
    ]  # a server with nothing saved has no document 9


@pytest.mark.parametrize(
    "other",
    [
        [commit(1, text=b"ab")],
        [commit(1, 2)],
        [commit(1), update(1, b"gid", 8)],
        [commit(1), update(1, b"gid", 7), killed(1)],
    ],
)
def test_another_content_gives_another_state(tmp_path: Path, other: list[bytes]) -> None:
    def state(name: str, payloads: list[bytes]) -> str | None:
        rows = [add_txn(0, tid, payload) for tid, payload in enumerate(payloads, 1)]
        return replay(directory(tmp_path / name, log(add_index(0, b"a"), *rows))).digest

    assert state("x", [commit(1), update(1, b"gid", 7)]) != state("y", other)


def test_the_state_is_the_same_before_and_after_a_repair(corpus: Path, tmp_path: Path) -> None:
    damaged = corpus / VERSIONS["v16"] / "damaged" / "torn-mid-txn"
    shutil.copytree(damaged, tmp_path / "log")
    data = (damaged / "binlog.0000").read_bytes()
    (tmp_path / "log" / "binlog.0000").write_bytes(data[:5465])
    after = replay(tmp_path / "log")
    assert after.starts and replay(damaged).digest == replay(damaged, policy="force").digest == after.digest


# -- what is given with --against, and hostile input -------------------------------------------------------------------


def test_the_saved_tid_is_read_from_a_table_s_own_file() -> None:
    assert read_saved_tid("rt.meta", b'{"meta_version": 21, "tid": 17}') == {"tables": {"rt": 17}}
    assert read_saved_tid("rt.meta", b"SPRT" + struct.pack("<IQIqq", 9, 0, 3, 0, 42) + b"rest") == {
        "tables": {"rt": 42}
    }
    for data in (b"", b"SPRT", b"[]", b"{}", b'{"meta_version": 1}', b"\xff", b'{"meta_version": 1, "tid": "x"}'):
        assert read_saved_tid("rt.meta", data) is None


@pytest.mark.parametrize("against", [{"tables": {"a": "x"}}, {"tables": [1]}, {"tables": {"a": 1.5}}, {"version": "x"}])
def test_a_position_that_is_none_is_refused(tmp_path: Path, against: dict[str, Any]) -> None:
    path = directory(tmp_path / "log", log(add_index(0, b"a"), *txns(1)))
    with pytest.raises(UsageError, match="TID"):
        replay(path, against=against)


def hostile() -> Iterator[bytes]:
    yield log(add_index(0, b"t"), add_txn(0, 2**64 - 1, killed(1)), add_txn(0, 1, killed(1)))
    yield log(add_index(2**63, b"t"), *txns(1))
    yield log(add_index(0, b"t"), add_index(0, b"t"), *txns(1))
    yield log(add_index(0, b""), add_txn(0, 1, b""), txn(b"\x02" + b"\xff" * 30))
    yield log(add_index(0, b"\xff\x1b"), *txns(1), add_cache(*[(b"", 0, 0, 0)] * 50, crc=None))
    yield log(*txns(1)) + b"\0" * 50
    yield log(version=17) + b"TXN!"
    yield b"SPBX" + log(*txns(1))[4:]
    yield b""


@pytest.mark.parametrize("policy", ["server", "strict", "force"])
def test_hostile_logs_end_in_decisions(tmp_path: Path, policy: str) -> None:
    for number, data in enumerate(hostile()):
        path = directory(tmp_path / str(number), data, data)
        result = replay(path, policy=policy)
        read = sum(result.decisions.values())
        assert read == sum(one.records or 0 for one in binlogtool.verify([path], format="manticore").files)


def test_every_reason_is_explained() -> None:
    assert FORMAT.replay is not None
    assert all(len(text) > 40 for text in FORMAT.replay.reasons.values())
