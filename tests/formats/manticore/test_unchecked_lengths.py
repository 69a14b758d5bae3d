"""Damaged lengths of versions before 14, which the servers take before they look at the checksum."""

from __future__ import annotations

from pathlib import Path

import pytest

import binlogtool
from binlogtool.repair.diagnosis import list_unchecked
from tests.formats.manticore import make, sphinx_server, version7
from tests.formats.manticore.old_damages import LOG, META, Files, transactions
from tests.formats.manticore.starts import SERVERS, score, search_server
from tests.formats.manticore.version7 import SAMPLES, files, written


def with_length(length: int) -> Files:
    """The log of v7-mixed up to its first COMMIT, in whose place is one with this length and a wrong checksum."""
    content = files("v7-mixed")
    head, txns = content[LOG][:8], transactions(content[LOG])
    first = next(at for at, txn in enumerate(txns) if txn[4] == 1)
    commit = make.txn(b"\x01\x00\x01\x01\x01" + make.zint(length) + b"some bytes", crc=0)
    return {**content, LOG: head + b"".join([*txns[:first], commit])}


LENGTHS = {5: True, 0x80000005: False, 0xFFFFFF00: False}
"""Length of the first vector of a damaged COMMIT -> do Sphinx 2.2.11 and Manticore 2.8.2 start? They crash if not."""


@pytest.mark.parametrize(("length", "starts"), LENGTHS.items())
def test_a_negative_length_lets_the_server_crash(length: int, starts: bool, tmp_path: Path) -> None:
    (one,) = binlogtool.replay([written(tmp_path / "log", with_length(length))], format="manticore")
    assert one.starts is starts
    why = "" if one.stop is None else one.stop.why
    assert ("crashes" in why) == (not starts)


@pytest.mark.nightly
@pytest.mark.parametrize(("length", "starts"), LENGTHS.items())
def test_manticore_2_8_crashes_at_a_negative_length(length: int, starts: bool, tmp_path: Path) -> None:
    if version7.tree() is None:
        pytest.skip("the tree is not made")
    folder = written(tmp_path / "log", with_length(length))
    real = sphinx_server.start(folder, (SAMPLES / "v7.conf").read_text(), server=version7.tree())
    assert real.started is starts, real.reason


@pytest.mark.parametrize("size", [361, 390])
def test_settings_that_are_cut_off_stop_the_server(size: int, tmp_path: Path) -> None:
    """Manticore 2.8.2 refused both: failed to load settings (can't load an old index with SBCS tokenizer)."""
    content = files("v7-reconfigure")
    folder = written(tmp_path / "log", {**content, LOG: content[LOG][:size]})
    (one,) = binlogtool.replay([folder], format="manticore")
    assert one.starts is False
    assert one.stop is not None and "failed to load settings" in one.stop.why


def test_an_update_of_a_document_that_is_not_there_makes_no_row(tmp_path: Path) -> None:
    """Sphinx 2.2 passes over it: 193 rows in place of 194 after the loss of a file between two others."""
    content = files("v7-mixed")
    head, txns = content[LOG][:8], transactions(content[LOG])
    update = next(at for at, txn in enumerate(txns) if txn[4] == 2)
    alone = [txn for txn in txns[:update] if txn[4] == 3]
    folder = written(tmp_path / "log", {**content, LOG: head + b"".join([*alone, txns[update]])})
    (one,) = binlogtool.replay([folder], format="manticore")
    assert one.starts and one.decisions["applied"] == 1
    assert {table.name: table.keys for table in one.objects}["rt"] == 0


LISTS = {(0, 0): True, (1, 0): False, (2, 0): True, (5, 0): True, (0, 1): False, (1, 1): False, (7, 1): True}
"""Version of binlog.meta and number of files in it -> do Sphinx 2.2.11 and Manticore 2.8.2 accept the list?"""


@pytest.mark.parametrize(("version", "count", "accepted"), [(*key, value) for key, value in LISTS.items()])
def test_a_list_of_another_version_is_accepted_where_it_is_empty(
    version: int, count: int, accepted: bool, tmp_path: Path
) -> None:
    content = {**files("v7-mixed"), META: make.meta([1] * count, version, 1)}
    (one,) = binlogtool.replay([written(tmp_path / "log", content)], format="manticore")
    assert one.starts is accepted


@pytest.mark.nightly
@pytest.mark.parametrize(("version", "count", "accepted"), [(*key, value) for key, value in LISTS.items()])
def test_manticore_2_8_accepts_the_same_lists(version: int, count: int, accepted: bool, tmp_path: Path) -> None:
    if version7.tree() is None:
        pytest.skip("the tree is not made")
    content = {**files("v7-mixed"), META: make.meta([1] * count, version, 1)}
    folder = written(tmp_path / "log", content)
    real = sphinx_server.start(folder, (SAMPLES / "v7.conf").read_text(), server=version7.tree())
    assert real.started is accepted, real.reason


@pytest.mark.nightly
@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize("name", SERVERS)
def test_starts_with_random_damage_are_not_predicted_wrongly(name: str, content: bool, corpus: Path) -> None:
    server = search_server(name, corpus)
    if server is None:
        pytest.skip(f"{name} is not there")
    results = score(server, 5, 30, content=content)
    assert results["wrong"] == 0 and results["right"] >= 24


def test_a_commit_whose_numbers_contradict_each_other_is_not_called_replayed(tmp_path: Path) -> None:
    """Manticore 2.8.2 applied a commit of 5 rows that holds one, and had 23 rows where the log says 24."""
    content = files("v7-rotation")
    head, txns = content[LOG][:8], transactions(content[LOG])
    body = bytearray(txns[8][4:-4])
    assert body[11] == 1
    body[11] = 5
    txns[8] = make.txn(bytes(body))
    folder = written(tmp_path / "log", {**content, LOG: head + b"".join(txns)})
    (one,) = binlogtool.replay([folder], format="manticore")
    assert one.starts is None
    assert any("contradict each other" in text for text in list_unchecked(one))


def test_an_operation_that_came_with_a_later_version_stops_the_server(tmp_path: Path) -> None:
    """Sphinx 2.2.11 (version 5) at a PQ_DELETE: unexpected entry (blop=7, pos=1332)."""
    txns = [make.old_index(0, b"rt1", 1, 1), make.old_txn(7, 0, 1, 1, payload=b"\x00" + bytes(4))]
    content = {META: make.meta([1], 5, 1), LOG: make.log(*txns, version=5)}
    (one,) = binlogtool.replay([written(tmp_path / "five", content)], format="manticore")
    assert one.starts is False
    content = {META: make.meta([1], 7, 1), LOG: make.log(*txns, version=7)}
    (one,) = binlogtool.replay([written(tmp_path / "seven", content)], format="manticore")
    assert one.starts is True
