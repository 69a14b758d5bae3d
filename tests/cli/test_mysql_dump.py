"""MySQL and MariaDB logs on the command line: hints, GTIDs, transactions in text, statements, statistics."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from tests.cli.invoke import invoke
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import image, rows_body, table_map_body

LONG, TABLE_MAP, WRITE_ROWS_V1, XID, GTID = 3, 19, 23, 16, 162
ENCRYPTED = "mysql-binlog/generated/mariadb-10.11/encrypted"
KEYRING = "mysql-binlog/generated/mysql-9.7/encrypted"
PACKED = "mysql-binlog/generated/mysql-9.7/compressed-transactions/binlog.000001"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two transactions, each inserts one row into db.t (one INT column)."""
    path = tmp_path / "mariadb-bin.000001"
    events = [event for number in (1, 2) for event in transaction(number)]
    path.write_bytes(make.log(events))
    return path


def transaction(number: int) -> list[bytes]:
    return [
        make.event(GTID, make.mariadb_gtid(number)),
        make.event(TABLE_MAP, table_map_body(bytes([LONG]))),
        make.event(WRITE_ROWS_V1, rows_body(1, image([struct.pack("<i", 10 * number)]))),
        make.event(XID, struct.pack("<Q", number)),
    ]


def schema(folder: Path, sql: str = "create table db.t (amount int unsigned)") -> str:
    path = folder / "schema.sql"
    path.write_text(sql)
    return str(path)


def rows(out: bytes) -> list[dict[str, object]]:
    bodies = [json.loads(line) for line in out.splitlines()]
    return [row["after"] for one in bodies if one["type"] == "WRITE_ROWS_V1" for row in one["body"]["rows"]]


def test_a_schema_names_the_columns(log: Path, tmp_path: Path) -> None:
    assert rows(invoke("dump", "-O", "jsonl", str(log)).out) == [{"@1": 10}, {"@1": 20}]
    named = invoke("dump", "-O", "jsonl", "--schema", schema(tmp_path), str(log))
    assert (named.code, rows(named.out)) == (0, [{"amount": 10}, {"amount": 20}])


def test_a_schema_may_come_from_the_environment(log: Path, tmp_path: Path) -> None:
    named = invoke("dump", "-O", "jsonl", str(log), environment={"BINLOGTOOL_DUMP_SCHEMA": schema(tmp_path)})
    assert rows(named.out) == [{"amount": 10}, {"amount": 20}]


