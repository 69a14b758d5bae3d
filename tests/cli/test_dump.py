"""`binlogtool dump` from the outside."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.cli import terminal
from tests.cli.invoke import ROOT, invoke, program
from tests.cli.samples import insert, plain_log


def test_text_is_a_header_line_per_record(plain: Path) -> None:
    shown = invoke("dump", str(plain)).text.splitlines()
    assert [line.split() for line in shown if not line.startswith(" ")] == [
        ["0x00000000", "2012-02-23T12:26:41Z", "INSERT", "1", "shop.t"],
        ["0x0000005f", "2012-02-23T12:26:42Z", "INSERT", "2", "shop.t"],
        ["0x000000be", "2012-02-23T12:26:43Z", "INSERT", "3", "shop.t"],
    ]


def test_json_lines_have_the_members_of_the_contract(plain: Path) -> None:
    done = invoke("dump", "-O", "jsonl", str(plain))
    records = [json.loads(line) for line in done.out.splitlines()]
    assert [r["seq"] for r in records] == [1, 2, 3]
    members = ["file", "offset", "size", "record", "type", "seq", "time", "object", "origin", "txn", "checksum", "body"]
    for number, record in enumerate(records):
        assert list(record)[:13] == [*members, "findings"]
        assert (record["record"], record["offset"], record["size"]) == (number, 95 * number, 95)
        assert (record["object"], record["origin"], record["txn"]) == ("shop.t", 7, number + 1)
        assert record["checksum"]["stored"] == record["checksum"]["computed"]
        assert record["checksum"]["ok"] is True


def test_damage_goes_to_standard_error_and_into_the_status(damaged: Path) -> None:
    done = invoke("dump", "-O", "jsonl", str(damaged))
    assert [json.loads(line)["seq"] for line in done.out.splitlines()] == [1, 3, 4, 5]
    assert done.code == 1
    assert "error 0x0000005f checksum-mismatch" in done.err


def test_quiet_keeps_damage_in_the_status(damaged: Path) -> None:
    done = invoke("dump", "-q", "-O", "jsonl", str(damaged))
    assert (done.code, done.err) == (1, "")


def test_stop_ends_at_the_damage(damaged: Path) -> None:
    done = invoke("dump", "-O", "jsonl", "--on-damage", "stop", str(damaged))
    assert [json.loads(line)["seq"] for line in done.out.splitlines()] == [1]
    assert done.code == 1


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (["--limit", "2"], [1, 2]),
        (["-n", "1", "--skip", "1"], [2]),
        (["--tail", "1"], [3]),
        (["-j", "95"], [2, 3]),
        (["-j", "0x5f", "--stop-position", "190"], [2]),
        (["--start-position", "record:2"], [3]),
        (["--start-position", "seq:2"], [2, 3]),
        (["--start-datetime", "2012-02-23T12:26:42Z"], [2, 3]),
        (["--stop-datetime", "2012-02-23 12:26:42"], [1]),
        (["--start-datetime", "1330000002"], [2, 3]),
        (["--start-datetime", "2012-02-23T14:26:43+02:00"], [3]),
        (["--type", "INSERT"], [1, 2, 3]),
        (["--type", "DELETE"], []),
        (["--object", "shop.*"], [1, 2, 3]),
        (["--exclude-object", "shop.t"], []),
        (["--origin", "7"], [1, 2, 3]),
        (["--exclude-origin", "7"], []),
        (["--xid", "2"], [2]),
    ],
)
def test_records_can_be_selected(plain: Path, options: list[str], numbers: list[int]) -> None:
    done = invoke("dump", "-O", "jsonl", *options, str(plain))
    assert done.code == 0, done.err
    assert [json.loads(line)["seq"] for line in done.out.splitlines()] == numbers


@pytest.mark.parametrize(
    "options",
    [
        ["--start-datetime", "yesterday"], ["-j", "here"], ["-j", "seq:x"], ["--limit", "x"], ["--limit", "-1"],
        ["--tail", "1", "--limit", "1"], ["-O", "yaml"], ["--bytes", "oct"], ["--fields", "nothing", "-O", "csv"],
        ["--poll", "soon"], ["-F", "-O", "json"],
    ],
)  # fmt: skip
def test_nonsense_is_a_usage_error(plain: Path, options: list[str]) -> None:
    done = invoke("dump", *options, str(plain))
    assert (done.code, done.out) == (2, b"")
    assert done.err.count("\n") == 1


def test_the_csv_can_be_read(plain: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(invoke("dump", "-O", "csv", str(plain)).text)))
    assert [(r["seq"], r["object"], r["checksum"]) for r in rows] == [(str(i), "shop.t", "ok") for i in (1, 2, 3)]


def test_the_json_document_can_be_read(plain: Path, tmp_path: Path) -> None:
    document = json.loads(invoke("dump", "-O", "json", str(plain)).out)
    assert (document["schema"], len(document["records"])) == ("binlogtool/record/1", 3)
    none = json.loads(invoke("dump", "-O", "json", "--type", "DELETE", str(plain)).out)
    assert none["records"] == []


def test_raw_is_the_exact_bytes(plain: Path) -> None:
    assert invoke("dump", "-O", "raw", str(plain)).out == plain_log()
    assert invoke("dump", "-O", "raw", "--limit", "1", str(plain)).out == insert(1, b"shop", b"t", b"1")


def test_a_table_has_a_row_per_record(plain: Path) -> None:
    shown = invoke("dump", "-O", "table", str(plain), environment={"COLUMNS": "200"}).text
    assert shown.count("shop.t ") == 3
    assert invoke("dump", "-O", "table", "--ascii", str(plain)).out.isascii()


def test_hex_shows_the_bytes(plain: Path) -> None:
    shown = invoke("dump", "--hex", "-n1", str(plain)).text.splitlines()[1:]
    assert bytes.fromhex("".join(line[12:] for line in shown)) == insert(1, b"shop", b"t", b"1")


def test_fields_choose_members(plain: Path) -> None:
    done = invoke("dump", "-O", "jsonl", "--fields", "seq,body.segment_id", "-n1", str(plain))
    assert json.loads(done.out) == {"seq": 1, "body.segment_id": 1}


def test_decode_header_leaves_the_body_out(plain: Path) -> None:
    record = json.loads(invoke("dump", "-O", "jsonl", "--decode", "header", "-n1", str(plain)).out)
    assert (record["body"], record["seq"]) == (None, 1)


def test_several_files_are_named_in_text(plain: Path, torn: Path) -> None:
    shown = invoke("dump", str(plain), str(torn)).text.splitlines()
    assert [line for line in shown if line.startswith("#")] == [f"# {plain} (drizzle)", f"# {torn} (drizzle)"]
    assert [line[:2] for line in shown].count("0x") == 3 + 2


def test_types_can_be_listed(plain: Path) -> None:
    by_name, by_file = invoke("dump", "-f", "drizzle", "--type", "list"), invoke("dump", "--type", "list", str(plain))
    assert by_name.out == by_file.out
    assert "INSERT" in by_name.text and by_name.code == 0


def test_standard_input_can_be_dumped(plain: Path) -> None:
    with plain.open("rb") as file:
        done = program("dump", "-O", "jsonl", "-", stdin=file)
    assert len(done.stdout.splitlines()) == 3 and done.returncode == 0


def test_raw_bytes_do_not_reach_a_terminal(plain: Path) -> None:
    leader, follower = terminal.open_terminal()
    done = program("dump", "-O", "raw", str(plain), stdout=follower)
    os.close(follower)
    assert done.returncode == 5
    os.set_blocking(leader, False)
    with pytest.raises(OSError):
        os.read(leader, 1)
    os.close(leader)


def on_terminal(*words: str, pager: str = "") -> bytes:
    """What a terminal of 80 columns shows."""
    shown = terminal.on_terminal(*words, pager=pager)
    assert shown.code == 0
    return shown.raw


def test_text_is_paged_on_a_terminal_only(plain: Path) -> None:
    paged = on_terminal("dump", "--color", "never", str(plain), pager="sed s/^/P:/")
    assert paged.count(b"P:0x") == 3
    assert b"P:0x" not in on_terminal("dump", "--no-pager", str(plain), pager="sed s/^/P:/")
    assert b"P:0x" not in program("dump", str(plain), env={"BINLOGTOOL_PAGER": "sed s/^/P:/"}).stdout


def test_a_missing_pager_does_no_harm(plain: Path) -> None:
    assert on_terminal("dump", str(plain), pager="/nonexistent/pager").count(b"INSERT") >= 3


def test_a_pager_that_ends_early_ends_the_dump_quietly(plain: Path) -> None:
    assert b"Traceback" not in on_terminal("dump", str(plain), pager="true")


def test_a_terminal_gets_colour_and_a_dumb_one_does_not(plain: Path) -> None:
    assert b"\x1b[32mok" in on_terminal("verify", str(plain), pager="cat")
    assert b"\x1b[" not in program("verify", str(plain)).stdout


def following(path: Path, *options: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "binlogtool", "dump", "-F", "--poll", "50ms", "-O", "jsonl", *options, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def ended(process: subprocess.Popen[bytes], signal_: int | None = None) -> tuple[bytes, bytes]:
    killer = threading.Timer(120, process.kill)
    killer.start()
    if signal_ is not None:
        process.send_signal(signal_)
    out, err = process.communicate()
    killer.cancel()
    return out, err


def test_follow_prints_what_is_appended_and_only_whole_records(plain: Path) -> None:
    process = following(plain)
    assert process.stdout is not None
    seen = [json.loads(process.stdout.readline())["seq"] for _ in range(3)]
    more = plain_log(5)[len(plain_log(3)) :]
    with plain.open("ab") as file:
        file.write(more[:100])
        file.flush()
        time.sleep(0.3)
        file.write(more[100:])
    seen += [json.loads(process.stdout.readline())["seq"] for _ in range(2)]
    rest, err = ended(process, signal.SIGTERM)
    assert (seen, rest) == ([1, 2, 3, 4, 5], b"")
    assert err == b"binlogtool: terminated; no partial output file was left\n"


def test_follow_goes_on_in_a_file_of_the_same_name(plain: Path) -> None:
    process = following(plain)
    assert process.stdout is not None
    seen = [json.loads(process.stdout.readline())["seq"] for _ in range(3)]
    fresh = plain.with_suffix(".new")
    fresh.write_bytes(insert(8, b"shop", b"t", b"8") + insert(9, b"shop", b"t", b"9"))
    fresh.replace(plain)
    seen += [json.loads(process.stdout.readline())["seq"] for _ in range(2)]
    rest, _ = ended(process, signal.SIGTERM)
    assert (seen, rest) == ([1, 2, 3, 8, 9], b"")


@pytest.mark.full
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_follow_ends_by_a_signal(plain: Path, number: int, code: int) -> None:
    process = following(plain)
    assert process.stdout is not None
    process.stdout.readline()
    _, err = ended(process, number)
    assert process.returncode == code
    assert b"Traceback" not in err


def test_a_signal_asks_for_one_line_of_progress(plain: Path) -> None:
    process = following(plain)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.send_signal(signal.SIGUSR1)
    line = process.stderr.readline()
    ended(process, signal.SIGTERM)
    assert line.startswith(b"binlogtool: ") and b"records" in line


@pytest.mark.parametrize(("columns", "lacking"), [("80", {"offset", "origin"}), ("100", {"size"}), ("200", set())])
def test_a_table_folds_no_narrow_column(columns: str, lacking: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    lines = invoke(
        "dump", "-O", "table", str(ROOT / "tests/corpus/guides/mariadb/mariadb-bin.000002")
    ).text.splitlines()
    assert max(map(len, lines)) <= int(columns)
    assert {"type", "time", "object", "txn", "body"} <= set(lines[1].split())
    assert lacking.isdisjoint(lines[1].split())
    (deletion,) = [line.split() for line in lines if "DELETE_ROWS_V1" in line]
    assert {"shop.orders", "0-1-7", "2026-11-20" if columns == "80" else "2026-11-20T14:05:10Z"} <= set(deletion)


def test_verbose_text_leaves_out_what_a_record_does_not_have() -> None:
    line = invoke("dump", "-v", "-n", "1", str(ROOT / "tests/corpus/guides/mariadb/mariadb-bin.000002")).text
    assert " FORMAT_DESCRIPTION - size=252 record=0 origin=1 binlog_version=4 " in line
    assert "None" not in line
