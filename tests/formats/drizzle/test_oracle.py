"""Every entry of the corpus against what the real reader printed, and against the manifests."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from binlogtool.findings import Severity
from binlogtool.formats.drizzle.decode import create_transaction_parser, get_message_class, to_json_body
from binlogtool.formats.drizzle.schema import ENTRY, TRANSACTION
from binlogtool.limits import Limits
from tests.formats.drizzle.reference import plain, text_form
from tests.formats.drizzle.walk import entries, judge

OF_OTHERS = ("third-party", "server-test-messages.log")
ROOTS = ("generated", pytest.param("third-party", marks=pytest.mark.full_corpus))
GENERATED = (
    "basic-checksum", "basic-nochecksum", "basic-with-sql", "blob-entries", "empty", "mixed-checksum",
    "rare-statements", "segmented", "segmented-nochecksum", "transaction_writer",
)  # fmt: skip
WITHOUT_INDEX = {"empty.log", "mixed-checksum.log", "transaction_writer.log", "server-test-messages.log"}
"""Logs of which the manifest holds no index."""
FILES = [("generated", f"{name}.log") for name in GENERATED]

each_file = pytest.mark.parametrize(
    ("root", "name"),
    [
        *(pytest.param(*one, id=one[1]) for one in FILES),
        pytest.param(*OF_OTHERS, id=OF_OTHERS[1], marks=pytest.mark.full_corpus),
    ],
)


def facts(corpus: Path, root: str, name: str) -> Any:
    return json.loads((corpus / "drizzle" / root / "manifest.json").read_text())["files"][name]


def data_of(corpus: Path, root: str, name: str) -> bytes:
    return (corpus / "drizzle" / root / name).read_bytes()


def oracle(corpus: Path, root: str, name: str, kind: str) -> str:
    return (corpus / "drizzle" / root / "oracle" / f"{name}.{kind}.txt").read_bytes().decode("utf-8", "surrogateescape")


def messages(data: bytes) -> Iterator[bytes]:
    return (entry.message for _, entry in entries(data) if entry.type == 1)


@pytest.mark.parametrize("root", ROOTS)
def test_the_files_tested_here_are_those_of_the_manifest(corpus: Path, root: str) -> None:
    listed = json.loads((corpus / "drizzle" / root / "manifest.json").read_text())["files"]
    assert set(listed) == {name for at, name in (*FILES, OF_OTHERS) if at == root}


@each_file
def test_entries_lie_where_the_manifest_says(corpus: Path, root: str, name: str) -> None:
    expected, data = facts(corpus, root, name), data_of(corpus, root, name)
    assert hashlib.sha256(data).hexdigest() == expected["sha256"]
    offsets = [offset for offset, _ in entries(data)]
    assert len(offsets) == expected["entries"]
    assert offsets[:20] == expected["first_offsets"]


@each_file
def test_every_entry_and_message_builds_back(corpus: Path, root: str, name: str) -> None:
    data = data_of(corpus, root, name)
    assert b"".join(ENTRY.build(entry) for _, entry in entries(data)) == data
    for message in messages(data):
        assert TRANSACTION.build(TRANSACTION.parse(message)) == message


@each_file
def test_the_reader_and_the_library_agree_on_every_message(corpus: Path, root: str, name: str) -> None:
    for message in messages(data_of(corpus, root, name)):
        assert plain("Transaction", TRANSACTION.parse(message)) == to_json_body(
            get_message_class("Transaction").FromString(message)
        )


@each_file
def test_every_byte_of_every_message_has_a_name(corpus: Path, root: str, name: str) -> None:
    for message in messages(data_of(corpus, root, name)):
        end = 0
        for row in TRANSACTION.trace_rows(message, 0, len(message), Limits()):
            assert row.start == end
            assert "unknown" not in row.path
            end = row.end or end
        assert end == len(message)


@each_file
def test_the_counts_are_those_of_the_manifest(corpus: Path, root: str, name: str) -> None:
    expected, data = facts(corpus, root, name), data_of(corpus, root, name)
    found, verdict = judge(data)
    details = verdict.details
    assert details["entries"] == expected["entries_by_type"]
    assert details["statements"] == expected["statements_by_type"]
    assert details["events"] == expected["event_messages"]
    assert details["messages_with_end_segment_false"] == expected["messages_with_end_segment_false"]
    blobs = expected["entries_by_type"][
        "BLOB"
    ]  # the manifest counts checksums of transactions only; these have one too
    assert details["checksums"]["present"] == expected["entries_with_nonzero_checksum"] + blobs
    assert sum(details["checksums"].values()) == expected["entries"]
    assert sum(verdict.record_types.values()) == expected["entries"]
    assert all(one.severity < Severity.ERROR for one in found)


@each_file
def test_the_index_is_what_the_real_class_kept_in_memory(corpus: Path, root: str, name: str) -> None:
    line = facts(corpus, root, name).get("transaction_log_index")
    assert (line is None) is (name in WITHOUT_INDEX)
    if line is None:
        return
    expected = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line)}
    del expected["written"]
    assert judge(data_of(corpus, root, name))[1].details["transaction_log_index"] == expected


@each_file
def test_transactions_are_complete_but_for_the_known_ones(corpus: Path, root: str, name: str) -> None:
    """Rolled back: one of each segmented file. Silently rolled back: one of each. Repeated ids: see the manifest."""
    data = data_of(corpus, root, name)
    _, verdict = judge(data)
    runs = 2 if name == "mixed-checksum.log" else 1
    segmented = name.startswith("segmented")
    distinct = facts(corpus, root, name)["distinct_transaction_ids"]
    expected = facts(corpus, root, name)["entries"] if runs == 2 else distinct - (2 if segmented else 0)
    assert verdict.transactions == expected
    assert verdict.details["transactions_rolled_back"] == segmented
    assert verdict.details["transactions_unterminated"] == segmented


def in_the_readers_order(data: bytes) -> list[bytes]:
    """The real reader holds messages back while the last statement is unfinished (specification, section 4).

    It stops at a BLOB entry.
    """
    held: dict[int, list[bytes]] = {}
    out = []
    for _, entry in entries(data):
        if entry.type == 2:
            break
        value = to_json_body(get_message_class("Transaction").FromString(entry.message))
        group = held.setdefault(value["transaction_context"]["transaction_id"], [])
        group.append(entry.message)
        if _ends(value):
            out += held.pop(value["transaction_context"]["transaction_id"])
    return out


def _ends(value: Any) -> bool:
    last = value.get("statement", [{}])[-1]
    data = next((part for key, part in last.items() if key.endswith("_data")), {})
    return bool(data.get("end_segment", True))


def printed(text: str) -> tuple[str, int | None, str | None]:
    """What the real reader printed, and size and hash of the whole where the stored text is cut."""
    text = text[: text.rindex("[exit ")]
    cut = re.search(r"\n\[cut: the reader printed (\d+) bytes, sha256 ([0-9a-f]{64})\]\n$", text)
    return (text[: cut.start()], int(cut[1]), cut[2]) if cut else (text, None, None)


@each_file
def test_the_text_form_is_the_one_that_the_real_reader_printed(corpus: Path, root: str, name: str) -> None:
    """All of it: the stored texts are cut, and say the size and the hash of the whole."""
    wanted, size, digest = printed(oracle(corpus, root, name, "raw"))
    data = data_of(corpus, root, name)
    got = "".join(map(text_form, in_the_readers_order(data)))
    if size is None:
        assert got == wanted
    else:
        assert got.startswith(wanted)
        assert len(got.encode()) == size
        assert hashlib.sha256(got.encode()).hexdigest() == digest


SUMMARY = re.compile(
    r"\t(?:-- (EVENT): Server (?:startup|shutdown)|(?:(CREATE SCHEMA|CREATE TABLE|ALTER TABLE|ALTER SCHEMA"
    r"|TRUNCATE TABLE|DROP TABLE|DROP SCHEMA|INSERT INTO|UPDATE|DELETE FROM) `(.*)`)"
    r"|(RAW SQL)|(ROLLBACK STATEMENT)|(ROLLBACK)|(SET VARIABLE) .*)"
)
KIND = {"INSERT INTO": "INSERT", "DELETE FROM": "DELETE"}


def summary(text: str) -> list[tuple[int, list[tuple[str, str | None]]]]:
    """The real reader's summary, one (transaction id, [(kind, object)]) per block."""
    blocks = []
    for block in printed(text)[0].split("\ntransaction_id = ")[1:]:
        number, *lines = block.rstrip("\n").split("\n")
        kinds = []
        for line in filter(None, lines):
            match = SUMMARY.fullmatch(line)
            assert match, line
            kind = next(group for at, group in enumerate(match.groups()) if group and at != 2)
            kinds.append((KIND.get(kind, kind).replace(" ", "_"), match[3]))
        blocks.append((int(number), kinds))
    return blocks


