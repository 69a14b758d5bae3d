from __future__ import annotations

import pytest

from binlogtool.findings import Severity
from binlogtool.format_api.format import FileTail
from binlogtool.formats.drizzle import validate
from binlogtool.formats.drizzle.validate import DrizzleValidator, TransactionIdSet, is_proven_entry
from tests.formats.drizzle.make import (
    ROLLBACK,
    ROLLBACK_STATEMENT,
    STARTUP,
    TIMES,
    delete,
    insert,
    log,
    message,
    update,
)
from tests.formats.drizzle.reference import Values, encode
from tests.formats.drizzle.walk import batch, judge, pack


def told(*messages: bytes) -> tuple[list[tuple[str, str, int]], int]:
    """Ids, severities and record numbers of the findings; how many transactions are complete."""
    found, verdict = judge(log(*messages))
    return [(f.id, f.severity.label, f.record) for f in found], verdict.transactions


def test_whole_transactions_are_complete_and_ids_may_have_gaps_and_any_order() -> None:
    assert told(message(7, insert()), message(5, update(), delete()), message(9)) == ([], 3)


def test_absent_segment_members_mean_one_whole_message() -> None:
    assert told(message(1, insert(), segment=None, end=None)) == ([], 1)


def test_segments_are_put_together_across_other_transactions() -> None:
    assert told(
        message(1, insert(end=0), segment=1, end=0),
        message(2, insert()),
        message(1, insert(part=2, end=0), segment=2, end=0),
        message(1, insert(part=3), segment=3),
    ) == ([], 2)


def test_a_split_between_statements_is_not_the_end() -> None:
    assert told(message(1, insert(), end=0), message(1, insert(), segment=2)) == ([], 1)


def test_a_missing_segment_is_a_gap() -> None:
    found, verdict = judge(log(message(1, insert(), end=0), message(1, insert(), segment=3)))
    assert [(f.id, f.record, f.facts["diagnosis"]) for f in found] == [("gap-in-sequence", 1, "segment gap")]
    assert "segment 3, expected 2" in found[0].message
    assert verdict.transactions == 0


def test_a_transaction_that_starts_with_its_second_segment_has_a_gap() -> None:
    assert told(message(1, insert(), segment=2)) == ([("gap-in-sequence", "error", 0)], 0)


def test_a_damaged_range_explains_missing_segments() -> None:
    judged = DrizzleValidator()
    judged.validate_batch(batch(log(message(1, insert(), end=0), message(3, insert(), end=0))))
    judged.skip_damage(100, 200)
    found = judged.validate_batch(batch(log(message(1, insert(), segment=3), message(2, insert(), segment=2)), 2))
    verdict = judged.finish(FileTail(300, 300, None, 100))
    assert [(f.id, f.facts["diagnosis"]) for f in found] == [("incomplete-transaction", "segments lost")] * 2
    assert [(f.id, f.severity.label) for f in verdict.findings] == [("incomplete-transaction", "warning")]
    assert "may be in a damaged range" in verdict.findings[0].message
    assert verdict.transactions == 0


def test_the_same_message_twice_is_a_duplicate() -> None:
    found, verdict = judge(log(message(1, insert()), message(1, insert())))
    assert [(f.id, f.severity.label, f.record) for f in found] == [("duplicate-sequence", "warning", 1)]
    assert found[0].facts["diagnosis"] == "duplicate transaction id/segment"
    assert verdict.transactions == 1
    assert verdict.details["entries"]["TRANSACTION"] == 2


def test_a_segment_twice_is_a_duplicate_and_does_not_end_the_transaction() -> None:
    first = message(1, insert(), end=0)
    assert told(first, first, message(1, insert(), segment=2)) == ([("duplicate-sequence", "warning", 1)], 1)


def test_a_start_of_the_server_begins_a_new_run_of_ids() -> None:
    run = (message(1, event=STARTUP), message(2, insert()))
    assert told(*run, *run) == ([], 4)


def test_a_transaction_left_open_by_the_last_run_is_a_warning() -> None:
    assert told(message(2, insert(), end=0), message(1, event=STARTUP), message(2, insert())) == (
        [("incomplete-transaction", "warning", 0)],
        2,
    )


def test_a_transaction_open_at_the_tail_is_a_note_and_elsewhere_a_warning() -> None:
    left = message(1, insert(), end=0)
    assert told(message(2, insert()), left) == ([("incomplete-transaction", "note", 1)], 1)
    assert told(left, message(2, insert())) == ([("incomplete-transaction", "warning", 0)], 1)


