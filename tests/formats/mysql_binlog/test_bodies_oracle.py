"""Decoded bodies against what the servers' own tools printed of the same events."""

from __future__ import annotations

import gzip
import re
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from binlogtool.formats.binlog_events.event_schemas import decode_body
from binlogtool.formats.binlog_events.gtid.gtid_events import read_gtid_source_and_number, read_gtid_text
from binlogtool.formats.binlog_events.wire_format import EventType
from tests.formats.mysql_binlog import vvv
from tests.formats.mysql_binlog.bodies_walk import Event, events, logs

_T = EventType
Pair = tuple[Event, vvv.Event, dict[str, Any]]


def utf8(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


_BEGIN_LOAD = re.compile(rb"(end_log_pos \d+ (?:CRC32 0x[0-9a-f]{8} )?)\n#(?=Begin_load_query)")
"""The only event whose name stands on a line of its own."""


@pytest.fixture(scope="module")
def pairs(corpus: Path) -> dict[int, list[Pair]]:
    """By type: the event, what the tool says of it (found by its end_log_pos and checksum), and the decoded body."""
    found: dict[int, list[Pair]] = {}
    missing: Counter[int] = Counter()
    for path in logs(corpus):
        text = path.with_name(path.name + ".txt.gz")
        if not text.exists():
            continue
        said: dict[tuple[int, int | None], deque[vvv.Event]] = {}
        for one in vvv.parse(_BEGIN_LOAD.sub(rb"\1\t", gzip.decompress(text.read_bytes()))):
            said.setdefault((one.end_log_pos, one.checksum), deque()).append(one)
        for event in events(path.read_bytes()):
            queue = said.get((event.end_log_pos, event.checksum))
            if not queue:
                missing[event.type] += 1
                continue
            body = decode_body(event.type, event.body, None, event.server_id)
            found.setdefault(event.type, []).append((event, queue.popleft(), body))
    print(f"{sum(map(len, found.values())):,} events, {dict(missing)} that the tools do not mention")
    assert not missing
    return found


def each(pairs: dict[int, list[Pair]], *types: EventType, least: int) -> Iterator[Pair]:
    chosen = [pair for type_ in types for pair in pairs[type_]]
    print(f"{'/'.join(type_.name for type_ in types)}: {len(chosen):,} compared")
    assert len(chosen) >= least
    yield from chosen


def numbers(text: bytes) -> dict[str, int]:
    """`name=number` and `name = number` of a line."""
    return {name.decode(): int(value) for name, value in re.findall(rb"(\w+) ?= ?(\d+)", text)}


def lines(said: vvv.Event) -> bytes:
    return b"\n".join(said.lines)


def test_queries_have_the_printed_thread_time_error_and_statement(pairs: dict[int, list[Pair]]) -> None:
    for event, said, body in each(pairs, _T.QUERY, _T.QUERY_COMPRESSED, least=1290):
        printed = numbers(said.text)
        for name in ("thread_id", "exec_time", "error_code"):
            assert body[name] == printed[name], event.at
        variables = body["status_vars"]
        assert printed.get("Xid") == variables.get("ddl_logged_with_xid"), event.at
        assert printed.get("xid", 0) == variables.get("xid", 0), event.at
        statement = utf8(body["sql"])
        started = b"### " + statement == said.lines[-1]  # the first half of an ALTER is printed as a comment
        assert (statement + b"\n/*!*/;" in lines(said)) != started, event.at


STATUS = {
    b"sql_mode": lambda v: v["sql_mode"],
    b"auto_increment_increment": lambda v: v.get("auto_increment", {"increment": 1})["increment"],
    b"auto_increment_offset": lambda v: v.get("auto_increment", {"offset": 1})["offset"],
    b"collation_connection": lambda v: v["charset"]["connection"],
    b"collation_server": lambda v: v["charset"]["server"],
    b"lc_time_names": lambda v: v.get("lc_time_names", 0),
    b"default_collation_for_utf8mb4": lambda v: v["default_collation_utf8mb4"],
    b"default_table_encryption": lambda v: v["default_table_encryption"],
    b"sql_require_primary_key": lambda v: v["sql_require_primary_key"],
    b"explicit_defaults_for_timestamp": lambda v: v.get("explicit_defaults_ts"),
    b"foreign_key_checks": lambda v: int(not v["flags2"] >> 26 & 1),
    b"unique_checks": lambda v: int(not v["flags2"] >> 27 & 1),
    b"sql_auto_is_null": lambda v: v["flags2"] >> 14 & 1,
    b"autocommit": lambda v: int(not v["flags2"] >> 19 & 1),
}
_SET = re.compile(rb"@@session\.(\w+)=(\d+)")


def test_status_variables_have_the_values_that_the_tool_sets(pairs: dict[int, list[Pair]]) -> None:
    seen: Counter[str] = Counter()
    for event, said, body in each(pairs, _T.QUERY, _T.QUERY_COMPRESSED, least=1290):
        variables = body["status_vars"]
        head = lines(said).split(utf8(body["sql"]) + b"\n/*!*/;")[0]
        for name, value in _SET.findall(head):
            if name == b"explicit_defaults_for_timestamp" and "explicit_defaults_ts" not in variables:
                value, read = int(value), lambda v: v["flags2"] >> 24 & 1  # MariaDB keeps it among the flags
            else:
                value, read = int(value), STATUS.get(name, lambda v: None)
            if name in STATUS:
                assert read(variables) == value, (event.at, name)
                seen[name.decode()] += 1
        if zone := re.search(rb"@@session\.time_zone='([^']*)'", head):
            assert utf8(variables["time_zone"]) == zone[1]
            seen["time_zone"] += 1
        if stamp := re.search(rb"SET TIMESTAMP=\d+\.(\d{6})/", head):
            assert variables.get("hrnow", variables.get("microseconds")) == int(stamp[1])
            seen["microseconds"] += 1
        if used := re.search(rb"^use `(.*)`/\*!\*/;$", head, re.MULTILINE):
            assert utf8(body["db"]) == used[1].replace(b"``", b"`")
            seen["use"] += 1
    print(dict(seen))
    assert len(seen) >= 14


def test_xids_and_variables_are_the_printed_ones(pairs: dict[int, list[Pair]]) -> None:
    for _, said, body in each(pairs, _T.XID, least=1700):
        assert body["xid"] == numbers(said.text)["Xid"]
    for _, said, body in each(pairs, _T.INTVAR, least=120):
        assert f"SET {body['type']}={body['value']}/*!*/;".encode() in said.lines
    for _, said, body in each(pairs, _T.RAND, least=7):
        assert f"SET @@RAND_SEED1={body['seed1']}, @@RAND_SEED2={body['seed2']}/*!*/;".encode() in said.lines


def test_user_variables_have_the_printed_values(pairs: dict[int, list[Pair]]) -> None:
    kinds: Counter[str] = Counter()
    for event, said, body in each(pairs, _T.USER_VAR, least=45):
        found = re.search(rb"^SET @`(.*?)`:=(.*?)/\*!\*/;$", lines(said), re.MULTILINE | re.DOTALL)
        assert found is not None, said.lines
        assert utf8(body["name"]) == found[1].replace(b"``", b"`")
        kind, printed = body.get("type", "NULL"), found[2]
        kinds[kind] += 1
        if kind == "NULL":
            assert body["value"] is None and printed == b"NULL"
        elif kind == "STRING":
            text = re.search(rb"X'([0-9a-fA-F]*)'|0x([0-9a-fA-F]+)", printed)
            assert text is not None, printed
            assert utf8(body["value"]) == bytes.fromhex((text[1] or text[2] or b"").decode()), event.at
        elif kind == "REAL":
            assert body["value"] == float(printed)
        else:
            assert str(body["value"]).encode() == printed, event.at
    print(dict(kinds))
    assert set(kinds) == {"NULL", "STRING", "REAL", "INT", "DECIMAL"}


def test_statements_of_row_events_are_the_printed_ones(pairs: dict[int, list[Pair]]) -> None:
    for _, said, body in each(pairs, _T.ANNOTATE_ROWS, least=1700):
        printed = b"\n".join(line.removeprefix(b"#Q> ") for line in said.lines if line.startswith(b"#Q> "))
        assert utf8(body["sql"]).rstrip(b"\n") == printed.rstrip(b"\n")
    for _, said, body in each(pairs, _T.ROWS_QUERY, least=14):
        printed = b"\n".join(line.removeprefix(b"# ") for line in said.lines if line.startswith(b"# "))
        assert utf8(body["sql"]) == printed.replace(b"\\\\", b"\\")


def test_gtids_of_mysql_have_the_printed_fields(pairs: dict[int, list[Pair]]) -> None:
    for event, said, body in each(pairs, _T.GTID_LOG, _T.ANONYMOUS_GTID, _T.GTID_TAGGED_LOG, least=800):
        printed = numbers(said.text)
        for name in ("last_committed", "sequence_number", "immediate_commit_timestamp", "transaction_length"):
            assert body[name] == printed[name], (event.at, name)
        assert body["original_commit_timestamp"] == printed["original_committed_timestamp"]
        assert (b"rbr_only=yes" in said.text) is (body["flags"] & 1 == 0)
        versions = numbers(lines(said))
        for name in ("original_server_version", "immediate_server_version"):
            assert body[name] == versions[name], event.at
        next_ = re.search(rb"GTID_NEXT= '([^']*)'", lines(said))
        assert next_ is not None
        assert body["gtid"] == (None if next_[1] == b"ANONYMOUS" else next_[1].decode())
        assert read_gtid_text(event.type, event.server_id, event.body) == body["gtid"]


def test_gtids_of_mariadb_have_the_printed_fields(pairs: dict[int, list[Pair]]) -> None:
    seen: Counter[str] = Counter()
    for event, said, body in each(pairs, _T.GTID, least=1400):
        printed = re.fullmatch(
            r"GTID (\d+-\d+-\d+)((?: cid=\d+)?)((?: ddl)?)((?: waited)?)((?: trans)?)"
            r"((?: START ALTER| COMMIT ALTER id= \d+)?)((?: thread_id=\d+)?)", said.text.decode()
        )  # fmt: skip
        assert printed is not None, said.text
        gtid, cid, ddl, waited, transactional, alter, thread = printed.groups()
        assert body["gtid"] == read_gtid_text(event.type, event.server_id, event.body) == gtid
        assert read_gtid_source_and_number(event.type, event.server_id, event.body) == (
            gtid.rpartition("-")[0],
            body["seq_no"],
        )
        flags = body["flags2"]
        assert body.get("commit_id") == (int(cid[5:]) if cid else None)
        assert (bool(ddl), bool(waited), bool(transactional)) == (bool(flags & 32), bool(flags & 16), bool(flags & 4))
        assert body.get("thread_id") == (int(thread[11:]) if thread else None)
        extra = body.get("flags_extra", 0)
        assert (bool(extra & 2), bool(extra & 4)) == (alter == " START ALTER", alter.startswith(" COMMIT"))
        assert body.get("start_alter_seq") == (int(alter[17:]) if alter.startswith(" COMMIT") else None)
        if "xid" in body:
            xid = body["xid"]
            parts = f"X'{utf8(xid['gtrid']).hex()}',X'{utf8(xid['bqual']).hex()}',{xid['format_id']}"
            assert (parts.encode() in lines(said)) == (not flags & 128)  # 128: the XID is in the event that follows
            seen["xid"] += 1
        seen.update(name for name in ("commit_id", "thread_id", "start_alter_seq") if name in body)
    print(dict(seen))
    assert set(seen) == {"xid", "commit_id", "thread_id", "start_alter_seq"}


def gtid_set(text: str) -> set[tuple[str, str, int, int]]:
    """Both tools' ways to write a set: the tag stands before its intervals, also behind those without a tag."""
    found = set()
    for source in text.replace("\n", "").split(","):
        uuid, *rest = source.strip().split(":")
        tag = ""
        for part in rest:
            if interval := re.fullmatch(r"(\d+)(?:-(\d+))?", part):
                found.add((uuid, tag, int(interval[1]), int(interval[2] or interval[1])))
            else:
                tag = part
    return found


def test_previous_gtids_are_the_printed_set(pairs: dict[int, list[Pair]]) -> None:
    tags = full = 0
    for event, said, body in each(pairs, _T.PREVIOUS_GTIDS, least=45):
        printed = [line.removeprefix(b"# ").decode() for line in said.lines if line.startswith(b"# ")]
        if printed[0] == "[empty]":
            assert body == {"gtids": "", "sids": []}
            continue
        size = next((at for at, line in enumerate(printed) if not re.match(r"[0-9a-f]{8}-", line)), len(printed))
        assert gtid_set(body["gtids"]) == gtid_set("".join(printed[:size])), event.at
        listed = {
            (one["sid"], one.get("tag", ""), start, end - 1) for one in body["sids"] for start, end in one["intervals"]
        }
        assert listed == gtid_set(body["gtids"])
        full += 1
        tags += any("tag" in one for one in body["sids"])
    print(f"{full} sets that are not empty, {tags} with tags")
    assert full >= 20 and tags >= 1


def test_gtid_lists_are_the_printed_ones(pairs: dict[int, list[Pair]]) -> None:
    entries = 0
    for _, said, body in each(pairs, _T.GTID_LIST, least=60):
        printed = b" ".join([said.text, *said.lines]).partition(b"[")[2].partition(b"]")[0].decode()
        assert body["gtids"].split(",") == re.split(r",\s*", printed)
        entries += len(body["list"])
    assert entries >= 27


def test_rotations_and_checkpoints_have_the_printed_names(pairs: dict[int, list[Pair]]) -> None:
    for _, said, body in each(pairs, _T.ROTATE, least=110):
        assert said.text == f"Rotate to {body['name']}  pos: {body['position']}".encode()
    for _, said, body in each(pairs, _T.BINLOG_CHECKPOINT, least=80):
        assert said.text == f"Binlog checkpoint {body['name']}".encode()


def test_load_data_has_the_printed_fields(pairs: dict[int, list[Pair]]) -> None:
    for _, said, body in each(pairs, _T.EXECUTE_LOAD_QUERY, least=5):
        printed = numbers(said.text)
        for name in ("thread_id", "exec_time", "error_code"):
            assert body[name] == printed[name]
        assert f"# file_id: {body['file_id']} ".encode() in said.lines
        sql = utf8(body["sql"])
        file_part = re.compile(rb" INFILE '[^']*' INTO")
        printed_sql = next(line for line in said.lines if line.startswith(b"LOAD DATA LOCAL"))
        before, after = file_part.split(printed_sql.replace(b" LOCAL", b"", 1))
        assert (sql[: body["fn_pos_start"]], sql[body["fn_pos_end"] :]) == (before, after)
        assert file_part.fullmatch(sql[body["fn_pos_start"] : body["fn_pos_end"]])


def test_xa_prepare_has_the_printed_identifier(pairs: dict[int, list[Pair]]) -> None:
    for _, said, body in each(pairs, _T.XA_PREPARE, least=13):
        parts = f"X'{utf8(body['gtrid']).hex()}',X'{utf8(body['bqual']).hex()}',{body['format_id']}".encode()
        assert parts in said.text
        assert (b"XA COMMIT" in lines(said) and b"ONE PHASE" in lines(said)) is bool(body["one_phase"])


def test_payload_fields_are_the_printed_ones(pairs: dict[int, list[Pair]]) -> None:
    for _, said, body in each(pairs, _T.TRANSACTION_PAYLOAD, least=31):
        sizes = body["payload_size"], body["compression"].encode(), body["uncompressed_size"]
        assert said.text.endswith(b"\tpayload_size=%d\tcompression_type=%s\tuncompressed_size=%d" % sizes)
