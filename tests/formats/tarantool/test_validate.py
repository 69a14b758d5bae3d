from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity
from binlogtool.verification.verify_report import FileReport
from tests.formats.tarantool.make import END, TIME, block, dml, header, log, row, verify

BACKENDS = ("python", "native")


@pytest.fixture(params=BACKENDS)
def judged(request: pytest.FixtureRequest) -> Any:
    def check(blocks: list[bytes], vclock: str = "{}", name: str | None = None, end: bytes = END) -> FileReport:
        signature = sum(int(part.split(":")[1]) for part in vclock.strip("{}").split(",") if part)
        data = log(blocks, vclock=vclock, end=end)
        return verify(data, name or f"{signature:020d}.xlog", request.param)

    return check


def said(report: FileReport) -> list[tuple[str, str, int | None]]:
    return [(f.facts.get("diagnosis", f.id), f.severity.label, f.offset) for f in report.findings]


def first(report: FileReport) -> Finding:
    return report.findings[0]


START = len(header())


def test_rows_in_order_are_clean(judged: Any) -> None:
    report = judged([block(dml(1)), block(dml(2) + dml(3)), block(dml(1, replica=2)), block(dml(1, replica=0))])
    assert (report.findings, report.transactions, report.records) == ((), 5, 5)
    assert report.record_types == {"REPLACE": 5}
    assert report.details["vclock"] == {"0": 1, "1": 3, "2": 1}


@pytest.mark.full
def test_many_batches_are_one_log(judged: Any) -> None:
    rows = [block(b"".join(dml(i) for i in range(n, n + 30))) for n in range(1, 150_001, 30)]
    report = judged(rows)
    assert (report.findings, report.transactions, report.records) == ((), 150_000, 150_000)


def test_a_missing_lsn_between_blocks_is_an_error_at_the_block_behind_it(judged: Any) -> None:
    blocks = [block(dml(1)), block(dml(3))]
    report = judged(blocks)
    assert said(report) == [("lsn_gap", "error", START + len(blocks[0]))]
    assert first(report).facts["first"] == first(report).facts["last"] == 2
    assert report.details["lost"] == [[1, 2, 2]]


def test_a_missing_lsn_inside_a_block_is_only_a_warning(judged: Any) -> None:
    assert said(judged([block(dml(1) + dml(3))])) == [("lsn_gap", "warning", START)]


def test_a_replica_that_joins_later_may_begin_anywhere(judged: Any) -> None:
    assert said(judged([block(dml(1)), block(dml(9, replica=2))]))[0][:2] == ("lsn_gap", "warning")


def test_the_first_row_follows_the_vclock(judged: Any) -> None:
    assert judged([block(dml(8))], "{1: 7}").findings == ()
    assert said(judged([block(dml(9))], "{1: 7}"))[0][:2] == ("lsn_gap", "error")


@pytest.mark.parametrize(("lsn", "id_"), [(2, "duplicate-sequence"), (1, "duplicate-sequence")])
def test_a_row_that_comes_again_is_an_error(judged: Any, lsn: int, id_: str) -> None:
    report = judged([block(dml(1)), block(dml(2)), block(dml(lsn)), block(dml(3))])
    assert [(f.id, f.facts["lsn"]) for f in report.findings] == [(id_, lsn)]


def test_a_row_below_the_vclock_is_a_regression(judged: Any) -> None:
    report = judged([block(dml(3))], "{1: 7}")
    assert [f.id for f in report.findings] == ["sequence-regression"]


def test_swapped_blocks_are_told_once_and_not_as_a_gap(judged: Any) -> None:
    report = judged([block(dml(1)), block(dml(3)), block(dml(2)), block(dml(4))])
    assert [(f.id, f.facts["lsn"], f.facts["after"]) for f in report.findings] == [("sequence-regression", 2, 3)]


def test_regressions_of_one_block_are_told_once(judged: Any) -> None:
    rows = b"".join(dml(i) for i in range(1, 6))
    assert len(judged([block(rows), block(rows)]).findings) == 1


def test_a_time_that_falls_is_a_warning_for_its_own_replica(judged: Any) -> None:
    blocks = [block(dml(1, time=TIME)), block(dml(1, replica=2, time=TIME - 5)), block(dml(2, time=TIME - 1))]
    assert [found[:2] for found in said(judged(blocks))] == [("time_falls", "warning")]


