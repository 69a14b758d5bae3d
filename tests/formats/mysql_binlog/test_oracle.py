"""Every event as the server's own tool prints it: position, type, server id, time, end_log_pos, checksum, GTID."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.core.record_and_selection_types import Record
from binlogtool.format_api.format import Hints
from tests.formats.mysql_binlog import vvv

KINDS = {
    "Start": {"FORMAT_DESCRIPTION"},
    "Query": {"QUERY"},
    "Query_compressed": {"QUERY_COMPRESSED"},
    "Xid = ": {"XID"},
    "Rotate to ": {"ROTATE"},
    "Stop": {"STOP"},
    "Table_map": {"TABLE_MAP"},
    "Write_rows": {"WRITE_ROWS_V1", "WRITE_ROWS_V2"},
    "Update_rows": {"UPDATE_ROWS_V1", "UPDATE_ROWS_V2"},
    "Delete_rows": {"DELETE_ROWS_V1", "DELETE_ROWS_V2"},
    "Update_rows_partial": {"PARTIAL_UPDATE_ROWS"},
    "Write_compressed_rows": {"WRITE_ROWS_COMPRESSED_V1"},
    "Update_compressed_rows": {"UPDATE_ROWS_COMPRESSED_V1"},
    "Delete_compressed_rows": {"DELETE_ROWS_COMPRESSED_V1"},
    "Annotate_rows": {"ANNOTATE_ROWS"},
    "Gtid list [": {"GTID_LIST"},
    "Binlog checkpoint": {"BINLOG_CHECKPOINT"},
    "GTID": {"GTID", "GTID_LOG", "GTID_TAGGED_LOG"},
    "Anonymous_GTID": {"ANONYMOUS_GTID"},
    "Previous-GTIDs": {"PREVIOUS_GTIDS"},
    "Intvar": {"INTVAR"},
    "Rand": {"RAND"},
    "User_var": {"USER_VAR"},
    "Begin_load_query": {"BEGIN_LOAD_QUERY"},
    "Execute_load_query": {"EXECUTE_LOAD_QUERY"},
    "Transaction_Payload": {"TRANSACTION_PAYLOAD"},
    "Rows_query": {"ROWS_QUERY"},
    "XA PREPARE X'": {"XA_PREPARE"},
    "XID = X'": {"XA_PREPARE"},
}
"""How the tools call an event, as far as the first words go."""

NOT_PRINTED = {"BEGIN_LOAD_QUERY"}
"""Events whose own line the tools leave out, sometimes; then the positions that they print are one event late."""

NOT_SENT = {"STOP", "START_ENCRYPTION"}
"""Of encrypted files the running server was the oracle: it does not send the one, and sends the other changed."""


def manifest(corpus: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((corpus / "mysql-binlog/generated/manifest.json").read_text("utf-8"))
    return entries


def records(corpus: Path, name: str, keys: bool = False) -> list[Record]:
    path = corpus / "mysql-binlog/generated" / name
    key = next((path.parent / k for k in ("keys.txt", "keyring.json") if (path.parent / k).exists()), None)
    hints = Hints(keyfile=key.read_bytes()) if key and keys else Hints()
    with binlogtool.open(path, hints=hints) as log:
        return list(log.records())


def oracle_of(corpus: Path, entry: dict[str, Any]) -> list[vvv.Event]:
    path = corpus / "mysql-binlog/generated" / entry["file"]
    return vvv.read(path.parent / entry["oracle"])


def time_of(record: Record) -> str:
    seconds = (record.extras or {})["header"]["timestamp"]
    stamp = datetime.fromtimestamp(seconds, UTC)
    return f"{stamp:%y%m%d} {stamp.hour:2d}:{stamp:%M:%S}"


def test_the_number_of_events_by_type_is_what_an_independent_reader_counted(corpus: Path) -> None:
    differences, events, inner = [], 0, 0
    for entry in manifest(corpus):
        found = records(corpus, entry["file"], keys=True)
        outer = Counter(record.type for record in found if record.inner is None)
        inside = Counter(record.type for record in found if record.inner is not None)
        expected = Counter({_ours(name): count for name, count in entry["events_by_type"].items()})
        expected_inside = Counter(
            {_ours(name): count for name, count in entry.get("events_inside_payloads", {}).items()}
        )
        events, inner = events + outer.total(), inner + inside.total()
        if (outer, inside) != (expected, expected_inside):
            differences.append((entry["file"], outer - expected, expected - outer, inside, expected_inside))
    print(f"{len(manifest(corpus))} files, {events:,} events, {inner:,} inside payloads")
    assert not differences


def _ours(name: str) -> str:
    name = name.removeprefix("MARIA_")
    return {"ANONYMOUS_GTID_LOG": "ANONYMOUS_GTID"}.get(name, name)


@pytest.mark.full
def test_every_event_is_where_and_what_the_tool_says(corpus: Path) -> None:
    differences: list[Any] = []
    files = events = checksums = inner = elsewhere = 0
    for entry in manifest(corpus):
        if "scan_error" in entry:
            continue  # a torn file: the tool stops somewhere
        printed = oracle_of(corpus, entry)
        found = [record for record in records(corpus, entry["file"], keys=True) if record.inner is None]
        files += 1
        compared = Matching(printed, found, 512 if "encryption_header_bytes" in entry else 0)
        differences += [(entry["file"], *problem) for problem in compared.problems("encrypted/" in entry["file"])]
        events, checksums, inner = events + len(compared.pairs), checksums + compared.checksums, inner + compared.inner
        elsewhere += compared.elsewhere
    print(
        f"{files} files, {events:,} events, {checksums:,} with their checksum, {elsewhere} printed at a shifted place"
    )
    print(f"{inner:,} more inside payloads")
    assert not differences, "\n".join(map(str, differences))
    assert elsewhere < 20


class Matching:
    """Which printed event is which record: by place, or where the tool printed a wrong place, by the checksum."""

    def __init__(self, printed: list[vvv.Event], found: list[Record], start: int) -> None:
        self.pairs: list[tuple[Record, vvv.Event]] = []
        self.elsewhere = self.inner = 0
        left = {id(event): event for event in printed}
        self._alone = []
        for record in found:
            at = [event for event in left.values() if event.position == record.offset - start]
            event = next((one for one in at if _different(one, record) is None), None)
            if event is None and record.checksum is not None:
                event = next((one for one in left.values() if one.checksum == record.checksum.stored), None)
                self.elsewhere += event is not None
            if event is None:
                self._alone.append(record)
                continue
            self.pairs.append((record, left.pop(id(event))))
        self._left = list(left.values())
        self._payloads = [r for r in found if r.type == "TRANSACTION_PAYLOAD"]
        self._start = start

    @property
    def checksums(self) -> int:
        return sum(event.checksum is not None for _, event in self.pairs)

    def _in_payload(self, position: int) -> bool:
        return any(0 <= position - (r.offset - self._start) <= r.size for r in self._payloads)

    def problems(self, sent: bool) -> Iterator[tuple[Any, ...]]:
        for record, event in self.pairs:
            if problem := _different(event, record):
                yield record.offset, record.type, problem
        for record in self._alone:
            if record.type not in NOT_PRINTED and not (sent and record.type in NOT_SENT):
                yield record.offset, record.type, "the tool does not print it"
        for event in self._left:
            if self._payloads and (event.position < 0 or self._in_payload(event.position)):
                self.inner += 1
            elif not (sent and event.kind == "Ignorable"):
                yield event.position, event.kind, "no such event"


def _different(event: vvv.Event, record: Record) -> str | None:
    header = (record.extras or {})["header"]
    if event.server_id != header["server_id"]:
        return f"server id {header['server_id']}, printed {event.server_id}"
    if event.end_log_pos != header["end_log_pos"]:
        return f"end_log_pos {header['end_log_pos']}, printed {event.end_log_pos}"
    if event.time != time_of(record):
        return f"time {time_of(record)}, printed {event.time}"
    stored = None if record.checksum is None else record.checksum.stored
    if event.checksum is not None and stored is not None and event.checksum != stored:
        return f"checksum {stored:08x}, printed {event.checksum:08x}"
    kinds = next((types for name, types in KINDS.items() if _is(event, name)), None)
    if kinds is None or record.type not in kinds:
        return f"{record.type}, printed {event.text[:40]!r}"
    return None


def _is(event: vvv.Event, name: str) -> bool:
    behind = event.text[len(name) : len(name) + 1]
    return event.text.startswith(name.encode()) and not (name[-1].isalpha() and (behind.isalpha() or behind == b"_"))


def test_gtids_are_those_of_the_manifest(corpus: Path) -> None:
    compared = 0
    for entry in manifest(corpus):
        found = records(corpus, entry["file"], keys=True)
        gtids = [r.body["gtid"] for r in found if r.type in ("GTID", "GTID_LOG", "GTID_TAGGED_LOG")]
        anonymous = sum(record.type == "ANONYMOUS_GTID" for record in found)
        assert len(gtids) + anonymous == entry["gtid_count"], entry["file"]
        if gtids:
            assert (gtids[0], gtids[-1]) == (entry["gtid_first"], entry["gtid_last"]), entry["file"]
            compared += len(gtids)
    print(f"{compared:,} GTIDs")
    assert compared > 2000


UNPRINTED = {"mysql-9.7/encrypted/enc-bin.000001": 6}
"""Rows that mysqlbinlog does not print: it gives up inside an event and goes on with the next one."""


def test_encrypted_files_hold_the_rows_that_the_running_server_printed(corpus: Path) -> None:
    for entry in manifest(corpus):
        if "encrypted/" not in entry["file"]:
            continue
        found = records(corpus, entry["file"], keys=True)
        assert all(record.findings == () for record in found)
        rows = sum(len(r.body["rows"]) for r in found if r.body and "rows" in r.body)
        printed = sum(len(event.rows) for event in oracle_of(corpus, entry))
        gave_up = any(row.gave_up for event in oracle_of(corpus, entry) for row in event.rows)
        unprinted = UNPRINTED.get(entry["file"], 0)
        assert (rows, gave_up) == (printed + unprinted, unprinted > 0), entry["file"]


def test_the_oracle_files_are_read_at_all(corpus: Path) -> None:
    text = gzip.decompress((corpus / "mysql-binlog/generated/mysql-9.7/xa/binlog.000001.txt.gz").read_bytes())
    assert len(re.findall(rb"(?m)^# at ", text)) == len(vvv.parse(text))
