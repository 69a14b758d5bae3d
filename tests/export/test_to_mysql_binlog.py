"""`convert --to mysql-binlog`: every event group of an InnoDB binlog in files that MariaDB's own tool reads."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import binlogtool
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import InputOutputError, LimitError, RefusedError, UsageError
from binlogtool.export import atomic_output
from binlogtool.export.manifest import Manifest
from binlogtool.findings import Severity
from tests.cli.invoke import invoke
from tests.export import classic_binlog as classic
from tests.export.ibb_writer import IbbWriter

IBB = "mariadb-innodb-binlog/generated"
CLASSIC = "mysql-binlog/generated"
SAMPLES = (
    "basic", "bigstate", "dbase", "edges", "flush", "flush-exact-end", "oob", "page4k", "restart", "xa",
)  # fmt: skip
ODD = {
    "bigstate": {("sequence-regression", "gtid-falls")},
    "dbase": {("duplicate-sequence", "xid-twice")},
    "oob": {("incomplete-transaction", "no-gtid")},
    "xa": {("duplicate-sequence", "xid-twice")},
}
"""What no server writes, but the makers of the samples did: a state ahead of its own groups, groups that were used
twice, one that was joined of two."""
SKIP = Selection(on_damage="skip")


def convert(source: Path | list[Path], output: Path | str, **options: Any) -> Manifest:
    paths = source if isinstance(source, list) else [source]
    return binlogtool.convert(paths, "mysql-binlog", output, **options)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix != ".index")


def groups(folder: Path) -> list[classic.Group]:
    return [group for path in files(folder) for group in classic.groups(classic.events(path, exact=False))]


def manifest_of(corpus: Path, name: str) -> dict[str, Any]:
    found = json.loads((corpus / IBB / "manifest.json").read_text())
    return next(one["facts"] for one in found["samples"] if one["dir"] == name)


def expected(corpus: Path, name: str) -> list[dict[str, Any]]:
    """The event groups that the real server's reader took out of a sample; not what a restart wrote."""
    return [group for group in manifest_of(corpus, name)["event_groups"] if group["gtid"]]


def selection_for(name: str) -> Selection:
    return SKIP if name in ODD else Selection(on_damage="stop")


@pytest.mark.full
@pytest.mark.parametrize("size", [None, 1, 2000, 65536])
@pytest.mark.parametrize("name", SAMPLES)
def test_every_group_of_a_sample_is_there_byte_for_byte(corpus: Path, tmp_path: Path, name: str, size: int) -> None:
    out = tmp_path / "out"
    done = convert(corpus / IBB / name, f"{out}/", selection=selection_for(name), max_binlog_size=size)
    wanted = expected(corpus, name)
    found = groups(out)
    assert [group.gtid for group in found] == [group["gtid"] for group in wanted]
    assert [hashlib.sha256(group.bare()).hexdigest() for group in found] == [group["sha256"] for group in wanted]
    assert done.complete and done.rows == len(wanted) == sum(one.rows for one in done.outputs)
    if size == 1:  # every file is larger than that
        assert len(files(out)) == len(wanted) > 0
    larger = [path for path in files(out) if size and path.stat().st_size > size]
    assert [len(list(classic.groups(classic.events(path)))) for path in larger] == [1] * len(larger)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_result_passes_verify(corpus: Path, tmp_path: Path, name: str) -> None:
    size = None if name in ("dbase", "xa") else 30000
    out = tmp_path / "out"
    convert(corpus / IBB / name, f"{out}/", selection=selection_for(name), max_binlog_size=size)
    report = binlogtool.verify([out])
    told = {(one.id, one.facts.get("diagnosis")) for one in report.findings if one.severity > Severity.NOTE}
    assert told == ODD.get(name, set())
    assert len(report.files) > 1 and report.sets


