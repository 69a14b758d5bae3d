"""The samples that ship with the project: every transaction, every byte named, the engines in agreement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from binlogtool.findings import Severity
from binlogtool.formats.manticore import explain_damage, schema
from binlogtool.schema import backends
from binlogtool.schema.backends import PythonBackend
from binlogtool.schema.frame_scan_loop import StopReason
from binlogtool.verification.verify_logs import LogVerifyOptions
from tests.cli.invoke import invoke
from tests.formats.manticore import make
from tests.formats.manticore.oracle import same_record
from tests.formats.manticore.sets import Directory, annotation, records

SETS = ("v16-mixed", "v16-cache", "v16-three-starts", "v14-mixed", "sphinx-mixed")
DAMAGED = {
    "flip-payload": ("bad CRC", 4063),
    "length-huge": ("wrong length", 4063),
    "torn-mid-txn": ("torn tail", 5465),
    "unknown-op": ("unknown op", 4063),
    "meta-missing": ("log files without meta", None),
    "swapped-txns": ("descending TID", 4025),
}
"""Diagnosis and place, as the corpus' manifest has them (TID 7 takes 29 bytes from 3996 on)."""

each_set = pytest.mark.parametrize("name", SETS)


def root(samples: Path) -> Path:
    return samples / "manticore"


def logs(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("binlog.*")) if path.name != "binlog.meta"]


@each_set
def test_every_transaction_is_that_of_the_independent_decoder(samples: Path, name: str) -> None:
    folder = root(samples) / name
    expected = [json.loads(line) for line in (folder / "expected.jsonl").read_text().splitlines()]
    seen = [one for path in logs(folder) for one in records(path.name, path.read_bytes())]
    assert len(seen) == len(expected) > 0
    for ours, theirs in zip(seen, expected, strict=True):
        same_record(ours, theirs)


@each_set
@pytest.mark.parametrize("backend", ["python", "native"])
def test_samples_have_notes_only_with_both_engines(samples: Path, name: str, backend: str) -> None:
    seen = Directory(root(samples) / name, LogVerifyOptions(backend=backend))
    found = [one for file in seen.judged for one in seen.all(file)]
    assert {one.severity for one in found} <= {Severity.NOTE}
    assert sum(judged.report.records or 0 for judged in seen.judged.values()) > 0
    plain = Directory(root(samples) / name)
    for file, judged in seen.judged.items():
        assert judged.report.details == plain.report(file).details
        assert judged.report.findings == plain.report(file).findings


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("backend", ["python", "native"])
def test_damage_is_found_with_both_engines(samples: Path, name: str, backend: str) -> None:
    seen = Directory(root(samples) / "damaged" / name, LogVerifyOptions(backend=backend))
    found = [one for file in seen.judged for one in seen.judged[file].report.findings] + [one for _, one in seen.found]
    diagnosis, offset = DAMAGED[name]
    assert [one.offset for one in found if one.facts.get("diagnosis") == diagnosis] == [offset]


def test_the_damaged_samples_are_those_tested(samples: Path) -> None:
    assert {path.name for path in (root(samples) / "damaged").iterdir()} == set(DAMAGED)


@each_set
def test_every_byte_has_a_name(samples: Path, name: str) -> None:
    for path in sorted((root(samples) / name).glob("binlog.*")):
        rows = annotation(path.name, path.read_bytes()).rows
        reached = 0
        for row in rows:
            assert row.ok and "unmapped" not in row.path and "unnamed" not in row.path, row
            if row.leaf:
                assert row.start == reached
                reached = row.end
        assert reached == path.stat().st_size


@each_set
def test_frames_and_payloads_build_back(samples: Path, name: str) -> None:
    for path in logs(root(samples) / name):
        data = path.read_bytes()
        for frame in construct_walk(data):
            assert frame.schema.build(frame.value) == frame.data
            for detail, payload in frame.details:
                assert detail.build(detail.parse(payload)) == payload
    meta = (root(samples) / name / "binlog.meta").read_bytes()
    assert schema.META.build(schema.META.parse(meta)) == meta


