"""Sets of logs: the index, the rotate chain, GTIDs from file to file, files that were not closed."""

from __future__ import annotations

from pathlib import Path

import pytest

import binlogtool
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import UsageError
from binlogtool.formats.mysql_binlog.index_and_state_files import sort_names
from tests.formats.mysql_binlog.sets import NAMES, SERVERS, Directory, Said, copy

FOLDER = "/var/lib/db/rot"
MYSQL_SOURCE = "4806e0cc-e55c-11f1-8d64-02fc00000001"


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> str:
    """Each server in turn."""
    return str(request.param)


@pytest.fixture
def log(samples: Path, tmp_path: Path, server: str) -> Directory:
    """A whole set of one server."""
    return copy(samples, server, tmp_path)


@pytest.fixture
def mysql(samples: Path, tmp_path: Path) -> Directory:
    """A whole set of MySQL."""
    return copy(samples, "mysql", tmp_path)


@pytest.fixture
def mariadb(samples: Path, tmp_path: Path) -> Directory:
    """A whole set of MariaDB."""
    return copy(samples, "mariadb", tmp_path)


def brief(found: list[Said]) -> list[tuple[str, str, str]]:
    """File, severity and id."""
    return [(one.file, one.level, one.id) for one in found]


def test_a_whole_set_whose_first_files_were_purged_has_nothing_wrong(log: Directory) -> None:
    assert log.said() == []


def test_more_purged_files_at_the_start_are_no_hole(log: Directory, server: str) -> None:
    names = NAMES[server]
    log.remove(names[0], names[1])
    log.index(*(f"{FOLDER}/{name}" for name in names[2:]))
    for name in names[:2] if server == "mariadb" else ():
        log.remove(f"{name}.idx")
    assert log.said() == []


def test_a_file_that_only_the_index_knows_is_missing(log: Directory, server: str) -> None:
    log.remove(NAMES[server][0])
    (found,) = [one for one in log.problems() if one.id == "missing-member"]
    assert (found.file, found.level) == ("", "ERROR")
    assert found.text == "rot-bin.000003 does not exist: listed in rot-bin.index"


@pytest.mark.parametrize("listed", [True, False])
def test_a_hole_names_the_file_and_its_transactions(mysql: Directory, listed: bool) -> None:
    mysql.remove("rot-bin.000004")
    if not listed:
        mysql.remove("rot-bin.index")
    (found,) = mysql.problems()
    assert (found.file, found.level, found.id) == ("", "ERROR", "missing-member")
    assert "named by the ROTATE at the end of rot-bin.000003" in found.text
    assert ("listed in rot-bin.index" in found.text) is listed
    assert found.finding.facts["missing_gtids"] == {MYSQL_SOURCE: [[27, 34]]}
    assert f"{MYSQL_SOURCE}:27-34" in found.text


def test_a_hole_in_a_set_of_mariadb_names_its_transactions(mariadb: Directory) -> None:
    mariadb.remove("rot-bin.000005")
    missing, index = mariadb.problems()[::-1]
    assert missing.finding.facts["missing_gtids"] == {"1-2": [[30, 36]]}
    assert (index.file, index.level, index.id) == ("rot-bin.000005.idx", "WARNING", "extra-member")


def test_the_transactions_of_two_missing_files_are_told_once(mysql: Directory) -> None:
    mysql.remove("rot-bin.000004", "rot-bin.000005")
    first, second = mysql.problems()
    assert [one.finding.facts["missing"] for one in (first, second)] == ["rot-bin.000004", "rot-bin.000005"]
    assert "missing_gtids" in first.finding.facts
    assert "missing_gtids" not in second.finding.facts


def test_a_hole_of_many_files_is_told_in_part(mysql: Directory) -> None:
    mysql.remove("rot-bin.index")
    mysql.put("rot-bin.900000", mysql.data("rot-bin.000007"))
    missing = [one for one in mysql.problems() if one.id == "missing-member"]
    assert len(missing) == 100
    assert missing[-1].text.endswith("(899,992 files are missing in all)")


def test_a_file_in_the_middle_that_the_index_lacks_is_an_error(log: Directory, server: str) -> None:
    names = NAMES[server]
    log.index(*(f"{FOLDER}/{name}" for name in names if name != names[2]))
    (found,) = log.problems()
    assert (found.file, found.level, found.id) == (names[2], "ERROR", "extra-member")
    assert f"although {names[1]} ends with a ROTATE to it" in found.text


@pytest.mark.parametrize("place", [0, -1])
def test_a_file_at_an_end_that_the_index_lacks_is_a_warning(log: Directory, server: str, place: int) -> None:
    names = NAMES[server]
    log.index(*(f"{FOLDER}/{name}" for name in names if name != names[place]))
    assert brief(log.problems()) == [(names[place], "WARNING", "extra-member")]