def test_a_group_that_no_server_writes_is_refused_unless_damage_is_skipped(corpus: Path, tmp_path: Path) -> None:
    done = convert(corpus / IBB / "oob", tmp_path / "log")
    assert (done.complete, done.exit_code) == (False, 1)
    assert list(tmp_path.iterdir()) == []
    assert "without a GTID" in done.findings[-1]["message"]


@pytest.mark.parametrize("name", SAMPLES)
def test_the_servers_own_tool_reads_each_file(corpus: Path, tmp_path: Path, name: str) -> None:
    program = shutil.which("mariadb-binlog")
    if program is None:
        pytest.skip("no mariadb-binlog is installed")
    out = tmp_path / "out"
    convert(corpus / IBB / name, f"{out}/", selection=selection_for(name), max_binlog_size=30000)
    printed: list[str] = []
    runs = [[path] for path in files(out)] if name == "bigstate" else [files(out)]
    for paths in runs:
        command = [program, "--no-defaults", "--verify-binlog-checksum", "--verbose", *map(str, paths)]
        done = subprocess.run(command, capture_output=True, check=False, timeout=60)
        text = done.stdout.decode("utf-8", "replace")
        printed += [line.split("GTID ")[1].split()[0] for line in text.splitlines() if "\tGTID " in line]
        if name == "bigstate" and done.returncode:  # see above; it says so and nothing else
            assert done.stderr.startswith(b"ERROR: Binary logs never reached expected GTID state of 7-")
        else:
            assert (done.returncode, done.stderr) == (0, b"")
    assert printed == [group["gtid"] for group in expected(corpus, name)]


