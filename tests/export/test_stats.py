"""`stats`: its figures are those of the records that `dump` prints, and its chart shows them."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from binlogtool.core.record_and_selection_types import RecordBlock
from binlogtool.errors import LimitError
from binlogtool.format_api.format import EnvelopeColumns
from binlogtool.report import record_statistics
from binlogtool.report.record_statistics import SeriesCounter, encode_series_text, render_chart, round_up_scale
from tests.cli.invoke import invoke

SVG = "{http://www.w3.org/2000/svg}"
HOUR = 3_600_000_000
EVIL = '<b>&"\x1b[31m\u202e'


@pytest.fixture
def log(samples: Path) -> str:
    return str(samples / "mysql_binlog" / "sets" / "mariadb")


def dumped(log: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in invoke("dump", "-O", "jsonl", log).out.splitlines()]


@pytest.mark.parametrize("by", ["object", "type", "origin"])
@pytest.mark.parametrize(("bucket", "kept"), [("1m", 16), ("1h", 13), ("1d", 10)])
def test_the_figures_are_those_of_the_records(log: str, by: str, bucket: str, kept: int) -> None:
    records: Counter[tuple[str | None, str]] = Counter()
    sizes: Counter[tuple[str | None, str]] = Counter()
    for one in dumped(log):
        place = (None if one[by] is None else str(one[by]), one["time"][:kept])
        records[place] += 1
        sizes[place] += one.get("inner", one)["size"]
    found = json.loads(invoke("stats", "--by", by, "--bucket", bucket, "-O", "json", log).out)
    assert (found["by"], found["bucket"]) == (by, bucket)
    assert {(c["name"], c["time"][:kept]): (c["records"], c["bytes"]) for c in found["over_time"]} == {
        place: (records[place], sizes[place]) for place in records
    }
    assert len(found["over_time"]) == len(records)
    assert sum(group["records"] for group in found["groups"]) == records.total() > 300


def test_csv_has_a_line_for_each_step_and_group(log: str) -> None:
    rows = list(csv.reader(io.StringIO(invoke("stats", "-O", "csv", log).text)))
    cells = json.loads(invoke("stats", "-O", "json", log).out)["over_time"]
    assert rows[0] == ["time", "object", "records", "bytes"]
    assert [[r[0], r[1] or None, int(r[2]), int(r[3])] for r in rows[1:]] == [list(c.values()) for c in cells]


def test_records_can_be_chosen_and_damage_is_told(samples: Path, log: str) -> None:
    found = json.loads(invoke("stats", "-O", "json", "--by", "type", "--type", "XID", log).out)
    assert [group["name"] for group in found["groups"]] == ["XID"]
    damaged = invoke("stats", str(samples / "readme" / "flipped-bit"))
    assert damaged.code == 1 and "checksum-mismatch" in damaged.err
    assert invoke("stats").code == 2 and invoke("stats", "--bucket", "3h", log).code == 2


def made(times: list[int | None], names: list[str | None]) -> RecordBlock:
    count = len(times)
    none = [None] * count
    envelope = EnvelopeColumns(type=["X"] * count, seq=none, time=times, object=names, origin=none, txn=none)
    nothing: Any = none
    return RecordBlock(
        file="f", format="x", record=range(count), offset=[0] * count, size=[10] * count, inner=nothing,
        envelope=envelope, checksum=nothing, bodies=nothing, extras=None, findings={},
    )  # fmt: skip


@pytest.mark.parametrize(("step", "count", "expected"), [
    (60_000_000, 151, "1m"), (60_000_000, 152, "1h"), (HOUR, 151, "1h"), (HOUR, 152, "1d"), (24 * HOUR, 900, "1d"),
])  # fmt: skip
def test_auto_takes_the_shortest_steps_that_are_not_too_many(step: int, count: int, expected: str) -> None:
    one = SeriesCounter("object")
    one.add_block(made([0, *(1000 * 24 * HOUR + i * step for i in range(1, count))], ["a"] * count))
    found = one.finish()
    assert found.bucket == expected
    assert sum(tally.records for tally in found.cells.values()) == count == found.groups["a"].records
    assert sum(tally.bytes for tally in found.cells.values()) == 10 * count


def test_too_many_steps_are_joined_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_statistics, "_MAX_CELLS", 50)
    block = made([24 * HOUR + i * 60_000_000 for i in range(200)], [None] * 200)
    auto = SeriesCounter("object")
    auto.add_block(block)
    assert (auto.finish().bucket, len(auto.finish().cells)) == ("1h", 4)
    with pytest.raises(LimitError, match="longer --bucket"):
        SeriesCounter("object", "1m").add_block(block)


def test_more_groups_than_fit_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_statistics, "_MAX_GROUPS", 3)
    one = SeriesCounter("object")
    one.add_block(made([0] * 10, [f"t{i}" for i in range(10)]))
    groups = one.finish().groups
    assert {name: tally.records for name, tally in groups.items()} == {"t0": 1, "t1": 1, "t2": 1, "(others)": 7}


def test_records_without_time_have_a_step_of_their_own() -> None:
    one = SeriesCounter("object")
    one.add_block(made([None, 0, None], ["a", "a", "b"]))
    lines = encode_series_text(one.finish()).decode().splitlines()
    assert lines[-2].split()[:2] == ["1970-01-01T00:00Z", "1"] and lines[-1].split()[:2] == ["-", "2"]


def bars(text: bytes) -> list[tuple[str, float, float]]:
    """Colour, bottom and height of every bar."""
    shapes = [r for r in ElementTree.fromstring(text).iter(f"{SVG}rect") if "." in r.get("height", "")]
    return [
        (r.get("fill", ""), float(r.get("y", "")) + float(r.get("height", "")), float(r.get("height", "")))
        for r in shapes
    ]


def test_the_bars_of_a_chart_stand_on_each_other_and_are_as_high_as_the_figures() -> None:
    one = SeriesCounter("object", "1h")
    one.add_block(made([0] * 6 + [HOUR] * 4, ["a"] * 4 + ["b"] * 2 + ["a"] * 4))
    drawn = bars(render_chart(one.finish(), "log"))
    records, sizes = drawn[:3], drawn[3:]
    assert [height for _, _, height in records] == [72.0, 36.0, 72.0]  # of 180 pixels for 10 records
    assert [height for _, _, height in sizes] == [72.0, 36.0, 72.0]  # of 180 pixels for 100 bytes
    assert records[0][1] == records[2][1] and records[1][1] == pytest.approx(records[0][1] - 72.0)
    assert records[0][0] == records[2][0] != records[1][0]


def test_a_chart_is_the_same_each_time_and_shows_hostile_names_as_text(log: str, tmp_path: Path) -> None:
    one = SeriesCounter("object")
    one.add_block(made([0, 1, None], [EVIL, None, "x" * 100]))
    text = render_chart(one.finish(), f"{EVIL} log")
    assert text == render_chart(one.finish(), f"{EVIL} log")
    shown = [node.text or "" for node in ElementTree.fromstring(text).iter(f"{SVG}text")]
    assert '<b>&"\\x1b[31m\\u202e' in shown and f"{'x' * 25}…" in shown
    assert shown[0].startswith('<b>&"\\x1b[31m\\u202e log: by object')
    for name in ("one.svg", "two.svg"):
        assert invoke("stats", "--chart", str(tmp_path / name), log).code == 0
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    again = invoke("stats", "--chart", str(tmp_path / "one.svg"), log)
    assert again.code == 5 and "exists" in again.err


def test_a_chart_of_many_groups_and_of_nothing_can_be_drawn() -> None:
    one = SeriesCounter("object")
    one.add_block(made([0] * 40, [f"t{i % 20}" for i in range(40)]))
    shown = [node.text for node in ElementTree.fromstring(render_chart(one.finish(), "x")).iter(f"{SVG}text")]
    assert "(12 others)" in shown and "24 records" in shown
    ElementTree.fromstring(render_chart(SeriesCounter("type").finish(), "x"))
    far = SeriesCounter("object", "1m")
    far.add_block(made([0, 10**9 * 60_000_000], ["a", "a"]))
    assert len(render_chart(far.finish(), "x")) < 5000  # steps without records are left out when they are too many


@pytest.mark.parametrize(("value", "expected"), [(0, 1), (1, 1), (3, 5), (6, 10), (11, 20), (51, 100), (100, 100)])
def test_scales_end_at_round_numbers(value: int, expected: int) -> None:
    assert round_up_scale(value) == expected
