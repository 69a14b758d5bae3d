"""Every JSON output follows the schema that `binlogtool schema` prints, with all members of the contract."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from binlogtool.report.json_schema import SCHEMAS
from tests.cli.invoke import invoke
from tests.cli.samples import damaged_log, plain_log
from tests.contract.json_schema import errors


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "x.log"
    path.write_bytes(damaged_log() + plain_log(1)[:-3])
    return path


CASES = [
    ("verify", ["verify", "-O", "json", "FILE"]),
    ("verify", ["verify", "-O", "json", "--depth", "frame", "FILE"]),
    ("verify", ["verify", "-O", "json", "FILE", "gone"]),
    ("records", ["dump", "-O", "json", "FILE"]),
    ("series", ["stats", "-O", "json", "FILE"]),
    ("series", ["stats", "-O", "json", "--rows", "--top", "1", "FILE"]),
    ("transactions", ["stats", "-O", "json", "--by", "transaction", "FILE"]),
    ("annotate", ["hexdump-annotate", "-O", "json", "FILE"]),
    ("plan", ["truncate-to-durable", "-O", "json", "FILE"]),
    ("plan", ["truncate-to-durable", "-O", "json", "--apply", "--yes", "--allow-discard-valid", "FILE"]),
    ("diagnose", ["diagnose", "-O", "json", "FILE"]),
    ("format", ["formats", "-O", "json", "tarantool"]),
    ("format", ["formats", "-O", "json", "drizzle"]),
    ("explain", ["explain", "-O", "json"]),
    ("manifest", ["convert", "-O", "json", "--on-damage", "skip", "--to", "jsonl", "-o", "OUT", "FILE"]),
    ("manifest", ["convert", "-O", "json", "--to", "jsonl", "-o", "OUT", "FILE"]),
]


@pytest.mark.parametrize(("name", "words"), CASES, ids=lambda c: c if isinstance(c, str) else " ".join(c))
def test_the_output_follows_its_schema(name: str, words: list[str], log: Path, tmp_path: Path) -> None:
    places = {"FILE": str(log), "OUT": str(tmp_path / "out")}
    done = invoke(*[places.get(w, w) for w in words])
    assert done.out, done.err
    assert errors(json.loads(done.out), SCHEMAS[name]) == []


def test_undo_follows_its_schema(log: Path) -> None:
    applied = invoke("truncate-to-durable", "-O", "json", "--apply", "--yes", "--allow-discard-valid", str(log))
    undo = json.loads(applied.out)["undo"]
    for words in ([], ["--apply", "--yes"]):
        done = invoke("undo", "-O", "json", *words, undo)
        assert errors(json.loads(done.out), SCHEMAS["undo"]) == []


@pytest.mark.parametrize("options", [[], ["--decode", "header"], ["--decode", "frame"]])
def test_every_line_follows_its_schema(options: list[str], log: Path) -> None:
    lines = invoke("dump", "-O", "jsonl", *options, str(log)).out.splitlines()
    assert len(lines) == 4
    for text in lines:
        assert errors(json.loads(text), SCHEMAS["record"]) == []


@pytest.mark.parametrize(
    "name", ["tarantool/generated/repl", "tarantool/generated/damaged", "drizzle/generated/rare-statements.log"]
)
def test_real_logs_follow_the_schemas(name: str, corpus: Path) -> None:
    done = invoke("verify", "-O", "json", str(corpus / name))
    assert errors(json.loads(done.out), SCHEMAS["verify"]) == []
    for text in invoke("dump", "-O", "jsonl", str(corpus / name)).out.splitlines()[:2000]:
        assert errors(json.loads(text), SCHEMAS["record"]) == []


MEMBERS = {
    "verify": ["schema", "tool", "status", "files", "sets", "summary"],
    "annotate": ["schema", "file", "size", "fields", "findings"],
    "plan": ["schema", "format", "refused", "reasons", "files"],
    "record": ["file", "offset", "size", "record", "type", "seq", "time", "object", "origin", "txn", "checksum", "body",
               "findings"],
}  # fmt: skip
FILES = {
    "verify": ["path", "format", "variant", "size", "records", "record_types", "transactions", "durable_end", "closed",
               "bytes", "findings"],
    "plan": ["path", "size", "action", "durable_end", "cut_bytes", "cut_valid_records", "proof", "sha256_kept",
             "sha256_cut"],
}  # fmt: skip


@pytest.mark.parametrize("name", MEMBERS)
def test_the_schemas_require_the_members_of_the_contract(name: str) -> None:
    assert SCHEMAS[name]["required"] == MEMBERS[name]
    if name in FILES:
        assert SCHEMAS[name]["properties"]["files"]["items"]["required"] == FILES[name]


def test_the_byte_classes_are_those_of_the_contract() -> None:
    classes = SCHEMAS["verify"]["properties"]["files"]["items"]["properties"]["bytes"]["required"]
    assert classes == ["header", "record", "padding", "preallocated", "torn_tail", "damaged", "unknown"]


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_printed(name: str) -> None:
    assert json.loads(invoke("schema", name).out) == SCHEMAS[name]


def test_the_validator_can_say_no() -> None:
    assert errors({"a": 1}, {"type": "object", "required": ["b"]}) == ["$: no member b"]
    assert errors(True, {"type": "integer"})
    assert errors("x", {"anyOf": [{"type": "integer"}, {"type": "null"}]})
    assert errors([1, "a"], {"type": "array", "items": {"type": "integer"}}) == ["$[1]: 'a' is no integer"]