def test_each_file_begins_with_what_was_before_it_and_ends_with_the_next(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert(corpus / IBB / "dbase", f"{out}/", max_binlog_size=40000)
    paths = files(out)
    assert (out / "binlog.index").read_text() == "".join(f"./{path.name}\n" for path in paths)
    before: dict[str, str] = {}
    for path, following in zip(paths, [*paths[1:], None], strict=True):
        found = classic.events(path)
        assert [event.code for event in found[:3]] == [
            classic.DESCRIPTION,
            classic.GTID_LIST,
            classic.CHECKPOINT,
        ]
        assert found[0].flags == 0
        assert set(classic.listed(found[1])) == set(before.values())
        assert found[2].body[4:] == path.name.encode()
        if following is None:
            assert found[-1].code == classic.STOP
        else:
            assert (found[-1].code, found[-1].body) == (
                classic.ROTATE,
                struct.pack("<Q", 4) + following.name.encode(),
            )
        for group in classic.groups(found):
            before[group.gtid.rpartition("-")[0]] = group.gtid
    assert len(paths) > 4


def test_a_server_start_begins_a_file_with_its_own_description(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert(corpus / IBB / "restart", f"{out}/")
    heads = [classic.events(path)[0] for path in files(out)]
    versions = [head.body[2:52].rstrip(b"\0").decode() for head in heads]
    assert versions[0] == "12.3.0-MariaDB" and len(set(versions[1:])) == 1 and "10.11" in versions[1]
    created = [int.from_bytes(head.body[52:56], "little") for head in heads]
    assert [bool(one) for one in created] == [False, True, True]
    assert {head.body[-1] for head in heads} == {1}


def test_the_manifest_accounts_for_all(corpus: Path, tmp_path: Path) -> None:
    source, account = corpus / IBB / "dbase", tmp_path / "m.json"
    convert(source, f"{tmp_path}/new/", manifest=account, selection=SKIP)
    told = json.loads(account.read_text())
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in source.glob("*.ibb")}
    assert {Path(one["path"]).name: one["sha256"] for one in told["inputs"]} == hashes
    assert sum(one["records"] for one in told["inputs"]) == told["rows"] == 30
    assert told["details"]["gtids"] == ["0-11-1..26", "7-11-1..4"]
    assert told["details"]["gtids_left_out"] == []
    digest = hashlib.sha256()
    for group in groups(tmp_path / "new"):
        for event in group.events:
            digest.update(struct.pack("<IBI", event.time, event.code, event.server_id))
            digest.update(struct.pack("<H", event.flags) + event.body)
    checks = {one["name"]: one["detail"] for one in told["checks"]}
    assert digest.hexdigest() in checks["event-bodies-equal"]
    assert "event_size, end_log_pos and checksum" in checks["event-bodies-equal"]


# -- damage ------------------------------------------------------------------------------------------------------------


def damaged(corpus: Path, tmp_path: Path, case: dict[str, Any]) -> Path:
    """A damaged variant of a sample."""
    source, target = corpus / IBB / case["dir"], tmp_path / "damaged"
    shutil.copytree(corpus / IBB / case["base"], target)
    for path in source.iterdir() if source.is_dir() else ():
        (target / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    for name in case["removed_files"]:
        (target / name).unlink()
    return target


HARMLESS = {"d10-torn-tail", "d16-garbage-after-end", "d21-incomplete-tail"}
"""What a crash leaves, and what stands behind the end."""

MORE_IS_READ = {"d04-header-zeroed", "d18-page-size"}
"""The makers of the samples took the whole file for lost."""

LESS_IS_WRITTEN = {"d20-oob-count": {"0-11-7"}}
"""All its data can be read, but the number of its pieces is another one: it may not be the whole transaction."""

NOT_NAMED = {"d10-torn-tail", "d21-incomplete-tail", "d22-tail-first-byte"}
"""Nothing behind the damage tells what was in it."""


def each(texts: list[str]) -> set[str]:
    """`0-1-5..7` as single GTIDs."""
    found = set()
    for text in texts:
        source, _, numbers = text.rpartition("-")
        low, _, high = numbers.partition("..")
        found |= {f"{source}-{number}" for number in range(int(low), int(high or low) + 1)}
    return found


def cases(corpus: Path) -> list[dict[str, Any]]:
    return list(json.loads((corpus / IBB / "manifest.json").read_text())["damaged"])


@pytest.mark.parametrize("number", range(22))
def test_damage_stops_the_work_and_leaves_nothing(corpus: Path, tmp_path: Path, number: int) -> None:
    case = cases(corpus)[number]
    source, before = damaged(corpus, tmp_path, case), sorted(tmp_path.iterdir())
    done = convert(source, tmp_path / "log", max_binlog_size=30000)
    report = binlogtool.verify([source])
    assert done.complete == (report.count_findings(Severity.ERROR) == 0)
    assert done.complete == (case["dir"].partition("/")[2] in HARMLESS)
    if not done.complete:
        assert done.exit_code == 1 and done.outputs == ()
        assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("number", range(22))
def test_skipping_leaves_out_what_is_damaged_and_nothing_else(corpus: Path, tmp_path: Path, number: int) -> None:
    case = cases(corpus)[number]
    done = convert(damaged(corpus, tmp_path, case), f"{tmp_path}/out/", selection=SKIP)
    found = groups(tmp_path / "out")
    whole = {group["gtid"]: group["sha256"] for group in expected(corpus, case["base"])}
    assert {group.gtid: hashlib.sha256(group.bare()).hexdigest() for group in found}.items() <= whole.items()
    name, gtids = case["dir"].partition("/")[2], [group.gtid for group in found]
    intact = [
        gtid
        for gtid in case["groups_intact_if_everything_readable_is_used"]
        if gtid not in LESS_IS_WRITTEN.get(name, ())
    ]
    assert [gtid for gtid in gtids if name not in MORE_IS_READ or gtid in intact] == intact
    assert done.complete
    named, missing = each(done.details["gtids_left_out"]), whole.keys() - set(gtids)
    if name == "d14-oob-purged":
        missing -= {f"0-11-{number}" for number in range(1, 6)}  # they were purged with their file
    assert named == (set() if name in NOT_NAMED else missing)


# -- selection and refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ({"include_gtids": "7"}, [f"7-11-{n}" for n in range(1, 5)]),
        ({"include_gtids": "0-11-3..5"}, ["0-11-3", "0-11-4", "0-11-5"]),
        ({"start": "gtid:0-11-24,7-11-4"}, ["0-11-25", "0-11-26"]),
        ({"stop": "gtid:0-11-2"}, ["0-11-1", "0-11-2"]),
        ({"limit": 3}, ["0-11-1", "0-11-2", "0-11-3"]),
        ({"skip": 28}, ["0-11-25", "0-11-26"]),
        ({"start": "binlog-000004.ibb:0"}, ["0-11-23", "0-11-24", "0-11-25", "0-11-26"]),
    ],
)
def test_whole_groups_can_be_chosen(corpus: Path, tmp_path: Path, choice: dict[str, Any], wanted: list[str]) -> None:
    selection = Selection(**{"on_damage": "stop", **choice})
    done = convert(corpus / IBB / "dbase", f"{tmp_path}/out/", selection=selection)
    assert [group.gtid for group in groups(tmp_path / "out")] == wanted
    assert done.complete and done.rows == len(wanted)


