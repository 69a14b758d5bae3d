"""The manifest of the corpus, and what it says of each record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from binlogtool.findings import Finding

ROOTS = {
    "v16": "manticore/generated/v16",
    "v15": "manticore/generated/v15",
    "v14": "manticore/generated/v14",
    "sphinx": "sphinx/generated",
}


def manifest(corpus: Path, version: str) -> Any:
    return json.loads((corpus / ROOTS[version] / "manifest.json").read_text())


def expected_records(path: Path) -> dict[str, list[Any]]:
    by_file: dict[str, list[Any]] = {}
    for line in (path / "expected.jsonl").read_text().splitlines():
        record = json.loads(line)
        by_file.setdefault(record["file"], []).append(record)
    return by_file


def same_record(ours: Any, theirs: Any) -> None:
    body = ours["body"]
    assert not isinstance(body, Finding), body
    assert (ours["offset"], ours["size"], ours["type"]) == (theirs["offset"], theirs["size"], theirs["op"])
    assert f"{ours['crc']:08x}" == theirs["crc"]
    assert ours["time"] == theirs.get("time_us")
    assert ours["object"] == theirs.get("table")
    if theirs["op"] == "ADD_CACHE":
        assert [list(table.values()) for table in body["tables"]] == theirs["tables"]
        return
    assert body["id"] == theirs["id"]
    if theirs["op"] == "ADD_INDEX":
        assert body["name"] == theirs["table"]
        assert body.get("generation") == theirs.get("gen")
        assert body.get("tid") == theirs.get("tid")
        return
    assert (ours["seq"], body["tid"], body.get("uSize")) == (theirs["tid"], theirs["tid"], theirs.get("usize"))
    same_payload(body["payload"], theirs["payload"])


def same_payload(ours: Any, theirs: Any) -> None:
    kind = theirs["kind"]
    if kind == "commit":
        same_commit(ours, theirs)
    elif kind == "update":
        assert [[a["name"], a["type"]] for a in ours["attributes"]] == theirs["attrs"]
        assert ours["docids"] == theirs["docids"]
        assert (len(ours["pool"]), len(ours["row_offsets"])) == (theirs["pool_words"], theirs["row_offsets"])
        assert ours["pool"][: len(theirs["pool"])] == theirs["pool"]
        assert len(ours.get("blobs", b"")) == theirs.get("blob_bytes", 0)
        assert len(ours["documents"]) == theirs["docs"]
    elif kind == "pq_add_delete":
        assert [f"{tag:016x}" for tag in ours["del_tags"]] == theirs["delete_tags"]
        assert ours["del_ids"] == theirs["delete_ids"]
        assert [_query(one) for one in ours["new"]] == theirs["add"]
    else:
        assert kind == "RECONFIGURE"
        assert len(ours) == theirs["bytes"]


def same_commit(ours: Any, theirs: Any) -> None:
    assert ours["rows"] == theirs["rows"]
    assert len(ours["killed"]) == theirs["killed"]
    assert ours["killed"][: len(theirs["killed_ids"])] == theirs["killed_ids"]
    if not theirs["rows"]:
        assert "segment" not in ours
        return
    segment = ours["segment"]
    pairs = {
        "added_bytes": "add_total_bytes", "dictionary_bytes": "dict_bytes", "doclists_bytes": "doclist_bytes",
        "hitlists_bytes": "hitlist_bytes", "row_words": "row_words", "stride": "row_stride_words",
        "blobs_bytes": "blob_bytes", "keyword_checkpoints_bytes": "keyword_checkpoint_bytes",
        "has_docstore": "has_docstore", "has_columnar": "has_columnar", "strings_bytes": "string_bytes",
        "mva_words": "mva_words",
    }  # fmt: skip
    assert {name: segment.get(name) for name in pairs} == {name: theirs.get(other) for name, other in pairs.items()}
    assert segment["checkpoints"]["count"] == theirs["dict_checkpoints"]
    assert segment["docids"][: len(theirs["docids"])] == theirs["docids"]
    if theirs.get("has_docstore"):
        assert segment["docstore"] == {"count": theirs["docstore_docs"], "bytes": theirs["docstore_bytes"]}


def _query(query: Any) -> dict[str, Any]:
    names = {
        "attribute": "attr", "has_equal_min": "eq_min", "has_equal_max": "eq_max", "n_values": None, "n_strings": None,
    }  # fmt: skip
    filters = [
        {names.get(key, key): value for key, value in one.items() if names.get(key, key)} for one in query["filters"]
    ]
    tree = [[value & 0xFFFFFFFF for value in node.values()] for node in query["tree"]]  # -1 as its 32-bit pattern
    return {
        "quid": query["id"], "is_ql": query["is_ql"], "query": query["query"], "tags": query["tags"],
        "filters": filters, "filter_tree": tree,
    }  # fmt: skip