def test_exchanged_files_are_both_named(log: Directory, server: str) -> None:
    one, other = NAMES[server][0], NAMES[server][2]
    log.exchange(one, other)
    first, second = log.problems()
    assert brief([first, second]) == [(one, "ERROR", "meta-mismatch"), (other, "ERROR", "meta-mismatch")]
    assert first.text.startswith(f"exchanged with {other}: this file was written under that name")
    assert second.text.startswith(f"exchanged with {one}: this file was written under that name")


def test_files_that_end_with_stop_are_known_as_exchanged_by_their_gtids_alone(mysql: Directory) -> None:
    mysql.exchange("rot-bin.000006", "rot-bin.000007")
    first, second = mysql.problems()
    assert first.finding.facts["exchanged_with"] == "rot-bin.000007"
    assert second.finding.facts["exchanged_with"] == "rot-bin.000006"


def test_a_file_of_another_time_breaks_the_chain_on_both_sides(mysql: Directory) -> None:
    mysql.put("rot-bin.000005", mysql.data("rot-bin.000003"))
    found = mysql.problems()
    assert ("rot-bin.000005", "ERROR", "sequence-regression") in brief(found)
    (rotation,) = [one for one in found if one.id == "meta-mismatch"]
    assert rotation.file == "rot-bin.000005"
    assert "ROTATE to rot-bin.000004; the next file is rot-bin.000006" in rotation.text
    (lost,) = [one for one in found if one.id == "gap-in-sequence"]
    assert lost.file == "rot-bin.000006"
    assert MYSQL_SOURCE in lost.finding.facts["missing_gtids"]


def test_a_second_file_of_the_same_number_is_refused(log: Directory, server: str) -> None:
    name = NAMES[server][1]
    log.put(name.replace(".000", ".0000"), log.data(name))
    (found,) = log.problems()
    assert (found.file, found.level, found.id) == ("rot-bin.0000004", "ERROR", "duplicate-sequence")
    assert name in found.text


def test_files_that_were_all_renamed_keep_their_chain(mysql: Directory) -> None:
    mysql.remove("rot-bin.index")
    for name in NAMES["mysql"]:
        mysql.put(name.replace("rot-bin", "kept"), mysql.data(name))
        mysql.remove(name)
    found = mysql.said()
    assert {one.level for one in found} == {"NOTE"}
    assert {one.id for one in found} == {"meta-mismatch"}
    assert all(one.text.endswith(": renamed") for one in found)


def test_an_in_use_flag_before_the_last_file_is_an_error_of_mysql(mysql: Directory) -> None:
    mysql.set_in_use("rot-bin.000005")
    assert brief(mysql.said()) == [("rot-bin.000005", "ERROR", "unclean-close")]


def test_an_in_use_flag_before_the_last_file_is_a_note_of_mariadb_where_nothing_is_torn(mariadb: Directory) -> None:
    """The server never clears it: as a warning it would be an alarm for ever."""
    mariadb.set_in_use("rot-bin.000005")
    (found,) = mariadb.said()
    assert (found.file, found.level, found.id) == ("rot-bin.000005", "NOTE", "unclean-close")
    assert found.finding.facts["torn_bytes"] == 0


def test_an_in_use_flag_of_the_last_file_is_a_note(log: Directory, server: str) -> None:
    last = NAMES[server][-1]
    log.set_in_use(last)
    if server == "mariadb":
        log.remove("rot-bin.state")
    assert ("NOTE", "unclean-close") in [(one.level, one.id) for one in log.said() if one.file == last]
    assert log.problems() == []


def test_a_torn_end_before_the_last_file_counts_more_than_at_the_end(mariadb: Directory) -> None:
    data = mariadb.data("rot-bin.000005")
    mariadb.put("rot-bin.000005", data[:-60])
    mariadb.set_in_use("rot-bin.000005")
    found = {one.id: one for one in mariadb.said() if one.file == "rot-bin.000005"}
    assert found["torn-tail"].level == "WARNING"
    assert found["unclean-close"].finding.facts["torn_bytes"] == len(data) - 60 - 3650  # where GTID 1-2-36 stands


def test_a_lost_end_is_known_by_the_gtids_of_the_next_file(mysql: Directory) -> None:
    mysql.put("rot-bin.000005", mysql.data("rot-bin.000005")[:2000])
    assert ("rot-bin.000005", "ERROR", "torn-tail") in brief(mysql.problems())
    lost = [one for one in mysql.problems() if one.id == "gap-in-sequence" and "missing_gtids" in one.finding.facts]
    assert [one.file for one in lost] == ["rot-bin.000006"]
    ((first, last),) = lost[0].finding.facts["missing_gtids"][MYSQL_SOURCE]
    assert 35 < first < last == 42  # PREVIOUS_GTIDS of rot-bin.000006 ends with 42