class Frame:
    """One frame as construct alone reads it."""

    def __init__(self, data: bytes, at: int, version: int) -> None:
        from construct import Struct, Tell

        self.schema = schema.get_frame_schema(version)
        parsed = Struct("value" / self.schema, "end" / Tell).parse(data[at:])
        self.value, self.at, self.end = parsed.value, at, at + parsed.end
        self.data = data[at : self.end]
        self.details: list[Any] = []
        body, op = self.value.body, int(self.value.op)
        if version >= 15:
            if op == schema.Op.ADD_TXN:
                self.details.append((schema.PAYLOAD, body.payload))
            elif op == schema.Op.ADD_CACHE:
                self.details.append((schema.CACHE, body))
        elif op == schema.OldOp.ADD_CACHE:
            self.details.append((schema.create_v2_to_v14_cache_schema(version), body))
        elif op != schema.OldOp.ADD_INDEX:
            self.details.append((schema.create_v2_to_v14_payload_schema(version, schema.OldOp(op)), body.payload))

    def columns(self, version: int) -> dict[str, int]:
        """What a scanner emits of it; positions from the start of the file."""
        value, new = self.value, version >= 15
        body = value.body if isinstance(value.body, dict) else {}
        return {
            "op": int(value.op),
            "body.id": int(body.get("id", 0)),
            "body.tid": int(body.get("tid", 0)),
            **({} if new else {"body.time": int(body.get("time", 0))}),
            "covered_start": self.at + value.covered_start,
            "covered_end": self.at + value.covered_end,
            ("check.crc32" if new else "crc32"): int((value.check if new else value).crc32),
            "end": self.end,
        }


def construct_walk(data: bytes) -> list[Frame]:
    """Frames up to the end, or to the first one that construct refuses or whose checksum is wrong."""
    from construct import ConstructError

    out: list[Frame] = []
    version, at = int.from_bytes(data[4:8], "little"), 8
    while at < len(data):
        try:
            frame = Frame(data, at, version)
        except ConstructError:
            break
        verdict = (frame.value.check if version >= 15 else frame.value).checksum
        if verdict.ok is False:
            break
        out.append(frame)
        at = frame.end
    return out


def same_in_all_engines(data: bytes) -> int:
    """The frames up to the first bad one, by construct, by Python and by native code. Returns their number."""
    version = int.from_bytes(data[4:8], "little")
    frame = schema.get_frame_schema(version)
    columns = schema.FRAME_COLUMNS if version >= 15 else schema.OLD_FRAME_COLUMNS
    expected = construct_walk(data)
    stops = []
    for backend in (PythonBackend(), backends.choose_backend("native")):
        table, stop = backend.make_scanner(frame, columns).scan(data, 8, len(data))
        assert table.count == len(expected)
        for index, one in enumerate(expected):
            row = {name: int(table[name][index]) for name in (*columns, "end")}
            assert row == one.columns(version)
        assert stop.at == (expected[-1].end if expected else 8)
        stops.append(stop)
    assert stops[0] == stops[1]
    assert (stops[0].reason == StopReason.END) == (stops[0].at == len(data))
    return len(expected)


@each_set
def test_construct_python_and_native_see_the_same_frames(samples: Path, name: str) -> None:
    total = 0
    for path in logs(root(samples) / name):
        data = path.read_bytes()
        total += same_in_all_engines(data) if len(data) >= 8 else 0
    assert total > 5


@pytest.mark.full
@each_set
def test_construct_python_and_native_agree_on_damaged_frames(samples: Path, name: str) -> None:
    path = logs(root(samples) / name)[0]
    data = path.read_bytes()
    for at in range(8, len(data), 37):
        for value in (0x00, 0x80, 0xFF, data[at] ^ 1):
            same_in_all_engines(data[:at] + bytes([value]) + data[at + 1 :])


def test_construct_python_and_native_see_the_same_frames_in_the_whole_corpus(corpus: Path) -> None:
    seen = 0
    for folder in ("manticore", "sphinx"):
        for path in sorted((corpus / folder).rglob("binlog.[0-9]*")):
            data = path.read_bytes()
            known = len(data) >= 8 and 2 <= int.from_bytes(data[4:8], "little") <= 16 and len(data) < 1 << 20
            seen += same_in_all_engines(data) if known else 0
    assert seen > 3000


def test_a_diagnosis_searches_a_damaged_head_once(tmp_path: Path) -> None:
    """It opens the file more than ten times; each opening searched the head for a flipped bit, 1.4 s of CPU time."""
    damaged = bytearray(make.log(make.add_index(0, b"t"), make.add_txn(0, 1, make.killed(1)), version=15))
    damaged[10] ^= 1
    (tmp_path / "binlog.0000").write_bytes(damaged)
    (tmp_path / "binlog.meta").write_bytes(make.meta([0], version=15))
    explain_damage._find_proven_flip.cache_clear()
    assert invoke("diagnose", str(tmp_path)).code == 1
    answers = explain_damage._find_proven_flip.cache_info()
    assert answers.misses <= 4 and answers.hits >= 5
