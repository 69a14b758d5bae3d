"""Sets of the corpus: whole ones have no error, damaged ones are told at the right file."""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from pathlib import Path

import pytest

import binlogtool
from binlogtool.findings import Severity
from tests.formats.mysql_binlog.sets import Directory, said

ALL = ("rotated-set", "checksum-switch", "crash-kill9-before", "crash-kill9-after")
SOME = ("relay", "crash-disk-full-before", "crash-disk-full-after")
WHOLE = {
    "mysql-9.7": (*ALL, *SOME, "gtid-tagged"),
    "mariadb-11.8": (*ALL, *SOME, "domains"),
    "mariadb-10.11": (*ALL, "domains"),
}
CLOSED = ("rotated-set", "relay")
"""Sets that were closed in order."""


def those(*names: str) -> list[tuple[str, str]]:
    """The sets of that name that each server wrote."""
    return [(server, name) for server, written in WHOLE.items() for name in written if name in names or not names]


def generated(corpus: Path) -> Path:
    """What real servers wrote."""
    return corpus / "mysql-binlog" / "generated"


@pytest.mark.parametrize(("server", "name"), those())
def test_a_set_that_a_server_wrote_has_no_error(corpus: Path, server: str, name: str) -> None:
    path = generated(corpus) / server / name
    found = said(binlogtool.verify([path]))
    assert [one for one in found if one.finding.severity >= Severity.ERROR] == []


@pytest.mark.parametrize(("server", "name"), those(*CLOSED))
def test_a_set_that_was_closed_in_order_has_nothing_wrong_at_all(corpus: Path, server: str, name: str) -> None:
    path = generated(corpus) / server / name
    found = said(binlogtool.verify([path]))
    assert [one for one in found if one.finding.severity > Severity.NOTE] == []


@pytest.mark.parametrize("server", ["mysql-9.7", "mariadb-11.8", "mariadb-10.11"])
@pytest.mark.parametrize("keyed", [True, False])
def test_an_encrypted_set_is_a_set_with_and_without_its_key(corpus: Path, server: str, keyed: bool) -> None:
    path = generated(corpus) / server / "encrypted"
    keyfile = path / ("keyring.json" if server.startswith("mysql") else "keys.txt")
    hints = binlogtool.read_hints(keyfile=keyfile) if keyed else None
    found = said(binlogtool.verify([path], hints=hints))
    wrong = [(one.file, one.id) for one in found if one.finding.severity >= Severity.ERROR]
    told = [one.file for one in found if one.id == "encrypted"]
    assert wrong == [] and told == ([] if keyed else ["enc-bin.000001", "enc-bin.000002"])


def test_each_damaged_set_is_told_at_its_file(corpus: Path) -> None:
    expected = json.loads((generated(corpus) / "damaged" / "expected.json").read_text())
    sets = [one for one in expected if one["file"].rstrip("/").rpartition("/")[2].startswith("set-")]
    assert len(sets) == 6
    for one in sets:
        report = binlogtool.verify([generated(corpus) / one["file"]])
        found = [each for each in said(report) if each.finding.severity >= Severity.ERROR]
        assert found, one["file"]
        want = one["expect"]
        if "missing" in want:
            (error,) = found
            assert (error.id, error.finding.facts["missing"]) == ("missing-member", want["missing"])
            assert gtids(error.finding.facts["missing_gtids"]) == want["missing_gtids"]
        elif "not_in_index" in want:
            (error,) = found
            assert (error.id, error.file) == ("extra-member", want["not_in_index"])
        else:
            files = one["change"].split(" <-> ")
            assert [(each.id, each.file) for each in found] == [("meta-mismatch", name) for name in files]


def gtids(fact: dict[str, list[list[int]]]) -> list[str]:
    """The first and the last GTID of a fact, as the servers write them."""
    ((source, ((first, last),)),) = fact.items()
    mark = ":" if ":" in source or len(source) == 36 else "-"
    return [f"{source}{mark}{first}", f"{source}{mark}{last}"]


