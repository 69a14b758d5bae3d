"""What a replay is said to do, against the server's own reader, the judge, and the rows that the reader's SQL makes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.errors import UsageError
from binlogtool.formats.drizzle.format import FORMAT
from binlogtool.prediction.predict_replay import ReplayDecision, ReplayResult
from tests.formats.drizzle.make import (
    ROLLBACK,
    ROLLBACK_STATEMENT,
    STARTUP,
    TABLE,
    TIMES,
    delete,
    insert,
    log,
    message,
    update,
)
from tests.formats.drizzle.reference import Values
from tests.formats.drizzle.walk import log_files, pack

GENERATED = Path("drizzle", "generated")
INDEX: Values = {"name": b"PRIMARY", "is_primary": 1, "is_unique": 1, "type": 1, "key_length": 4}


def replay(path: Path, **how: Any) -> ReplayResult:
    (result,) = binlogtool.replay([path], format="drizzle", backend="python", **how)
    return result


def written(path: Path, *messages: bytes) -> Path:
    path.write_bytes(log(*messages))
    return path


def decided(path: Path, **how: Any) -> list[tuple[int, str, str]]:
    found: list[ReplayDecision] = []
    replay(path, on_decision=found.append, digest=False, **how)
    return [(one.record, one.verb, one.reason) for one in found]


# -- recorded behaviour ------------------------------------------------------------------------------------------------

SUMMED_UP_BY_ID = {"entry-duplicated", "segment-missing", "unterminated-transaction"}
"""Logs with several messages of one transaction: the reader's summary counts ids, not messages."""


def test_the_reader_gets_as_far_as_the_real_one_and_ends_in_the_same_way(corpus: Path) -> None:
    cases = json.loads((corpus / GENERATED / "manifest.json").read_text())["damaged"]
    for name, case in cases.items():
        result, real = replay(corpus / GENERATED / name), case["real_reader"]
        assert (result.stop is not None) == (real["summary_exit"] != 0), name
        entries = sum(result.decisions.values()) - result.reasons.get("not-reached", 0)
        if Path(name).stem not in SUMMED_UP_BY_ID:
            assert entries + result.details["unchecked_entries"] == real["transactions_printed_in_summary"], name
    assert len(cases) == 25


def test_the_reader_ends_at_an_entry_of_type_blob(corpus: Path) -> None:
    path = corpus / GENERATED / "blob-entries.log"
    said = (corpus / GENERATED / "oracle" / "blob-entries.log.summary.txt").read_text()
    result = replay(path)
    assert "[exit 255]" in said and "non-transaction message" in said
    assert result.stop is not None and "non-transaction message" in result.stop.why
    assert result.decisions["applied"] + result.reasons["event"] == len(re.findall(r"(?m)^transaction_id = ", said))
    assert replay(path, policy="force").reasons == {"committed": 16, "event": 2, "blob": 3}


def test_as_many_transactions_are_applied_as_are_complete(corpus: Path) -> None:
    for path in log_files(corpus):
        (report,) = binlogtool.verify([path], format="drizzle").files
        result = replay(path, policy="force")
        details = report.details
        assert result.details["transactions"] + result.reasons.get("event", 0) == report.transactions, path.name
        assert result.details["rolled_back"] == details["transactions_rolled_back"], path.name
        assert result.details["unterminated"] == details["transactions_unterminated"], path.name


def test_the_segments_of_the_big_log_are_put_together(corpus: Path) -> None:
    """Transaction 6 is rolled back, 10 never ends; 7 takes one statement back and commits (see the manifest)."""
    found: list[ReplayDecision] = []
    replay(corpus / GENERATED / "segmented.log", on_decision=found.append)
    fates = {one.txn: one.reason for one in found}
    assert fates == dict.fromkeys((1, 2, 3, 4, 5, 7, 8, 9, 11), "committed") | {
        6: "rolled-back",
        10: "unterminated",
    }


# -- the state ---------------------------------------------------------------------------------------------------------

ROW = re.compile(r"INSERT INTO `\w+`\.`order_line` \(`order_id`,`line`,`sku`,`n`\) VALUES \((\d+),(\d+),(.+),(\w+)\);$")
CHANGED = re.compile(r"UPDATE `\w+`\.`order_line` SET `n`=(\w+) WHERE `order_id`=(\d+) AND `line`=(\d+);$")
GONE = re.compile(r"DELETE FROM `\w+`\.`order_line` WHERE `order_id`=(\d+) AND `line`=(\d+);$")
Rows = dict[tuple[str, str], tuple[str, str]]


def rows_of(sql: str) -> Rows:
    """What the statements that the real reader printed leave in the table."""
    rows: Rows = {}
    for line in sql.splitlines():
        if made := ROW.match(line):
            rows[made[1], made[2]] = made[3], made[4]
        elif changed := CHANGED.match(line):
            rows[changed[2], changed[3]] = rows[changed[2], changed[3]][0], changed[1]
        elif gone := GONE.match(line):
            del rows[gone[1], gone[2]]
    return rows


