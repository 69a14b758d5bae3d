"""The TABLE_MAP that a row event refers to: the one of its statement, also where an id has several, or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.invoke import invoke
from tests.formats.mysql_binlog.make_log import GTID, TABLE_MAP, XID, event, log, mariadb_gtid
from tests.formats.mysql_binlog.row_building import image, rows_body, table_map_body

WRITE_ROWS_V1 = 23
LONG, VARCHAR = b"\x03", b"\x0f"
FIVE, TEXT = b"\x05\0\0\0", b"\x03abc"


def commit(number: int) -> bytes:
    return event(XID, number.to_bytes(8, "little"))


@pytest.fixture
def reused(tmp_path: Path) -> str:
    """Table id 7 is first t with a LONG, then u with a VARCHAR; the last row event has no TABLE_MAP."""
    events = [
        event(GTID, mariadb_gtid(1)),
        event(TABLE_MAP, table_map_body(LONG)),
        event(WRITE_ROWS_V1, rows_body(1, image([FIVE]))),
        event(TABLE_MAP, table_map_body(VARCHAR, b"\x14\0", table=b"u")),
        event(WRITE_ROWS_V1, rows_body(1, image([TEXT]))),
        commit(1),
        event(GTID, mariadb_gtid(2)),
        event(WRITE_ROWS_V1, rows_body(1, image([FIVE]))),
        commit(2),
    ]
    path = tmp_path / "bin.000001"
    path.write_bytes(log(events))
    return str(path)


@pytest.mark.parametrize("number", ["--type", "--record"])
def test_annotated_rows_use_the_map_of_their_statement(reused: str, number: str) -> None:
    chosen = [("--type", "WRITE_ROWS_V1")] if number == "--type" else [("--record", str(n)) for n in (3, 5, 8)]
    text = "".join(invoke("hexdump-annotate", *words, reused).text for words in chosen)
    assert "event[3].body.rows[0].after.@1 = 5 (LONG)" in text
    assert 'event[5].body.rows[0].after.@1 = "abc" (VARCHAR)' in text
    assert "event[8].body.rows = 5 bytes" in text


@pytest.mark.parametrize("backend", ["python", "native"])
def test_a_row_event_without_its_map_is_a_finding(reused: str, backend: str) -> None:
    def found(data: str) -> list[tuple[int, str, str]]:
        records: list[dict[str, Any]] = [json.loads(line) for line in data.splitlines()]
        return [(one["record"], f["id"], f["severity"]) for one in records for f in one["findings"]]

    expected = [(8, "dangling-reference", "error")]
    done = invoke("dump", "-O", "jsonl", "--backend", backend, reused)
    assert (done.code, found(done.text)) == (1, expected)
    done = invoke("convert", "--to", "jsonl", "--backend", backend, reused)
    assert found(done.text) == expected and "1 dangling-reference" in done.err
