"""The guides on logs that a real server wrote just now, damaged as the guide says, down to the start and the way back.

A guide's own commands are run. They must print what the page prints, but for numbers, which are another log's.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, examples, make_place, matches, run
from tests.docs.servers import SERVERS, mariadb
from tests.formats.manticore.sphinx_server import start
from tests.formats.mysql_binlog.server import Programs, Server
from tests.formats.mysql_binlog.server_trees import programs_of

pytestmark = pytest.mark.server
GUIDES = ROOT / "docs" / "guides"


def section(guide: str, first: str, behind: str) -> str:
    """A guide from one heading to another."""
    text = (GUIDES / guide).read_text("utf-8")
    return text[text.index(f"\n## {first}") : text.index(f"\n## {behind}")]


def shape(lines: list[str]) -> list[str]:
    """What is said, without numbers, and as long as they are."""
    numbers = r"0x[0-9a-f]+|\b[0-9a-f]{64}\b|\b(stored|computed) [0-9a-f]{8}\b|\d[\d,.]*( [KM]iB| B\b)?"
    newer = re.compile(r"\.idx\b|empty: the server has not written it yet")  # MariaDB 11.8: told below "other servers"
    lines = [line.replace(" from Debian", "") for line in lines if not newer.search(line)]
    return [re.sub(r"\s+", " ", re.sub(numbers, "#", line)) for line in lines]


def follow(text: str, place: Path, **names: str) -> None:
    """Each command of a part of a guide, in order. names: words of the page that are others here."""
    done = 0
    for example in examples(text):
        command, said = example.command, example.output
        for word, other in names.items():
            command, said = command.replace(word, other), [line.replace(word, other) for line in said]
        shown = run(command, place)[1]
        assert matches(shape(said), shape(shown)), f"{command}\n" + "\n".join(shown)
        done += 1
    assert done, "the guide has no commands here"


# -- Sphinx ------------------------------------------------------------------------------------------------------------

CONFIGURATION = """index orders {
 type=rt
 path=<DIR>/data/orders
 rt_field=customer
 rt_attr_uint=total
}
searchd {
 listen=<DIR>/socket:mysql41
 log=<DIR>/searchd.log
 pid_file=<DIR>/pid
 binlog_path=<DIR>/binlog
}
"""
INSERTS = [
    f"INSERT INTO orders (id, customer, total) VALUES ({one}, 'customer {one}', {one * 10})" for one in range(1, 9)
]


def test_the_guide_of_sphinx_from_the_power_cut_to_the_start_and_back(place: Path) -> None:
    written = place / "sphinx"
    assert start(None, CONFIGURATION, statements=INSERTS, keep=written).counts == {"orders": 8}
    log = written / "binlog.001"
    data = log.read_bytes()
    torn = data[: data.rindex(b"TXN!") + 4].ljust(len(data), b"\0")
    log.write_bytes(torn)
    assert "unexpected entry" in start(written, CONFIGURATION).reason
    before, behind = section("manticore.md", "Sphinx", "When not").split("```sh")
    follow(before, place)
    server = start(written, CONFIGURATION, statements=["FLUSH RTINDEX orders"])
    assert server.started and server.counts == {"orders": 7} and "WARNING" not in server.log
    follow(behind, place)
    assert log.read_bytes() == torn


def test_sphinx_starts_without_an_error_where_the_guide_says_that_it_drops_the_rest(place: Path) -> None:
    written = place / "sphinx"
    start(None, CONFIGURATION, statements=INSERTS, keep=written)
    log = written / "binlog.001"
    data = log.read_bytes()
    for wrong in (data[:-30], data[:-30] + bytes(30), data[:-1] + bytes([data[-1] ^ 1])):
        log.write_bytes(wrong)
        server = start(written, CONFIGURATION)
        assert server.counts == {"orders": 7} and "CRC mismatch" in server.log
        assert run("binlogtool diagnose sphinx | grep -c -E 'starts? +yes'", place)[1] == ["1"]


# -- MariaDB -----------------------------------------------------------------------------------------------------------

DAY = """CREATE DATABASE shop CHARACTER SET utf8mb4; USE shop;
CREATE TABLE orders (id INT PRIMARY KEY, customer VARCHAR(40), total DECIMAL(10,2), state VARCHAR(10)) ENGINE=InnoDB;
CREATE TABLE stock (item VARCHAR(20) PRIMARY KEY, pieces INT) ENGINE=InnoDB;
INSERT INTO shop.orders VALUES (1,'Ada',120.00,'paid'),(2,'Björn',79.90,'paid'),(3,'Chen',15.25,'open');
INSERT INTO shop.stock VALUES ('lamp',12),('chair',4);
FLUSH BINARY LOGS;
BEGIN; INSERT INTO orders VALUES (4,'Dana',300.00,'open'); UPDATE stock SET pieces=pieces-1 WHERE item='lamp'; COMMIT;
DELETE FROM orders;
BEGIN; INSERT INTO orders VALUES (5,'Egil',42.00,'open'); UPDATE stock SET pieces=pieces-1 WHERE item='chair'; COMMIT;
""".encode()
"""What the samples of the guide went through."""


OTHERS = [None, pytest.param("mariadb-11.8", marks=pytest.mark.nightly)]


def server_of(tree: str | None) -> Programs | None:
    """None = the installed one."""
    programs = None if tree is None else programs_of(tree)
    if tree is not None and programs is None:
        pytest.skip(f"there is no tree {tree}")
    return programs


def options(place: Path, logs: str) -> tuple[str, ...]:
    return (
        f"--log-bin={place / logs}/mariadb-bin", "--binlog-format=ROW", "--server-id=1", "--skip-networking",
        "--binlog-row-metadata=FULL", "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1",
    )  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Path:
    if not SERVERS:
        pytest.skip("BINLOGTOOL_SERVER=1 is not set")
    return make_place(tmp_path)


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short path, for a server's socket."""
    with tempfile.TemporaryDirectory(prefix="bt") as folder:
        yield Path(folder)