def test_a_schema_names_the_columns_of_converted_rows(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    done = invoke("convert", "--to", "jsonl", "-o", str(out), "--schema", schema(tmp_path), str(log))
    assert (done.code, rows(out.read_bytes())) == (0, [{"amount": 10}, {"amount": 20}])


def test_a_schema_of_another_table_is_told_and_not_used(log: Path, tmp_path: Path) -> None:
    other = schema(tmp_path, "create table t (a int, b int)")
    text = invoke("dump", "--schema", other, str(log))
    assert text.code == 0
    assert text.text.count("  ! meta-mismatch: --schema gives db.t 2 columns, the log 1\n") == 2
    assert "  + @1=10\n" in text.text
    report = json.loads(invoke("verify", "-O", "json", "--schema", other, str(log)).out)
    (found,) = [f for f in report["files"][0]["findings"] if f["id"] == "meta-mismatch"]
    assert found["severity"] == "warning"


@pytest.mark.parametrize("command", ["dump", "verify", "hexdump-annotate", "truncate-to-durable"])
def test_a_schema_that_cannot_be_read_is_told_in_one_line(command: str, log: Path, tmp_path: Path) -> None:
    missing = invoke(command, "--schema", str(tmp_path / "none.sql"), str(log))
    assert (missing.code, missing.out) == (4, b"")
    assert missing.err == f"binlogtool: {tmp_path}/none.sql: No such file or directory\n"


def test_a_schema_that_cannot_be_understood_names_its_line(log: Path, tmp_path: Path) -> None:
    done = invoke("dump", "--schema", schema(tmp_path, "use db;\n\ncreate table t (a int"), str(log))
    assert done.code == 2
    assert done.err == "binlogtool: --schema: line 3: CREATE TABLE t: a parenthesis is not closed\n"
    again = invoke("verify", "--schema", schema(tmp_path, "use db;\n\ncreate table t (a int"), str(log))
    assert again.code == 2 and again.err.count("\n") == 1


def test_files_that_cannot_be_hints_are_not_read_whole(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("binlogtool.core.record_and_selection_types.MAX_SCHEMA_BYTES", 10)
    done = invoke("dump", "--schema", schema(tmp_path), str(log))
    assert done.code == 2 and "more than 10 bytes" in done.err
    endless = invoke("dump", "--keyfile-secret", "/dev/zero", str(log))
    assert endless.code == 2 and "more than 4,096 bytes" in endless.err


# -- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("folder", "keys"), [(ENCRYPTED, "keys.txt"), (KEYRING, "keyring.json")])
def test_every_command_takes_the_key(folder: str, keys: str, corpus: Path) -> None:
    log, key = str(corpus / folder / "enc-bin.000002"), str(corpus / folder / keys)
    assert invoke("verify", log).code == 6
    assert invoke("verify", "--keyfile", key, log).code == 0
    assert invoke("dump", "-O", "csv", "--keyfile", key, log).code == 0
    assert invoke("hexdump-annotate", "--record", "3", "--keyfile", key, log).code == 0
    assert invoke("truncate-to-durable", "--keyfile", key, log).code == 0
    assert invoke("verify", log, environment={"BINLOGTOOL_VERIFY_KEYFILE": key}).code == 0


@pytest.mark.full
def test_the_key_reaches_other_processes(corpus: Path, tmp_path: Path) -> None:
    folder = corpus / ENCRYPTED
    logs = [str(folder / name) for name in ("enc-bin.000001", "enc-bin.000002")]
    done = invoke("verify", "-O", "json", "--jobs", "2", "--keyfile", str(folder / "keys.txt"), *logs)
    assert done.code == 0, done.err
    assert all(one["transactions"] for one in json.loads(done.out)["files"])


def test_a_remembered_result_holds_for_the_same_key_only(corpus: Path, tmp_path: Path) -> None:
    folder = corpus / ENCRYPTED
    log, key, state = str(folder / "enc-bin.000002"), str(folder / "keys.txt"), tmp_path / "state"
    secret = tmp_path / "secret"
    secret.write_text("open sesame")
    asked = ("verify", "-v", "--state", str(state), log)
    assert invoke(*asked).code == 6
    assert invoke(*asked, "--keyfile", key).code == 0
    assert "unchanged since it was verified" in invoke(*asked, "--keyfile", key).err
    assert "unchanged" not in invoke(*asked, "--keyfile", key, "--keyfile-secret", str(secret)).err
    kept = state.read_text()
    assert "sesame" not in kept
    assert not any(
        word in kept for word in (folder / "keys.txt").read_text().replace(";", "\n").split() if len(word) > 8
    )


# -- records -----------------------------------------------------------------------------------------------------------


def test_transactions_are_units_in_text(log: Path) -> None:
    lines = invoke("dump", str(log)).text.splitlines()
    end = lines.index("")
    headers = [line.split() for line in lines[:end] if line.startswith("0x")]
    assert [(words[2], words[3]) for words in headers[-3:]] == [
        ("GTID", "0-1-1"),
        ("WRITE_ROWS_V1", "0-1-1"),
        ("XID", "0-1-1"),
    ]
    assert lines[end + 1].split()[2:4] == ["GTID", "0-1-2"]
    assert lines[-1].startswith("# ") and "2 TABLE_MAP" in lines[-1]


def test_gtids_choose_transactions(log: Path) -> None:
    def chosen(*options: str) -> set[str]:
        return {json.loads(line)["txn"] for line in invoke("dump", "-O", "jsonl", *options, str(log)).out.splitlines()}

    assert chosen("--start-position", "gtid:0-1-1") == {"0-1-2"}
    assert chosen("--stop-position", "gtid:0-1-1") == {"0-1-1"}
    assert chosen("--include-gtids", "0-1-2") == {"0-1-2"}
    assert chosen("--exclude-gtids", "0-1-2") == {None, "0-1-1"}
    assert chosen("--include-gtids", "5-1-1") == set()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--include-gtids", "0-1-"), "'0-1-' is not a GTID"),
        (("--start-position", "gtid:7"), "domain 7 has no sequence number"),
        (("--stop-position", "gtid:uuid:7"), "'uuid' is not a UUID"),
    ],
)
def test_a_bad_set_is_refused_in_one_line(options: tuple[str, str], message: str, log: Path) -> None:
    done = invoke("dump", *options, str(log))
    assert (done.code, done.out) == (2, b"")
    assert message in done.err and done.err.count("\n") == 1


