"""The real server on repaired data directories: it starts, and holds exactly what independent means predict.

What it should hold is never taken from the repaired file: the rows come from the intact twin, read with msgpack and
zstandard alone, cut where the manifest says (and the bytes up to there are the twin's). What the server itself said of
each damaged directory was recorded when the corpus was made.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import pytest
from msgspec.structs import replace

import binlogtool
from binlogtool.errors import RefusedError
from binlogtool.repair.plan_types import RepairPlan, RepairPolicy, RepairResult
from tests.formats.tarantool.server import Started, program, start
from tests.harness import oracle
from tests.sampling import EXHAUSTIVE, take_sample

pytestmark = pytest.mark.server

INSERT, REPLACE, DELETE, NOP = 2, 3, 5, 12
TYPE, REPLICA, LSN, SPACE, KEY, TUPLE = 0, 2, 3, 0x10, 0x20, 0x21
SPACES = 280
"""The space `_space`: id, owner, name, …"""

SALVAGE = RepairPolicy(salvage=True, copy=True)

HEADS = {"fixheader_length_past_eof", "fixheader_length_too_big", "fixheader_length_too_small",
         "fixheader_length_not_uint", "fixheader_padding_broken", "magic_broken"}  # fmt: skip
"""Cases whose damage is in front of a payload that its stored crc proves: nothing of them is lost."""


@pytest.fixture(scope="module", autouse=True)
def _server() -> None:
    if program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no tarantool is installed; BINLOGTOOL_SERVER=1 demands one")
    assert program() is not None


class Row(NamedTuple):
    """One row of a log. end: where the block ends that holds it. content: the bytes of its tuple."""

    end: int
    replica: int
    lsn: int
    type: int
    space: int
    key: Any
    content: bytes
    name: str | None


class Held(NamedTuple):
    """What a server holds: rows of each space as bytes, and its vclock."""

    rows: dict[str, tuple[bytes, ...]]
    vclock: dict[int, int]


class Case(NamedTuple):
    """A damaged directory. before: how it was before anything touched it. twin: its files without the damage."""

    name: str
    folder: Path
    twin: Path
    expected: Mapping[str, Any]
    recorded: Mapping[str, Any]
    before: Mapping[str, bytes]


# -- prediction --------------------------------------------------------------------------------------------------------


def rows_of(data: bytes) -> Iterator[Row]:
    """The rows of one intact log."""
    walk = oracle.tarantool(data)
    assert walk.clean
    for frame in walk.frames:
        payload = data[frame.start + 19 : frame.end]
        payload = oracle.unpacked(payload) if data[frame.start : frame.start + 4] == oracle.PACKED else payload
        reader = msgpack.Unpacker(raw=False, strict_map_key=False, max_buffer_size=1 << 30)
        reader.feed(payload)
        while reader.tell() < len(payload):
            header = reader.unpack()
            body = {} if header[TYPE] == NOP else reader.unpack()
            content = body.get(TUPLE, body.get(KEY, [None]))
            name = content[2] if body.get(SPACE) == SPACES and TUPLE in body else None
            yield Row(
                frame.end, header.get(REPLICA, 0), header[LSN], header[TYPE], body.get(SPACE, 0), content[0],
                msgpack.packb(content), name,
            )  # fmt: skip


def predicted(twin: Path, logs: Iterable[str], keep: Mapping[str, Any]) -> Held:
    """What a server must hold that reads these logs of `twin` and, of those named in `keep`, only the rows it says."""
    names: dict[int, str] = {}
    rows: dict[int, dict[Any, bytes]] = {}
    vclock: dict[int, int] = {}
    for log in sorted(logs):
        data = (twin / log).read_bytes()
        reached(vclock, vclock_of(data).items())
        for row in filter(keep.get(log), rows_of(data)):
            reached(vclock, [(row.replica, row.lsn)])
            if row.name is not None:
                names[row.key] = row.name
            if row.type in (INSERT, REPLACE):
                rows.setdefault(row.space, {})[row.key] = row.content
            elif row.type == DELETE:
                rows.setdefault(row.space, {}).pop(row.key, None)
    held = {name: tuple(sorted(rows.get(space, {}).values())) for space, name in names.items() if space >= 512}
    return Held(held, vclock)


def vclock_of(data: bytes) -> dict[int, int]:
    """The line VClock of a header."""
    found = re.search(rb"^VClock: \{(.*)\}$", data[: data.index(b"\n\n")], re.M)
    return {int(a): int(b) for a, b in re.findall(r"(\d+): (\d+)", found[1].decode())} if found else {}


def reached(vclock: dict[int, int], lsns: Iterable[tuple[int, int]]) -> None:
    """Each replica's highest LSN so far."""
    for replica, lsn in lsns:
        vclock[replica] = max(lsn, vclock.get(replica, 0))


