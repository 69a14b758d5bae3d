"""The cause of a damage: each kind where it can be proven, none where it cannot, and how often it is right."""

from __future__ import annotations

import struct
import time
import zlib
from collections import Counter
from pathlib import Path

import pytest

import binlogtool
from binlogtool.core.damage_causes import DamagedRegion, DamageEvidence, find_cause
from binlogtool.findings import Finding
from binlogtool.format_api.layout import CRC32, CRC32C, advance_crc_register, undo_zero_bytes_in_crc_register
from binlogtool.verification.verify_logs import LogVerifyOptions
from tests.cli.samples import plain_log
from tests.damage_causes.damage import KINDS
from tests.damage_causes.measure import FORMATS, Sample, measured, samples
from tests.verify_bytes import verify_bytes


def message(text: bytes) -> bytes:
    """A BLOB entry of a Drizzle log, with its checksum."""
    return struct.pack("<II", 2, len(text)) + text + struct.pack("<I", zlib.crc32(text))


def text(number: int, size: int) -> bytes:
    """Bytes of which no two sectors are equal."""
    return b"".join(b"%d:%d," % (number, i) for i in range(size))[:size]


LOG = plain_log() + message(text(1, 3000)) + message(text(2, 3000)) + plain_log()
SECOND = len(plain_log()) + 3012


def causes(data: bytes) -> list[Finding]:
    """The findings that name a cause."""
    report = verify_bytes("a.log", data, format="drizzle", options=LogVerifyOptions(causes=True))
    assert sum(report.bytes.values()) == len(data)
    return [found for found in report.findings if "cause" in found.facts]


def only(data: bytes) -> tuple[str, int, int]:
    """Cause, place and size, if there is one finding with a cause."""
    (found,) = causes(data)
    return found.facts["cause"], found.facts["cause_offset"], found.facts["cause_length"]


def test_a_sound_log_has_none() -> None:
    assert causes(LOG) == []


@pytest.mark.parametrize("at", [SECOND + 5, SECOND + 1000, SECOND + 3009], ids=["length", "message", "checksum"])
def test_one_flipped_bit(at: int) -> None:
    data = bytearray(LOG)
    data[at] ^= 0x10
    (found,) = causes(bytes(data))
    assert (found.facts["cause"], found.facts["cause_offset"], found.facts["cause_bit"]) == ("flipped-bit", at, 4)


def test_two_flipped_bits_have_no_cause() -> None:
    data = bytearray(LOG)
    data[SECOND + 1000] ^= 0x11
    assert causes(bytes(data)) == []


def test_a_flipped_bit_in_the_length_of_the_last_record_is_not_called_a_cut() -> None:
    last = len(LOG) - len(plain_log())
    data = bytearray(LOG[:last])
    data[SECOND + 6] ^= 0x01
    assert only(bytes(data)) == ("flipped-bit", SECOND + 6, 1)


def test_a_zeroed_sector_and_zeros_that_are_none() -> None:
    at = 4608
    assert only(LOG[:at] + bytes(512) + LOG[at + 512 :]) == ("zeroed-sector", at, 512)
    assert causes(LOG[: at + 50] + bytes(512) + LOG[at + 562 :]) == []


def test_a_stale_sector_is_named_with_the_place_of_its_copy() -> None:
    at = 4608
    (found,) = causes(LOG[:at] + LOG[1024:1536] + LOG[at + 512 :])
    assert (found.facts["cause"], found.facts["cause_offset"], found.facts["cause_length"]) == ("stale-sector", at, 512)
    assert found.facts["cause_copy_of"] == 1024
    assert "a copy of the bytes at 0x400" in found.message