# -- transactions ------------------------------------------------------------------------------------------------------


def tx(first_lsn: int, count: int, **more: Any) -> list[bytes]:
    return [dml(first_lsn + i, tsn=first_lsn, commit=i == count - 1, **more) for i in range(count)]


def test_transactions_are_counted_whole(judged: Any) -> None:
    report = judged([block(b"".join(tx(1, 4))), block(b"".join(tx(5, 2)) + dml(7))])
    assert (report.findings, report.transactions) == ((), 3)


def test_local_rows_join_the_transaction_whose_number_they_give(judged: Any) -> None:
    nop = row({0: 12, 2: 1, 3: 2, 4: TIME, 8: 1, 9: 1})
    blocks = [block(dml(1, tsn=1) + dml(1, replica=0, tsn=1) + nop)]
    report = judged(blocks)
    assert (report.findings, report.transactions) == ((), 1)


def test_a_transaction_may_begin_with_a_local_row(judged: Any) -> None:
    blocks = [block(dml(1, replica=0, tsn=9) + dml(9, tsn=9) + dml(10, tsn=9, commit=True))]
    report = judged(blocks, "{1: 8}")
    assert (report.findings, report.transactions) == ((), 1)


def test_a_transaction_of_local_rows_has_the_number_of_its_first_row(judged: Any) -> None:
    good = judged([block(dml(1, replica=0, tsn=1) + dml(2, replica=0, tsn=1, commit=True))])
    assert (good.findings, good.transactions) == ((), 1)
    bad = judged([block(dml(1, replica=0, tsn=7) + dml(2, replica=0, tsn=7, commit=True))])
    assert [found[:2] for found in said(bad)] == [("tx_head_missing", "error")]


def test_a_missing_commit_before_the_next_transaction_is_an_error_where_it_begins(judged: Any) -> None:
    blocks = [block(dml(1)), block(b"".join(tx(2, 3)[:-1])), block(dml(4))]
    report = judged(blocks)
    assert said(report) == [("tx_not_finished", "error", START + len(blocks[0]))]
    assert report.durable_end == START + len(blocks[0])
    assert report.transactions == 2


def test_a_missing_commit_at_the_end_of_an_open_file_is_a_note(judged: Any) -> None:
    blocks = [block(dml(1)), block(b"".join(tx(2, 3)[:-1]))]
    report = judged(blocks, end=b"")
    assert ("tx_not_finished", "note", START + len(blocks[0])) in said(report)
    assert report.durable_end == START + len(blocks[0])
    closed = judged(blocks)
    assert said(closed)[0][1] == "error"


def test_a_transaction_over_two_blocks_is_a_warning_where_it_begins(judged: Any) -> None:
    rows = tx(1, 5)
    report = judged([block(b"".join(rows[:2])), block(b"".join(rows[2:4])), block(rows[4]), block(dml(6))])
    assert said(report) == [("tx_crosses_block", "warning", START)]
    assert report.transactions == 2
    assert report.durable_end is not None
    assert report.durable_end > START


def test_transactions_of_two_replicas_that_are_mixed_are_an_error(judged: Any) -> None:
    a, b = tx(1, 3), tx(1, 3, replica=2)
    mixed = b"".join(one for pair in zip(a, b, strict=True) for one in pair)
    report = judged([block(mixed), block(dml(4))])
    assert {found[0] for found in said(report)} == {"tx_mixed"}
    assert report.transactions == 3


def test_the_head_of_a_transaction_may_be_missing(judged: Any) -> None:
    rows = tx(1, 3)
    assert ("tx_head_missing", "error", START) in said(judged([block(rows[1] + rows[2])]))


# -- content -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [1, 0, 6, 100, 255])
def test_a_row_type_that_has_no_place_in_a_log_is_an_error(judged: Any, kind: int) -> None:
    report = judged([block(row({0: kind, 2: 1, 3: 1, 4: TIME}, {0x10: 512, 0x21: [1]}))])
    assert [found[:2] for found in said(report)] == [("row_type_unknown", "error")]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (2, (0x10,)),
        (3, (0x21,)),
        (4, (0x10, 0x21)),
        (5, (0x10,)),
        (9, (0x10, 0x21)),
        (17, (0x10,)),
        (40, (2,)),
        (31, (3,)),
    ],
)
def test_a_body_without_its_keys_is_an_error(judged: Any, kind: int, keys: tuple[int, ...]) -> None:
    body = {key: [1] if key in (0x20, 0x21, 0x28) else 512 for key in keys}
    report = judged([block(row({0: kind, 2: 1, 3: 1, 4: TIME}, body))])
    assert [found[:2] for found in said(report)] == [("missing_body_key", "error")]