def logs_in(folder: Path) -> list[str]:
    """The names of the write-ahead logs that a server reads."""
    return [path.name for path in folder.glob("*.xlog")]


def up_to(case: Case) -> Held:
    """What is durable in front of the damage, and in the other logs."""
    file, end = case.expected["file"], durable_end(case)
    return predicted(case.twin, logs_in(case.folder), {file: lambda row: row.end <= end})


def without_lost(case: Case) -> Held:
    """What is left without the rows that the damage destroyed; the manifest says which these are, for a reader that
    mends no head."""
    lost = set() if case.name in HEADS else {tuple(one) for one in case.expected["rows_lost"]}
    keep = {case.expected["file"]: lambda row: (row.replica, row.lsn) not in lost}
    return predicted(case.twin, logs_in(case.folder), keep)


def durable_end(case: Case) -> int:
    """Where the manifest says that the durable part of the damaged file ends; it must be the twin's up to there."""
    file, end = case.expected["file"], case.expected.get("durable_end", case.expected["offset"])
    assert isinstance(end, int)
    assert case.before[file][:end] == (case.twin / file).read_bytes()[:end], case.name
    return end


# -- the server --------------------------------------------------------------------------------------------------------


def started_both_ways(folders: Iterable[Path]) -> Iterator[tuple[Started, Started]]:
    """Each directory without and with force_recovery."""
    folders = list(folders)
    with ThreadPoolExecutor(2) as pool:
        plain, forced = (
            [pool.submit(start, folder, force_recovery=force) for folder in folders] for force in (False, True)
        )
        for one, other in zip(plain, forced, strict=True):
            yield one.result(), other.result()


def held(server: Started) -> Held:
    """Everything that a server that started holds."""
    assert server.started, server.reason
    assert not server.unreadable
    return Held({name: tuple(sorted(rows)) for name, rows in server.rows.items()}, dict(server.vclock))