def test_what_was_passed_over_before_counts_as_done(corpus: Path, tmp_path: Path) -> None:
    selection = Selection(on_damage="stop", start="gtid:0-11-24,7-11-4")
    convert(corpus / IBB / "dbase", f"{tmp_path}/out/", selection=selection)
    assert set(classic.listed(classic.events(tmp_path / "out" / "binlog.000001")[1])) == {
        "0-11-24",
        "7-11-4",
    }


def test_a_file_in_the_middle_starts_from_the_state_that_it_tells(corpus: Path, tmp_path: Path) -> None:
    source = sorted((corpus / IBB / "dbase").glob("*.ibb"))
    facts = manifest_of(corpus, "dbase")["event_groups"]
    convert(source[2:], f"{tmp_path}/out/", selection=SKIP)
    assert [group.gtid for group in groups(tmp_path / "out")] == [one["gtid"] for one in facts if one["file"] >= 2]
    before = {one["gtid"].rpartition("-")[0]: one["gtid"] for one in facts if one["file"] < 2}
    assert set(classic.listed(classic.events(tmp_path / "out" / "binlog.000001")[1])) == set(before.values())


def test_files_are_taken_in_the_order_of_the_log_and_a_missing_one_is_noticed(corpus: Path, tmp_path: Path) -> None:
    source = sorted((corpus / IBB / "dbase").glob("*.ibb"))
    convert(source[::-1], f"{tmp_path}/all/", selection=SKIP)
    assert [group.gtid for group in groups(tmp_path / "all")] == [one["gtid"] for one in expected(corpus, "dbase")]
    done = convert([source[0], *source[2:]], f"{tmp_path}/hole/")
    assert not done.complete
    assert [one["id"] for one in done.findings if one["severity"] == "error"] == ["missing-member"]


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ({"types": ("QUERY",)}, "--type selects single events"),
        ({"objects": ("a.b",)}, "--object selects single events"),
        ({"exclude_objects": ("a.b",)}, "--exclude-object selects single events"),
        ({"tail": 3}, "--tail"),
        ({"on_damage": "salvage"}, "use --on-damage skip"),
    ],
)
def test_single_events_cannot_be_chosen(corpus: Path, tmp_path: Path, choice: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        convert(corpus / IBB / "dbase", tmp_path / "log", selection=Selection(**choice))
    assert list(tmp_path.iterdir()) == []


def test_existing_files_are_never_replaced(corpus: Path, tmp_path: Path) -> None:
    source = corpus / IBB / "edges"
    (tmp_path / "log.000007").write_text("mine")
    (tmp_path / "log.txt").write_text("mine too")
    with pytest.raises(RefusedError, match=r"log\.000007 exists"):
        convert(source, tmp_path / "log", overwrite=True)
    convert(source, tmp_path / "other")
    assert {path.name for path in tmp_path.iterdir()} == {"log.000007", "log.txt", "other.000001", "other.index"}
    assert (tmp_path / "log.000007").read_text() == "mine"
    with pytest.raises(InputOutputError, match="no such directory"):
        convert(source, tmp_path / "nowhere" / "log")
    with pytest.raises(UsageError, match="letter"):
        convert(source, tmp_path / "123")


def test_a_failure_while_the_files_appear_takes_them_back(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, done = atomic_output.rename_without_replacing, list[Path]()

    def broken(source: Path, target: Path) -> None:
        if len(done) == 2:
            raise OSError(28, "No space left on device")
        done.append(source)
        rename(source, target)

    monkeypatch.setattr(atomic_output, "rename_without_replacing", broken)
    with pytest.raises(InputOutputError, match="No space left"):
        convert(corpus / IBB / "dbase", tmp_path / "log", max_binlog_size=30000)
    assert len(done) == 2
    assert list(tmp_path.iterdir()) == []


def test_logs_of_other_formats_are_refused(samples: Path, tmp_path: Path) -> None:
    xlog = next((samples / "tarantool").rglob("*.xlog"))
    with pytest.raises(UsageError, match="not events of a server's binary log"):
        convert(xlog, tmp_path / "log")


# -- binary logs again -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["mariadb-10.11", "mariadb-11.8"])
@pytest.mark.parametrize(
    "name", ["big-transaction", "domains", "mixed-ddl", "rotated-set", "savepoint-nontrans-stmt", "stmt", "xa"]
)
def test_a_binary_log_of_mariadb_can_be_written_anew(corpus: Path, tmp_path: Path, version: str, name: str) -> None:
    source = corpus / CLASSIC / version / name
    logs = sorted(p for p in source.iterdir() if p.suffix[1:].isdigit() and len(p.suffix) == 7)
    convert(logs, f"{tmp_path}/out/", max_binlog_size=3000)
    before = [group for path in logs for group in classic.groups(classic.events(path, exact=False))]
    after = groups(tmp_path / "out")
    assert [(one.gtid, [event.body for event in one.events]) for one in after] == [
        (one.gtid, [event.body for event in one.events]) for one in before
    ]
    assert binlogtool.verify([tmp_path / "out"]).count_findings(Severity.ERROR) == 0


def test_an_encrypted_log_becomes_a_plain_one(corpus: Path, tmp_path: Path) -> None:
    source = corpus / CLASSIC / "mariadb-10.11" / "encrypted"
    log = min(p for p in source.iterdir() if p.suffix == ".000001" or p.suffix == ".000002")
    with pytest.raises(LimitError, match="--keyfile"):
        convert(log, tmp_path / "plain", selection=SKIP)
    keys = next(p for p in source.rglob("*") if p.is_file() and "key" in p.name)
    convert(log, tmp_path / "plain", hints=binlogtool.read_hints(keyfile=keys))
    with binlogtool.open(log, hints=binlogtool.read_hints(keyfile=keys)) as opened:
        wanted = [r.txn for r in opened.records() if r.type == "GTID"]
    assert [group.gtid for group in classic.groups(classic.events(tmp_path / "plain.000001"))] == wanted != []


def test_logs_of_mysql_and_relay_logs_are_refused(corpus: Path, tmp_path: Path) -> None:
    generated = corpus / CLASSIC
    with pytest.raises(UsageError, match="only MariaDB logs can be converted"):
        convert(generated / "mysql-9.7" / "stmt" / "binlog.000001", tmp_path / "log")
    with pytest.raises(UsageError, match="relay log"):
        convert(generated / "mariadb-11.8" / "relay" / "relay.000002", tmp_path / "log")


# -- any log -----------------------------------------------------------------------------------------------------------


def event(code: int, body: bytes, server: int = 1) -> bytes:
    return struct.pack("<IBIIIH", 1_700_000_000, code, server, 19 + len(body), 0, 0) + body


XIDS = itertools.count(1)


def transaction(domain: int, server: int, number: int, sizes: list[int]) -> list[bytes]:
    """A GTID event, statements as long as asked for, and the XID that ends them."""
    head = event(classic.GTID, struct.pack("<QIB6x", number, domain, 12), server)
    query = struct.pack("<IIBHH", 1, 0, 1, 0, 0) + b"d\0"
    return [
        head,
        *(event(2, query + b"x" * size, server) for size in sizes),
        event(16, struct.pack("<Q", next(XIDS)), server),
    ]


GROUPS = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(1, 3), st.lists(st.integers(1, 40_000), max_size=4),
        st.sampled_from([None, 500, 3000, 30_000]), st.integers(0, 3),
    ),
    max_size=25,
)  # fmt: skip