def test_a_key_that_stands_twice_is_a_warning(judged: Any) -> None:
    twice = b"\x85\x00\x03\x02\x01\x03\x01\x03\x01\x04\xcb\x41\xda\xc0\x44\xc8\x39\x77\x84" + b"\x82\x10\x05\x21\x90"
    assert [found[:2] for found in said(judged([block(twice)]))] == [("duplicate_key", "warning")]


@pytest.mark.parametrize("fields", [{2: 32}, {2: 2**64 - 1}, {3: 2**63}, {3: 2**64 - 1}])
def test_ids_and_numbers_out_of_range_are_errors(judged: Any, fields: dict[int, int]) -> None:
    report = judged([block(row({0: 3, 2: 1, 3: 1, 4: TIME} | fields, {0x10: 512, 0x21: [1]}))])
    assert [found[:2] for found in said(report)] == [("row_out_of_range", "error")]


def test_what_is_odd_about_blocks_is_told_once_per_file(judged: Any) -> None:
    odd = [block(dml(i), filler=b"\xa7PPPPPPP") for i in (1, 2, 3)]
    report = judged(odd)
    assert said(report) == [("padding_not_zero", "warning", START)]
    assert first(report).facts["blocks"] == 3


def test_garbage_in_the_padding_of_old_servers_is_normal() -> None:
    data = log([block(dml(1), filler=b"\xa7PPPPPPP")]).replace(b"2.6.0", b"1.7.5")
    assert verify(data).findings == ()


def test_large_plain_blocks_and_a_previous_crc_are_remarked(judged: Any) -> None:
    large = block(dml(1, tuple=["x" * 3000]))
    assert said(judged([large])) == [("plain_block_large", "warning", START)]
    assert judged([block(dml(1, tuple=["x" * 3000]), zstd=True)]).findings == ()
    plain = block(dml(1))
    assert plain[5] == 0
    assert said(judged([plain[:5] + b"\x07" + plain[6:]])) == [("previous_crc_used", "warning", START)]


# -- damage ------------------------------------------------------------------------------------------------------------


def test_rows_that_a_damage_took_are_counted_as_lost_and_not_as_a_gap(judged: Any) -> None:
    bad = bytearray(block(dml(2) + dml(3)))
    bad[-1] ^= 1
    report = judged([block(dml(1)), bytes(bad), block(dml(4))])
    assert "lsn_gap" not in {found[0] for found in said(report)}
    assert report.details["lost"] == [[1, 2, 3]]


def test_a_file_that_was_not_finished_has_no_errors(judged: Any) -> None:
    bad = bytearray(block(dml(1)))
    bad[-1] ^= 1
    report = judged([bytes(bad), block(dml(2))], name="00000000000000000000.xlog.inprogress")
    assert {f.severity for f in report.findings if f.id == "checksum-mismatch"} == {Severity.NOTE}


def test_zeros_behind_the_last_block_stop_the_server(judged: Any) -> None:
    few, many = judged([block(dml(1))], end=bytes(3)), judged([block(dml(1))], end=bytes(400))
    assert {f.severity for f in few.findings} == {Severity.NOTE}
    assert [f.severity for f in many.findings] == [Severity.ERROR]
    assert "refuses to start" in many.findings[0].message


# -- snapshots ---------------------------------------------------------------------------------------------------------


def snap(rows: list[tuple[int, list[Any]]], numbers: list[int] | None = None, end: bytes = END) -> FileReport:
    packed = [
        row({0: 2, 3: n, 4: TIME} if n else {0: 2, 4: TIME}, {0x10: space, 0x21: fields})
        for n, (space, fields) in zip(numbers or range(len(rows)), rows, strict=True)
    ]
    data = log([block(b"".join(packed), zstd=True)], kind="SNAP", end=end)
    python, native = (verify(data, "00000000000000000000.snap", backend) for backend in BACKENDS)
    assert said(python) == said(native)
    return python