def test_a_state_of_another_moment_is_told(mariadb: Directory) -> None:
    mariadb.put("rot-bin.state", "1-2-50\n")
    (found,) = mariadb.problems()
    assert (found.file, found.level, found.id) == ("rot-bin.state", "ERROR", "meta-mismatch")
    assert "not in it: 1-2-51 to 1-2-53" in found.text


def test_a_state_beside_a_log_in_use_is_stale(mariadb: Directory) -> None:
    mariadb.set_in_use("rot-bin.000008")
    assert ("rot-bin.state", "WARNING", "meta-mismatch") in brief(mariadb.said())


def test_a_checkpoint_that_names_a_later_file_is_told(mariadb: Directory) -> None:
    mariadb.remove("rot-bin.index", "rot-bin.state", *(f"{name}.idx" for name in NAMES["mariadb"]))
    data = mariadb.data("rot-bin.000007")
    mariadb.remove(*NAMES["mariadb"])
    mariadb.put("rot-bin.000005", data)
    found = [one.text for one in mariadb.problems() if one.id == "meta-mismatch"]
    assert found == [f"BINLOG_CHECKPOINT names rot-bin.00000{n}, which cannot be older than this file" for n in (6, 7)]


def test_two_logs_of_one_directory_are_judged_apart(mysql: Directory, samples: Path, tmp_path: Path) -> None:
    other = copy(samples, "mariadb", tmp_path / "other")
    for name in NAMES["mariadb"]:
        mysql.put(name.replace("rot-bin", "second"), other.data(name))
    mysql.put("second.index", "".join(f"./second.{n:06d}\n" for n in range(3, 9)))
    for path in other.path.iterdir():
        path.unlink()
    other.path.rmdir()
    (several,) = (one for one in mysql.said() if one.level != "NOTE")
    assert several.text == "there are several logs here (rot-bin, second): name the files of one log"
    mysql.remove("second.000005")
    (found,) = (one for one in mysql.problems() if one.id != "extra-member")
    assert "second.000005 does not exist" in found.text


def test_the_order_of_a_directory_is_base_then_number() -> None:
    names = ["b.0999999", "b.1000000", "b.index", "a.000010", "a.000009", "a.state", "a.000010.idx", "b.000001"]
    assert sort_names(names) == [
        "a.state", "a.000009", "a.000010", "a.000010.idx", "b.index", "b.000001", "b.0999999", "b.1000000",
    ]  # fmt: skip


def places(log: Directory, **selection: str) -> list[tuple[str, int]]:
    """File and offset of the selected records."""
    with binlogtool.open(log.path) as opened:
        chosen = Selection(**selection)
        return [(Path(record.file).name, record.offset) for record in opened.records(selection=chosen)]


def test_a_selection_starts_in_a_member_and_goes_on_behind_it(mysql: Directory) -> None:
    found = places(mysql, start="rot-bin.000006:2713")
    assert found[:2] == [("rot-bin.000006", 2713), ("rot-bin.000007", 4)]
    assert found[-1] == ("rot-bin.000007", 3339)


def test_a_selection_stops_in_a_member_and_takes_all_before_it(mysql: Directory) -> None:
    found = places(mysql, stop="rot-bin.000004:127")
    assert found[0] == ("rot-bin.000003", 4)
    assert found[-2:] == [("rot-bin.000003", 4542), ("rot-bin.000004", 4)]


def test_a_selection_from_member_to_member(mysql: Directory) -> None:
    found = places(mysql, start="rot-bin.000005:4612", stop="rot-bin.000006:198")
    assert found == [("rot-bin.000005", 4612), ("rot-bin.000006", 4), ("rot-bin.000006", 127)]


def test_a_selection_in_a_file_that_is_no_member_is_refused(mysql: Directory) -> None:
    with pytest.raises(UsageError, match=r"rot-bin\.000009:4.*no file of that name"):
        places(mysql, start="rot-bin.000009:4")


@pytest.mark.parametrize("hostile", ["evil\x1b[31m.000004", "evil\u202e.000004", "a b.000004", "x'; DROP.000004"])
def test_hostile_names_of_files_are_only_names(mysql: Directory, hostile: str) -> None:
    mysql.index(*(f"{FOLDER}/{name}" for name in NAMES["mysql"]), f"{FOLDER}/{hostile}")
    (found,) = mysql.problems()
    assert (found.file, found.id) in {("rot-bin.index", "missing-member"), ("rot-bin.index", "bad-header")}
