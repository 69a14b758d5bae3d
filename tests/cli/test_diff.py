"""`hexdump-annotate --diff OTHER`: what a reader of two logs is told."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import binlogtool
from binlogtool.log.compare import Same
from tests.cli.invoke import ROOT, invoke
from tests.cli.samples import insert, raw_sql

TORN = ROOT / "tests/corpus/guides/tarantool-torn/00000000000000000003.xlog"
MAGIC = b"\xd5\xba\x0b\xab"
WHOLE = TORN.read_bytes()[:2915]  # what the guide's server kept
BLOCKS = [MAGIC + block for block in WHOLE.split(MAGIC)[1:]]
HEAD = WHOLE[: WHOLE.index(MAGIC)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "a.xlog"
    path.write_bytes(WHOLE)
    return path


def told(one: Path, other: Path, *words: str, code: int = 1) -> list[str]:
    done = invoke("hexdump-annotate", str(one), "--diff", str(other), *words)
    assert done.code == code, done.err
    return done.text.splitlines()[2:]


def places(lines: list[str]) -> list[str]:
    return [line for line in lines if line[2:4] == "0x"]


def test_a_log_is_the_same_as_its_copy(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "b.xlog"
    other.write_bytes(WHOLE)
    assert told(log, other, code=0) == ["= 0x00000000..0x00000b63  the same, 45 records, 2,915 bytes"]


def test_a_torn_log_has_a_tail_that_its_repaired_copy_lacks(tmp_path: Path) -> None:
    copy = tmp_path / "copy.xlog"
    assert invoke("truncate-to-durable", "--to-file", str(copy), "--yes", str(TORN)).code == 0
    assert places(told(TORN, copy)) == [
        "= 0x00000000..0x00000b63  the same, 45 records, 2,915 bytes",
        "- 0x00000b63  torn_tail only in A, 68 bytes",
    ]


def test_a_flipped_bit_is_two_fields_and_one_byte(log: Path, tmp_path: Path) -> None:
    start = len(HEAD) + sum(map(len, BLOCKS[:5]))
    damaged = bytearray(WHOLE)
    damaged[start + 40] ^= 1
    other = tmp_path / "b.xlog"
    other.write_bytes(damaged)
    lines = told(log, other)
    assert places(lines) == [
        f"= 0x00000000..{start:#010x}  the same, 5 records, {start} bytes",
        f"~ {start:#010x}  record 5 INSERT, in B damaged: 2 of 23 fields differ",
        f"= {start + len(BLOCKS[5]):#010x}..0x00000b63  the same, 39 records, {2915 - start - len(BLOCKS[5]):,} bytes",
    ]
    at = next(i for i, line in enumerate(lines) if "body.space_id = 513" in line)
    byte = lines[at].index("cd 02 01") + 6
    assert lines[at + 1] == " " * byte + "^^"


@pytest.mark.parametrize(("first", "last"), [(12, 13), (0, 1), (44, 45), (12, 40)])
def test_records_that_one_side_lacks_do_not_disturb_the_others(
    log: Path, tmp_path: Path, first: int, last: int
) -> None:
    other = tmp_path / "b.xlog"
    other.write_bytes(HEAD + b"".join(BLOCKS[:first] + BLOCKS[last:]))
    for one, two, sign in ((log, other, "-"), (other, log, "+")):
        signs = [line[0] for line in places(told(one, two, "--all"))]
        assert signs == ["="] + [sign] * (last - first) + ["="] * (last < 45)
    assert f"record {first} {'UPDATE' if first == 44 else 'INSERT'} only in A" in told(log, other)[1]


def test_two_logs_of_one_workload_differ_where_it_does(tmp_path: Path) -> None:
    """Every record has another number and time; one statement was run on one server alone."""
    texts = [b"insert into t values (%d)" % i for i in range(40)]
    one, two = tmp_path / "a.log", tmp_path / "b.log"
    one.write_bytes(b"".join(raw_sql(i, text) for i, text in enumerate(texts, 100)))
    two.write_bytes(b"".join(raw_sql(i, text) for i, text in enumerate([*texts[:7], *texts[8:]], 900)))
    assert [line[0] for line in places(told(one, two))] == ["~"] * 7 + ["-"] + ["~"] * 32


def test_what_differs_in_any_way_is_told_and_nothing_else_is(tmp_path: Path) -> None:
    """Bytes that are told to be the same are; both files are told from their first byte to their last."""
    chance = random.Random(5)
    one, two = tmp_path / "a.xlog", tmp_path / "b.xlog"
    one.write_bytes(WHOLE)
    for _ in range(12):
        damaged = bytearray(WHOLE)
        at, more = chance.randrange(len(damaged)), chance.randrange(200)
        if chance.random() < 0.5:
            damaged[at] ^= 1 << chance.randrange(8)
        elif chance.random() < 0.5:
            del damaged[at : at + more + 1]
        else:
            damaged[at:at] = damaged[at : at + more + 1]
        two.write_bytes(damaged)
        left = right = same = 0
        with binlogtool.open(one) as a, binlogtool.open(two) as b:
            for part in binlogtool.compared(a, b).parts:
                if isinstance(part, Same):
                    assert (part.start, part.other) <= (left, right)
                    left, right = part.end, part.other + part.end - part.start
                    assert WHOLE[part.start : left] == damaged[part.other : right]
                    same += part.end - part.start
                else:
                    left = part.a.unit.end if part.a else left
                    right = part.b.unit.end if part.b else right
        assert (left, right) == (len(WHOLE), len(damaged))
        assert same > 2000 if at > 200 else same < len(WHOLE)


def test_a_head_that_is_read_with_a_bit_put_right_differs_all_the_same(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "b.xlog"
    other.write_bytes(WHOLE[:17] + bytes([WHOLE[17] ^ 0x20]) + WHOLE[18:])
    assert places(told(log, other))[0].startswith("~ 0x00000000  header")


def test_hostile_text_reaches_no_terminal(tmp_path: Path) -> None:
    one, two = tmp_path / "a\x1b[31m.log", tmp_path / "b\u202e.log"
    one.write_bytes(raw_sql(1, b"\x1b]0;x\x07 a") + insert(2, b"\x1b[2J", b"t", b"x"))
    two.write_bytes(raw_sql(1, b"\x1b]0;y\x07 a") + insert(2, b"\xe2\x80\xae", b"t", b"x"))
    done = invoke("hexdump-annotate", "--all", str(one), "--diff", str(two))
    assert done.code == 1
    assert not set("\x1b\x07\u202e") & set(done.text)


def test_requests_that_make_no_sense_are_one_line(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.log"
    other.write_bytes(raw_sql(1, b"select 1"))
    base = ["hexdump-annotate", str(log), "--diff"]
    for words, code, said in (
        ([str(other)], 2, "is drizzle: only logs of one format"),
        ([str(log), "--record", "1"], 2, "--record does not go with --diff"),
        ([str(log), "--type", "INSERT"], 2, "options that choose records do not go with it"),
        ([str(log), "-O", "svg"], 2, "svg"),
        ([str(tmp_path / "none")], 4, "none"),
    ):
        done = invoke(*base, *words)
        assert (done.code, done.out) == (code, b"")
        assert said in done.err and done.err.count("\n") == 1
    assert invoke("hexdump-annotate", "--all", str(log)).code == 2