def content(folder: Path) -> dict[str, bytes]:
    """All files below."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def copied(source: Path, target: Path) -> Path:
    """A data directory that can be written."""
    for name, data in content(source).items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(data)
    return target


def cases(corpus: Path, folder: Path, kind: str) -> Iterator[Case]:
    """Every damaged directory of the corpus, made anew."""
    generated = corpus / "tarantool/generated"
    for one in json.loads((generated / kind / "manifest.json").read_text())["cases"]:
        name = one["case"]
        target = copied(generated / one["base"], folder / name)
        for change in one["changes"]:
            if change["op"] == "delete":
                (target / change["name"]).unlink()
            else:
                (target / change["name"]).write_bytes((generated / kind / name / change["name"]).read_bytes())
        yield Case(name, target, generated / one["base"], one["expected"], one["tarantool_2_6"], content(target))


def repaired(case: Case, asked: RepairPolicy) -> RepairResult | None:
    """Cuts what is not durable, with leave to discard valid records only where it is not cut without."""
    for allowed in (asked, replace(asked, allow_discard_valid=True)):
        plan = binlogtool.plan_truncate(case.folder, policy=allowed)
        if not plan.refused:
            return binlogtool.apply_plan(plan) if plan.changes else None
    return None


def newest(case: Case) -> Case:
    """The same damage in the newest log: without the logs behind it, which would prove that rows are missing."""
    for path in case.folder.glob("*.xlog"):
        if path.name > str(case.expected["file"]):
            path.unlink()
    return case._replace(before=content(case.folder))


# -- tests -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "count"), [("damaged", 60), ("damaged_vinyl", 10)])
def test_the_server_says_of_damaged_directories_what_was_recorded(
    corpus: Path, tmp_path: Path, kind: str, count: int
) -> None:
    """So this server and the one of the corpus are the same, and the starts of these tests see what they should."""
    all_cases = list(cases(corpus, tmp_path, kind))
    assert len(all_cases) == count
    chosen = take_sample(all_cases, 5)
    for case, both in zip(chosen, started_both_ways(case.folder for case in chosen), strict=True):
        for server, way in zip(both, ("start", "start_force"), strict=True):
            recorded = case.recorded[way]
            assert (server.started and not server.unreadable) == recorded["started"], (case.name, way, server.reason)
            if recorded["started"]:
                assert server.counts == dict(recorded["counts"]), (case.name, way)
                assert server.vclock == {int(k): v for k, v in recorded["vclock"].items()}, (case.name, way)
            elif not server.unreadable:
                said = recorded["stderr"].rpartition(" F> ")[2]  # of a snapshot's path 2.6.0 prints something random
                assert server.reason.split("`")[0] == said.split("`")[0].strip("\n"), (case.name, way)


def test_the_prediction_of_intact_directories_is_what_the_server_holds(corpus: Path) -> None:
    for name in ("chain", "killed"):
        folder = corpus / "tarantool/generated" / name
        for server in next(started_both_ways([folder])):
            assert held(server) == predicted(folder, logs_in(folder), {}), name


@pytest.mark.parametrize("mark", [False, True], ids=["cut", "cut-and-closed"])
def test_w7_the_server_holds_exactly_the_durable_rows_of_a_cut_log(corpus: Path, tmp_path: Path, mark: bool) -> None:
    """With and without force_recovery; undone, every file is as it was."""
    all_cases = take_sample([newest(case) for case in cases(corpus, tmp_path, "damaged")], 4)
    done = [(case, applied) for case in all_cases if (applied := repaired(case, RepairPolicy(write_close_marker=mark)))]
    refused_before = 0
    for (case, applied), both in zip(done, started_both_ways(case.folder for case, _ in done), strict=True):
        wanted = up_to(case)
        for server in both:
            assert held(server) == wanted, case.name
        refused_before += not case.recorded["start"]["started"]
        assert applied.undo is not None
        binlogtool.undo(applied.undo)
        os.unlink(applied.undo)
        assert content(case.folder) == case.before, case.name
    print(f"\nW7 Tarantool: {len(done)} of {len(done)} cut logs, {refused_before} of them refused by the server before")
    if EXHAUSTIVE:
        assert (len(done), refused_before) == ((28, 17) if mark else (25, 17))
    else:
        assert len(done) >= 5 and refused_before >= 2


def test_w7_the_server_holds_exactly_the_provable_rows_of_a_salvaged_log(corpus: Path, tmp_path: Path) -> None:
    """What force_recovery would make of the damaged log, or more, and without force_recovery."""
    chosen = [case for case in take_sample(cases(corpus, tmp_path, "damaged"), 3) if salvaged(case)]
    more = refused_before = 0
    for case, both in zip(chosen, started_both_ways(case.folder for case in chosen), strict=True):
        wanted = without_lost(case)
        for server in both:
            assert held(server) == wanted, case.name
        forced = case.recorded["start_force"]["counts"]
        more += {name: len(rows) for name, rows in wanted.rows.items()} != forced
        refused_before += not case.recorded["start"]["started"]
    print(f"\nW7 Tarantool: {len(chosen)} salvaged logs, {refused_before} refused before, {more} with more than forced")
    found = (len(chosen), refused_before, more)
    assert found == (24, 17, 6) if EXHAUSTIVE else min(found) > 0


def salvaged(case: Case) -> bool:
    """Puts the salvaged log in the place of a damaged one; says whether it did."""
    path = case.folder / str(case.expected["file"])
    if path.suffix != ".xlog" or not path.exists():
        return False
    plan = binlogtool.plan_truncate(path, policy=SALVAGE)
    if keeps_nothing := any("no record would be kept" in text for text in plan.reasons):
        plan = binlogtool.plan_truncate(path, format="tarantool", policy=replace(SALVAGE, allow_empty_result=True))
    assert keeps_nothing == (case.name == "torn_first_block")  # its header alone is whole; that takes the own word
    if plan.refused or not plan.changes or not plan.files[0].proof.keys() & {"left_out", "mended"}:
        return False
    put(plan, path)
    return True


def put(plan: RepairPlan, path: Path) -> None:
    """The planned copy instead of the file."""
    new = path.with_suffix(".new")
    binlogtool.write_repaired_copy(plan, new)
    new.replace(path)


def test_a_damage_in_front_of_later_logs_is_never_cut(corpus: Path, tmp_path: Path) -> None:
    """They prove that rows would be missing: the plan says so and is refused."""
    left = 0
    for case in cases(corpus, tmp_path, "damaged"):
        plan = binlogtool.plan_truncate(case.folder, policy=RepairPolicy(allow_discard_valid=True))
        if any(file.cut_valid_records for file in plan.changes):
            assert plan.refused and any("gap-in-sequence" in reason for reason in plan.reasons), case.name
            with pytest.raises(RefusedError):
                binlogtool.apply_plan(plan)
            assert content(case.folder) == case.before, case.name
            left += 1
    assert left == 18


def test_a_repaired_log_can_be_written_and_read_again(corpus: Path, tmp_path: Path) -> None:
    """2.6.0 appends behind the torn bytes of a log without a whole block, and then never starts again; here it does."""
    write = "for i = 1, 5 do box.space.a:replace{900000 + i, 'appended', 'after a crash'} end"
    starts = {}
    for mark in (None, False, True):
        found = cases(corpus, tmp_path / str(mark), "damaged")
        case = next(case for case in found if case.name == "torn_first_block")
        if mark is not None:
            assert repaired(case, RepairPolicy(write_close_marker=mark)) is not None
        durable = up_to(case)
        first = start(case.folder, write=write, in_place=True)
        assert first.counts["a"] == len(durable.rows["a"]) + 5
        starts[mark] = start(case.folder)
        if starts[mark].started:
            assert held(starts[mark]) == held(first)
    assert {mark: server.started for mark, server in starts.items()} == {None: False, False: True, True: True}


def test_rows_that_the_server_appended_behind_torn_bytes_are_salvaged(corpus: Path, tmp_path: Path) -> None:
    """No start without force_recovery was possible any more; the recorded start with it had the same rows."""
    generated = corpus / "tarantool/generated"
    record = json.loads((generated / "manifest.json").read_text())["sets"]["appended_after_torn"]
    folder = copied(generated / "appended_after_torn", tmp_path / "data")
    damaged, _ = before = next(started_both_ways([folder]))
    assert not damaged.started
    put(
        binlogtool.plan_truncate(folder / "00000000000000000334.xlog", policy=SALVAGE),
        folder / "00000000000000000334.xlog",
    )
    for server in next(started_both_ways([folder])):
        assert held(server) == held(before[1])
        assert server.counts == record["recovered_with_force"]["counts"] == {"a": 266, "b": 33}


def test_the_log_of_a_killed_server_is_closed_without_a_change_of_its_rows(corpus: Path, tmp_path: Path) -> None:
    folder = copied(corpus / "tarantool/generated/killed", tmp_path / "data")
    before = content(folder)
    applied = binlogtool.apply_plan(binlogtool.plan_truncate(folder, policy=RepairPolicy(write_close_marker=True)))
    assert [Path(file.path).name for file in applied.files] == ["00000000000000006246.xlog"]
    for server in next(started_both_ways([folder])):
        assert held(server) == predicted(corpus / "tarantool/generated/killed", logs_in(folder), {})
    assert applied.undo is not None
    binlogtool.undo(applied.undo)
    os.unlink(applied.undo)
    assert content(folder) == before


def test_a_torn_log_holds_its_whole_blocks_wherever_it_was_torn(corpus: Path, tmp_path: Path) -> None:
    """A dozen places, spread over the newest log, its head excluded."""
    twin, name = corpus / "tarantool/generated/chain", "00000000000000000334.xlog"
    data = (twin / name).read_bytes()
    sizes = range(data.index(b"\n\n") + 9, len(data), 641)
    folders = []
    for size in sizes:
        folders.append(folder := copied(twin, tmp_path / str(size)))
        (folder / "00000000000000000436.xlog").unlink()
        (folder / name).write_bytes(data[:size])
        binlogtool.apply_plan(binlogtool.plan_truncate(folder, policy=RepairPolicy(write_close_marker=True)))
    for folder, size, both in zip(folders, sizes, started_both_ways(folders), strict=True):
        wanted = predicted(twin, logs_in(folder), {name: lambda row, size=size: row.end <= size})
        for server in both:
            assert held(server) == wanted, size
    assert len(sizes) == 12


@pytest.mark.parametrize("name", ["vylog_torn", "vylog_flip"])
def test_a_cut_metadata_log_of_vinyl_gives_the_rows_of_its_intact_twin(corpus: Path, tmp_path: Path, name: str) -> None:
    """What these two lose is not needed for the rows; the server refused the second one even with force_recovery."""
    case = next(case for case in cases(corpus, tmp_path, "damaged_vinyl") if case.name == name)
    applied = repaired(case, RepairPolicy())
    assert applied is not None
    intact = start(case.twin)
    for server in next(started_both_ways([case.folder])):
        assert held(server) == held(intact)
        assert server.counts == case.recorded["start"].get("counts", intact.counts)
    assert applied.undo is not None
    binlogtool.undo(applied.undo)
    os.unlink(applied.undo)
    assert content(case.folder) == case.before