def as_log(schema: bytes, rows: Rows) -> bytes:
    """A log that makes just these rows."""
    names = (b"order_id", b"line", b"sku", b"n")
    fields = [{"type": 4, "name": name} for name in names]
    created = {
        "name": b"order_line", "engine": {"name": b"InnoDB"}, "field": fields, "type": 0, "schema": schema,
        "indexes": [{**INDEX, "index_part": [{"fieldnr": 0}, {"fieldnr": 1}]}],
        "creation_timestamp": 1, "update_timestamp": 1,
    }  # fmt: skip
    records = []
    for (order, line), (sku, n) in rows.items():
        values = [order, line, sku[1:-1] if sku != "NULL" else "", n if n != "NULL" else ""]
        nulls = [0, 0, int(sku == "NULL"), int(n == "NULL")]
        records.append({"insert_value": [one.encode() for one in values], "is_null": nulls})
    header = {"table_metadata": {"schema_name": schema, "table_name": b"order_line"}, "field_metadata": fields}
    made = {"type": 1, **TIMES, "insert_header": header, "insert_data": {"segment_id": 1, "end_segment": 1,
                                                                         "record": records}}  # fmt: skip
    created_by = {"type": 8, **TIMES, "create_table_statement": {"table": created}}
    return log(message(1, created_by), message(2, made))


@pytest.mark.parametrize("name", ["basic-checksum", "basic-nochecksum", "basic-with-sql"])
def test_the_rows_are_those_that_the_reader_s_sql_makes(corpus: Path, tmp_path: Path, name: str) -> None:
    path = corpus / GENERATED / f"{name}.log"
    sql = (corpus / GENERATED / "oracle" / f"{name}.log.sql.txt").read_bytes().decode("utf-8", "replace")
    sql = re.split(r"(?m)^(?:SET AUTOCOMMIT=0;\n(?:TRUNCATE|DROP|ALTER)|;$)", sql)[0]
    end = len(re.findall(r"(?m)^(?:-- EVENT|COMMIT;)", sql))  # one entry each
    schema, rows = re.findall("CREATE SCHEMA `(.*?)`", sql)[0], rows_of(sql)
    (tmp_path / "x.log").write_bytes(as_log(schema.encode(), rows))
    ours = {one.name: one for one in replay(path, until=f"record:{end}").objects}[f"{schema}.order_line"]
    theirs = {one.name: one for one in replay(tmp_path / "x.log").objects}[f"{schema}.order_line"]
    assert ours.keys == len(rows) > 5
    assert ours.digest == theirs.digest


def test_one_log_and_the_same_log_in_two_files_give_the_same_state(corpus: Path, tmp_path: Path) -> None:
    data = (corpus / GENERATED / "segmented.log").read_bytes()
    (tmp_path / "transaction.log").write_bytes(data[:236393])  # within transaction 2
    (tmp_path / "transaction.log.1").write_bytes(data[236393:])
    one, two = replay(corpus / GENERATED / "segmented.log"), replay(tmp_path)
    assert len(two.read) == 2
    assert (one.digest, one.decisions, one.reasons) == (two.digest, two.decisions, two.reasons)


def test_the_state_is_the_same_before_and_after_a_cut_of_the_torn_tail(corpus: Path, tmp_path: Path) -> None:
    torn = corpus / GENERATED / "damaged" / "torn-payload.log"
    (tmp_path / "cut.log").write_bytes(torn.read_bytes()[:22457])
    assert replay(tmp_path / "cut.log").stop is None
    assert replay(tmp_path / "cut.log").digest == replay(torn).digest


def test_a_statement_that_is_taken_back_changes_nothing(tmp_path: Path) -> None:
    parts = [
        message(1, insert(end=0), segment=1, end=0),
        message(1, insert(part=2, end=0), segment=2, end=0),
        message(1, ROLLBACK_STATEMENT, segment=3, end=0),
        message(1, insert(table=b"u"), segment=4),
    ]
    result = replay(written(tmp_path / "a.log", *parts))
    assert result.reasons == {"committed": 4}
    assert {one.name: one.keys for one in result.objects if one.keys} == {"s.u": 1}
    assert result.digest == replay(written(tmp_path / "b.log", message(1, insert(table=b"u")))).digest


def test_rows_are_found_by_the_key_that_updates_name(tmp_path: Path) -> None:
    """The table's definition is not in the log: its key is learned from the first UPDATE, which moves row 1 to 2."""
    first = [message(1, update()), message(2, insert())]
    deleted = replay(written(tmp_path / "a.log", *first, message(3, delete())))
    assert [(one.name, one.keys) for one in deleted.objects] == [("s.t", 1)]
    kept = replay(written(tmp_path / "b.log", *first))
    assert [(one.name, one.keys) for one in kept.objects] == [("s.t", 2)]
    assert kept.digest != deleted.digest


def test_truncate_and_drop_empty_a_table(tmp_path: Path) -> None:
    truncated = {"type": 4, **TIMES, "truncate_table_statement": {"table_metadata": TABLE}}
    dropped = {"type": 10, **TIMES, "drop_table_statement": {"table_metadata": TABLE}}
    schema = {"type": 7, **TIMES, "drop_schema_statement": {"schema_name": b"s"}}
    for number, statement in enumerate((truncated, dropped, schema)):
        path = written(tmp_path / f"{number}.log", message(1, update()), message(2, insert()), message(3, statement))
        assert {one.name: one.keys for one in replay(path).objects}["s.t"] == 0


