"""The real server (Sphinx 2.2) on repaired binlog directories: it starts, and holds exactly what is predicted.

The prediction is made by the server itself, without any log: the statements that wrote the intact log, run again, but
only those whose transactions are durable. Which these are is known from the manifest and from the list of transactions
that another decoder made of the intact log.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import binlogtool
from binlogtool.findings import Severity
from binlogtool.repair.plan_types import RepairPolicy
from tests.formats.manticore.sphinx_server import Started, program, start
from tests.sampling import EXHAUSTIVE, take_sample

pytestmark = pytest.mark.server

BASE = "mixed-kill9"
CHOICES = (RepairPolicy(), RepairPolicy(allow_discard_valid=True), RepairPolicy(fix_meta=True))
NOTHING_LEFT = RepairPolicy(allow_discard_valid=True, allow_empty_result=True)
"""The own word for a plan that keeps no record; it takes the file by itself, and its format."""
WITHOUT_DATA = ("ADD_INDEX", "ADD_CACHE")


@pytest.fixture(scope="module", autouse=True)
def _server() -> None:
    if program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no searchd, or no client for it, is installed; BINLOGTOOL_SERVER=1 demands both")
    assert program() is not None


class Transaction(NamedTuple):
    """One transaction of an intact log. bytes: its frame. statements: what wrote it; not known of every log."""

    file: str
    end: int
    table: str
    tid: int
    bytes: bytes
    statements: tuple[str, ...]


class Held(NamedTuple):
    """What a server holds, and the last transaction of each index that it replayed."""

    rows: dict[str, tuple[tuple[str, ...], ...]]
    tids: dict[str, int]


class Truth:
    """What is known about the corpus by independent means."""

    def __init__(self, corpus: Path) -> None:
        self.root = corpus / "sphinx/generated"
        self.manifest: dict[str, Any] = json.loads((self.root / "manifest.json").read_text())
        self._made: dict[tuple[str, ...], Started] = {}

    def configuration(self, dataset: str) -> str:
        """That of the server that wrote a log."""
        return str(self.manifest["datasets"][dataset]["tables_conf"])

    def transactions(self, dataset: str) -> list[Transaction]:
        """Those that change rows, in order."""
        lines = map(json.loads, (self.root / dataset / "expected.jsonl").read_text().splitlines())
        found = [line for line in lines if line["op"] not in WITHOUT_DATA]
        whole = units(self.manifest["datasets"][dataset]["statements"]) if dataset == BASE else [()] * len(found)
        return [
            Transaction(
                one["file"], one["offset"] + one["size"], one["table"], one["tid"],
                (self.root / dataset / one["file"]).read_bytes()[one["offset"] : one["offset"] + one["size"]], unit,
            )
            for one, unit in zip(found, whole, strict=True)
        ]  # fmt: skip

    def predicted(self, dataset: str, kept: Iterable[Transaction]) -> Held:
        """What a server must hold that replays these transactions."""
        kept = list(kept)
        tids = {one.table: one.tid for one in kept}
        if dataset != BASE:  # its statements are not kept; everything is durable in the cases that are based on it
            assert len(kept) == len(self.transactions(dataset))
            return Held(dict(start(self.root / dataset, self.configuration(dataset)).rows), tids)
        statements = tuple(statement for one in kept for statement in one.statements)
        if statements not in self._made:
            self._made[statements] = start(None, self.configuration(BASE), statements=statements)
        return Held(dict(self._made[statements].rows), tids)


def units(statements: Iterable[str]) -> list[tuple[str, ...]]:
    """Statements by transaction."""
    out: list[tuple[str, ...]] = []
    for statement in statements:
        if out and out[-1][0] == "BEGIN" and out[-1][-1] != "COMMIT":
            out[-1] += (statement,)
        else:
            out.append((statement,))
    return out


class Case(NamedTuple):
    """A damaged directory. before: its files before anything touched them. durable: ends by file, if not whole."""

    name: str
    base: str
    folder: Path
    before: Mapping[str, bytes]
    durable: Mapping[str, int]
    recorded: Mapping[str, Any]

    def kept(self, transactions: Iterable[Transaction]) -> list[Transaction]:
        """Those in front of the damage, of files that are there."""
        there = (one for one in transactions if one.file in self.before)
        return [one for one in there if one.end <= self.durable.get(one.file, one.end)]

    def found(self, transactions: Iterable[Transaction]) -> list[Transaction]:
        """Those whose bytes are still there."""
        return [one for one in transactions if one.bytes in self.before[one.file]]


def content(folder: Path) -> dict[str, bytes]:
    """The files of a directory."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def copied(source: Path, target: Path) -> Path:
    """A binlog directory that can be written."""
    target.mkdir()
    for path in source.glob("binlog.*"):
        (target / path.name).write_bytes(path.read_bytes())
    return target


