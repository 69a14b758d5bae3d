"""Damaged lengths of versions before 14, which the servers take before they look at the checksum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

import binlogtool
from binlogtool.repair.diagnose_startup import list_unchecked
from tests.formats.manticore import make, sphinx_server, version7
from tests.formats.manticore.old_damages import LOG, META, Files, transactions
from tests.formats.manticore.starts import (
    GENERATORS,
    SERVERS,
    VERSIONS,
    changed,
    compared,
    logs_of,
    recorded,
    score,
    search_server,
)
from tests.formats.manticore.version7 import SAMPLES, files, written
from tests.sampling import EXHAUSTIVE


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


@pytest.mark.full
@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("name", SERVERS)
def test_recorded_starts_with_random_changes_are_predicted(
    name: str, generator: str, corpus: Path, tmp_path: Path
) -> None:
    logs = logs_of(name, corpus)
    if logs is None:
        pytest.skip("the logs of Sphinx are not there")
    _score_recorded(name, generator, slice(-60 if EXHAUSTIVE else -20, None), logs, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("name", SERVERS)
def test_all_recorded_starts_with_random_changes_are_predicted(
    name: str, generator: str, corpus: Path, tmp_path: Path
) -> None:
    logs = logs_of(name, corpus)
    assert logs is not None
    results = _score_recorded(name, generator, slice(None), logs, tmp_path)
    assert results["open"] <= results.total() * 0.04


def _score_recorded(name: str, generator: str, numbers: slice, logs: Mapping[str, Files], folder: Path) -> Counter[str]:
    results = Counter[str]()
    for number, did in list(enumerate(recorded(name, generator)))[numbers]:
        words, content = changed(logs, generator, number)
        result, why = compared(VERSIONS[name], written(folder / str(number), content), did)
        results[result] += 1
        assert result != "wrong", (number, words, why)
    return results


def test_a_start_that_depends_on_the_fields_of_a_table_says_so(tmp_path: Path) -> None:
    """Manticore 2.8.2 stopped: query error: no field 'tit' found in schema; the log does not hold the schema."""
    _, content = changed({name: files(name) for name in ("v7-mixed", "v7-reconfigure", "v7-rotation")}, "contents", 291)
    (one,) = binlogtool.replay([written(tmp_path / "log", content)], format="manticore")
    (text,) = list_unchecked(one)
    assert one.starts is True and "(tit, title)" in text


def _check_starts(name: str, generator: str, numbers: range, corpus: Path) -> None:
    server = search_server(name, corpus)
    if server is None:
        pytest.skip(f"{name} is not there")
    results, _ = score(server, generator, numbers)
    assert results["wrong"] == 0 and results["right"] >= 0.8 * len(numbers)


@pytest.mark.server
@pytest.mark.parametrize("generator", GENERATORS)
def test_sphinx_still_starts_as_recorded(generator: str, corpus: Path) -> None:
    server = search_server("sphinx-2.2", corpus)
    if server is None:
        pytest.skip("Sphinx is not there")
    count = 12 if EXHAUSTIVE else 5
    _, did = score(server, generator, range(count))
    assert did == recorded("sphinx-2.2", generator)[:count]


@pytest.mark.nightly
@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("name", SERVERS)
def test_starts_with_random_changes_are_not_predicted_wrongly(name: str, generator: str, corpus: Path) -> None:
    _check_starts(name, generator, range(100_000, 100_100), corpus)


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
    assert any("disagree; the server" in text for text in list_unchecked(one))


def test_an_operation_that_came_with_a_later_version_stops_the_server(tmp_path: Path) -> None:
    """Sphinx 2.2.11 (version 5) at a PQ_DELETE: unexpected entry (blop=7, pos=1332)."""
    txns = [make.old_index(0, b"rt1", 1, 1), make.old_txn(7, 0, 1, 1, payload=b"\x00" + bytes(4))]
    content = {META: make.meta([1], 5, 1), LOG: make.log(*txns, version=5)}
    (one,) = binlogtool.replay([written(tmp_path / "five", content)], format="manticore")
    assert one.starts is False
    content = {META: make.meta([1], 7, 1), LOG: make.log(*txns, version=7)}
    (one,) = binlogtool.replay([written(tmp_path / "seven", content)], format="manticore")
    assert one.starts is True


def test_words_that_do_not_fit_their_lists_of_documents_make_the_start_uncertain(tmp_path: Path) -> None:
    """Sphinx 2.2.11 ended with a signal at such a commit."""
    content = files("v7-rotation")
    head, txns = content[LOG][:8], transactions(content[LOG])
    body = bytearray(txns[8][4:-4])
    place = body.index(b"\xc0", 11)  # five bytes of a word, none of them shared with the one before
    body[place] = 0xF1
    txns[8] = make.txn(bytes(body))
    (one,) = binlogtool.replay([written(tmp_path / "log", {**content, LOG: head + b"".join(txns)})], format="manticore")
    assert one.starts is None
    assert any("disagree; the server" in text for text in list_unchecked(one))


def test_a_list_alone_with_a_wrong_magic_number_stops_the_server(tmp_path: Path) -> None:
    """Sphinx 2.2.11: FATAL: invalid meta file."""
    folder = written(tmp_path / "log", {META: b"SPLX" + bytes(6)})
    (one,) = binlogtool.replay([folder], format="manticore")
    assert one.starts is False
    assert one.stop is not None and one.stop.file.endswith(META)


OLDER_LISTS = {(5, 0): True, (6, 1): False, (6, 0): True, (7, 1): True}
"""Version of binlog.meta and number of files in it -> does Manticore 2.8.2, of version 7, accept it?"""


@pytest.mark.parametrize(("version", "count"), OLDER_LISTS)
def test_a_server_refuses_an_older_list_that_names_files(version: int, count: int, tmp_path: Path) -> None:
    content = {**files("v7-mixed"), META: make.meta([1] * count, version, 1)}
    against = {"version": 7, "tables": {}}
    (one,) = binlogtool.replay([written(tmp_path / "log", content)], format="manticore", against=against)
    assert one.starts is OLDER_LISTS[version, count]
