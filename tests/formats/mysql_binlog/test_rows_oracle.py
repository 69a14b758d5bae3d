"""Every value of every intact sample against what the servers' own tools printed for it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from binlogtool.core.open_file import open_file, read_range
from binlogtool.format_api.format import Hints
from binlogtool.formats.binlog_events.rows.rows_event import Row, count_rows, decode_rows, parse_rows_head
from binlogtool.formats.binlog_events.rows.table_map import TableMap, parse_table_map
from binlogtool.formats.binlog_events.values.column_types import ColumnType, TableMapColumn
from binlogtool.formats.binlog_events.wire_format import (
    DELETE_ROW_EVENTS,
    ROW_EVENTS,
    UPDATE_ROW_EVENTS,
    EventType,
    FormatDescription,
    parse_format_description,
    unpack_transaction_payload,
)
from binlogtool.limits import Limits
from tests.formats.mysql_binlog import vvv
from tests.formats.mysql_binlog.vvv_values import same, text_of

HEADER = 19
STMT_END = 1
LIMITS = Limits()


def bodies(log: bytes, opened: bool = False) -> Iterator[tuple[int, bytes, FormatDescription]]:
    """(type, body, description) of each whole event, those inside payloads too. opened: a log that was encrypted."""
    description: FormatDescription | None = None
    at = 4
    while at + HEADER <= len(log):
        size = int.from_bytes(log[at + 9 : at + 13], "little")
        if size < HEADER or at + size > len(log):
            return
        event = log[at : at + size]
        if event[4] == EventType.FORMAT_DESCRIPTION:
            description = parse_format_description(event)
        if description is None or (event[4] == EventType.START_ENCRYPTION and not opened):
            return
        body = event[HEADER:-4] if description.has_checksums else event[HEADER:]
        yield event[4], body, description
        if event[4] == EventType.TRANSACTION_PAYLOAD:
            yield from inner_bodies(bytes(unpack_transaction_payload(body, LIMITS)), description)
        at += size


def inner_bodies(events: bytes, description: FormatDescription) -> Iterator[tuple[int, bytes, FormatDescription]]:
    at = 0
    while at < len(events):
        size = int.from_bytes(events[at + 9 : at + 13], "little")
        assert HEADER <= size <= len(events) - at
        yield events[at + 4], events[at + HEADER : at + size], description
        at += size


def as_stored(table_map: TableMap) -> TableMap:
    """The same map with compressed columns as plain ones: the tools print their packed bytes."""
    plain = {ColumnType.VARCHAR_COMPRESSED: ColumnType.VARCHAR, ColumnType.BLOB_COMPRESSED: ColumnType.BLOB}
    columns = tuple(
        structs.replace(column, type=plain[ColumnType(column.type)], charset="binary")
        if column.type in plain
        else column
        for column in table_map.columns
    )
    return replace(table_map, columns=columns, memo={})


@dataclass
class Totals:
    files: int = 0
    row_events: int = 0
    rows: int = 0
    values: int = 0
    unpacked: int = 0
    left_out: dict[str, int] = field(default_factory=dict)

    def leave_out(self, reason: str, rows: int) -> None:
        self.left_out[reason] = self.left_out.get(reason, 0) + rows


def manifest(corpus: Path) -> list[dict[str, Any]]:
    entries = json.loads((corpus / "mysql-binlog/generated/manifest.json").read_text())
    return [entry for entry in entries if "/encrypted/" not in entry["file"] and entry.get("oracle")]


OPERATIONS = {"INSERT INTO": frozenset[int](), "UPDATE": UPDATE_ROW_EVENTS, "DELETE FROM": DELETE_ROW_EVENTS}


class Comparison:
    """One file: our rows and the tool's, side by side."""

    def __init__(self, name: str, printed: list[vvv.Row], totals: Totals, mysql: bool) -> None:
        self.name, self.printed, self.totals, self.mysql = name, printed, totals, mysql
        self.at = 0

    def event(self, type_code: int, rows: list[Row], table_map: TableMap) -> None:
        for place, row in enumerate(rows):
            printed = self.printed[self.at]
            self.at += 1
            self.head(printed, type_code, table_map)
            for image, cells in (("before", printed.before), ("after", printed.after)):
                if cells is not None or not printed.gave_up:
                    self.image(row.get(image), cells, table_map, printed.gave_up is not None)
            self.totals.rows += 1
            if printed.gave_up is not None:
                assert self.mysql and "Don't know how to handle column type=255" in printed.gave_up
                self.totals.leave_out("mysqlbinlog gives up at GEOMETRY", len(rows) - place - 1)
                return

    def head(self, printed: vvv.Row, type_code: int, table_map: TableMap) -> None:
        assert (printed.database, printed.table) == (table_map.database, table_map.table)
        kind = (
            "UPDATE"
            if type_code in UPDATE_ROW_EVENTS
            else "DELETE FROM"
            if type_code in DELETE_ROW_EVENTS
            else "INSERT INTO"
        )
        assert printed.operation == kind, self.name

    def image(
        self, values: dict[str, Any] | None, cells: dict[int, vvv.Cell] | None, table_map: TableMap, cut: bool
    ) -> None:
        assert (values is None) == (cells is None)
        if values is None or cells is None:
            return
        numbers = {key: number for number, key in enumerate(table_map.column_keys, 1)}
        present = [numbers[key] for key in values]
        assert list(cells) == (present[: len(cells)] if cut else present), self.name
        for key, value in values.items():
            cell = cells.get(numbers[key])
            if cell is not None:
                self.cell(value, cell, table_map.columns[numbers[key] - 1], numbers[key])

    def cell(self, value: Any, cell: vvv.Cell, column: TableMapColumn, number: int) -> None:
        ours = text_of(value, column, number, self.mysql)
        where = f"{self.name} @{number} {column}: ours {ours[:300]!r}, the tool's {cell.text[:300]!r}"
        assert same(ours, cell.text, column), where
        assert (cell.is_null, cell.nullable) == (value is None, column.nullable), where
        self.totals.values += 1


