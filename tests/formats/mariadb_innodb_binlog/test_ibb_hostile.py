"""Forged logs: clear findings, bounded work, and nothing that is not in the files."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from binlogtool.errors import UnknownFormatError
from binlogtool.findings import Finding
from binlogtool.formats.mariadb_innodb_binlog.event_groups import EventGroup
from binlogtool.limits import MIB, Limits
from binlogtool.verification.verify_logs import LogVerifyOptions
from tests.formats.mariadb_innodb_binlog import ibb_logs as logs
from tests.formats.mariadb_innodb_binlog.ibb_make import (
    COMMIT,
    COMPLETE,
    CONT,
    DUMMY,
    LAST,
    OOB,
    PREPARE,
    STATE,
    Maker,
    Place,
    cints,
    event,
    group,
    gtid_event,
    header,
    sealed,
)
from tests.verify_bytes import verify_bytes

P = 16384
XID = b"\1" + (7).to_bytes(4, "little") + bytes([2, 1]) + b"abc"


def referred(maker: Maker, seq_no: int, nodes: int, first: Place, last: Place) -> Place:
    """A COMMIT record with one reference."""
    return maker.commit(gtid_event(seq_no, 5), (5, 11, seq_no), cints(nodes, *first, *last, 0))


def found(tmp_path: Path, maker: Maker) -> dict[str, list[Finding]]:
    """Findings by diagnosis."""
    report = logs.verified(logs.written(tmp_path / "log", maker.done()))
    by: dict[str, list[Finding]] = {}
    for one in report.findings:
        by.setdefault(str(one.facts.get("diagnosis")), []).append(one)
    return by


def test_a_log_of_the_maker_is_sound_at_every_page_size(tmp_path: Path) -> None:
    """The helper of these tests writes what the reader takes: so what is forged below is forged in one place only."""
    for shift in range(9, 17):
        maker = Maker(page_size=1 << shift, file_pages=6, interval=2, oob_from=0)
        for number in range(1, 60):
            maker.commit(group(number, 40 * number), (0, 11, number))
            if number % 10 == 0:
                pieces = [b"x" * (500 * i + 1) for i in range(number // 10)]
                text = event(2, b"\0" * 13 + b"".join(pieces))
                first, last = maker.forest([text[i : i + 700] for i in range(0, len(text), 700)])
                nodes = -(-len(text) // 700)
                referred(maker, 1000 + number, nodes, first, last)
        folder = logs.written(tmp_path / str(shift), maker.done())
        report = logs.verified(folder)
        assert logs.diagnoses(report) <= {"preallocated", "unsupported-page-size"}
        notes = [one for one in report.findings if one.facts["diagnosis"] == "unsupported-page-size"]
        assert bool(notes) == (shift != 14)
        assert len(logs.gtids(folder)) == 59 + 5
        assert logs.records(folder) == logs.records(folder, backend="native")


# -- trees -------------------------------------------------------------------------------------------------------------


def test_a_tree_whose_node_refers_to_itself_is_told(tmp_path: Path) -> None:
    maker = Maker()
    here = (maker.number, maker.page_no * P + len(maker.page))
    node = maker.oob(1, (0, 0), here, b"data")
    referred(maker, 1, 2, node, node)
    by = found(tmp_path, maker)
    assert "is not before" in by["oob-shape"][-1].message
    assert not [one for one in logs.groups(tmp_path / "log") if isinstance(one, EventGroup)]


def test_a_cycle_of_two_nodes_is_told(tmp_path: Path) -> None:
    maker = Maker()
    first = maker.oob(1, (0, 0), (0, 2 * P), b"a" * 100)
    while maker.page_no < 2 or len(maker.page) < 10:
        maker.record(DUMMY, b"\xff" * 100)
    second = maker.oob(2, (0, 0), first, b"b")
    referred(maker, 1, 3, first, second)
    assert "oob-shape" in found(tmp_path, maker)


def test_a_node_that_belongs_to_two_groups_is_told(tmp_path: Path) -> None:
    maker = Maker()
    first, last = maker.forest([gtid_event(1), b"rest"])
    referred(maker, 1, 2, first, last)
    referred(maker, 2, 2, first, last)
    by = found(tmp_path, maker)
    assert any("another group" in one.message for one in by["oob-shape"])


def test_a_reference_forward_is_told(tmp_path: Path) -> None:
    maker = Maker()
    referred(maker, 1, 1, (0, 2 * P), (0, 2 * P))
    maker.oob(0, (0, 0), (0, 0), b"later")
    assert "is not before" in found(tmp_path, maker)["oob-shape"][0].message


@pytest.mark.parametrize("file_no", [5, 2**63 - 1, 2**64 - 1])
def test_a_reference_into_a_file_that_is_not_there_is_told(tmp_path: Path, file_no: int) -> None:
    maker = Maker()
    node = maker.oob(1, (0, 0), (file_no, P), b"data")
    referred(maker, 1, 2, (file_no, P), node)
    assert {"oob-shape", "oob-missing"} & set(found(tmp_path, maker))


@pytest.mark.parametrize("offset", [0, 1, 100, P, P + 1, 2 * P - 4, 2**40, 2**64 - 1])
def test_a_reference_to_what_is_no_record_is_told(tmp_path: Path, offset: int) -> None:
    maker = Maker()
    for number in range(1, 400):
        maker.commit(group(number), (0, 11, number))
    referred(maker, 400, 1, (0, offset), (0, offset))
    assert {"oob-shape", "oob-missing", "oob-wrong-type"} & set(found(tmp_path, maker))


def test_wrong_indexes_links_and_counts_are_told(tmp_path: Path) -> None:
    maker = Maker()
    one = maker.oob(0, (0, 0), (0, 0), b"a")
    two = maker.oob(5, (0, 0), one, b"b")  # index 5 where 1 is expected
    referred(maker, 1, 6, one, two)
    three = maker.oob(1, one, one, b"c")  # a left link where the shape demands a leaf
    referred(maker, 2, 2, one, three)
    four = maker.oob(1, (0, 0), one, b"d")
    referred(maker, 3, 2**50, one, four)  # a count that cannot be true; all nodes are there
    by = found(tmp_path, maker)
    assert len(by["oob-shape"]) == 3
    groups = list(logs.groups(tmp_path / "log"))
    assert [isinstance(one, EventGroup) for one in groups] == [False, False, True]
    last = groups[-1]
    assert isinstance(last, EventGroup) and last.problem is not None and last.data.endswith(b"ad")


def test_many_groups_over_one_large_tree_end_in_bounded_time(tmp_path: Path) -> None:
    """Each COMMIT record has a last node of its own, which leads to the same long chain."""
    maker = Maker(file_pages=64, interval=0)
    place: Place = (0, 0)
    first = place
    for index in range(3000):
        place = maker.oob(index, (0, 0), place, b"x" * 60)
        first = place if index == 0 else first
    for number in range(1, 300):
        last = maker.oob(3000, (0, 0), place, b"y")
        referred(maker, number, 3001, first, last)
    began = time.process_time()
    by = found(tmp_path, maker)
    assert time.process_time() - began < 60
    assert "oob-shape" in by


def test_a_group_over_the_ceiling_is_not_put_together(tmp_path: Path) -> None:
    maker = Maker(file_pages=32)
    first, last = maker.forest([b"x" * 15000 for _ in range(20)])
    referred(maker, 1, 20, first, last)
    folder = logs.written(tmp_path / "log", maker.done())
    (one,) = logs.groups(folder, Limits(max_inflate=100_000))
    assert isinstance(one, Finding) and one.id == "inflate-limit"
    (other,) = logs.groups(folder)
    assert isinstance(other, EventGroup) and len(other.data) == 38 + 20 * 15000


# -- chunks and records ------------------------------------------------------------------------------------------------


def one_page(*chunks: tuple[int, bytes], rest: bytes = b"") -> bytes:
    """A file whose page 1 has an empty state and these chunks (type byte, data)."""
    data = bytes([STATE | LAST, 2, 0, 0, 0])
    for kind, content in chunks:
        data += bytes([kind]) + len(content).to_bytes(2, "little") + content
    return header(0, 4, P, 2) + sealed(data + rest, P) + bytes(2 * P)


def of_bytes(data: bytes, name: str = "binlog-000000.ibb") -> set[str]:
    """The diagnoses of one file."""
    reports = [
        verify_bytes(name, data, format=logs.FORMAT, options=LogVerifyOptions(backend=one))
        for one in ("python", "native")
    ]
    assert reports[0].findings == reports[1].findings and reports[0].bytes == reports[1].bytes
    assert sum(reports[0].bytes.values()) == len(data)
    return {str(one.facts.get("diagnosis")) for one in reports[0].findings}


def test_a_chunk_that_runs_over_the_page_is_told() -> None:
    assert "bad-chunk" in of_bytes(one_page(rest=bytes([1 | LAST]) + b"\xff\xff" + b"x" * 50))
    assert "bad-chunk" in of_bytes(one_page(rest=bytes([1 | LAST]) + b"\0\0"))
    assert "bad-chunk" in of_bytes(one_page(rest=b"\x07\1\0x"))
    assert "bad-chunk" in of_bytes(one_page(rest=b"\xff\xff\xff"))


def test_bytes_behind_the_end_are_told() -> None:
    assert "garbage-after-end" in of_bytes(one_page((1 | LAST, b"\0" + group(1)), rest=b"\0\0\0hidden"))


def test_filler_of_other_bytes_is_told() -> None:
    room = P - 4 - 5 - 3
    assert "bad-chunk" in of_bytes(one_page((DUMMY | LAST, b"\xff" * (room - 2)), rest=b"\xff\xfe"))
    assert "bad-chunk" not in of_bytes(one_page((DUMMY | LAST, b"\xff" * (room - 2)), rest=b"\xff\xff"))


def test_records_that_break_the_chain_are_told() -> None:
    data = b"\0" + group(1)
    assert "missing-end-chunk" in of_bytes(one_page((1, data), (1 | LAST, data)))
    assert "missing-end-chunk" in of_bytes(one_page((3, data), (1 | CONT | LAST, data)))
    assert "page-order" in of_bytes(one_page((1 | LAST, data), (1 | CONT | LAST, data)))
    full = header(0, 2, P, 0) + one_page((1, data.ljust(P - 4 - 5 - 3, b"x")))[P : 2 * P]
    assert "goes-on-in-next-file" in of_bytes(full)
    assert "incomplete-tail-record" in of_bytes(one_page((1, data)))


def test_what_may_be_nested_is_read_and_what_may_not_is_told() -> None:
    parts = b"\0" + group(1)
    nested = one_page((1, parts[:20]), (STATE | LAST, b"\0\0"), (DUMMY | LAST, b"\xff"), (1 | CONT | LAST, parts[20:]))
    said = of_bytes(nested)
    assert "missing-end-chunk" not in said and "page-order" not in said
    assert "missing-end-chunk" in of_bytes(one_page((1, b"\0"), (OOB | LAST, b"\0" * 6), (1 | CONT | LAST, b"x")))


def test_a_record_that_never_ends_is_told_and_memory_stays_bounded(tmp_path: Path) -> None:
    pages = [sealed(bytes([STATE | LAST, 2, 0, 0, 0, 1]) + (P - 12).to_bytes(2, "little") + b"x" * (P - 12), P)]
    pages += [sealed(bytes([1 | CONT]) + (P - 7).to_bytes(2, "little") + b"x" * (P - 7), P)] * 400
    data = header(0, 401, P, 0) + b"".join(pages)
    report = verify_bytes("binlog-000000.ibb", data, options=LogVerifyOptions(limits=Limits(max_record=MIB)))
    assert report.records == 1
    closed = data + sealed(bytes([1 | CONT | LAST, 1, 0]) + b"x", P)
    report = verify_bytes("binlog-000000.ibb", closed, options=LogVerifyOptions(limits=Limits(max_record=MIB)))
    assert "record-too-long" in {one.facts.get("diagnosis") for one in report.findings}


def test_records_nested_without_end_are_given_up() -> None:
    nested = sealed((bytes([STATE | LAST, 2, 0, 0, 0]) * ((P - 4) // 5)).ljust(P - 4, b"\xff"), P)
    first = sealed(bytes([STATE | LAST, 2, 0, 0, 0, 3]) + (P - 12).to_bytes(2, "little") + b"x" * (P - 12), P)
    data = header(0, 30, P, 1) + first + nested * 28
    began = time.process_time()
    assert "missing-end-chunk" in of_bytes(data)
    assert time.process_time() - began < 60


def test_states_that_lie_are_told() -> None:
    assert "state-mismatch" in of_bytes(one_page((STATE | LAST, b"\0\0")))  # not at the start of a page
    huge = bytes([STATE | LAST]) + len(cints(2**40, 0)).to_bytes(2, "little") + cints(2**40, 0)
    assert "state-mismatch" in of_bytes(header(0, 4, P, 2) + sealed(huge, P) + bytes(2 * P))
    assert "state-missing" in of_bytes(
        header(0, 4, P, 2) + sealed(bytes([1 | LAST, 100, 0]) + (b"\0" + group(1))[:100].ljust(100), P)
    )


def test_states_between_commits_are_compared(tmp_path: Path) -> None:
    maker = Maker(file_pages=6, interval=2)
    for number in range(1, 900):
        maker.commit(group(number), (0, 11, number if number != 500 else 499))
    assert "state-mismatch" not in found(tmp_path, maker)  # 500 came, and 501 before the next state
    other = Maker(file_pages=6, interval=2)
    for number in range(1, 900):
        other.commit(group(number if number != 400 else 4000), (0, 11, number))
    report = logs.verified(logs.written(tmp_path / "other", other.done()))
    assert "gtid-out-of-order" in logs.diagnoses(report)


def shifted(tmp_path: Path, second: int, cut: bool) -> dict[str, list[Finding]]:
    """A log of two files whose second full state says `second` more than was committed. cut: a COMMIT goes over the
    border of the files; otherwise the first file ends with a DUMMY."""
    maker = Maker(file_pages=4, interval=0)
    number = 0
    while maker.number == 0 and maker.room > (400 if maker.page_no == 3 else -1):
        number += 1
        maker.commit(group(number), (0, 11, number))
    if cut:
        number += 1
        maker.full[0, 11] = number + second  # before the server turns to the next file
        maker.record(COMMIT, b"\0" + group(number, size=900))
        maker.full[0, 11] = number
    else:
        maker.record(DUMMY, b"\xff" * (maker.room - 3))
        maker.full[0, 11] = number + second
    for later in range(number + 1, number + 60):
        maker.commit(group(later), (0, 11, later))
    assert maker.number == 1
    return found(tmp_path / f"{second}{cut}", maker)


@pytest.mark.parametrize("second", [-2, -1, 1, 2])
def test_a_state_at_the_start_of_a_file_is_held_against_the_commits_to_the_number(tmp_path: Path, second: int) -> None:
    assert "state-mismatch" in shifted(tmp_path, second, cut=False)
    assert "state-mismatch" not in shifted(tmp_path, 0, cut=False)


@pytest.mark.parametrize(("second", "wrong"), [(-2, True), (-1, False), (0, False), (1, True)])
def test_only_the_commit_around_a_state_may_be_in_it_or_not(tmp_path: Path, second: int, wrong: bool) -> None:
    assert ("state-mismatch" in shifted(tmp_path, second, cut=True)) == wrong


def test_a_file_of_another_history_is_told(tmp_path: Path) -> None:
    mine, other = Maker(file_pages=4), Maker(file_pages=4)
    for number in range(1, 600):
        mine.commit(group(number), (0, 11, number))
        other.commit(group(number, domain=9), (9, 11, number))
    files = mine.done() | {"binlog-000001.ibb": other.done()["binlog-000001.ibb"]}
    report = logs.verified(logs.written(tmp_path / "log", files))
    assert "state-chain" in logs.diagnoses(report)


def test_xa_records_that_lie_are_told(tmp_path: Path) -> None:
    maker = Maker()
    maker.record(PREPARE, XID + cints(1, 0, 5 * P, 0, 5 * P))
    maker.record(PREPARE, XID[:6] + b"\xff" + XID[7:])
    done = b"\0" + XID[1:]
    maker.record(COMPLETE, done)
    maker.record(COMPLETE, done)  # no COMMIT record stands between them
    maker.commit(group(1), (0, 11, 1))
    by = found(tmp_path, maker)
    assert len(by["xa-malformed"]) == 2 and {"oob-shape", "oob-missing"} & set(by)


def test_events_that_do_not_tile_a_group_are_told(tmp_path: Path) -> None:
    maker = Maker()
    maker.commit(group(1) + b"left over", (0, 11, 1))
    first, last = maker.forest([event(2, b"\0" * 30)[:-1]])
    referred(maker, 2, 1, first, last)
    maker.commit(b"", None)
    maker.commit(event(16, b"\0" * 8), None)
    by = found(tmp_path, maker)
    assert len(by["event-misaligned"]) == 2 and len(by["commit-malformed"]) == 2
    assert {one.txn for one in logs.records(tmp_path / "log", "event")} >= {"0-11-1", "5-11-2"}


# -- headers and sets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "diagnosis"),
    [
        ({"major": 2}, "unsupported-version"),
        ({"shift": 99}, "unsupported-page-size"),
        ({"shift": 12}, "unsupported-page-size"),
        ({"file_no": 3}, "file-renamed"),
        ({"oob": 7}, "bad-oob-ref"),
        ({"xa": 7}, "bad-oob-ref"),
    ],
)
def test_a_header_that_lies_is_told(fields: dict[str, int], diagnosis: str) -> None:
    data = header(0, 4, P, 2, **fields) + one_page((1 | LAST, b"\0" + group(1)))[P:]
    assert diagnosis in of_bytes(data)


def test_an_interval_that_is_no_power_of_two_is_told() -> None:
    assert "bad-interval" in of_bytes(header(0, 4, P, 3) + one_page()[P:])


@pytest.mark.parametrize("size", [0, 1, 63, 64, 511, 512, 513, P - 1, P, P + 1, 2 * P - 1])
def test_a_file_that_ends_anywhere_in_its_first_pages_is_read(size: int) -> None:
    of_bytes(one_page((1 | LAST, b"\0" + group(1)))[:size])
    of_bytes(bytes(size))


def test_gaps_empty_files_and_odd_names_of_a_set_are_told(tmp_path: Path) -> None:
    maker = Maker(file_pages=4)
    for number in range(1, 2000):
        maker.commit(group(number), (0, 11, number))
    files = maker.done()
    names = sorted(files)
    assert len(names) > 5
    holed = {name: data for name, data in files.items() if name != names[2]}
    assert "missing-file" in logs.diagnoses(logs.verified(logs.written(tmp_path / "holed", holed)))
    zeroed = files | {names[1]: bytes(len(files[names[1]]))}
    assert "unexpected-empty-file" in logs.diagnoses(logs.verified(logs.written(tmp_path / "zeroed", zeroed)))
    named = dict(files)
    named["binlog-7.ibb"] = named.pop(names[-1])
    assert "bad-file-name" in logs.diagnoses(logs.verified(logs.written(tmp_path / "named", named)))
    swapped = files | {names[0]: files[names[1]], names[1]: files[names[0]]}
    assert "file-renamed" in logs.diagnoses(logs.verified(logs.written(tmp_path / "swapped", swapped)))


# -- truncation and mutation -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> tuple[bytes, list[tuple[int, int]]]:
    """A log of one file with small pages, and where its records lie: [place, end of the last chunk)."""
    maker = Maker(page_size=1024, file_pages=20, interval=4)
    for number in range(1, 40):
        maker.commit(group(number, 11 * number), (0, 11, number))
    return maker.done(reserve=False)["binlog-000000.ibb"], []


@pytest.mark.full
def test_cut_anywhere_no_record_is_lost_or_invented(small: tuple[bytes, list[tuple[int, int]]], tmp_path: Path) -> None:
    """R4 at every page border and every record border, and eight bytes around each."""
    data, _ = small
    folder = logs.written(tmp_path / "log", {"binlog-000000.ibb": data})
    found = logs.records(folder)
    borders = {page * 1024 for page in range(len(data) // 1024 + 1)}
    borders |= {one.offset for one in found} | {one.offset + one.size for one in found}
    cuts = sorted({max(0, min(len(data), border + step)) for border in borders for step in range(-8, 9)})
    assert len(cuts) > 500
    whole = [(one.offset, one.type, one.body) for one in found]
    last = _last_pages(data, found)
    for cut in cuts:
        (folder / "binlog-000000.ibb").write_bytes(data[:cut])
        if cut < 4:  # nothing proves that it is a log
            with pytest.raises(UnknownFormatError):
                logs.records(folder)
            continue
        kept = [(one.offset, one.type, one.body) for one in logs.records(folder)]
        expected = [entry for entry, end in zip(whole, last, strict=True) if end <= cut and cut >= 1024]
        assert kept == expected, cut


def _last_pages(data: bytes, found: list) -> list[int]:  # type: ignore[type-arg]
    """Where the page ends that holds the last chunk of each record: found by walking the pages once more."""
    starts = {one.offset: i for i, one in enumerate(found)}
    open_at, nest_at, result = -1, -1, [0] * len(found)
    for page in range(1, len(data) // 1024):
        at = page * 1024
        while at < page * 1024 + 1020 - 3 and data[at] not in (0, 0xFF):
            kind, length = data[at], int.from_bytes(data[at + 1 : at + 3], "little")
            if not kind & CONT:
                if open_at >= 0:
                    nest_at = at
                else:
                    open_at = at
            begun = nest_at if nest_at >= 0 and (kind & 0x3F) == STATE else open_at
            if kind & LAST:
                result[starts[begun]] = (page + 1) * 1024
                if begun == nest_at:
                    nest_at = -1
                else:
                    open_at = -1
            at += 3 + length
    return result


@pytest.mark.full
@pytest.mark.parametrize("seed", range(6))
def test_random_changes_give_findings_only_and_both_backends_agree(
    small: tuple[bytes, list[tuple[int, int]]], seed: int
) -> None:
    data, _ = small
    chance = random.Random(seed)
    for _ in range(60):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(changed))
            changed[at : at + chance.randint(1, 4)] = chance.randbytes(chance.randint(0, 4))
            if chance.random() < 0.7:  # mended, so that it gets behind the CRC
                page = min(at // 1024, len(changed) // 1024 - 1) * 1024
                changed[page : page + 1024] = sealed(bytes(changed[page : page + 1020]), 1024)
        of_bytes(bytes(changed))


@pytest.mark.full
@pytest.mark.parametrize("seed", range(4))
def test_random_changes_of_a_set_are_read_at_every_level(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    maker = Maker(page_size=512, file_pages=8, interval=2)
    for number in range(1, 60):
        maker.commit(group(number, 3 * number), (0, 11, number))
        if number % 7 == 0:
            first, last = maker.forest([b"z" * (number + i) for i in range(number // 7)])
            referred(maker, 1000 + number, number // 7, first, last)
    files = maker.done()
    for turn in range(12):
        changed = dict(files)
        for _ in range(3):
            name = chance.choice(sorted(files))
            data = bytearray(changed[name])
            at = chance.randrange(len(data))
            data[at] ^= 1 << chance.randrange(8)
            page = at // 512 * 512
            data[page : page + 512] = sealed(bytes(data[page : page + 508]), 512)
            changed[name] = bytes(data)
        folder = logs.written(tmp_path / str(turn), changed)
        logs.verified(folder)
        for level in ("page", "record", "event"):
            logs.records(folder, level)
