"""Every record against what the real library delivered, and against the manifest. 0 differences."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.core.record_and_selection_types import Record
from binlogtool.findings import Severity
from binlogtool.limits import Limits

TRACES = {
    "api-large": "api-large.binlog.jsonl", "api-not-closed": "api-not-closed.binlog.jsonl",
    "api-prealloc": "api-prealloc.binlog.jsonl", "api-small": "api-small.binlog.jsonl",
    "api-sync": "api-sync.binlog.jsonl", "dialect-a-api": "dialect-a-api.binlog.jsonl",
    "dialect-b-rawtypes-api": "dialect-b-rawtypes-api.binlog.jsonl", "empty": "empty.binlog.jsonl",
    "empty-prealloc": "empty-prealloc.binlog.jsonl", "instance-a": "instance-a.read.jsonl",
    "instance-b": "instance-b.read.jsonl",
}  # fmt: skip
FILES = [*TRACES, "dialect-a-instance", "dialect-b-rawtypes-instance", "dialect-p-packed"]
DIALECTS = {"dialect-a-api": "a", "dialect-a-instance": "a", "dialect-p-packed": "p"} | {
    f"dialect-b-rawtypes-{kind}": "b4" for kind in ("api", "instance")
}
BACKENDS = ("python", "native")


def lines(path: Path) -> list[dict[str, Any]]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in data.decode().splitlines() if line.startswith("{")]


def read(path: Path, backend: str = "python", limits: Limits = Limits()) -> list[Record]:
    with binlogtool.open(path, format="eblob", backend=backend, limits=limits) as log:
        return list(log.records())


def parts(path: Path, record: Record, head: int = 128) -> tuple[bytes, bytes]:
    """Metadata and data as they lie in the file, by the sizes that the body gives."""
    raw = path.read_bytes()[record.offset + head : record.offset + record.size]
    return raw[: record.body["meta_size"]], raw[record.body["meta_size"] :]


def as_delivered(path: Path, record: Record, *, total: bool) -> dict[str, Any]:
    """One record in the words of the trace. total: this library calls the whole content its data size."""
    meta, data = parts(path, record)
    out: dict[str, Any] = {
        "offset": record.offset, "type": record.body["type"], "flags": 0, "meta_size": len(meta),
        "data_size": len(data) + (len(meta) if total else 0), "key": record.object,
    }  # fmt: skip
    if meta:
        out["meta_crc32"] = f"{zlib.crc32(meta):08x}"
    if data:
        out["data_crc32"] = f"{zlib.crc32(data):08x}"
    return out


def compare(path: Path, trace: list[dict[str, Any]], backend: str) -> int:
    """Raises at the first difference; returns the number of records."""
    delivered = [line for line in trace if "offset" in line]
    ours = [as_delivered(path, one, total="dialect-a" in path.name) for one in read(path, backend)]
    assert ours == delivered
    (result,) = [line for line in trace if "apply" in line]
    report = binlogtool.verify([path], format="eblob", backend=backend).files[0]
    assert (report.records, report.durable_end) == (result["records"], result["stopped_at"])
    assert trace[0]["next_lsn"] == report.durable_end
    return len(ours)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_record_is_the_one_that_the_library_delivered(corpus: Path, backend: str) -> None:
    root = corpus / "eblob" / "generated"
    counts = {
        name: compare(root / f"{name}.binlog", lines(root / "oracle" / trace), backend)
        for name, trace in TRACES.items()
    }
    assert sum(counts.values()) == 769
    assert counts["instance-a"] == 328


@pytest.mark.parametrize("name", FILES)
def test_the_counts_are_those_of_the_manifest(corpus: Path, name: str) -> None:
    root = corpus / "eblob" / "generated"
    facts = json.loads((root / "manifest.json").read_text())["files"][f"{name}.binlog"]
    path = root / f"{name}.binlog"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == facts["sha256"]
    report = binlogtool.verify([path], format="eblob", backend="python").files[0]
    assert report.details["dialect"] == DIALECTS.get(name, "b")
    assert report.records == facts["records"]
    assert report.durable_end == facts["end_of_records"]
    assert report.size == facts["size"] == sum(report.bytes.values())
    assert report.bytes["preallocated"] == facts["bytes_after_last_record"]
    assert all(found.severity is Severity.NOTE for found in report.findings)
    records = read(path)
    assert [one.offset for one in records[:20]] == facts["first_offsets"]
    assert sum(one.body["data_size"] for one in records) == facts["data_bytes"]
    assert sum(not one.body["data_size"] for one in records) == facts["records_without_data"]
    assert sum(not one.body["meta_size"] for one in records) == facts["records_without_metadata"]
    counted: dict[str, int] = {}
    for one in records:
        counted[str(one.body["type"])] = counted.get(str(one.body["type"]), 0) + 1
    assert counted == facts["records_by_type"]


def test_the_manifest_names_no_other_files(corpus: Path) -> None:
    listed = json.loads((corpus / "eblob/generated/manifest.json").read_text())["files"]
    assert {f"{name}.binlog" for name in FILES} == set(listed)


def check_targets(path: Path, trace: list[dict[str, Any]]) -> None:
    """Targets and places in the record of the data file, against the real data-sort that applied the log."""
    applied = [line for line in trace if "offset" in line]
    ours = read(path)
    assert [(one.offset, one.body["target_offset"]) for one in ours] == [
        (line["offset"], line["data_file_offset"]) for line in applied
    ]
    kinds = {96: "CONTROL", 72: "FOOTER"}
    for one, line in zip(ours, applied, strict=True):
        if line["outcome"] != "applied":
            continue
        relative = line["relative"]
        expected = (
            "REMOVE" if relative == 64 else "CONTROL" if relative == 0 else "DATA" if relative == 96 else "FOOTER"
        )
        assert one.type == expected
        assert kinds.get(line["data_size"], expected) == expected
        if one.type in ("CONTROL", "FOOTER"):
            assert one.body["relative_offset"] == relative
        if one.type == "FOOTER":
            assert one.body["record_start"] == line["unsorted_record_offset"]


@pytest.mark.parametrize("name", ["instance-a", "instance-b"])
def test_targets_and_kinds_are_those_of_the_real_data_sort(corpus: Path, name: str) -> None:
    root = corpus / "eblob" / "generated"
    check_targets(root / f"{name}.binlog", lines(root / "oracle" / f"{name}.apply.jsonl"))


@pytest.mark.parametrize("name", ["instance-a", "instance-b"])
def test_overwrites_and_removals_are_those_that_were_done(corpus: Path, name: str) -> None:
    """What grew was written elsewhere and its old place removed; keys of other blobs are not in this log."""
    root = corpus / "eblob" / "generated"
    report = binlogtool.verify([root / f"{name}.binlog"], format="eblob", backend="python").files[0]
    done = [one["op"] for one in lines(root / "oracle" / f"{name}.ops.jsonl") if one.get("phase") and not one["err"]]
    assert set(done) <= {"overwrite", "remove", "grow"}
    kinds = report.record_types
    assert 0 < kinds["DATA"] <= done.count("overwrite")
    assert 0 < kinds["REMOVE"] <= done.count("remove") + done.count("grow")
    assert report.record_types["DATA"] == report.record_types["CONTROL"] == report.record_types["FOOTER"]
    assert report.record_types["DATA"] + report.record_types["REMOVE"] == report.transactions
    details = report.details
    assert details["overwrites_with_right_hash"] + details["overwrites_without_hash"] == report.record_types["DATA"]


def test_the_shipped_samples_agree_with_the_shipped_traces(samples: Path) -> None:
    root = samples / "eblob"
    for trace in sorted((root / "oracle").glob("*.read.jsonl.gz")):
        path = root / f"{trace.name.removesuffix('.read.jsonl.gz')}.binlog"
        assert compare(path, lines(trace), "python") > 0
    check_targets(root / "instance-a.binlog", lines(root / "oracle" / "instance-a.apply.jsonl.gz"))


def test_types_and_groups_do_not_depend_on_how_much_is_read_at_a_time(samples: Path) -> None:
    path = samples / "eblob" / "instance-a.binlog"
    whole = [(one.type, one.txn, one.offset) for one in read(path)]
    for size in (4096, 5000, 10_007):
        assert [(one.type, one.txn, one.offset) for one in read(path, limits=Limits(max_record=size))] == whole
    groups: dict[int, list[str]] = {}
    for kind, group, _ in whole:
        assert isinstance(group, int)
        groups.setdefault(group, []).append(kind)
    assert {tuple(kinds) for kinds in groups.values()} == {("DATA", "FOOTER", "CONTROL"), ("REMOVE",)}