def our_summary(data: bytes) -> list[tuple[int, list[tuple[str, str | None]]]]:
    """The same from our bodies, in the real reader's order."""
    blocks = []
    for message in in_the_readers_order(data):
        value = to_json_body(get_message_class("Transaction").FromString(message))
        kinds = [(s["type"], _object(s)) for s in value.get("statement", [])]
        kinds += [("EVENT", None)] if "event" in value else []
        blocks.append((value["transaction_context"]["transaction_id"], kinds))
    return blocks


def _object(statement: Any) -> str | None:
    for part in statement.values():
        if isinstance(part, dict):
            for inner in (part.get("table_metadata"), part.get("table"), part.get("before"), part.get("schema"), part):
                if isinstance(inner, dict):
                    name = inner.get("table_name") or inner.get("name") or inner.get("schema_name")
                    if isinstance(name, str):
                        return name
    return None


@each_file
def test_statements_and_objects_are_those_of_the_real_readers_summary(corpus: Path, root: str, name: str) -> None:
    theirs, ours = summary(oracle(corpus, root, name, "summary")), our_summary(data_of(corpus, root, name))
    assert _flat(ours) == _flat(theirs)


def _flat(blocks: Any) -> list[tuple[int, str, str | None]]:
    """Statements with their transaction id. The real reader's blocks end at other places (specification, section 4)."""
    return [
        (number, kind, None if kind == "SET_VARIABLE" else name) for number, kinds in blocks for kind, name in kinds
    ]