def compare(
    corpus: Path, entry: dict[str, Any], maps: dict[int, TableMap], totals: Totals, plain: bytes | None = None
) -> None:
    path = corpus / "mysql-binlog/generated" / entry["file"]
    printed = [row for event in vvv.read(path.parent / entry["oracle"]) for row in event.rows]
    comparison = Comparison(entry["file"], printed, totals, entry["file"].startswith("mysql"))
    totals.files += 1
    own: list[TableMap] = []  # a relay log of MariaDB may rotate between a TABLE_MAP and its rows
    statement: list[tuple[int, list[Row], TableMap]] = []
    for type_code, body, description in bodies(plain or path.read_bytes(), plain is not None):
        if type_code == EventType.TABLE_MAP:
            table_map = parse_table_map(body, description.table_id_size, description.is_mariadb)
            guessed = parse_table_map(body, description.table_id_size)  # whose columns are listed
            assert replace(guessed, is_mariadb=table_map.is_mariadb) == table_map
            maps[table_map.table_id] = table_map
            own.append(table_map)
        elif type_code in ROW_EVENTS:
            head = parse_rows_head(type_code, body)
            table_map = maps[head.table_id]
            rows = decoded(type_code, body, table_map, totals)
            if table_map in own:
                statement.append((type_code, rows, as_stored(table_map)))
            else:
                assert entry["file"] == "mariadb-11.8/relay/relay.000003"
                totals.leave_out("the table map stands in the relay log before", len(rows))
            if head.flags & STMT_END:
                for event in statement:
                    comparison.event(*event)
                statement = []
    if statement:
        assert entry["in_use_flag"]
        totals.leave_out("the tools print no statement that is cut short", sum(len(rows) for _, rows, _ in statement))
    assert comparison.at == len(printed), f"{entry['file']}: the tool has {len(printed)} rows, we {comparison.at}"


def decoded(type_code: int, body: bytes, table_map: TableMap, totals: Totals) -> list[Row]:
    """The rows with compressed columns as they are stored."""
    rows = decode_rows(type_code, body, as_stored(table_map), LIMITS)
    assert count_rows(type_code, body, table_map) == len(rows)
    check_unpacked(decode_rows(type_code, body, table_map, LIMITS), rows, table_map, totals)
    totals.row_events += 1
    return rows


def check_unpacked(rows: list[Row], stored: list[Row], table_map: TableMap, totals: Totals) -> None:
    """Compressed columns against the standard library."""
    keys = [
        key
        for key, column in zip(table_map.column_keys, table_map.columns, strict=True)
        if column.type in (ColumnType.VARCHAR_COMPRESSED, ColumnType.BLOB_COMPRESSED)
    ]
    for row, raw in zip(rows, stored, strict=True):
        for image in row:
            for key in keys:
                if row[image].get(key):
                    assert row[image][key] == unpacked(raw[image][key]).decode()
                    totals.unpacked += 1


