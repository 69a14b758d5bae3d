"""Whole conversions: what is in the output, what the manifest says, and what happens when something is wrong."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from binlogtool import convert
from binlogtool.core.record_and_selection_types import RecordBlock, Selection
from binlogtool.errors import RefusedError, UnknownFormatError, UsageError
from binlogtool.export import convert_logs as convert_module
from binlogtool.export import manifest as manifest_module
from binlogtool.export.manifest import Manifest

ROOT = Path(__file__).resolve().parents[2]
SKIP = Selection(on_damage="skip")


def read_rows(folder: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as parquet

    tables = [parquet.read_table(path) for path in sorted(folder.glob("part-*.parquet"))]
    return sorted(
        (row for table in tables for row in table.to_pylist()), key=lambda r: (r["file"], r["offset"], r["record"] or 0)
    )


def plain_lines(block: RecordBlock) -> bytes:
    return b"".join(json.dumps({"record": r.record, "type": r.type}).encode() + b"\n" for r in block)


@pytest.fixture
def good(samples: Path) -> Path:
    return samples / "drizzle" / "basic-checksum.log"


@pytest.fixture
def bad(good: Path, tmp_path: Path) -> Path:
    """One flipped bit in record 5 (its statement text)."""
    data = bytearray(good.read_bytes())
    data[1500] ^= 1
    path = tmp_path / "bad.log"
    path.write_bytes(data)
    return path


@pytest.mark.full
def test_parquet_holds_every_record_and_the_manifest_proves_it(good: Path, tmp_path: Path) -> None:
    out, manifest = tmp_path / "out", tmp_path / "m.json"
    done = convert([good], "parquet", out, manifest=manifest)
    rows = read_rows(out)
    assert [row["record"] for row in rows] == list(range(67))
    assert [row["offset"] for row in rows[:5]] == [0, 44, 207, 669, 964]
    assert {row["file"] for row in rows} == {str(good)}
    assert done.complete and done.exit_code == 0
    said = json.loads(manifest.read_text())
    assert said == done.to_dict()
    assert said["schema"] == "binlogtool/manifest/1" and said["status"] == "complete"
    assert said["inputs"] == [
        {
            "path": str(good), "format": "drizzle", "size": 22501, "records": 67,
            "sha256": "0fd675ed4065ed67dc1a45fbd63adbdfa892a1c7a77859bc53dbb0bd0a79300b",
        }
    ]  # fmt: skip
    assert (said["rows"], said["damage_rows"], said["findings"]) == (67, 0, [])
    assert sum(o["rows"] for o in said["outputs"]) == 67
    names = ["rows-in-equal-rows-out", "texts-in-equal-texts-out", "record-numbers-without-holes"]
    assert [c["name"] for c in said["checks"]] == names
    assert {o["path"]: o["sha256"] for o in said["outputs"]} == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.glob("part-*")
    }
    assert sorted(os.listdir(tmp_path)) == ["m.json", "out"]


@pytest.mark.full
def test_rows_agree_with_the_real_reader_on_every_intact_drizzle_file(corpus: Path, tmp_path: Path) -> None:
    folder = corpus / "drizzle" / "generated"
    oracle = json.loads((folder / "manifest.json").read_text())["files"]
    files = [folder / name for name in oracle]
    assert len(files) >= 9
    done = convert(files, "parquet", tmp_path / "out", format="drizzle")
    rows = read_rows(tmp_path / "out")
    assert {i.path: i.records for i in done.inputs} == {str(folder / n): o["entries"] for n, o in oracle.items()}
    for name, said in oracle.items():
        own = [row for row in rows if row["file"] == str(folder / name)]
        assert [row["offset"] for row in own[:20]] == said["first_offsets"][:20]
        assert sum(row["size"] for row in own) == said["parsed_end"]


@pytest.mark.full
def test_rows_carry_the_same_values_as_the_json_lines_of_dump(corpus: Path, tmp_path: Path) -> None:
    import binlogtool
    from binlogtool.report.dump_output_formats import RecordJsonEncoder

    files = sorted(f for f in (corpus / "drizzle" / "generated").glob("*.log") if f.stat().st_size)
    single = corpus / "tarantool" / "generated" / "single"
    of_one_server = sorted(file for kind in ("xlog", "snap", "run") for file in single.rglob(f"*.{kind}"))
    logs = [*([file] for file in files), of_one_server]  # names of spaces may come from another file of the log
    files += of_one_server
    convert(files, "parquet", tmp_path / "out", selection=SKIP)
    written = {(r["file"], r["record"]): r for r in read_rows(tmp_path / "out") if r["type"] != "DAMAGE"}
    expected = 0
    lines = RecordJsonEncoder()
    for paths in logs:
        with binlogtool.open(paths) as log:
            for block in log.blocks(SKIP):
                if isinstance(block, RecordBlock):
                    for text in lines.encode_lines(block).splitlines():
                        expected += 1
                        line = json.loads(text)
                        compare(written[line["file"], line["record"]], line)
    assert len(written) == expected > 5000


def compare(row: dict[str, Any], line: dict[str, Any]) -> None:
    same = ("file", "offset", "size", "record", "type", "seq", "object", "origin")
    assert {name: row[name] for name in same} == {name: line[name] for name in same}
    assert row["txn"] == (None if line["txn"] is None else str(line["txn"]))
    assert (row["time"] and f"{row['time']:%Y-%m-%dT%H:%M:%S.%fZ}") == line["time"]
    assert json.loads(row["body"] or "null") == line["body"]
    check = line["checksum"] or dict.fromkeys(("algorithm", "stored", "computed", "ok"))
    assert {name: row[f"checksum_{name}"] for name in check} == check


def test_damage_stops_a_conversion_and_publishes_nothing(bad: Path, good: Path, tmp_path: Path) -> None:
    done = convert([good, bad], "parquet", tmp_path / "out", manifest=tmp_path / "m.json")
    assert not done.complete and done.exit_code == 1
    said = json.loads((tmp_path / "m.json").read_text())
    assert (said["status"], said["output"], said["on_damage"]) == ("stopped", None, "stop")
    assert (said["outputs"], said["rows"]) == ([], 0)
    assert (said["findings"][0]["file"], said["findings"][0]["id"]) == (str(bad), "checksum-mismatch")
    assert sorted(os.listdir(tmp_path)) == ["bad.log", "m.json"]


def test_skipping_damage_keeps_the_good_records_and_a_row_for_the_gap(bad: Path, tmp_path: Path) -> None:
    done = convert([bad], "parquet", tmp_path / "out", selection=SKIP)
    rows = read_rows(tmp_path / "out")
    kinds = Counter("DAMAGE" if row["type"] == "DAMAGE" else "record" for row in rows)
    assert done.complete and done.exit_code == 0
    assert kinds["record"] == 66 == done.inputs[0].records
    assert kinds["DAMAGE"] == done.damage == sum(done.finding_counts.values()) >= 1
    assert all(row["record"] is None for row in rows if row["type"] == "DAMAGE")
    assert done.rows == len(rows)


def test_a_selection_decides_which_records_are_written(good: Path, tmp_path: Path) -> None:
    chosen = Selection(start="record:10", stop="record:20", on_damage="stop")
    done = convert([good], "parquet", tmp_path / "out", selection=chosen)
    assert [row["record"] for row in read_rows(tmp_path / "out")] == list(range(10, 20))
    assert [check.name for check in done.checks] == ["rows-in-equal-rows-out", "texts-in-equal-texts-out"]


def test_a_file_without_records_gives_a_table_without_rows(tmp_path: Path) -> None:
    (tmp_path / "empty.log").write_bytes(b"")
    done = convert([tmp_path / "empty.log"], "parquet", tmp_path / "out", format="drizzle")
    assert (done.rows, done.complete) == (0, True)
    assert (tmp_path / "out").is_dir()


def test_an_input_that_changes_meanwhile_is_refused(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "a.log"
    shutil.copy(good, log)
    calls: list[str] = []

    def stamp(path: str) -> Any:
        calls.append(path)
        if len(calls) == 2:  # the first call is before the work, the second one behind it
            log.write_bytes(log.read_bytes() + b"x")
        return manifest_module.read_stamp(path)

    monkeypatch.setattr(convert_module, "read_stamp", stamp)
    with pytest.raises(RefusedError, match="changed while it was read"):
        convert([log], "parquet", tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["a.log"]


def test_the_inputs_that_changed_are_named(good: Path, tmp_path: Path) -> None:
    logs = [tmp_path / f"{name}.log" for name in "abcd"]
    for log in logs:
        shutil.copy(good, log)

    def lines(block: RecordBlock) -> bytes:
        for log in logs[1:]:
            os.utime(log, (1, 1))
        return plain_lines(block)

    with pytest.raises(RefusedError, match=r"/b\.log and 2 more changed while it was read"):
        convert(logs, "jsonl", tmp_path / "out.jsonl", lines=lines)
    assert sorted(os.listdir(tmp_path)) == ["a.log", "b.log", "c.log", "d.log"]


def test_json_lines_are_written_whole_and_counted_again(good: Path, tmp_path: Path) -> None:
    done = convert([good], "jsonl", tmp_path / "out.jsonl", lines=plain_lines)
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["record"] for line in lines] == list(range(67))
    assert (done.rows, done.inputs[0].records, done.outputs[0].rows) == (67, 67, 67)
    assert done.outputs[0].path == "out.jsonl"
    assert done.outputs[0].size == (tmp_path / "out.jsonl").stat().st_size
    assert done.inputs[0].sha256 == hashlib.sha256(good.read_bytes()).hexdigest()


def test_json_lines_stop_at_damage_and_publish_nothing(bad: Path, tmp_path: Path) -> None:
    done = convert([bad], "jsonl", tmp_path / "out.jsonl", lines=plain_lines)
    assert not done.complete
    assert "checksum-mismatch" in done.finding_counts
    assert os.listdir(tmp_path) == ["bad.log"]


def test_json_lines_go_on_behind_damage_when_told_so(bad: Path, tmp_path: Path) -> None:
    done = convert([bad], "jsonl", tmp_path / "out.jsonl", lines=plain_lines, selection=SKIP)
    assert done.complete
    assert done.rows == 66
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 66


def test_a_torn_tail_is_told_and_stops_nothing(good: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.log"
    torn.write_bytes(good.read_bytes()[:-7])
    done = convert([torn], "jsonl", tmp_path / "out.jsonl", lines=plain_lines)
    assert done.complete and done.rows == 66
    assert dict(done.finding_counts) == {"torn-tail": 1}


def test_an_encoder_that_loses_a_line_is_found_out(good: Path, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="lines were found where 67 were written"):
        convert([good], "jsonl", tmp_path / "out.jsonl", lines=lambda block: plain_lines(block)[:-1])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"to": "xlsx"}, UsageError, "choose one of parquet, orc, csv, json, avro, jsonl"),
        ({"paths": ["-"]}, UsageError, "standard input"),
        ({"paths": []}, UsageError, "at least one"),
        ({"to": "raw"}, UsageError, "takes no function that makes lines"),
    ],
)
def test_a_request_that_makes_no_sense_is_one_clear_line(
    good: Path, tmp_path: Path, change: dict[str, Any], error: type[Exception], words: str
) -> None:
    request: dict[str, Any] = {"paths": [good], "to": "jsonl", "output": tmp_path / "out", "lines": plain_lines}
    with pytest.raises(error, match=words):
        convert(**{**request, **change})


def test_the_same_file_twice_is_refused(good: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="named twice"):
        convert([good, good], "jsonl", tmp_path / "out", lines=plain_lines)


def test_counting_options_over_several_files_are_refused_for_tables(good: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.log"
    shutil.copy(good, other)
    with pytest.raises(UsageError, match="--limit"):
        convert([good, other], "parquet", tmp_path / "out", selection=Selection(limit=3, on_damage="stop"))


def test_a_file_of_no_known_format_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("hello, this is prose and no log of any database at all")
    with pytest.raises(UnknownFormatError):
        convert([tmp_path / "x.txt"], "parquet", tmp_path / "out")
    assert os.listdir(tmp_path) == ["x.txt"]


def test_existing_outputs_are_refused_before_anything_starts(good: Path, tmp_path: Path) -> None:
    for name in ("out", "m.json"):
        (tmp_path / name).write_text("mine")
        with pytest.raises(RefusedError, match=name):
            convert([good], "parquet", tmp_path / "out", manifest=tmp_path / "m.json")
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()


def test_the_manifest_keeps_exact_counts_where_the_list_is_cut() -> None:
    from binlogtool.export import manifest as manifest_module

    kept = manifest_module.FindingTally()
    for i in range(manifest_module.MAX_LISTED_FINDINGS + 5):
        kept.add("f", {"id": "torn-tail", "severity": "note", "offset": i}, damage=True)
    assert len(kept.listed) == manifest_module.MAX_LISTED_FINDINGS
    assert (kept.counts["torn-tail"], kept.damage_rows, kept.errors) == (
        manifest_module.MAX_LISTED_FINDINGS + 5,
        manifest_module.MAX_LISTED_FINDINGS + 5,
        0,
    )


@pytest.mark.parametrize(("has_records", "expected"), [(False, ["incomplete-transaction"]), (True, [])])
def test_an_open_end_stays_known_where_no_records_follow_it(has_records: bool, expected: list[str]) -> None:
    from binlogtool.export.manifest import FindingTally

    whole = FindingTally()
    whole.add("f", {"id": "incomplete-transaction", "severity": "warning", "offset": None}, damage=True)
    whole.merge(FindingTally(has_records=has_records))
    assert [one["id"] for one in whole.listed] == [*whole.counts.elements()] == expected


def test_a_manifest_without_output_names_none() -> None:
    stopped = Manifest("parquet", "out", False, "stop", (), (), 0, 0, ())
    assert stopped.to_dict()["output"] is None