def test_a_place_in_the_annotated_dump_is_no_gtid(log: Path) -> None:
    done = invoke("hexdump-annotate", "--at", "gtid:0-1-1", str(log))
    assert done.code == 2 and "can only start or stop a selection" in done.err
    shown = invoke("hexdump-annotate", "--start-position", "gtid:0-1-1", str(log)).text
    assert "event[5]" in shown and "event[4]" not in shown and "magic" not in shown


def test_events_inside_a_payload_show_their_own_place(corpus: Path) -> None:
    log = str(corpus / PACKED)
    records = [json.loads(line) for line in invoke("dump", "-O", "jsonl", log).out.splitlines()]
    holder = next(i for i, one in enumerate(records) if one["type"] == "TRANSACTION_PAYLOAD")
    inner = records[holder + 1]
    assert "inner" not in records[holder]
    assert (inner["inner"]["offset"], inner["offset"]) == (0, records[holder]["offset"])
    lines = invoke("dump", "-v", log).text.splitlines()
    (line,) = [line for line in lines if line.startswith(f"0x{inner['offset']:08x}+0x0 ")]
    assert line.split()[2] == inner["type"] and f" size={inner['inner']['size']} " in line


def test_groups_count_the_events_inside_payloads(corpus: Path) -> None:
    def groups(by: str) -> dict[str | None, tuple[int, int]]:
        found = json.loads(invoke("stats", "-O", "json", "--by", by, str(corpus / PACKED)).out)["groups"]
        return {one["name"]: (one["records"], one["bytes"]) for one in found}

    records = [json.loads(line) for line in invoke("dump", "-O", "jsonl", str(corpus / PACKED)).out.splitlines()]
    for by in ("object", "type"):
        expected: dict[str | None, list[int]] = {}
        for one in records:
            expected.setdefault(one[by], []).append(one.get("inner", one)["size"])
        assert groups(by) == {name: (len(sizes), sum(sizes)) for name, sizes in expected.items()}


# -- statements --------------------------------------------------------------------------------------------------------


def test_a_script_is_written_to_a_file(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "log.sql"
    done = invoke("dump", "-O", "sql", "--rows", "statements", "--schema", schema(tmp_path), "-o", str(out), str(log))
    assert (done.code, done.out) == (0, b"")
    text = out.read_text()
    assert text.count("INSERT INTO `db`.`t` (`amount`) VALUES\n(10)\n") == 1
    assert text.startswith("# Statements from a log of 10.11.8-MariaDB-log") and "\nDELIMITER ;\n" in text


def test_several_files_make_one_script(log: Path, tmp_path: Path) -> None:
    second = tmp_path / "mariadb-bin.000002"
    second.write_bytes(make.log(transaction(3)))
    text = invoke("dump", "-O", "sql", str(log), str(second)).text
    assert text.count("DELIMITER /*!*/;") == text.count("DELIMITER ;") == 1
    assert [line for line in text.splitlines() if "FORMAT_DESCRIPTION" in line] == [
        f"# at 4 FORMAT_DESCRIPTION mariadb-bin.00000{n}" for n in (1, 2)
    ]


def test_damage_is_told_and_sets_the_status(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[data.index(transaction(1)[2]) + 22] ^= 1
    log.write_bytes(data)
    done = invoke("dump", "-O", "sql", str(log))
    assert done.code == 1 and "checksum-mismatch" in done.err
    assert (
        "# the rest of this transaction is missing\nROLLBACK\n/*!*/;\n" in done.text
        and done.text.count("COMMIT\n/*!*/;\n") == 1
    )


def test_formats_without_statements_refuse(samples: Path) -> None:
    done = invoke("dump", "-O", "sql", str(samples / "drizzle" / "basic-checksum.log"))
    assert (done.code, done.out) == (2, b"")
    assert done.err == "binlogtool: the records of drizzle cannot be written as statements for a server\n"


@pytest.mark.parametrize("option", ["--tail=3", "--follow"])
def test_a_script_needs_its_beginning_and_its_end(option: str, log: Path) -> None:
    assert invoke("dump", "-O", "sql", option, str(log)).code == 2
