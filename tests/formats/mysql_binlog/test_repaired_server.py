"""W7: a real MariaDB starts on repaired logs and holds exactly the predicted events; undo gives the damaged ones back.

Oracles: the server itself, the durable ends of the manifests, and what the tool of the server that wrote a log printed
of the undamaged one.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import binlogtool
from binlogtool.repair.plan_types import RepairPolicy
from tests.formats.mysql_binlog.repaired import Case, gtids_of, look, plain, plan_of, predicted, put, repairable
from tests.formats.mysql_binlog.server import Event, Server
from tests.sampling import take_sample

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A folder with a short path; the server's data are in it."""
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    with tempfile.TemporaryDirectory(prefix="bt-") as folder:
        (Path(folder) / "server").mkdir()
        yield Path(folder)


@pytest.fixture
def logs(home: Path) -> Iterator[Path]:
    """A folder for logs, also with a short path."""
    folder = home / "logs"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def cases(corpus: Path, *, mysql: bool = False) -> list[Case]:
    return [case for case in repairable(corpus) if case.mysql == mysql]


def printed(case: Case) -> list[int]:
    """Where the events in front of the durable end stand, by the tool of the server that wrote the log."""
    assert case.end is not None
    text = gzip.decompress(case.twin.with_name(case.twin.name + ".txt.gz").read_bytes())
    return sorted({at for at in map(int, re.findall(rb"^# at (\d+)$", text, re.MULTILINE)) if at < case.end})


def repaired(path: Path, *, fix_meta: bool = False) -> tuple[list[Event], str | None]:
    """Repairs a log; the events that were predicted before, and the undo file."""
    plan = plan_of(path, fix_meta=fix_meta)
    assert not plan.refused, plan.reasons
    expected = predicted(path, plan)
    return expected, binlogtool.apply_plan(plan).undo if plan.changes else None


def check_started(case: Case, path: Path, home: Path, *, fix_meta: bool) -> None:
    """Repair, start, compare, undo."""
    damaged = path.read_bytes()
    expected, undo = repaired(path, fix_meta=fix_meta)
    now = path.read_bytes()
    assert (len(now), now[21] & 1) == (case.end, not fix_meta), case.name
    assert [one.at for one in expected] == printed(case), case.name
    shown = look(path, home / "server")
    assert (shown.started, shown.complaints) == (True, ()), case.name
    assert [Event(one.at, plain(one.type)) for one in shown.events] == expected, case.name
    assert shown.gtids == gtids_of(path) != "", case.name
    new = path.with_name(path.stem + ".000002")
    assert [one[0] for one in shown.logs] == [path.name, new.name], case.name
    assert shown.logs[0][1] == case.end, case.name
    assert path.read_bytes() == now, case.name  # MariaDB leaves the old log as it is
    if undo is not None:
        binlogtool.undo(Path(undo))
    assert path.read_bytes() == damaged, case.name


def test_a_server_starts_on_every_repaired_log_that_was_in_use(corpus: Path, home: Path, logs: Path) -> None:
    """It looks for prepared transactions in it, and takes its GTIDs from it."""
    every = cases(corpus)
    assert len(every) == 41
    chosen = take_sample(every, 6)
    for number, case in enumerate(chosen):
        check_started(case, put(case, logs / str(number)), home, fix_meta=False)
    print(f"\nW7: MariaDB started on {len(chosen)} repaired logs and holds exactly the predicted events")


def test_a_server_starts_on_repaired_logs_whose_flag_was_cleared(corpus: Path, home: Path, logs: Path) -> None:
    chosen = [case for case in cases(corpus) if "mariadb-10.11" in case.name or "crash" in case.name]
    assert len(chosen) == 13
    for number, case in enumerate(take_sample(chosen, 3)):
        check_started(case, put(case, logs / str(number)), home, fix_meta=True)


@pytest.mark.parametrize("name", ["crc-truncated-in-event", "crc-zero-hole", "crash-disk-full-before"])
def test_a_server_alone_complains_about_the_damaged_log(corpus: Path, home: Path, logs: Path, name: str) -> None:
    """The same look sees a damage."""
    case = next(one for one in cases(corpus) if name in one.name)
    shown = look(put(case, logs / "x"), home / "server")
    assert shown.started and not shown.events
    assert "Error in Log_event::read_log_event()" in shown.complaints[0]


def own_set(source: Path, folder: Path, *missing: str) -> Path:
    """A copy of a set without some of its logs, listed where it is now."""
    folder.mkdir()
    for path in source.iterdir():
        if path.suffix != ".gz" and path.name not in missing:
            (folder / path.name).write_bytes(path.read_bytes())
    index = folder / "rot-bin.index"
    index.write_text(re.sub(r"^.*/", f"{folder}/", index.read_text(), flags=re.MULTILINE))
    return folder