SYSTEM: list[tuple[int, list[Any]]] = [
    (272, ["cluster", "x"]),
    (280, [512, 1, "books", "memtx", 0, {}, []]),
    (280, [513, 1, "names", "memtx", 0, {}, []]),
    (288, [512, 0, "pk", "tree", {"unique": True}, [[0, "unsigned"], [1, "string"]]]),
    (288, [513, 0, "pk", "hash", {"unique": True}, [[0, "unsigned"]]]),
]


def test_a_snapshot_in_order_is_clean() -> None:
    books = [[1, "a"], [1, "b"], [200, "a"], [70000, "x"], [2**40, "x"], [2**63, "y"]]
    report = snap([*SYSTEM, *((512, fields) for fields in books), (513, [5]), (513, [1])])
    assert (report.findings, report.record_types) == ((), {"INSERT": 13})


@pytest.mark.parametrize(
    "books",
    [
        [[2, "a"], [1, "a"]],
        [[1, "b"], [1, "a"]],
        [[1, "ab"], [1, "a"]],
        [[2**63, "a"], [5, "a"]],
        [[300, "x"], [-1, "x"]],
    ],
)
def test_keys_of_a_tree_that_fall_are_an_error(books: list[list[Any]]) -> None:
    report = snap([*SYSTEM, *((512, fields) for fields in books)])
    assert [found[:2] for found in said(report)] == [("snap_not_sorted", "error")]


def test_keys_are_compared_over_blocks_too() -> None:
    rows = [row({0: 2, 3: n, 4: TIME} if n else {0: 2, 4: TIME}, {0x10: s, 0x21: f}) for n, (s, f) in enumerate(
        [*SYSTEM, (512, [5, "a"]), (512, [4, "a"])])]  # fmt: skip
    data = log([block(b"".join(rows[:-1])), block(rows[-1])], kind="SNAP")
    assert [found[0] for found in said(verify(data, "00000000000000000000.snap"))] == ["snap_not_sorted"]


def test_collations_and_other_types_are_not_judged_by_their_bytes() -> None:
    spaces = [*SYSTEM[:3], (288, [512, 0, "pk", "tree", {}, [{"field": 0, "type": "string", "collation": 1}]])]
    assert snap([*spaces, (512, ["b"]), (512, ["a"])]).findings == ()
    spaces[-1] = (288, [512, 0, "pk", "tree", {}, [[0, "scalar"]]])
    assert snap([*spaces, (512, ["b"]), (512, ["a"])]).findings == ()
    spaces[-1] = (288, [512, 0, "pk", "tree", {}, [{"field": 0, "type": "string"}]])
    assert [found[0] for found in said(snap([*spaces, (512, ["b"]), (512, ["a"])]))] == ["snap_not_sorted"]


def test_spaces_are_contiguous_and_system_spaces_rise() -> None:
    apart = snap([*SYSTEM, (512, [1, "a"]), (513, [1]), (512, [2, "a"])])
    assert [found[0] for found in said(apart)] == ["snap_not_sorted"]
    falling = snap([SYSTEM[0], SYSTEM[3], SYSTEM[1]])
    assert [found[0] for found in said(falling)] == ["snap_not_sorted"]
    anyhow = snap([*SYSTEM, (513, [1]), (512, [2, "a"])])
    assert anyhow.findings == ()


def test_rows_that_change_places_are_told_and_rows_that_are_missing_too() -> None:
    assert [found[0] for found in said(snap(SYSTEM, [0, 1, 3, 2, 4]))] == ["snap_not_sorted"]
    assert [found[0] for found in said(snap(SYSTEM, [0, 1, 2, 5, 6]))] == ["lsn_gap"]
    assert snap(SYSTEM, [1, 2, 3, 4, 5]).findings == ()


def test_a_snapshot_begins_with_schema_and_is_closed() -> None:
    assert ("snap_without_schema", "error") in {found[:2] for found in said(snap([(280, [512, 1, "b"])]))}
    assert ("snap_without_schema", "error") in {
        found[:2] for found in said(verify(log([], kind="SNAP"), "00000000000000000000.snap"))
    }
    assert ("not_closed", "error") in {found[:2] for found in said(snap(SYSTEM, end=b""))}