VERBS = {"INSERT INTO": "INSERT", "UPDATE": "UPDATE", "DELETE FROM": "DELETE"}
ROW = re.compile(r"^(INSERT INTO|UPDATE|DELETE FROM) `((?:[^`]|``)*)`\.`((?:[^`]|``)*)`", re.MULTILINE)


@pytest.mark.parametrize(
    "name", ["basic-checksum.log", "basic-nochecksum.log", "basic-with-sql.log", "mixed-checksum.log"]
)
def test_rows_come_in_the_order_of_the_real_readers_sql(corpus: Path, name: str) -> None:
    """One statement of SQL per row: the same verbs and tables in the same order."""
    theirs = [
        (VERBS[verb], f"{schema}.{table}")
        for verb, schema, table in ROW.findall(oracle(corpus, "generated", name, "sql"))
    ]
    ours = []
    for message in messages(data_of(corpus, "generated", name)):
        for statement in to_json_body(create_transaction_parser()(message)[0]).get("statement", []):
            verb = statement["type"].lower()
            if f"{verb}_data" in statement:
                table = statement[f"{verb}_header"]["table_metadata"]
                row = (statement["type"], f"{table['schema_name']}.{table['table_name']}")
                ours += [row] * len(statement[f"{verb}_data"].get("record", []))
    raw = Counter(theirs) - Counter(ours)  # RAW_SQL statements print their own text among the rows
    kept = [row for row in theirs if row not in raw]
    assert [row for row in ours if row not in raw] == kept
    assert len(kept) > 20