@pytest.mark.parametrize("tree", OTHERS)
def test_the_guide_of_mariadb_from_the_crash_to_the_start_and_back(place: Path, home: Path, tree: str | None) -> None:
    programs = server_of(tree)
    (place / "binlogs").mkdir()
    words = options(place, "binlogs")
    with Server(home, *words, programs=programs) as server:
        assert server.run(DAY) == ""
        assert server.run(b"FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS") == ""  # else the engine writes them once a second
        commit = [one.at for one in server.events("mariadb-bin.000002") if one.type == "Xid"][-1]
        server.kill()
    log = place / "binlogs" / "mariadb-bin.000002"
    torn = log.read_bytes()[: commit + 16]  # what a power cut leaves of a log that is not synced as often as the engine
    log.write_bytes(torn)
    follow(section("mysql-binlog.md", "1. ", "7. "), place)
    cut = log.read_bytes()
    with Server(home, *words, programs=programs) as server:
        assert server.complaints() == []
        assert [name for name, _ in server.logs()] == [f"mariadb-bin.00000{number}" for number in (1, 2, 3)]
        assert log.read_bytes() == cut, "the guide says that the server leaves it as it is"
        assert server.gtids() == "0-1-7", "the guide says that the next one gets the number of what was cut"
        assert server.ask("SELECT id FROM shop.orders").split() == ["5"], "the guide says that the engine has it"
    follow(section("mysql-binlog.md", "8. ", "Damage"), place)
    assert log.read_bytes() == torn
    with Server(home, *words, programs=programs) as server:
        assert server.ask("SELECT id FROM shop.orders").split() == ["5"]


@pytest.mark.parametrize("tree", OTHERS)
def test_the_guide_of_mariadb_where_the_damage_is_in_the_middle(place: Path, home: Path, tree: str | None) -> None:
    programs = server_of(tree)
    (place / "backup").mkdir()
    with Server(home, *options(place, "backup"), programs=programs) as server:
        assert server.run(DAY) == ""
        assert server.ask("SELECT id FROM shop.orders").split() == ["5"]
        (map_of_first_rows,) = [one.at for one in server.events("mariadb-bin.000001") if one.type == "Table_map"][:1]
    log = place / "backup" / "mariadb-bin.000001"
    data = bytearray(log.read_bytes())
    data[map_of_first_rows + 23] = 0xFF
    log.write_bytes(data)
    with mariadb(place, programs):
        follow(section("mysql-binlog.md", "Damage", "On other"), place)
        assert run("mariadb -N -e 'SELECT id FROM shop.orders; SELECT * FROM shop.stock'", place) == (
            0, ["5", "chair\t3", "lamp\t11"],
        )  # fmt: skip


# -- MySQL 9: what the guide says below "On other servers" -------------------------------------------------------------