def test_a_list_without_the_logs_that_somebody_removed_is_one_that_a_server_takes(
    corpus: Path, home: Path, logs: Path
) -> None:
    generated = corpus / "mysql-binlog/generated"
    folder = own_set(generated / "mariadb-11.8/rotated-set", logs / "set", "rot-bin.000003", "rot-bin.000004")
    before = (folder / "rot-bin.index").read_bytes()
    assert binlogtool.plan_truncate(folder).refused
    done = binlogtool.apply_plan(binlogtool.plan_truncate(folder, policy=RepairPolicy(fix_meta=True)))
    mended = (folder / "rot-bin.index").read_bytes()
    manifest = json.loads((generated / "manifest.json").read_text("utf-8"))
    counts = {Path(one["file"]).name: one["events"] for one in manifest if "11.8/rotated-set" in one["file"]}
    state = (folder / "rot-bin.state").read_text().strip()
    with Server(home / "server", f"--log-bin={folder}/rot-bin", "--skip-networking", "--server-id=9") as server:
        listed = [name for name, _ in server.logs()]
        assert listed == [f"rot-bin.00000{number}" for number in (5, 6, 7, 8, 9)]
        assert {name: len(server.events(name)) for name in listed[:-1]} == {name: counts[name] for name in listed[:-1]}
        assert (server.gtids(), server.complaints()) == (state, [])
    assert done.undo is not None
    (folder / "rot-bin.index").write_bytes(mended)  # the server has listed its new log
    binlogtool.undo(Path(done.undo))
    assert (folder / "rot-bin.index").read_bytes() == before


@pytest.mark.parametrize("server", ["mariadb-11.8", "mysql-9.7"])
def test_a_log_that_is_missing_between_others_is_not_forgotten(corpus: Path, server: str) -> None:
    """Without its line, a server would skip its transactions without a word."""
    folder = corpus / "mysql-binlog/generated/damaged" / server / "set-missing-file"
    plan = binlogtool.plan_truncate(folder, policy=RepairPolicy(allow_discard_valid=True, fix_meta=True))
    assert plan.refused and not plan.changes
    assert "transactions lost" in plan.reasons[0]


def test_mariadb_shows_every_event_of_repaired_logs_of_mysql(corpus: Path, home: Path, logs: Path) -> None:
    """As far as it knows them: GTIDs of MySQL are ignorable events; compressed transactions it cannot read at all."""
    chosen = [case for case in cases(corpus, mysql=True) if "compressed" not in case.name]
    expected: dict[str, list[Event]] = {}
    for number, case in enumerate(chosen, 1):
        path = put(case, logs / str(number))
        events, _ = repaired(path, fix_meta=True)
        assert [one.at for one in events] == printed(case), case.name
        assert path.stat().st_size == case.end, case.name
        name = f"binlog.{number:06}"
        path.rename(logs / name)
        expected[name] = events
    (logs / "binlog.index").write_text("".join(f"{logs}/{name}\n" for name in expected))
    with Server(home / "server", f"--log-bin={logs}/binlog", "--skip-networking", "--server-id=9") as server:
        for name, events in expected.items():
            shown = server.events(name)
            assert [one.at for one in shown] == [one.at for one in events], name
            known = [(a.type, b) for a, b in zip(shown, events, strict=True) if a.type != "Ignorable log event"]
            assert [plain(kind) for kind, _ in known] == [one.type for _, one in known], name
        assert server.complaints() == []
    assert len(expected) == 28


def script(path: Path, *options: str) -> bytes:
    """What the tool makes of a log, without a complaint; and not that its server has not closed it."""
    command = ["mariadb-binlog", "--no-defaults", "--verify-binlog-checksum", *options, str(path)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    assert done.stderr == b"", path
    return done.stdout.replace(b"# Warning: this binlog is either in use or was not closed properly.\n", b"")


def test_a_replay_of_a_repaired_log_is_one_of_the_undamaged_one_up_to_the_durable_end(
    corpus: Path, home: Path, logs: Path
) -> None:
    """The tool reads it to its end; its script is the same to the byte, and a server runs it."""
    every = [case for case in cases(corpus) if not case.unseen]
    chosen = take_sample(every, 4)
    scripts = set()
    for number, case in enumerate(chosen):
        path = put(case, logs / str(number))
        repaired(path, fix_meta=case.twin != case.source)  # the flag is in the script
        ours = script(path)
        assert ours == script(case.twin, f"--stop-position={case.end}"), case.name
        scripts.add(ours)
    with Server(home / "server") as server:
        for one in scripts:
            server.clear()
            assert server.run(one) == ""
            assert "CREATE TABLE" in server.content()
    print(f"\nW7: {len(chosen)} repaired logs replayed, {len(scripts)} of them different")
    assert (len(every), len(scripts)) == (38, len({(case.twin, case.end) for case in chosen}))
