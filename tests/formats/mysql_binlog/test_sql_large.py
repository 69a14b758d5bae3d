"""Scripts of events that are larger than what servers take in one statement by default.

Tried on real servers, with rows of that size: MariaDB 10.11 with its default of 16 MiB takes our script of 20 MiB; of
its own tool's it says error 1153. MySQL 9.7 with its default of 64 MiB refuses ours and its own tool's script of 60 MiB
(both have 80 MiB in one statement); ours is told with the value that makes it pass.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from binlogtool import convert
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.findings import Severity
from binlogtool.formats.binlog_events.sql.script_state import LargestStatementSize, TerminatedStatement
from binlogtool.formats.binlog_events.wire_format import FormatDescription
from tests.cli.invoke import invoke
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import rows_body, table_map_body

MAP = make.event(make.TABLE_MAP, table_map_body(b"\xfc", b"\x04"))
XID = make.event(make.XID, bytes(8))
MARIADB_GTID = make.event(make.GTID, make.mariadb_gtid(1))
MYSQL = b"5.7.44-log"


def rows(mebibytes: int) -> bytes:
    """One row with a LONGBLOB."""
    size = mebibytes << 20
    return make.event(23, rows_body(1, b"\0" + size.to_bytes(4, "little") + b"x" * size))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "bin.000001"


def test_an_event_comes_in_two_pieces_that_mariadb_puts_together(log: Path) -> None:
    event = rows(13)
    log.write_bytes(make.log([MARIADB_GTID, MAP, event, XID]))
    done = invoke("dump", "-O", "sql", str(log))
    assert (done.code, done.err) == (0, "")
    parts = re.findall(rb"SET @binlog_fragment_[01]='([^']*)'\n/\*!\*/;\n", done.out)
    assert [len(part) < 16 << 20 for part in parts] == [True, True]
    lines = b"".join(parts).split()
    assert b"".join(map(base64.b64decode, lines)) == MAP + event
    assert b"\nBINLOG @binlog_fragment_0, @binlog_fragment_1\n/*!*/;\n" in done.out


@pytest.mark.parametrize(
    ("version", "mebibytes", "wanted"),
    [(make.MARIADB, 25, 32), (make.MARIADB, 22, None), (MYSQL, 4, 8), (MYSQL, 2, None)],
)
def test_what_is_larger_than_a_server_s_default_is_told(
    version: bytes, mebibytes: int, wanted: int | None, log: Path
) -> None:
    first = [MARIADB_GTID] if version == make.MARIADB else []
    log.write_bytes(make.log([*first, MAP, rows(mebibytes), XID], version))
    done = invoke("dump", "-O", "sql", str(log))
    if wanted is None:
        assert (done.code, done.err) == (0, "")
    else:
        assert done.code == 1
        assert len(done.err.splitlines()) == 1 and "statement-large" in done.err
        assert f"max_allowed_packet={wanted}*1024*1024" in done.err
        longest = max(map(len, done.out.split(b"/*!*/;\n")))
        assert longest <= wanted << 20 < longest * 2


def test_large_rows_are_told_in_statements_and_in_an_undo_too(log: Path, tmp_path: Path) -> None:
    log.write_bytes(make.log([MAP, rows(4), XID], MYSQL))
    schema = tmp_path / "s.sql"
    schema.write_text("CREATE TABLE db.t (a LONGBLOB)")
    done = invoke("dump", "-O", "sql", "--rows", "statements", "--schema", str(schema), str(log))
    assert b"INSERT INTO" in done.out
    assert (done.code, "max_allowed_packet=16*1024*1024" in done.err) == (1, True)  # two digits a byte
    log.write_bytes(make.log([MARIADB_GTID, MAP, rows(25), XID]))
    undone = invoke("flashback", "-o", str(tmp_path / "u.sql"), str(log))
    assert undone.code == 0
    assert b"statement-large: the script has a statement of 17," in undone.out and b"=32*1024*1024" in undone.out


def test_what_no_server_takes_is_an_error() -> None:
    packets = LargestStatementSize()
    packets.add_statements([TerminatedStatement([bytes(1 << 20)] * 1024)])
    (found,) = packets.list_findings(FormatDescription(4, "9.7.0", 1, 19, bytes(40), 1))
    assert found.severity is Severity.ERROR and "1,073,741,824 at most" in found.message


def test_an_undo_of_a_large_event_comes_in_two_pieces(log: Path, tmp_path: Path) -> None:
    log.write_bytes(make.log([MARIADB_GTID, MAP, rows(13), XID]))
    assert convert([log], "flashback", tmp_path / "u.sql", selection=Selection(on_damage="stop")).complete
    text = (tmp_path / "u.sql").read_bytes()
    parts = re.findall(rb"SET @binlog_fragment_[01]='([^']*)'\n/\*!\*/;\n", text)
    body = b"".join(map(base64.b64decode, b"".join(parts).split()))
    assert body.startswith(MAP[:4]) and body[len(MAP) + 4] == 25 and body.count(b"x" * 1000) == (13 << 20) // 1000
    assert b"\nBINLOG @binlog_fragment_0, @binlog_fragment_1\n/*!*/;\n" in text


def test_pieces_of_a_row_event_are_told(log: Path) -> None:
    log.write_bytes(make.log([MARIADB_GTID, MAP, make.event(172, bytes(9) + b"piece"), XID]))
    done = invoke("dump", "-O", "sql", str(log))
    assert done.code == 1
    assert "it is a fragment of a row event; only MariaDB 12.3 and later can reassemble it" in done.err
    assert b"COMMIT" not in done.out
