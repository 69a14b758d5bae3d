"""A script of an InnoDB binlog is that of the same log as a classic one, but for places and checksums."""

from __future__ import annotations

import gzip
import re
from base64 import b64decode
from pathlib import Path

import pytest

import binlogtool
from binlogtool.errors import UsageError
from tests.cli.invoke import Result, invoke
from tests.export.ibb_writer import IbbWriter
from tests.formats.mariadb_innodb_binlog import ibb_logs as logs
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import image, rows_body, table_map_body

SHIPPED = ("dbase", "page4k", "xa")
OTHERS = ("basic", "bigstate", "edges", "flush", "flush-exact-end", "oob", "restart")
CHANGED = "3-99-1,0-11-10"
"""Transactions of page4k that write and delete rows."""

_ENDS = b"\n/*!*/;\n"
_BINLOG = re.compile(rb"BINLOG '\n(.*)'\Z", re.DOTALL)
_DESCRIPTION = 15


@pytest.fixture
def page4k(samples: Path, tmp_path: Path) -> Path:
    return shipped(samples, "page4k", tmp_path)


def shipped(samples: Path, name: str, folder: Path) -> Path:
    home = samples / logs.FORMAT / name
    files = {path.name.removesuffix(".gz"): gzip.decompress(path.read_bytes()) for path in home.iterdir()}
    return logs.written(folder / "log", files)


def script(log: Path, *options: str) -> Result:
    return invoke("dump", "-O", "sql", *options, str(log))


def statements(text: bytes) -> list[bytes]:
    """Without comments; events without what says where they stand, and without checksums."""
    parts = (b"\n".join(_lines(part)) for part in text.split(_ENDS))
    return [_bare(part) for part in parts if part]


def _lines(part: bytes) -> list[bytes]:
    return [line for line in part.split(b"\n") if not line.startswith(b"# ")]


def _bare(part: bytes) -> bytes:
    found = _BINLOG.search(part)
    if found is None:
        return part
    events = [b64decode(line) for line in found[1].split()]
    return part[: found.start()] + b"".join(e[19:-5] if e[4] == _DESCRIPTION else e[:13] + e[17:-4] for e in events)


def classic(log: Path, folder: Path) -> Path:
    """The log as MariaDB's other kind of binary log."""
    done = binlogtool.convert([log], "mysql-binlog", f"{folder}/made/", allow_rule_breaks=True)
    assert done.complete
    return folder / "made"


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("options", [(), ("--rows", "statements"), ("--comments", "--without-gtids")])
def test_a_script_is_that_of_the_classic_log(
    name: str, options: tuple[str, ...], samples: Path, tmp_path: Path
) -> None:
    log = shipped(samples, name, tmp_path)
    own, other = script(log, *options), script(classic(log, tmp_path), *options)
    assert (own.code, statements(own.out)) == (other.code, statements(other.out))
    assert len(statements(own.out)) > 25


@pytest.mark.parametrize("name", OTHERS)
def test_a_script_of_the_corpus_is_that_of_the_classic_log(name: str, corpus: Path, tmp_path: Path) -> None:
    log = corpus / logs.FORMAT / "generated" / name
    own, other = script(log), script(classic(log, tmp_path))
    assert (own.code, own.err) == (0, "")
    assert statements(own.out) == statements(other.out)


def test_chosen_transactions_are_those_of_the_classic_log(page4k: Path, tmp_path: Path) -> None:
    gtids = [str(record.txn) for record in logs.records(page4k) if record.type == "COMMIT" and record.txn]
    chosen = ("--include-gtids", ",".join(gtids[3:6]))
    own, other = script(page4k, *chosen), script(classic(page4k, tmp_path), *chosen)
    assert own.code == other.code == 0
    assert statements(own.out) == statements(other.out)
    assert own.out.count(b" GTID ") == 3


def test_a_damaged_page_costs_its_transactions_and_is_told(page4k: Path) -> None:
    (log, *_) = sorted(page4k.iterdir())
    data, before = bytearray(log.read_bytes()), script(page4k)
    data[4096 * 3 + 100] ^= 1
    log.write_bytes(data)
    done = script(page4k)
    assert done.code == 1 and "checksum-mismatch" in done.err
    assert b"\n# left out here: " in done.out.split(b"DELIMITER ;")[-1]
    whole, left = statements(before.out), statements(done.out)
    assert len(whole) > len(left) > 10 and set(left) - set(whole) <= {b"ROLLBACK"}


def test_the_undo_of_transactions_is_that_of_the_classic_log(page4k: Path, tmp_path: Path) -> None:
    made = []
    for name, log in (("own", page4k), ("other", classic(page4k, tmp_path))):
        out = tmp_path / name
        done = invoke("flashback", "--skip-ddl", "--include-gtids", CHANGED, "-o", str(out), str(log))
        made.append((done.code, statements(out.read_bytes()) if out.exists() else done.err))
    assert made[0] == made[1] and made[0][0] == 0


def test_a_script_ends_before_a_statement_and_says_where(page4k: Path) -> None:
    done = script(page4k, "--stop-before", "create table app1.m1")
    assert done.code == 0
    assert done.err.count("stopped before create table app1.m1 at binlog-000000.ibb:") == 1
    assert b"create table t2" in done.out and b"create table m1" not in done.out


def test_pages_and_page_records_are_no_statements(page4k: Path) -> None:
    for level in ("page", "record"):
        done = script(page4k, "--level", level)
        assert (done.code, done.out, done.err.count("\n")) == (2, b"", 1)
    with binlogtool.open(page4k) as log, pytest.raises(UsageError, match="--level event"):
        list(log.statements())


@pytest.mark.parametrize("server", [1, 2, 3])
def test_a_script_begins_with_the_description_of_the_server_of_its_first_group(server: int, tmp_path: Path) -> None:
    bodies = {make.TABLE_MAP: table_map_body(bytes([3])), 23: rows_body(1, image([bytes(4)])), make.XID: bytes(8)}
    writer = IbbWriter(tmp_path / "log")
    for one in (1, 2, 3):
        events = {make.GTID: make.mariadb_gtid(one), **bodies}.items()
        writer.group((0, one, one), [make.event(code, body, False, server=one) for code, body in events])
    path, _ = writer.close()
    for start in (f"record:{server}", f"gtid:0-{server - 1}-{server - 1}"):
        done = script(path, *(("--start-position", start) if server > 1 else ()))
        found = next(_BINLOG.search(part) for part in done.out.split(_ENDS) if b"BINLOG" in part)
        assert found is not None
        (event,) = (b64decode(line) for line in found[1].split())
        assert (event[4], int.from_bytes(event[5:9], "little")) == (_DESCRIPTION, server)