def unpacked(raw: bytes) -> bytes:
    return raw[1:] if raw[0] == 0 else zlib.decompress(raw[2:], -15)


@pytest.mark.full
def test_every_value_is_what_the_servers_own_tools_print(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    totals = Totals()
    maps: dict[str, dict[int, TableMap]] = {}
    for entry in manifest(corpus):
        compare(corpus, entry, maps.setdefault(entry["file"].rpartition("/")[0], {}), totals)
    with capsys.disabled():
        print(f"\n{totals}")
    assert totals.files > 120
    assert totals.rows > 18_000
    assert totals.values > 87_000
    assert totals.unpacked > 100
    assert set(totals.left_out) == {
        "mysqlbinlog gives up at GEOMETRY",
        "the table map stands in the relay log before",
        "the tools print no statement that is cut short",
    }


KINDS = {
    "Table_map": {EventType.TABLE_MAP},
    "Write_rows": {EventType.WRITE_ROWS_V1, EventType.WRITE_ROWS_V2},
    "Update_rows": {EventType.UPDATE_ROWS_V1, EventType.UPDATE_ROWS_V2},
    "Delete_rows": {EventType.DELETE_ROWS_V1, EventType.DELETE_ROWS_V2},
    "Begin_load_query": {EventType.BEGIN_LOAD_QUERY},
    "Execute_load_query": {EventType.EXECUTE_LOAD_QUERY},
}


def test_every_value_of_encrypted_files_is_what_the_running_server_printed(corpus: Path) -> None:
    totals = Totals()
    entries = json.loads((corpus / "mysql-binlog/generated/manifest.json").read_text())
    for entry in entries:
        path = corpus / "mysql-binlog/generated" / entry["file"]
        if path.parent.name != "encrypted":
            continue
        key = next(path.parent / name for name in ("keys.txt", "keyring.json") if (path.parent / name).exists())
        file = open_file(str(path), path.name, None, LIMITS, hints=Hints(keyfile=key.read_bytes()))
        skip = entry.get("encryption_header_bytes", 0)
        plain = read_range(file.source, skip, entry["size"] - skip)
        file.source.close()
        compare(corpus, entry, {}, totals, plain)
    print(totals)
    assert totals.files == 6
    assert totals.values > 3000


def test_the_text_of_the_tools_is_read_with_its_positions(corpus: Path) -> None:
    """Events inside payloads have none of their own."""
    compared = 0
    for entry in manifest(corpus):
        if "TRANSACTION_PAYLOAD" in entry["events_by_type"]:
            continue
        path = corpus / "mysql-binlog/generated" / entry["file"]
        log = path.read_bytes()
        for event in vvv.read(path.parent / entry["oracle"]):
            if event.kind in KINDS:
                assert log[event.position + 4] in KINDS[event.kind], (entry["file"], event.position)
                assert int.from_bytes(log[event.position + 5 : event.position + 9], "little") == event.server_id
                assert int.from_bytes(log[event.position + 13 : event.position + 17], "little") == event.end_log_pos
                compared += 1
    assert compared > 9_000


def third_party(corpus: Path) -> list[Path]:
    found = (corpus / "mysql-binlog/third-party").rglob("*")
    return [path for path in found if path.is_file() and path.read_bytes()[:4] == b"\xfebin"]


OTHER_NUMBERS = "ver_5_1-wl2325_r.001"
"""A preview of MySQL 5.1 that numbered its event types in another way: its type 19 is no TABLE_MAP."""


@pytest.mark.full_corpus
def test_old_logs_decode_without_an_error(corpus: Path) -> None:
    events = rows = 0
    for path in third_party(corpus):
        if path.name == OTHER_NUMBERS:
            continue
        maps: dict[int, TableMap] = {}
        for type_code, body, description in bodies(path.read_bytes()):
            if type_code == EventType.TABLE_MAP:
                table_map = parse_table_map(body, description.table_id_size, description.is_mariadb)
                maps[table_map.table_id] = table_map
            elif type_code in ROW_EVENTS:
                head = parse_rows_head(type_code, body, description.table_id_size)
                if head.table_id in maps:
                    decoded = decode_rows(type_code, body, maps[head.table_id], LIMITS)
                    assert count_rows(type_code, body, maps[head.table_id]) == len(decoded)
                    events, rows = events + 1, rows + len(decoded)
    assert events > 2_000
    assert rows > 8_000