def test_a_rolled_back_transaction_is_finished_and_not_complete() -> None:
    found, verdict = judge(log(message(1, insert(end=0), end=0), message(1, ROLLBACK, segment=2)))
    assert (list(found), verdict.transactions) == ([], 0)
    assert verdict.details["transactions_rolled_back"] == 1


def test_a_rolled_back_statement_leaves_the_transaction_alive() -> None:
    assert told(message(1, insert(end=0), end=0), message(1, ROLLBACK_STATEMENT, insert(), segment=2)) == ([], 1)


def test_a_rollback_of_no_statement_refers_to_nothing() -> None:
    assert told(message(1, insert(), end=0), message(1, ROLLBACK_STATEMENT, segment=2)) == (
        [("dangling-reference", "error", 1)],
        1,
    )


def test_a_continued_statement_must_go_on() -> None:
    first = message(1, insert(end=0), end=0)
    assert told(first, message(1, insert(part=3), segment=2))[0] == [("gap-in-sequence", "error", 1)]
    assert told(first, message(1, insert(part=2, table=b"u"), segment=2))[0] == [("meta-mismatch", "error", 1)]
    assert told(first, message(1, update(), segment=2))[0] == [("incomplete-transaction", "error", 1)]
    assert told(first, message(1, segment=2))[0] == [("incomplete-transaction", "error", 1)]


@pytest.mark.parametrize(
    ("statement", "id_"),
    [
        (insert(values=2), "count-out-of-bounds"),
        (insert(nulls=2), "count-out-of-bounds"),
        (update(keys=2), "count-out-of-bounds"),
        (update(after=0, nulls=0), "count-out-of-bounds"),
        (update(nulls=3), "count-out-of-bounds"),
        (delete(keys=0), "count-out-of-bounds"),
        ({"type": 57, **TIMES}, "unknown-record-type"),
        ({"type": 8, **TIMES}, "payload-undecodable"),
        ({"type": 99, **TIMES}, "payload-undecodable"),
        (insert() | {"start_timestamp": 3}, "time-regression"),
    ],
)
def test_a_statement_that_breaks_a_rule_is_found(statement: Values, id_: str) -> None:
    (found,), complete = told(message(1, statement))
    assert found[0] == id_
    assert complete == 1


def test_null_marks_may_be_left_out_altogether() -> None:
    assert told(message(1, insert(nulls=1), insert(nulls=0), update(nulls=0))) == ([], 1)


def test_a_statement_of_rows_without_its_data_is_undecodable() -> None:
    statement = insert()
    del statement["insert_data"]
    assert told(message(1, statement))[0] == [("payload-undecodable", "error", 0)]


def test_a_transaction_that_ends_before_it_starts_is_a_regression() -> None:
    context = {"server_id": 1, "transaction_id": 1, "start_timestamp": 5, "end_timestamp": 4}
    assert told(message(1, transaction_context=context))[0] == [("time-regression", "warning", 0)]


def test_an_unknown_event_is_a_warning_and_counted() -> None:
    found, verdict = judge(log(message(1, event={"type": 9})))
    assert [f.id for f in found] == ["unknown-record-type"]
    assert verdict.details["events"] == 1


def test_a_message_that_does_not_parse_is_found_although_its_checksum_is_right() -> None:
    (found,), complete = told(message(1), b"\x0a\x7f")[0], told(message(1), b"\x0a\x7f")[1]
    assert found == ("payload-undecodable", "error", 1)
    assert complete == 1


def test_a_missing_required_member_is_named() -> None:
    found, _ = judge(log(message(1, {"type": 1, "start_timestamp": 1})))
    assert "statement[0].end_timestamp" in found[0].message


def test_numbers_in_a_longer_form_than_needed_are_a_warning() -> None:
    found, _ = judge(log(message(1) + b"\x28\x81\x00"))
    assert [(f.id, f.severity.label) for f in found] == [("varint-overlong", "warning")]
    assert ".end_segment" in found[0].message


def test_a_member_that_the_definition_lacks_is_a_warning_where_no_checksum_vouches_for_it() -> None:
    unknown = message(1) + b"\xb2\x3f\x01a"
    found, verdict = judge(pack(unknown, checksum=False))
    assert [(f.id, f.severity.label) for f in found] == [("unmapped-bytes", "warning"), ("checksum-absent", "note")]
    assert "message.unknown_field_1014[0]" in found[0].message
    assert verdict.transactions == 1
    assert judge(pack(unknown))[0] == []


def test_a_member_that_stands_twice_is_a_warning() -> None:
    found, _ = judge(log(message(1) + b"\x28\x01"))
    assert [(f.id, f.severity.label) for f in found] == [("duplicate-key", "warning")]