def test_only_inserts_and_raft_rows_stand_in_a_snapshot() -> None:
    rows = [row({0: 2, 4: TIME}, {0x10: 272, 0x21: ["x"]}), row({0: 30, 3: 1, 4: TIME, 7: 1}, {0: 1})]
    data = log([block(b"".join([*rows, row({0: 3, 3: 2, 4: TIME}, {0x10: 512, 0x21: [1]})]))], kind="SNAP")
    report = verify(data, "00000000000000000000.snap")
    assert [found[:2] for found in said(report)] == [("snap_row_not_insert", "error")]


# -- vinyl -------------------------------------------------------------------------------------------------------------


def test_metadata_records_must_be_known() -> None:
    good = row({0: 2}, {0x21: [0, {6: 512, 7: [{"field": 0, "type": "unsigned"}], 12: 5}]})
    assert verify(log([block(good)], kind="VYLOG"), "00000000000000000000.vylog").findings == ()
    for record, diagnosis in (
        ([99, {}], "vylog_record_unknown"),
        ([5], "vylog_record_malformed"),
        ([{}, 5], "vylog_record_malformed"),
    ):
        data = log([block(row({0: 2}, {0x21: record}))], kind="VYLOG")
        assert [found[0] for found in said(verify(data, "00000000000000000000.vylog"))] == [diagnosis]


def run_page(count: int, offsets: list[int] | None = None) -> bytes:
    rows = [row({0: 3, 3: n + 1}, {0x21: [n]}) for n in range(count)]
    starts = [sum(map(len, rows[:n])) for n in range(count)] if offsets is None else offsets
    table = b"".join(start.to_bytes(4, "big") for start in starts)
    return b"".join(rows) + row({0: 102}, {1: table})


def test_a_page_of_a_run_ends_with_the_table_of_its_statements() -> None:
    name = "00000000000000000005.run"
    good = verify(log([block(run_page(3)), block(run_page(2))], kind="RUN"), name)
    assert (good.findings, good.record_types) == ((), {"REPLACE": 5, "ROWINDEX": 2})
    wrong = verify(log([block(run_page(3, [0, 1, 2]))], kind="RUN"), name)
    assert [found[0] for found in said(wrong)] == ["row_index_mismatch"]
    none = verify(log([block(row({0: 3, 3: 1}, {0x21: [1]}))], kind="RUN"), name)
    assert [found[0] for found in said(none)] == ["run_page_without_index"]


def test_an_index_begins_with_runinfo_and_counts_its_pages() -> None:
    name = "00000000000000000005.index"
    info, page = row({0: 100}, {5: 1}), row({0: 101}, {1: 85, 2: 50, 3: 31, 4: 2, 6: 20})
    assert verify(log([block(info + page)], kind="INDEX"), name).findings == ()
    assert [f[0] for f in said(verify(log([block(info + page + page)], kind="INDEX"), name))] == ["page_count_mismatch"]
    assert [f[0] for f in said(verify(log([block(page)], kind="INDEX"), name))] == ["index_row_type"]
    assert [f[0] for f in said(verify(log([], kind="INDEX"), name))] == ["index_without_run"]
    broken = row({0: 101}, {1: 85})
    assert "missing_body_key" in [f[0] for f in said(verify(log([block(info + broken)], kind="INDEX"), name))]


@pytest.mark.full
@pytest.mark.parametrize("seed", range(12))
def test_the_judge_says_the_same_row_by_row_as_with_the_fold(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Runs of odd rows between rows in order: who looks at a row must not be seen."""
    rng = random.Random(seed)
    blocks, lsn = list[bytes](), 0
    for _ in range(60):
        odd, rows, first = rng.random() < 0.4, b"", lsn + 1
        for _ in range(rng.choice((1, 3, 40, 200))):
            lsn += 1 + (odd and rng.random() < 0.1)
            plain = dml(lsn, tsn=first) if rng.random() < 0.3 else dml(lsn, space=rng.choice((512, 513)))
            bare = row({0: rng.choice((2, 3, 99)), 2: 1, 3: lsn, 4: TIME})
            rows += bare if odd and rng.random() < 0.7 else plain
        blocks.append(block(rows + dml(lsn := lsn + 1, tsn=first, commit=rng.random() < 0.8)))
    data = log(blocks)
    with_fold = verify(data)
    monkeypatch.setattr(
        "binlogtool.formats.tarantool.validate.base_validator.skip_ordered_log_rows", lambda index, count, *rest: index
    )
    assert replace(verify(data), seconds=0) == replace(with_fold, seconds=0)
    assert with_fold.findings
