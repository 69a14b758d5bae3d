"""Test reports about files that an earlier run recorded, that were not named, or that cannot be read."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

import binlogtool
from binlogtool.errors import UsageError
from binlogtool.findings import Severity
from binlogtool.formats import load_format
from binlogtool.prediction.replay_options import ReplayOptions, build_situation, get_replay_rules
from binlogtool.verification.verify_report import Report, SetReport, add_findings_for_unpurged_missing_files
from tests.export.ibb_writer import IbbWriter


def recorded(folder: Path, *numbers: int) -> list[str]:
    return [str(folder / f"bin.{number:06d}") for number in numbers]


def missing(folder: Path, *numbers: int) -> list[tuple[Severity, str]]:
    """Return severity and message of the findings about the folder."""
    report, _ = add_findings_for_unpurged_missing_files(Report((), ()), recorded(folder, *numbers))
    return [(finding.severity, finding.message) for one in report.sets for finding in one.findings]


PREFIX = "recorded by an earlier run (--state), now missing: "
LOST = "; copy them again; if they were removed on purpose, use a new FILE"
PURGED = "; the server removes its oldest files"


def test_files_below_all_that_exist_were_purged_and_others_are_lost(tmp_path: Path) -> None:
    (tmp_path / "bin.000003").touch()
    assert missing(tmp_path, 3) == []
    assert missing(tmp_path, 1, 2, 3) == [(Severity.NOTE, f"{PREFIX}bin.000001, bin.000002{PURGED}")]
    assert missing(tmp_path, 2, 4) == [
        (Severity.ERROR, f"{PREFIX}bin.000004{LOST}"),
        (Severity.NOTE, f"{PREFIX}bin.000002{PURGED}"),
    ]


@pytest.mark.parametrize(
    ("count", "listed"),
    [
        (3, "bin.000004, bin.000005, bin.000006"),
        (4, "bin.000004, bin.000005, bin.000006 and 1 more"),
        (1203, "bin.000004, bin.000005, bin.000006 and 1,200 more"),
    ],
)
def test_at_most_three_missing_files_are_listed(tmp_path: Path, count: int, listed: str) -> None:
    (tmp_path / "bin.000003").touch()
    assert missing(tmp_path, *range(4, 4 + count)) == [(Severity.ERROR, f"{PREFIX}{listed}{LOST}")]


def test_missing_files_are_added_to_the_report_of_their_directory(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    first = SetReport(str(here), "drizzle", ("a",), ())
    paths = [*recorded(here, 7), *recorded(there, 8, 9), "s3://bucket/bin.000001"]
    report, lost = add_findings_for_unpurged_missing_files(Report((), (first,)), paths)
    assert [(one.path, one.members, len(one.findings)) for one in report.sets] == [
        (str(here), ("a",), 1),
        (str(there), (), 1),
    ]
    assert report.sets[1].findings[0].facts["files"] == ("bin.000008", "bin.000009")
    assert sorted(lost) == paths[:3]


def test_a_format_without_replay_rules_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^logs of the format eblob cannot be replayed: no server replays them, or"):
        get_replay_rules(msgspec.structs.replace(load_format("eblob"), replay=None))
    assert get_replay_rules(load_format("drizzle")) is load_format("drizzle").replay


def test_a_file_that_cannot_be_read_has_no_size_and_no_records_in_a_replay(tmp_path: Path) -> None:
    """A file of a set is named relative to its directory."""
    path = str(tmp_path / "sub" / "bin.000004")
    examination = SimpleNamespace(files=(), failures=(SimpleNamespace(path=path),), set=None)
    rules = get_replay_rules(load_format("drizzle"))
    for is_set, name in ((True, "sub/bin.000004"), (False, path)):
        group = SimpleNamespace(is_set=is_set, path=str(tmp_path))
        situation = build_situation(group, examination, ReplayOptions(), rules, lambda: False)  # type: ignore[arg-type]
        (file,) = situation.files
        assert (file.name, file.path, file.size, file.records, file.layout) == (name, path, 0, 0, None)


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ((3, 5), "rot-bin.000004 exists between the named files and was not checked"),
        ((3, 6), "rot-bin.000004 and 1 more exist between the named files and were not checked"),
        ((4, 8), "rot-bin.000005 and 2 more exist between the named files and were not checked"),
        ((3, 4), None),
    ],
)
def test_files_between_the_named_ones_are_counted(samples: Path, named: tuple[int, int], text: str | None) -> None:
    """The directory has rot-bin.000003 to rot-bin.000008."""
    report = binlogtool.verify([samples / f"mysql_binlog/sets/mariadb/rot-bin.{number:06d}" for number in named])
    notes = [finding.message for one in report.sets for finding in one.findings if finding.id == "member-not-named"]
    assert notes == ([] if text is None else [f"{text}; name all files of the log, or its directory"])


def test_the_first_and_last_sequence_number_of_a_log_are_those_of_its_gtids(tmp_path: Path) -> None:
    """The validators of both formats report them: of pages, and of the events that are copied from them."""
    writer = IbbWriter(tmp_path / "pages")
    for number in (4, 5, 6):
        gtid = struct.pack("<QIB6x", number, 0, 12)
        statement = struct.pack("<IIBHH", 1, 0, 1, 0, 0) + b"d\0insert into t values (1)"
        events = [(162, gtid), (2, statement), (16, bytes(8))]
        bare = [struct.pack("<IBIIIH", 1_700_000_000, code, 1, 19 + len(body), 0, 0) + body for code, body in events]
        writer.group((0, 1, number), bare)
    writer.close()
    binlogtool.convert([tmp_path / "pages"], "mysql-binlog", f"{tmp_path}/events/")
    for folder in ("pages", "events"):
        files = [file for file in binlogtool.verify([tmp_path / folder]).files if file.records]
        assert [(file.first_seq, file.last_seq) for file in files] == [(4, 6)], folder
