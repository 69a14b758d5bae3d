"""Which dialect is it: by the chain of records, said where it is not certain, overridden by the user."""

from __future__ import annotations

from pathlib import Path

import pytest

import binlogtool
from binlogtool.errors import UsageError
from binlogtool.findings import Severity
from binlogtool.format_api.format import FileHead
from binlogtool.formats.eblob.format import FORMAT
from binlogtool.limits import Limits
from binlogtool.verification.verify_report import FileReport
from tests.formats.eblob.files import FILES, TARGET
from tests.formats.eblob.make import header, key, noticed, overwrite, record, remove, total, verified

DOUBT = "dialect not certain"


def dialect(report: FileReport) -> str:
    return str(report.details["dialect"])


def diagnoses(report: FileReport) -> set[str]:
    return {diagnosis for _, _, diagnosis in noticed(report)}


@pytest.mark.parametrize("name", FILES)
def test_each_dialect_is_recognised_and_nothing_is_doubted(name: str) -> None:
    report = verified(FILES[name])
    assert dialect(report) == name
    assert DOUBT not in diagnoses(report)
    assert report.durable_end == len(FILES[name])
    assert report.records == {"b": 4, "b4": 3}.get(name, 2)
    assert not any(f.severity is Severity.ERROR for f in report.findings)


def test_all_dialects_are_tried_here() -> None:
    assert set(FILES) == set(FORMAT.reading.variants)


@pytest.mark.parametrize("name", FILES)
def test_the_user_can_name_the_dialect(name: str, tmp_path: Path) -> None:
    path = tmp_path / "data-0.0.binlog"
    path.write_bytes(FILES[name])
    (report,) = binlogtool.verify([path], format=f"eblob:{name}").files
    assert (dialect(report), report.durable_end) == (name, len(FILES[name]))
    with binlogtool.open(path, format=f"eblob:{name}") as log:
        assert sum(1 for _ in log.records()) == report.records


def test_a_dialect_that_the_user_names_wrongly_is_not_corrected(tmp_path: Path) -> None:
    path = tmp_path / "data-0.0.binlog"
    path.write_bytes(FILES["b"])
    (report,) = binlogtool.verify([path], format="eblob:a").files
    assert dialect(report) == "a"
    assert report.durable_end == 256
    assert any(f.severity is Severity.ERROR for f in report.findings)


def test_an_unknown_dialect_is_a_wrong_usage(tmp_path: Path) -> None:
    for name in ("eblob:c", "eblob:", "drizzle:a"):
        with pytest.raises(UsageError, match="variant"):
            binlogtool.verify([tmp_path], format=name)


def test_records_that_fit_two_dialects_are_told_as_such() -> None:
    """Without metadata a record of dialect a looks like one of dialect b that has metadata and no data."""
    report = verified(header() + total(key(1), b"", b"eight by", 1) + total(key(2), b"", b"four", 1))
    assert dialect(report) == "b"
    assert (DOUBT in diagnoses(report), report.records) == (True, 2)
    found = next(f for f in report.findings if f.facts.get("diagnosis") == DOUBT)
    assert found.severity is Severity.WARNING
    assert "a (A" in found.message
    assert "--format eblob:DIALECT" in found.message


def test_records_without_any_content_are_the_same_in_all_dialects_and_not_doubted() -> None:
    for data in (header(), header() + bytes(4096), header() + record(key(1), b"", b"") * 3):
        assert DOUBT not in diagnoses(verified(data))


def test_one_record_of_an_odd_type_is_damage_and_a_doubt_and_two_are_another_dialect() -> None:
    odd = record(key(3), TARGET, b"data", 4)
    one = verified(header() + overwrite(1, b"data") + odd + remove(2))
    assert dialect(one) == "b"
    assert diagnoses(one) - {""} == {DOUBT, "bad record type"}
    two = verified(header() + overwrite(1, b"data") + odd + odd + remove(2))
    assert (dialect(two), diagnoses(two)) == ("b4", set())


def test_a_broken_first_record_leaves_the_decision_to_those_behind_it() -> None:
    wrong = bytearray(FILES["a"] + total(key(5), bytes(range(88)), b"", 1) * 3)
    wrong[256] = 9
    assert (dialect(verified(bytes(wrong))), DOUBT in diagnoses(verified(bytes(wrong)))) == ("a", False)
    alone = bytearray(FILES["a"][: 256 + 216])
    alone[256] = 9
    assert DOUBT in diagnoses(verified(bytes(alone)))


def test_records_larger_than_the_head_of_the_file_are_followed_too() -> None:
    """The first 4 KiB hold one record header only, which fits both dialects."""
    large = total(key(1), b"m", b"d" * 6000, 1)
    report = verified(header() + large + total(key(2), bytes(88), b"", 1))
    assert (dialect(report), report.records) == ("a", 2)
    assert DOUBT not in diagnoses(report)


@pytest.mark.parametrize(
    ("data", "name", "score"),
    [
        (FILES["b"], "data-0.0.binlog", 100),
        (FILES["p"], "x", 100),
        (FILES["b-be"], "x", 100),
        (b"", "data-0.0.binlog", 15),
        (b"", "x", 0),
        (b"1337", "x", 30),
        (b"1337833" + FILES["b"][6:], "x", 70),
        (b"\xff" * 8 + FILES["b"][8:], "x", 60),
        (b"\xff" * 600, "data-0.0.binlog", 10),
        (b"\xff" * 600, "x", 0),
        (bytes(600), "x", 0),
    ],
)
def test_what_looks_like_an_eblob_binlog(data: bytes, name: str, score: int) -> None:
    assert FORMAT.reading.detect(FileHead(data[:4096], name, len(data))).score == score


@pytest.mark.parametrize(
    ("at", "new", "id_", "offset", "diagnosis"),
    [
        (0, b"x", "bad-magic", 0, "bad magic"),
        (7, b"x", "bad-magic", 7, "bad magic"),
        (8, b"\x02", "unsupported-version", 8, "unsupported version"),
        (16, b"\x0c", "bad-header", 16, "unknown header flags"),
        (23, b"\x80", "bad-header", 16, "unknown header flags"),
        (11, b"\x01", "reserved-bits-set", 11, "reserved header bytes not zero (warning)"),
        (255, b"\x01", "reserved-bits-set", 255, "reserved header bytes not zero (warning)"),
    ],
)
def test_each_rule_of_the_header_has_its_finding(at: int, new: bytes, id_: str, offset: int, diagnosis: str) -> None:
    data = FILES["b"][:at] + new + FILES["b"][at + 1 :]
    report = verified(data)
    assert noticed(report) == [(id_, offset, diagnosis)]
    assert (report.records, report.durable_end) == (4, len(data))


def test_a_stream_is_judged_by_its_first_bytes() -> None:
    layout = FORMAT.reading.layout(FileHead(FILES["a"], "-", None), Limits())
    assert layout.variant.startswith("A,")


def test_text_is_not_walked() -> None:
    layout = FORMAT.reading.layout(FileHead(b"no log at all\n" * 300, "x.binlog", 4200), Limits())
    assert not layout.readable
    assert {f.id for f in layout.findings} >= {"bad-magic"}