# -- rules, one by one -------------------------------------------------------------------------------------------------


def test_transactions_take_effect_in_the_order_of_their_final_messages(tmp_path: Path) -> None:
    path = written(
        tmp_path / "x.log",
        message(1, insert(end=0), segment=1, end=0),
        message(2, insert()),
        message(1, insert(part=2), segment=2),
    )
    assert [record for record, _, _ in decided(path)] == [1, 0, 2]


def test_a_start_of_the_server_ends_what_is_open_and_begins_new_ids(tmp_path: Path) -> None:
    run = (message(1, event=STARTUP), message(2, insert(), end=0), message(3, insert()))
    path = written(tmp_path / "x.log", *run, *run)
    assert replay(path).reasons == {"event": 2, "unterminated": 2, "committed": 2}


def test_the_same_transaction_again_is_skipped(tmp_path: Path) -> None:
    again = message(1, insert())
    assert decided(written(tmp_path / "x.log", again, again))[1] == (1, "skipped", "duplicate")


@pytest.mark.parametrize(
    ("messages", "fate"),
    [
        ((message(1, insert(end=0), end=0), message(1, ROLLBACK, segment=2)), "rolled-back"),
        ((message(1, insert(), end=0), message(1, insert(), segment=3)), "segments-missing"),
        ((message(1, insert(end=0), end=0), message(1, insert(part=3), segment=2)), "segments-missing"),
        ((message(1, insert(end=0), end=0), message(1, insert(part=2, end=0), segment=2)), "unfinished-statement"),
        ((message(1, insert(), end=0), message(1, insert(), segment=2, end=0)), "unterminated"),
        ((message(1, insert(), end=0), message(1, update(), segment=2)), "committed"),
    ],
)
def test_a_transaction_of_two_messages_has_one_fate(tmp_path: Path, messages: tuple[bytes, ...], fate: str) -> None:
    result = replay(written(tmp_path / "x.log", *messages))
    assert result.reasons == {fate: 2}
    assert (result.digest == replay(written(tmp_path / "empty.log")).digest) == (fate != "committed")


def test_a_replay_goes_on_where_another_one_ended(tmp_path: Path) -> None:
    path = written(
        tmp_path / "x.log", message(1, insert(), end=0), message(2, insert()), message(1, update(), segment=2)
    )
    before = replay(path, until="record:2")
    assert before.reasons == {"unterminated": 1, "committed": 1, "until": 1} and before.stop is None
    assert decided(path, against=before.position) == [
        (1, "skipped", "before-position"),
        (0, "applied", "committed"),
        (2, "applied", "committed"),
    ]


def test_a_wrong_checksum_does_not_stop_the_reader_and_the_part_of_a_transaction_is_missing(tmp_path: Path) -> None:
    parts = [pack(message(1, insert(), end=0)), pack(message(1, insert(), segment=2, end=0)),
             pack(message(1, insert(), segment=3)), pack(message(2, insert()))]  # fmt: skip
    parts[1] = parts[1][:-1] + bytes([parts[1][-1] ^ 1])
    path = tmp_path / "x.log"
    path.write_bytes(b"".join(parts))
    result = replay(path)
    assert result.stop is None and result.details["unchecked_entries"] == 1
    assert result.reasons == {"segments-missing": 2, "committed": 1}


@pytest.mark.parametrize("against", [{"offset": 5}, {"offset": {"x": "y"}}, {"offset": {"x": 1.5}}])
def test_a_position_that_is_none_is_refused(tmp_path: Path, against: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="with the offset after the last entry that was applied"):
        replay(written(tmp_path / "x.log", message(1, insert())), against=against)


@pytest.mark.parametrize("policy", ["server", "strict", "force"])
def test_every_entry_of_every_damaged_log_gets_one_decision(corpus: Path, policy: str) -> None:
    for path in sorted((corpus / GENERATED / "damaged").glob("*.log")):
        (report,) = binlogtool.verify([path], format="drizzle").files
        assert sum(replay(path, policy=policy).decisions.values()) == report.records, path.name


def test_odd_messages_are_applied_as_far_as_they_say_something(tmp_path: Path) -> None:
    rows = insert(values=3, nulls=9)
    bare: Values = {"type": 1, **TIMES}
    unknown: Values = {"type": 77, **TIMES}
    raw: Values = {"type": 99, **TIMES, "sql": b"\xff\x00"}
    statements = (rows, bare, unknown, raw, update(keys=0, after=5), delete(keys=4), ROLLBACK_STATEMENT)
    result = replay(written(tmp_path / "x.log", message(1, *statements)))
    assert result.reasons == {"committed": 1}


def test_every_reason_is_explained() -> None:
    assert FORMAT.replay is not None
    assert all(len(text) > 40 for text in FORMAT.replay.reasons.values())