def test_the_lack_of_checksums_is_told_once_with_counts() -> None:
    data = b"".join(pack(message(n), checksum=False) for n in range(1, 6))
    (found,), _ = judge(data)
    assert (found.id, found.severity, found.offset, found.length) == ("checksum-absent", Severity.NOTE, 0, len(data))
    assert (found.facts["absent"], found.facts["present"]) == (5, 0)


def test_an_entry_without_checksum_between_others_is_suspicious() -> None:
    entries = [pack(message(n), checksum=n not in (2, 3, 5)) for n in range(1, 6)]
    (found,), verdict = judge(b"".join(entries))
    assert (found.id, found.severity.label) == ("checksum-absent", "warning")
    assert (found.facts["absent"], found.facts["suspicious"]) == (3, 2)
    assert found.facts["first_suspicious"] == len(entries[0])
    assert verdict.details["checksums"] == {"present": 2, "absent": 3}


def test_another_run_may_have_another_checksum_option() -> None:
    runs = [(True, True), (False, False), (True, True)]
    entries = [
        pack(message(1, event=STARTUP) if n == 0 else message(2), checksum=has)
        for run in runs
        for n, has in enumerate(run)
    ]
    (found,), _ = judge(b"".join(entries))
    assert (found.severity, found.facts["absent"]) == (Severity.NOTE, 2)


def test_details_count_entries_statements_events_and_the_index() -> None:
    whole = (
        pack(message(4, event=STARTUP))
        + pack(b"opaque", kind=2)
        + pack(message(6, insert(), insert(), {"type": 57, **TIMES}), checksum=False)
    )
    unfinished = pack(message(5, insert(), end=0))
    data = whole + unfinished
    _, verdict = judge(data)
    assert verdict.record_types == {"TRANSACTION": 2, "BLOB": 1, "INSERT": 1}
    assert verdict.transactions == 2
    assert verdict.details == {
        "entries": {"TRANSACTION": 3, "BLOB": 1},
        "statements": {"INSERT": 3, "57": 1},
        "events": 1,
        "checksums": {"present": 3, "absent": 1},
        "messages_with_end_segment_false": 1,
        "transactions_rolled_back": 0,
        "transactions_unterminated": 1,
        "whole_transactions_end": len(whole),
        "transaction_log_index": {
            "entries": 3,
            "min_trx": 4,
            "max_trx": 5,
            "min_end": 2,
            "max_end": 2,
            "offset": len(data),
        },
    }


def test_an_entry_without_checksum_is_proven_by_its_message_only() -> None:
    good = pack(message(1, insert()), checksum=False)
    assert is_proven_entry(good, None)
    assert not is_proven_entry(b"\x02" + good[1:], None)
    assert not is_proven_entry(pack(b"\x28\x01" + message(1), checksum=False), None)  # does not start with the context
    assert not is_proven_entry(pack(message(1)[:-3], checksum=False), None)
    assert not is_proven_entry(
        pack(encode("Transaction", {"transaction_context": {"server_id": 1}}), checksum=False), None
    )
    assert not is_proven_entry(pack(b"", checksum=False), None)


# -- bounds ---------------------------------------------------------------------------------------------------------


def test_the_number_of_open_transactions_is_bounded_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "MAX_OPEN", 3)
    found, verdict = judge(log(*(message(n, insert(), end=0) for n in range(1, 6))))
    assert [f.id for f in found].count("incomplete-transaction") == 3
    limit = next(f for f in found if f.id == "count-out-of-bounds")
    assert limit.severity is Severity.WARNING
    assert "2 were not checked" in limit.message
    assert verdict.details["transactions_unterminated"] == 3


def test_completed_ids_are_remembered_densely_and_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = TransactionIdSet()
    assert all(ids.add_if_absent((1, number)) for number in range(100_000))
    assert not ids.add_if_absent((1, 99_999))
    assert (2, 5) not in ids
    assert ids.add_if_absent((2, 5))
    assert not ids.forgotten
    monkeypatch.setattr(validate, "_MAX_CHUNKS", 2)
    sparse = TransactionIdSet()
    assert all(sparse.add_if_absent((1, number << 32)) for number in range(3))
    assert sparse.forgotten
    assert (1, 0) not in sparse
    assert (1, 2 << 32) in sparse
    assert sparse.add_if_absent((1, 2**64 - 1))


def test_forgotten_ids_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "_MAX_CHUNKS", 2)
    found, _ = judge(log(*(message(n << 32, insert()) for n in range(1, 4))))
    assert [(f.id, f.severity.label) for f in found] == [("count-out-of-bounds", "note")]
