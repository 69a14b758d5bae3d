"""A limit of this program is reported as one, status 6: never as what the server does, and never as damage alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import zstandard

import binlogtool
from binlogtool.errors import LimitError
from tests.cli.invoke import ROOT, invoke
from tests.harness.mutate import tarantool_block
from tests.harness.mysql_writer import (
    MARIADB,
    MYSQL,
    Made,
    begun,
    binlog,
    group,
    inner,
    payload,
    query,
    rows,
    table_map,
    transaction,
)  # fmt: skip

HEAD = b"XLOG\n0.13\nVersion: 2.11\nInstance: 00000001-0000-4000-8000-000000000519\nVClock: {1: 0}\n\n"


def nested(folder: Path, depth: int) -> Path:
    """A Tarantool log with an INSERT whose tuple is so deep; the server reads it (msgpuck checks no depth)."""
    row = b"\x83\x00\x02\x02\x01\x03\x01\x82\x10\xcd\x02\x00\x21" + b"\x91" * depth + b"\x01"
    path = folder / "00000000000000000000.xlog"
    path.write_bytes(HEAD + tarantool_block(row) + b"\xd5\x10\xad\xed")
    return path


def ids(path: Path, depth: str) -> list[str]:
    return [one.id for file in binlogtool.verify([path], depth=depth).files for one in file.findings]


@pytest.mark.parametrize("depth", ["payload", "set"])
def test_verify_reports_rows_that_dump_cannot_show(tmp_path: Path, depth: str) -> None:
    with binlogtool.open(nested(tmp_path, 150)) as log:
        shown = [found.id for record in log.records() for found in record.findings]
    assert shown == ["nesting-too-deep"]
    assert ids(nested(tmp_path, 150), depth) == shown
    assert ids(nested(tmp_path, 60), depth) == []


def test_a_row_that_is_nested_too_deep_says_nothing_about_the_server(tmp_path: Path) -> None:
    with pytest.raises(LimitError, match="raise --max depth=N"):
        binlogtool.replay([nested(tmp_path, 150)])
    (found,) = binlogtool.replay([nested(tmp_path, 150)], limits=binlogtool.Limits(max_depth=190))
    assert found.decisions["rejected"] == 0


def test_a_row_that_is_nested_too_deep_is_no_reason_to_refuse_a_repair(tmp_path: Path) -> None:
    with pytest.raises(LimitError, match="raise --max depth=N"):
        binlogtool.plan_truncate(nested(tmp_path, 150))
    plan = binlogtool.plan_truncate(nested(tmp_path, 150), limits=binlogtool.Limits(max_depth=190))
    assert (plan.refused, [one.action for one in plan.files]) == (False, ["none"])


@pytest.mark.parametrize(
    "options", [(), ("--allow-discard-valid",), ("--to-file", "copy.000001", "--keep-after-damage")]
)
def test_no_event_is_cut_because_it_unpacks_to_more_than_is_allowed(tmp_path: Path, options: tuple[str, ...]) -> None:
    """With --allow-discard-valid the event and all after it were cut from an intact log."""
    packed = inner([query(b"BEGIN"), query(b"insert into t values (1)" + b" " * 5000), Made(16, bytes(8))])
    log = tmp_path / "bin.000001"
    events = [
        *group(payload(zstandard.compress(packed), len(packed))),
        *begun(query(b"insert into t values (2)"), number=2),
    ]
    log.write_bytes(binlog(events, MYSQL))
    done = invoke("truncate-to-durable", "--max", "inflate=1KiB", *options, str(log))
    assert done.code == 6 and "raise --max inflate=SIZE" in done.err and done.text == ""
    assert invoke("truncate-to-durable", str(log)).code == 0


@pytest.mark.full
def test_rows_that_need_more_memory_than_allowed_say_nothing_about_the_server(tmp_path: Path) -> None:
    """A row event of rows that are NULL: one byte each. MariaDB writes and applies it."""
    log = tmp_path / "rows.000001"
    log.write_bytes(binlog(transaction(table_map(b"\x03"), rows(b"\1" * 3_000_000, 1)), MARIADB))
    assert ids(log, "set") == ["unclean-close"]
    with pytest.raises(LimitError, match="3,000,000 rows"):
        binlogtool.replay([log])
    with pytest.raises(LimitError, match="3,000,000 rows"), binlogtool.open(log) as opened:
        list(opened.records())


INTACT = str(ROOT / "tests" / "corpus" / "readme" / "intact" / "00000000000000001188.xlog")
"""Of a Tarantool server, with 8 compressed blocks; it starts with it."""


@pytest.mark.parametrize("command", ["verify", "dump", "stats", "hexdump-annotate", "diagnose", "replay-dry-run"])
def test_a_block_that_unpacks_to_more_than_is_allowed_is_no_damage(command: str) -> None:
    """verify called the log DAMAGED, and the records after a block "complete records that follow the damage"."""
    done = invoke(command, "--max", "inflate=100", INTACT)
    assert done.code == 6
    assert "DAMAGED" not in done.text and "valid-after-damage" not in done.text + done.err
    assert invoke(command, INTACT).code == 0


def test_verify_names_the_option_that_raises_a_limit(tmp_path: Path) -> None:
    done = invoke("verify", "--max", "inflate=100", INTACT)
    assert done.text.splitlines()[0].split()[1] == "PARTIAL"
    assert f"next: binlogtool verify --max inflate=SIZE {INTACT}\nexit 6\n" in done.text
    path = nested(tmp_path, 150)
    assert f"next: binlogtool verify --max depth=N {path}\nexit 6\n" in invoke("verify", str(path)).text
    report = json.loads(invoke("verify", "-O", "json", "--fail-on", "never", "--max", "inflate=100", INTACT).out)
    assert report["status"] == "incomplete"
    assert report["files"][0]["bytes"]["damaged"] == 0


def test_damage_beside_content_that_is_beyond_a_limit_is_reported(tmp_path: Path) -> None:
    data = bytearray(Path(INTACT).read_bytes())
    data[-30] ^= 1
    (tmp_path / "00000000000000001188.xlog").write_bytes(data)
    done = invoke("verify", "--max", "inflate=100", str(tmp_path / "00000000000000001188.xlog"))
    assert done.code == 6
    assert done.text.splitlines()[0].split()[1] == "DAMAGED" and "checksum-mismatch" in done.text


@pytest.mark.parametrize(("options", "status"), [((), 6), (("--on-damage", "skip"), 0), (("--max", "depth=190"), 0)])
def test_convert_reports_a_row_whose_content_it_leaves_out(
    tmp_path: Path, options: tuple[str, ...], status: int
) -> None:
    output = tmp_path / "rows.jsonl"
    done = invoke("convert", "--to", "jsonl", "-o", str(output), *options, str(nested(tmp_path, 150)))
    assert done.code == status
    assert ("lost   the content of 1 record" in done.text) is ("--max" not in options)
    assert (json.loads(output.read_text())["body"] is None) is ("--max" not in options)
