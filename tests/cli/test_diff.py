"""`hexdump-annotate --diff OTHER`: what a reader of two logs is told."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.annotation.compare_logs import EqualRange, UnitDiff
from binlogtool.report.json_schema import SCHEMAS
from tests.cli.invoke import ROOT, invoke
from tests.cli.samples import insert, raw_sql
from tests.contract.json_schema import errors

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
        f"~ {start:#010x}  record 5 INSERT, in B damaged: 1 of 23 fields differ, a checksum matches on one side only",
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


@pytest.mark.full
@pytest.mark.parametrize("turned", [False, True])
def test_thousands_of_statements_that_one_server_alone_ran_do_not_disturb_the_others(
    tmp_path: Path, turned: bool
) -> None:
    """No record has the same bytes in both: numbers and times differ."""
    texts = [b"insert into t values (%d)" % i for i in range(5_000)]
    one, two = tmp_path / "a.log", tmp_path / "b.log"
    one.write_bytes(b"".join(raw_sql(i, text) for i, text in enumerate(texts, 100)))
    two.write_bytes(b"".join(raw_sql(i, text) for i, text in enumerate([*texts[:40], *texts[4_600:]], 900_000)))
    with binlogtool.open(two if turned else one) as a, binlogtool.open(one if turned else two) as b:
        parts = list(binlogtool.compare(a, b).parts)
    lone = [bool(part.a) for part in parts if isinstance(part, UnitDiff) and (part.a is None or part.b is None)]
    assert lone == [not turned] * 4_560
    assert len(parts) == 5_000


@pytest.mark.full
def test_two_logs_that_have_nothing_in_common_are_told_in_the_time_of_a_few_searches(tmp_path: Path) -> None:
    one, two = tmp_path / "a.log", tmp_path / "b.log"
    for path, word, count in ((one, b"delete from a%d", 9_000), (two, b"insert into b%d", 9_000)):
        path.write_bytes(b"".join(raw_sql(i, word % i) for i in range(count)))
    with binlogtool.open(one) as a, binlogtool.open(two) as b:
        parts = list(binlogtool.compare(a, b).parts)
    assert sum(isinstance(part, UnitDiff) and part.a is not None for part in parts) == 9_000
    assert sum(isinstance(part, UnitDiff) and part.b is not None for part in parts) == 9_000


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
            for part in binlogtool.compare(a, b).parts:
                if isinstance(part, EqualRange):
                    assert (part.start, part.other_start) <= (left, right)
                    left, right = part.end, part.other_start + part.end - part.start
                    assert WHOLE[part.start : left] == damaged[part.other_start : right]
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


def document(one: Path, other: Path, *words: str) -> Any:
    done = invoke("hexdump-annotate", str(one), "--diff", str(other), "-O", "json", *words)
    assert done.err == ""
    found = json.loads(done.out)
    assert errors(found, SCHEMAS["diff"]) == []
    assert done.code == (1 if found["differences"] else 0)
    return found


def test_the_document_says_which_bytes_of_which_field_differ(log: Path, tmp_path: Path) -> None:
    start = len(HEAD) + sum(map(len, BLOCKS[:5]))
    damaged = bytearray(WHOLE)
    damaged[start + 40] ^= 1
    other = tmp_path / "b.xlog"
    other.write_bytes(damaged)
    found = document(log, other)
    behind = start + len(BLOCKS[5])
    assert [part["kind"] for part in found["parts"]] == ["same", "changed", "same"]
    assert found["parts"][0] == {
        "kind": "same", "a": {"start": 0, "end": start}, "b": {"start": 0, "end": start}, "records": 5,
    }  # fmt: skip
    changed = found["parts"][1]
    assert (changed["a"]["start"], changed["a"]["end"], changed["a"]["types"]) == (start, behind, ["INSERT"])
    assert (changed["b"]["kind"], changed["fields_same"]) == ("damage", 21)
    space = next(one for one in changed["fields"] if one["a"]["path"].endswith("body.space_id"))
    assert (space["a"]["value"], space["b"]["value"]) == (512, 513)
    assert space["bytes"] == [[2, 3]]
    assert found["differences"] == 1


def test_the_document_has_what_one_side_lacks_and_its_fields_when_all_is_asked_for(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "b.xlog"
    other.write_bytes(HEAD + b"".join(BLOCKS[:3] + BLOCKS[10:]))
    for one, two, kind, side in ((log, other, "only-a", "a"), (other, log, "only-b", "b")):
        parts = document(one, two)["parts"]
        assert [part["kind"] for part in parts] == ["same", *[kind] * 7, "same"]
        assert [part[side]["record"] for part in parts[1:8]] == list(range(3, 10))
        assert "fields" not in parts[1]
        whole = document(one, two, "--all")["parts"][1]
        assert any(field["path"].endswith("body.space_id") for field in whole["fields"])
    assert document(log, log) == {
        "schema": "binlogtool/diff/1",
        "a": {"file": str(log), "size": 2915},
        "b": {"file": str(log), "size": 2915},
        "format": "tarantool",
        "parts": [{"kind": "same", "a": {"start": 0, "end": 2915}, "b": {"start": 0, "end": 2915}, "records": 45}],
        "differences": 0,
    }


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
        ([str(other)], 2, "is drizzle: only logs of the same format"),
        ([str(log), "--record", "1"], 2, "--record cannot be used with --diff"),
        ([str(log), "--type", "INSERT"], 2, "options that select records cannot be used with it"),
        ([str(log), "-O", "csv"], 2, "csv"),
        ([str(log), "-O", "svg", "--all"], 2, "--all cannot be used with -O svg"),
        ([str(tmp_path / "none")], 4, "none"),
    ):
        done = invoke(*base, *words)
        assert (done.code, done.out) == (code, b"")
        assert said in done.err and done.err.count("\n") == 1
    assert invoke("hexdump-annotate", "--all", str(log)).code == 2


def test_the_first_log_on_the_command_line_is_a(samples: Path, tmp_path: Path) -> None:
    """As in `diff OLD NEW`: `-` is only in OLD."""
    old = samples / "guides/tarantool-torn/00000000000000000003.xlog"
    new = tmp_path / "cut.xlog"
    new.write_bytes(old.read_bytes()[:-68])
    text = invoke("hexdump-annotate", "--diff", str(old), str(new)).text
    assert text.startswith(f"A {old}") and re.search(r"^- 0x00000b63  torn_tail only in A", text, re.MULTILINE)


def test_two_directories_lead_to_a_comparison_of_their_records(samples: Path) -> None:
    folder = str(samples / "guides/mariadb")
    done = invoke("hexdump-annotate", "--diff", folder, folder)
    assert done.code == 2 and "diff <(binlogtool dump -O jsonl --fields offset,type,txn,object,body OLD) <(" in done.err
    assert "--diff needs two files" in invoke("hexdump-annotate", "--diff", folder).err


@pytest.mark.parametrize("is_first_longer", [True, False])
def test_a_file_that_ends_inside_a_record_is_the_same_up_to_that_record(is_first_longer: bool, tmp_path: Path) -> None:
    """The XID event of 0-1-7 is at 1,172 (0x494) and ends at 1,203 (`mariadb-binlog`); the copy has 1,200 bytes."""
    whole, cut = ROOT / "tests/corpus/guides/mariadb/mariadb-bin.000002", tmp_path / "cut"
    cut.write_bytes(whole.read_bytes()[:1200])
    names = [str(whole), str(cut)] if is_first_longer else [str(cut), str(whole)]
    lines = invoke("hexdump-annotate", "--diff", *names).text.splitlines()
    assert lines[2] == "= 0x00000000..0x00000494  the same, 16 records, 1,172 bytes"
    sign, longer, shorter = ("-", "A", "B") if is_first_longer else ("+", "B", "A")
    text = f"record 16 XID only in {longer}, 31 bytes; {shorter} ends inside it, at 0x000004b0"
    assert lines[3] == f"{sign} 0x00000494  {text}"