def cases(truth: Truth, folder: Path) -> Iterator[Case]:
    """Every damaged directory of the corpus."""
    for one in truth.manifest["damaged"]:
        target = copied(truth.root / "damaged" / one["name"], folder / one["name"])
        scan = one["reference_scan"] or {"durable_end": None}
        durable = {} if scan["durable_end"] is None else {one["file"]: scan["durable_end"]}
        yield Case(one["name"], one["based_on"], target, content(target), durable, one)


def started(truth: Truth, all_cases: Iterable[Case], flags: tuple[str, ...] = ()) -> Iterator[Started]:
    """Each directory, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(lambda c: start(c.folder, truth.configuration(c.base), flags=flags), all_cases)


def held(server: Started) -> Held:
    """What a server holds that started and replayed all of its log."""
    assert server.started, server.reason
    assert "replay error" not in server.log
    return Held(dict(server.rows), dict(server.tids))


def test_the_server_says_of_damaged_directories_what_was_recorded(corpus: Path, tmp_path: Path) -> None:
    """So this server and the one of the corpus are the same, and the starts of these tests see what they should."""
    truth = Truth(corpus)
    all_cases = list(cases(truth, tmp_path))
    with_flags = [case for case in all_cases if "server_says_with_flags" in case.recorded]
    assert (len(all_cases), len(with_flags)) == (32, 17)
    for way, every in (("server_says", all_cases), ("server_says_with_flags", with_flags)):
        chosen = take_sample(every, 3)
        flags = tuple(chosen[0].recorded[way]["flags"])
        for case, server in zip(chosen, started(truth, chosen, flags), strict=True):
            said = case.recorded[way]
            assert server.started == said["server_started"], (case.name, way, server.reason)
            if server.started:
                stats = [line for line in said["log"] if "replay stats" in line]
                assert re.findall(r"(?m)^binlog: replay stats.*$", server.log) == stats, case.name
            else:
                text = re.sub(r"/\S*/binlog/", "<BINLOG_DIR>/", server.reason)
                assert text == said["log"][-1], (case.name, way)


def test_the_statements_give_the_rows_of_the_intact_log(corpus: Path) -> None:
    truth = Truth(corpus)
    transactions = truth.transactions(BASE)
    assert len(transactions) == 14
    assert held(start(truth.root / BASE, truth.configuration(BASE))) == truth.predicted(BASE, transactions)


def test_w7_the_server_holds_exactly_the_durable_transactions_of_a_cut_log(corpus: Path, tmp_path: Path) -> None:
    """Also of one with a new meta file; undone, every file is as it was."""
    truth = Truth(corpus)
    all_cases = list(cases(truth, tmp_path))
    cut = {case.name: undo for case in all_cases if (undo := repaired(case.folder))}
    forced = {case.name: undo for case in all_cases if case.name not in cut and (undo := emptied(case))}
    assert forced.keys() == {"flip-first-add-index", "log-short-header"}  # no record stands in front of the damage
    every = [(case, undo) for case in all_cases if (undo := (cut | forced).get(case.name))]
    done = take_sample(every, 3)
    refused_before = 0
    for (case, undo), server in zip(done, started(truth, [case for case, _ in done]), strict=True):
        assert held(server) == truth.predicted(case.base, case.kept(truth.transactions(case.base))), case.name
        refused_before += not case.recorded["server_says"]["server_started"]
        binlogtool.undo(undo)
        os.unlink(undo)
        assert content(case.folder) == case.before, case.name
    print(f"\nW7 Sphinx: {len(done)} of {len(every)} cut logs, {refused_before} of them refused by the server before")
    assert "cache-torn" not in cut  # the server left this file behind, and takes it as it is
    assert "log-missing" in cut
    assert len(every) == 18 and refused_before >= (12 if EXHAUSTIVE else 2)


def repaired(folder: Path) -> str | None:
    """Applies the first plan that changes anything, the most careful one first; returns the undo file."""
    for asked in CHOICES:
        plan = binlogtool.plan_truncate(folder, policy=asked)
        if not plan.refused and plan.changes:
            return binlogtool.apply_plan(plan).undo
    return None


def emptied(case: Case) -> str | None:
    """Applies the plan that keeps no record, which is refused without its own word; returns the undo file."""
    path = case.folder / str(case.recorded["file"])
    if not any("no record would be kept" in text for text in binlogtool.plan_truncate(case.folder).reasons):
        return None
    plan = binlogtool.plan_truncate(path, format="manticore", policy=NOTHING_LEFT)
    return None if plan.refused else binlogtool.apply_plan(plan).undo


def test_w7_the_server_holds_exactly_the_provable_transactions_of_a_salvaged_log(corpus: Path, tmp_path: Path) -> None:
    """More than it takes of the damaged log, if it takes that at all."""
    truth = Truth(corpus)
    every = [case for case in cases(truth, tmp_path) if salvaged(case)]
    chosen = take_sample(every, 3)
    lost = refused_before = 0
    for case, server in zip(chosen, started(truth, chosen), strict=True):
        transactions = truth.transactions(case.base)
        kept = case.found(transactions)
        assert held(server) == truth.predicted(case.base, kept), case.name
        assert len(kept) >= len(case.kept(transactions))
        lost += len(transactions) - len(kept)
        refused_before += not case.recorded["server_says"]["server_started"]
    print(f"\nW7 Sphinx: {len(chosen)} salvaged logs, {refused_before} refused before, {lost} transactions lost in all")
    assert len(every) == 12 and min(refused_before, lost) >= (7 if EXHAUSTIVE else 1)


def salvaged(case: Case) -> bool:
    """Puts the salvaged log in the place of a damaged one; says whether it did."""
    path = case.folder / str(case.recorded["file"])
    if path.name == "binlog.meta" or not path.exists():
        return False
    plan = binlogtool.plan_truncate(path, policy=RepairPolicy(salvage=True, copy=True))
    if plan.refused or not plan.changes:
        return False
    new = path.with_name("salvaged")
    binlogtool.write_repaired_copy(plan, new)
    new.replace(path)
    return True


def test_the_server_does_not_start_without_a_whole_head_and_verify_says_so(corpus: Path, tmp_path: Path) -> None:
    truth = Truth(corpus)
    data = (truth.root / BASE / "binlog.001").read_bytes()
    torn = []
    for size in range(9):
        folder = copied(truth.root / BASE, tmp_path / str(size))
        (folder / "binlog.001").write_bytes(data[:size])
        torn.append(Case(str(size), BASE, folder, {}, {}, {}))
    said = [binlogtool.verify([case.folder]).count_findings(Severity.ERROR) == 0 for case in torn]
    assert said == [server.started for server in started(truth, torn)] == [True, *[False] * 7, True]


def test_a_torn_log_holds_its_whole_transactions_wherever_it_was_torn(corpus: Path, tmp_path: Path) -> None:
    """A dozen places, spread over the log."""
    truth = Truth(corpus)
    transactions = truth.transactions(BASE)
    data = (truth.root / BASE / "binlog.001").read_bytes()
    torn = []
    for size in range(200, len(data), 250):
        folder = copied(truth.root / BASE, tmp_path / str(size))
        (folder / "binlog.001").write_bytes(data[:size])
        repaired(folder)
        torn.append(Case(str(size), BASE, folder, content(folder), {"binlog.001": size}, {}))
    for case, server in zip(torn, started(truth, torn), strict=True):
        assert held(server) == truth.predicted(BASE, case.kept(transactions)), case.name
    assert len(torn) == 12