def test_relay_logs_of_mariadb_that_split_a_group_go_on(corpus: Path, tmp_path: Path) -> None:
    source = generated(corpus) / "mariadb-11.8" / "relay"
    shutil.copytree(source, tmp_path / "relay", ignore=shutil.ignore_patterns("*.txt.gz"))
    log = Directory(tmp_path / "relay")
    log.remove("relay.000003")
    found = [one for one in log.problems() if one.id == "missing-member"]
    assert [one.finding.facts["missing"] for one in found] == ["relay.000003"]


def renamed(data: bytes, old: bytes, new: bytes) -> bytes:
    """A log whose events name another file of the same length; with right checksums."""
    made, at = bytearray(data), 4
    while at < len(made):
        end = at + int.from_bytes(made[at + 9 : at + 13], "little")
        event = bytes(made[at : end - 4])
        if old in event:
            event = event.replace(old, new)
            made[at:end] = event + struct.pack("<I", zlib.crc32(event))
        at = end
    return bytes(made)


def test_a_hole_in_the_source_files_of_relay_logs_is_told(corpus: Path, tmp_path: Path) -> None:
    source = generated(corpus) / "mysql-9.7" / "relay"
    shutil.copytree(source, tmp_path / "relay", ignore=shutil.ignore_patterns("*.txt.gz"))
    log = Directory(tmp_path / "relay")
    log.put("relay.000006", renamed(log.data("relay.000006"), b"src-bin.000002", b"src-bin.000004"))
    found = [one for one in log.problems() if "source's file" in one.text]
    assert [(one.file, one.level, one.id) for one in found] == [
        ("relay.000006", "WARNING", "gap-in-sequence"), ("relay.000007", "WARNING", "sequence-regression"),
    ]  # fmt: skip
    assert "src-bin.000004 after src-bin.000002" in found[0].text


@pytest.mark.parametrize(
    ("position", "words"),
    [("relay.000099\n5", "relay.000099, which does not exist"), ("relay.000012\n999999", "which has 2,108 bytes")],
)
def test_relay_log_info_must_fit_the_relay_logs(corpus: Path, tmp_path: Path, position: str, words: str) -> None:
    source = generated(corpus) / "mariadb-11.8" / "relay"
    shutil.copytree(source, tmp_path / "relay", ignore=shutil.ignore_patterns("*.txt.gz"))
    log = Directory(tmp_path / "relay")
    log.put("relay-log.info", f"5\n/elsewhere/{position}\nsrc-bin.000005\n1837\n0\n")
    (found,) = log.problems()
    assert (found.file, found.level, found.id) == ("relay-log.info", "ERROR", "meta-mismatch")
    assert words in found.text


def test_a_crash_is_told_as_what_the_server_left(corpus: Path) -> None:
    for server, name, want in (
        ("mysql-9.7", "crash-disk-full-before", {("crash-bin.000001", "NOTE", "torn-tail")}),
        ("mysql-9.7", "crash-disk-full-after", set()),
        ("mariadb-11.8", "crash-disk-full-after", {("crash-bin.000001", "WARNING", "torn-tail"),
                                                   ("crash-bin.000001", "WARNING", "unclean-close")}),
    ):  # fmt: skip
        found = said(binlogtool.verify([generated(corpus) / server / name]))
        assert want <= {(one.file, one.level, one.id) for one in found}
        assert all(one.finding.severity < Severity.ERROR for one in found)


def test_mysql_cut_the_file_exactly_where_the_next_one_goes_on(corpus: Path) -> None:
    found = said(binlogtool.verify([generated(corpus) / "mysql-9.7" / "crash-disk-full-after"]))
    (one,) = [one for one in found if one.file == "crash-bin.000001"]
    assert (one.level, one.id) == ("NOTE", "unclean-close")
    assert "crash-bin.000002 continues exactly there" in one.text