@pytest.mark.full
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(wanted=GROUPS, size=st.sampled_from([1, 5000, 100_000, 1 << 30]), interval=st.sampled_from([2, 4]))
def test_whatever_the_shape_of_the_log_its_groups_come_out_as_they_went_in(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[Any], size: int, interval: int
) -> None:
    folder, numbers = tmp_path_factory.mktemp("any"), dict[int, int]()
    log = IbbWriter(folder / "ibb", interval=interval)
    given: list[tuple[str, bytes]] = []
    for domain, server, sizes, piece, first in wanted:
        numbers[domain] = numbers.get(domain, 0) + 1
        events = transaction(domain, server, numbers[domain], sizes)
        log.group((domain, server, numbers[domain]), events, piece, min(first, len(events) - 2))
        given.append((f"{domain}-{server}-{numbers[domain]}", b"".join(events)))
    log.close()
    done = convert(folder / "ibb", f"{folder}/out/", max_binlog_size=size)
    assert done.complete, done.findings
    assert [(group.gtid, group.bare()) for group in groups(folder / "out")] == given


@pytest.mark.full
def test_transactions_go_on_where_one_piece_of_a_file_in_memory_ends(tmp_path: Path) -> None:
    log = IbbWriter(tmp_path / "ibb", pages=512, interval=64)
    for number in range(1, 3001):
        log.group((0, 1, number), transaction(0, 1, number, [300, 2000, 500]), 900 if number % 40 == 0 else None)
    log.close()
    for backend in ("python", "auto"):
        done = convert(tmp_path / "ibb", f"{tmp_path}/{backend}/", backend=backend)
        assert [one.size > 8 << 20 for one in done.outputs] == [True]
        assert done.details["gtids"] == ["0-1-1..3000"]


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_says_what_it_did(corpus: Path, tmp_path: Path) -> None:
    source = str(corpus / IBB / "dbase")
    done = invoke("convert", "--to", "mysql-binlog", "-o", f"{tmp_path}/new/", "--max-binlog-size", "30KiB", source)
    assert done.code == 0, done.err
    assert "check  gtids-in-equal-gtids-out: 0-11-1..26, 7-11-1..4" in done.text
    assert "30 transactions" in done.text
    again = invoke("convert", "--to", "mysql-binlog", "-o", f"{tmp_path}/new/", source)
    assert (again.code, again.err.count("\n")) == (5, 1)


def test_the_command_names_the_damage_that_stopped_it(corpus: Path, tmp_path: Path) -> None:
    source = damaged(corpus, tmp_path, next(c for c in cases(corpus) if c["dir"].endswith("d19-oob-pointer")))
    done = invoke("convert", "--to", "mysql-binlog", "-o", f"{tmp_path}/new", str(source))
    assert done.code == 1
    assert "error  " in done.text and "nothing was written" in done.text
    assert [path.name for path in tmp_path.iterdir()] == ["damaged"]