def test_a_torn_tail_that_begins_inside_a_stale_sector_has_the_cause_of_that_sector() -> None:
    log = plain_log() + message(text(6, 5000)) + b"".join(message(text(7, 300)) for _ in range(12))
    data = log[:8192] + log[6144:6656] + bytes(2048)
    found = causes(data)
    assert [(one.id, one.facts["cause"], one.facts["cause_offset"]) for one in found] == [
        ("checksum-mismatch", "stale-sector", 8192),
        ("torn-tail", "stale-sector", 8192),
    ]


@pytest.mark.parametrize(("stale", "kind"), [(False, "foreign-bytes"), (True, "stale-sector")])
def test_a_sector_that_hides_the_end_of_the_last_record_is_not_called_a_cut(stale: bool, kind: str) -> None:
    """The length of the last record stands in the sector: what it says now is more than the file holds."""
    sector = b"\x1f\x8b\x08\0" + text(9, 508)
    log = plain_log()
    log += message(text(1, 1016 - len(log)) + sector * stale + text(2, 3000))
    border = -(-len(log) // 512) * 512 + 512
    log += message(text(3, border - 4 - 12 - len(log))) + message(text(4, 2000))
    data = log[:border] + sector + log[border + 512 :]
    (found,) = causes(data)
    assert (found.id, found.facts["cause"], found.facts["cause_offset"]) == ("torn-tail", kind, border)


@pytest.mark.parametrize("count", [1, 2, 37, 512])
def test_bytes_that_are_missing_in_a_record(count: int) -> None:
    data = LOG[: SECOND + 1000] + LOG[SECOND + 1000 + count :]
    (found,) = causes(data)
    assert (found.facts["cause"], found.facts["cause_offset"], found.facts["cause_shift"]) == (
        "removed-bytes", SECOND, -count
    )  # fmt: skip


def test_very_many_bytes_that_may_be_missing_have_no_cause() -> None:
    assert causes(LOG[: SECOND + 1000] + LOG[SECOND + 1513 :]) == []


def test_a_length_that_is_not_right_is_no_sign_of_missing_bytes() -> None:
    """With another length the record is whole."""
    data = bytearray(LOG)
    data[SECOND + 4 : SECOND + 8] = struct.pack("<I", 3000 + 20)
    assert causes(bytes(data)) == []


def test_a_record_in_the_way_of_another_one_proves_nothing_if_all_is_not_right_behind_it() -> None:
    """A copy of other sectors may begin with the rest of a record."""
    data = bytearray(LOG[: SECOND + 1000] + LOG[SECOND + 1037 :])
    data[SECOND + 3012 - 37 + 100] ^= 0x11
    assert [one.facts["cause"] for one in causes(bytes(data))] == []


def test_bytes_of_another_file() -> None:
    at = 4608
    for head, kind in ((b"SQLite format 3\0", "SQLite database"), (b"XLOG\n0.13\n", "tarantool")):
        piece = head + text(9, 512 - len(head))
        (found,) = causes(LOG[:at] + piece + LOG[at + 512 :])
        assert (found.facts["cause"], found.facts["cause_format"]) == ("foreign-bytes", kind)


@pytest.mark.parametrize("count", [1, 7, 500])
def test_inserted_bytes_are_found_to_the_byte(count: int) -> None:
    at, piece = SECOND + 1003, b"\xfe" * count
    assert only(LOG[:at] + piece + LOG[at:]) == ("inserted-bytes", at, count)


def test_the_place_of_one_removed_byte_is_proven_in_a_short_record_and_that_of_more_is_not() -> None:
    log = plain_log() + message(text(3, 700)) + plain_log()
    at = len(plain_log()) + 300
    assert only(log[:at] + log[at + 1 :]) == ("removed-bytes", at, 0)
    assert only(log[:at] + log[at + 3 :]) == ("removed-bytes", len(plain_log()), 0)


def test_a_torn_write_and_a_cut() -> None:
    assert only(LOG[:6144] + bytes(100)) == ("torn-write", 6144, 100)
    cut, on_a_border = causes(LOG[:6000]), causes(LOG[:5632])
    assert [one.facts["cause"] for one in cut + on_a_border] == ["truncated"] * 2
    assert (cut[0].facts.get("cause_block"), on_a_border[0].facts["cause_block"]) == (None, 512)


def test_a_few_zeros_at_the_end_may_be_those_of_the_record_that_was_cut() -> None:
    log = plain_log()
    border = -(-len(log) // 512) * 512 + 512
    cut = log + message(text(1, border - len(log) - 8) + bytes(500))[: border - len(log) + 27]
    assert causes(cut) == []


def test_only_the_first_regions_of_a_file_are_looked_at() -> None:
    hurt = bytearray(message(text(4, 100)))
    hurt[50] ^= 1
    found = causes((bytes(hurt) + plain_log()) * 40)
    assert len(found) == 4


def test_only_verify_looks_for_causes(tmp_path: Path) -> None:
    data = bytearray(LOG)
    data[SECOND + 5] ^= 0x10
    (path := tmp_path / "transaction.log").write_bytes(data)
    (verified,) = binlogtool.verify([path]).files
    assert [one.facts["cause"] for one in verified.findings if "cause" in one.facts] == ["flipped-bit"]
    unasked = verify_bytes("transaction.log", bytes(data), format="drizzle").findings
    (diagnosed,) = binlogtool.diagnose([path]).logs
    for found in (unasked, diagnosed.report.files[0].findings):
        assert found
        assert not any("cause" in one.facts for one in found)
    assert "cause" not in str(binlogtool.plan_truncate(path).to_json_value())


def test_the_search_for_causes_costs_little_whatever_the_damage() -> None:
    hurt = bytearray(message(text(4, 60_000)))
    hurt[5] ^= 1
    hurt[3000] ^= 3
    data = (bytes(hurt) + plain_log() + message(text(5, 60_000))) * 6
    costs = []
    for wanted in (LogVerifyOptions(), LogVerifyOptions(causes=True)):
        began = time.thread_time()
        verify_bytes("a.log", data, format="drizzle", options=wanted)
        costs.append(time.thread_time() - began)
    assert costs[1] - costs[0] < 0.3, costs


def test_going_back_is_the_reverse_of_zero_bytes() -> None:
    for checksum in (CRC32, CRC32C):
        for count in (0, 1, 7, 1000):
            register = undo_zero_bytes_in_crc_register(checksum.poly, 0x12345678, count)
            for _ in range(count):
                register = advance_crc_register(checksum.poly, register, 0)
            assert register == 0x12345678
    register = 0xFFFFFFFF
    for byte in b"123456789":
        register = advance_crc_register(CRC32.poly, register, byte)
    assert register ^ 0xFFFFFFFF == 0xCBF43926


def held(seen: Counter[str], kind: str) -> None:
    """The goals: a verdict that is given is right."""
    given = seen["right"] + seen["wrong"]
    assert seen["wrong"] <= given // 100, (kind, seen)


def test_verdicts_on_damage_to_small_logs_are_right() -> None:
    sound = [Sample("drizzle", "a.log", LOG)]
    for kind in KINDS:
        seen = measured(kind, sound, [b"XLOG\n0.13\n" + text(5, 4096)], 12, 7)
        assert seen == {"none" if kind.startswith("control") else "right": 12}, kind


@pytest.mark.full
def test_verdicts_on_damage_to_logs_of_all_formats_are_right(corpus: Path) -> None:
    sound = {format: samples(corpus / format, format, 8, 1 << 14) for format in FORMATS}
    for format in FORMATS:
        others = [one.data for name in FORMATS if name != format for one in sound[name]]
        for kind in KINDS if sound[format] else ():
            seen = measured(kind, sound[format], others, 25, 7)
            print(format, kind, {word: seen[word] for word in ("right", "wrong", "none", "unseen")})
            held(seen, kind)


@pytest.mark.parametrize("zeros", [1, 6, 16, 63])
def test_a_few_zeros_behind_the_border_of_a_sector_at_the_end_show_neither_a_cut_nor_a_write_that_broke_off(
    zeros: int,
) -> None:
    border = (SECOND + 3000) // 512 * 512
    assert causes(LOG[:border] + bytes(zeros)) == []
    assert only(LOG[:border] + b"x" * zeros)[0] == "truncated"
    assert only(LOG[:border])[0] == "truncated"


PAGE = 4096


def test_zeros_in_front_of_a_damaged_page_are_no_zeroed_sector_of_it() -> None:
    """The page in front ends with zeros of its own, and a few more were put in between."""
    data = text(1, PAGE - 512) + bytes(512 + 5) + text(2, PAGE)
    clues = DamageEvidence(lambda at, size: data[at : at + size], len(data), lambda _: 0, lambda _: None, align=PAGE)
    assert find_cause(clues, DamagedRegion(PAGE, len(data), tail=True)) is None


def numbered(place: int, size: int = 100) -> bytes:
    """A record without a checksum: where it says that it stands, its size, and other bytes."""
    return struct.pack("<II", place, size) + bytes(range(size - 8))


def moved(data: bytes, region: DamagedRegion) -> str | None:
    """The cause that is found in records of this kind."""

    def claims(head: bytes) -> int | None:
        return int.from_bytes(head[:4], "little") if len(head) >= 8 else None

    def framed(frame: bytes) -> int:
        size = int.from_bytes(frame[4:8], "little")
        return size if 8 <= size <= len(frame) and frame[8:size] == bytes(range(size - 8)) else 0

    clues = DamageEvidence(
        lambda at, size: data[at : at + size],
        len(data),
        lambda _: 0,
        lambda _: None,
        claimed_offset=claims,
        frame_size=framed,
    )
    found = find_cause(clues, region)
    return None if found is None else found.kind


def test_without_checksums_two_records_must_agree_on_how_far_they_are_from_their_place() -> None:
    front, two = numbered(0) + b"?" * 107, numbered(200) + numbered(300)
    region = DamagedRegion(100, 207, before=0)
    assert moved(front + two, region) == "inserted-bytes"
    assert moved(front[:-14] + two, region._replace(end=193)) == "removed-bytes"
    assert moved(front + numbered(200), region) is None
    assert moved(front + numbered(200) + numbered(299), region) is None
    assert moved(numbered(1) + b"?" * 107 + two, region) is None


EBLOB = Path(__file__).parents[1] / "corpus" / "eblob" / "api-sync.binlog"


def eblob_causes(data: bytes) -> list[tuple[str, int, int | None]]:
    """Causes, their places and shifts."""
    report = verify_bytes(EBLOB.name, data, format="eblob", options=LogVerifyOptions(causes=True))
    told = [found.facts for found in report.findings if "cause" in found.facts]
    return [(facts["cause"], facts["cause_offset"], facts.get("cause_shift")) for facts in told]


@pytest.mark.full
def test_where_nothing_has_a_checksum_a_record_that_reaches_into_the_next_ones_lacks_bytes() -> None:
    data = EBLOB.read_bytes()
    with binlogtool.open(EBLOB) as log:
        places = [(record.offset, record.size) for record in log.records()]
    removed = flipped = 0
    for (at, size), behind in zip(places, places[2:], strict=False):
        if size < 128 + 8 + 16 or behind[1] < 128:
            continue
        for count in (7, 11, 13):
            cut = data[: at + 138] + data[at + 138 + count :]
            told = eblob_causes(cut)
            assert told in ([("removed-bytes", at, -count)], []), (at, count)
            removed += bool(told)
        for bit in range(4, 10):  # of the length of the data: the same picture
            mended = bytearray(data)
            mended[at + 16 + bit // 8] ^= 1 << bit % 8
            told = eblob_causes(bytes(mended))
            assert all(kind != "removed-bytes" for kind, _, _ in told), (at, bit)
            flipped += 1
    assert removed and flipped