def mysql_words(place: Path, logs: str) -> tuple[str, ...]:
    return (*options(place, logs), "--gtid-mode=ON", "--enforce-gtid-consistency=ON")


@pytest.mark.nightly
def test_mysql_cuts_the_tail_itself_and_keeps_the_number(place: Path, home: Path) -> None:
    programs, words = server_of("mysql-9"), mysql_words(place, "binlogs")
    (place / "binlogs").mkdir()
    with Server(home, *words, programs=programs) as server:
        assert server.run(DAY) == ""
        assert server.run(b"FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS") == ""
        commit = [one.at for one in server.events("mariadb-bin.000002") if one.type == "Xid"][-1]
        source = server.gtids().split(":")[0]
        server.kill()
    log = place / "binlogs" / "mariadb-bin.000002"
    torn = log.read_bytes()[: commit + 16]
    log.write_bytes(torn)
    run("cp -a -- binlogs binlogs.copy", place)
    assert run("binlogtool diagnose binlogs", place)[1][0].endswith("starts yes")
    plan = "\n".join(run("binlogtool truncate-to-durable binlogs", place)[1])
    end = int(re.findall(r"durable end ([\d,]+)", plan)[0].replace(",", ""))
    apply, undo = (
        "binlogtool truncate-to-durable --apply --yes binlogs",
        "binlogtool undo --apply --yes binlogs/*-undo-*",
    )
    assert run(apply, place)[0] == 0 and len(log.read_bytes()) == end
    assert run(undo, place)[0] == 0 and log.read_bytes() == torn
    with Server(home, *words, programs=programs) as server:  # on the torn log
        assert len(log.read_bytes()) == end, "the guide says that MySQL cuts where the plan does"
        assert server.complaints() == [] and server.gtids() == f"{source}:1-8"
        assert server.ask("SELECT id FROM shop.orders").split() == ["5"]
        assert server.run(b"INSERT INTO shop.stock VALUES ('table', 1)") == "" and server.gtids() == f"{source}:1-9"
    dump = "binlogtool dump --type GTID_LOG --fields seq binlogs/mariadb-bin.00000[23] | grep -v '^#'"
    assert run(dump, place)[1] == ["6", "7", "9"], "no log has the number any more"


@pytest.mark.nightly
def test_mysql_has_changed_a_cut_log_once_it_has_started(place: Path, home: Path) -> None:
    programs, words = server_of("mysql-9"), mysql_words(place, "binlogs")
    (place / "binlogs").mkdir()
    with Server(home, *words, programs=programs) as server:
        assert server.run(DAY) == ""
        server.kill()
    log = place / "binlogs" / "mariadb-bin.000002"
    log.write_bytes(log.read_bytes()[:-10])
    assert run("binlogtool truncate-to-durable --apply --yes binlogs", place)[0] == 0
    with Server(home, *words, programs=programs) as server:
        assert server.complaints() == []
    status, said = run("binlogtool undo --apply --yes binlogs/*-undo-*", place)
    assert status != 0 and "changed since the repair" in "\n".join(said)


@pytest.mark.nightly
def test_mysql_takes_the_script_of_what_is_left(place: Path, home: Path) -> None:
    programs = server_of("mysql-9")
    (place / "backup").mkdir()
    with Server(home, *mysql_words(place, "backup"), programs=programs) as server:
        assert server.run(DAY) == ""
        (map_of_first_rows,) = [one.at for one in server.events("mariadb-bin.000001") if one.type == "Table_map"][:1]
    log = place / "backup" / "mariadb-bin.000001"
    data = bytearray(log.read_bytes())
    data[map_of_first_rows + 23] = 0xFF
    log.write_bytes(data)
    assert "wrote" in run("binlogtool convert --to sql --on-damage skip -o rest.sql backup | tail -1", place)[1][0]
    script = (place / "rest.sql").read_bytes()
    (place / "new").mkdir()
    with Server(home / "2", *mysql_words(place, "new"), programs=programs) as server:
        assert "Can't find record in 'orders'" in server.run(script)
        assert server.run(b"DROP DATABASE shop") == ""
        assert "Unknown database" in server.run(script), "the guide says that it passes over what it has"
        assert server.run(b"RESET BINARY LOGS AND GTIDS") == ""
        assert server.run(b"SET SESSION rbr_exec_mode=IDEMPOTENT;\n" + script) == ""
        rows = server.ask("SELECT id FROM shop.orders; SELECT * FROM shop.stock").splitlines()
        assert rows == ["5", "chair\t3", "lamp\t11"]
