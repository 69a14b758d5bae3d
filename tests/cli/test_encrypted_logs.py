"""Encrypted logs without their key: what is in clear is read, nothing is made up, and nobody calls them damaged."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.cli.invoke import invoke

MARIADB = Path("mysql_binlog") / "encrypted"
TYPES = {"FORMAT_DESCRIPTION", "START_ENCRYPTION", "ENCRYPTED"}
ASKS = "give the key with --keyfile FILE"


@pytest.fixture(params=["mariadb-10.11", "mysql-9.7", "no-checksum"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An encrypted log of each server, and one of MariaDB without checksums."""
    name = str(request.param)
    made = tmp_path / "log" / "enc-bin.000001"
    made.parent.mkdir()
    if name == "no-checksum":
        samples: Path = request.getfixturevalue("samples")
        made.write_bytes((samples / MARIADB / "no-checksum.000001").read_bytes())
    else:
        corpus: Path = request.getfixturevalue("corpus")
        made.write_bytes((corpus / "mysql-binlog/generated" / name / "encrypted" / "enc-bin.000001").read_bytes())
    return made


def verified(path: Path, *options: str) -> tuple[int, Any]:
    done = invoke("verify", "-O", "json", *options, str(path))
    return done.code, json.loads(done.out)


def test_verify_says_encrypted_and_accounts_for_every_byte(log: Path) -> None:
    code, value = verified(log)
    (file,) = value["files"]
    assert (code, value["status"], file["encrypted"]) == (6, "incomplete", True)
    assert [(one["id"], one["severity"]) for one in file["findings"]] == [("encrypted", "warning")]
    assert sum(file["bytes"].values()) == log.stat().st_size and not file["bytes"]["damaged"]
    assert file["durable_end"] is None and set(file["record_types"]) <= TYPES
    text = invoke("verify", str(log))
    assert text.code == 6 and re.search(r"ENCRYPTED", text.text) and "DAMAGED" not in text.text
    assert f"next: binlogtool verify --keyfile KEYFILE {log}" in text.text


def test_every_report_says_it(log: Path, tmp_path: Path) -> None:
    kinds = ("junit", "sarif", "gitlab", "markdown", "json")
    made = {kind: tmp_path / kind for kind in kinds}
    options = [part for kind, path in made.items() for part in ("--report", f"{kind}={path}")]
    assert invoke("verify", *options, str(log)).code == 6
    assert "encrypted" in ElementTree.parse(made["junit"]).findtext(".//testcase/system-out", "")
    assert {one["ruleId"] for one in json.loads(made["sarif"].read_text())["runs"][0]["results"]} == {"encrypted"}
    assert [one["check_name"] for one in json.loads(made["gitlab"].read_text())] == ["encrypted"]
    assert "| ENCRYPTED |" in made["markdown"].read_text()
    assert invoke("explain", "encrypted").code == 0


def test_dump_makes_no_event_up(log: Path) -> None:
    done = invoke("dump", "-O", "jsonl", str(log))
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 6 and ASKS in done.err
    assert {one["type"] for one in lines} <= TYPES
    for one in lines:
        if one["type"] == "ENCRYPTED":
            assert (one["time"], one["origin"] or None, one["object"], one["txn"]) == (None,) * 4
            assert one["body"] == {"event_size": one["size"]}
    assert bool(lines) == (log.read_bytes()[:4] == b"\xfebin")  # MySQL encrypts the head of the file, too
    if lines:
        ends = [one["offset"] + one["size"] for one in lines]
        assert [one["offset"] for one in lines] == [4, *ends[:-1]] and ends[-1] == log.stat().st_size
    assert verified(log)[1]["files"][0]["records"] == len(lines)


@pytest.mark.parametrize("command", [("stats",), ("hexdump-annotate",), ("dump",), ("dump", "-O", "sql")])
def test_reading_commands_end_with_6(log: Path, command: tuple[str, ...]) -> None:
    done = invoke(*command, str(log))
    assert done.code == 6 and ASKS in done.text + done.err


def test_the_annotated_hexdump_calls_nothing_damaged(log: Path) -> None:
    done = invoke("hexdump-annotate", "-O", "json", str(log))
    fields = json.loads(done.out)["fields"]
    assert done.code == 6 and not [one for one in fields if "unmapped" in one["path"]]
    assert fields[0]["start"] == 0 and fields[-1]["end"] == log.stat().st_size
    assert not [line for line in invoke("hexdump-annotate", str(log)).text.splitlines() if line[8:9] == "!"]


def test_replay_says_that_it_cannot_know(log: Path) -> None:
    done = invoke("replay-dry-run", "-O", "json", str(log))
    value = json.loads(done.out)
    assert done.code == 6 and value["decisions"]["applied"] == 0 and "encrypted" in value["stops_at"]["why"]
    assert f"replay-dry-run --keyfile KEYFILE {log}" in invoke("replay-dry-run", str(log)).text


def test_a_cut_is_refused_in_a_clear_line(log: Path) -> None:
    before = log.read_bytes()
    planned = invoke("truncate-to-durable", str(log))
    assert planned.code == 6 and "the log is encrypted" in planned.text and "--keyfile FILE" in planned.text
    assert invoke("truncate-to-durable", "--allow-discard-valid", "--apply", "-y", str(log)).code == 5
    assert log.read_bytes() == before


@pytest.mark.parametrize("to", ["jsonl", "raw", "sql", "mysql-binlog"])
def test_nothing_is_converted(log: Path, tmp_path: Path, to: str) -> None:
    done = invoke("convert", "--to", to, "-o", str(tmp_path / "out"), str(log))
    assert done.code == 6 and "encrypted" in done.text + done.err
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_torn_end_is_told_without_the_key(samples: Path, tmp_path: Path) -> None:
    log = tmp_path / "enc-bin.000001"
    log.write_bytes((samples / MARIADB / "no-checksum.000001").read_bytes()[:-5])
    code, value = verified(log)
    assert code == 6 and [one["id"] for one in value["files"][0]["findings"]] == ["encrypted", "torn-tail"]


def test_beside_encrypted_logs_the_clear_ones_are_checked(samples: Path, corpus: Path, tmp_path: Path) -> None:
    clear = sorted((corpus / "mysql-binlog/generated/mariadb-10.11/rotated-set").glob("*.00000?"))[:2]
    for path in clear:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "enc-bin.000001").write_bytes((samples / MARIADB / "no-checksum.000001").read_bytes())
    code, value = verified(tmp_path)
    assert code == 6
    assert {Path(one["path"]).name: one.get("encrypted", False) for one in value["files"]} == {
        "enc-bin.000001": True,
        **{path.name: False for path in clear},
    }
    hurt = tmp_path / clear[0].name
    hurt.write_bytes(hurt.read_bytes()[:-40] + b"\xff" + hurt.read_bytes()[-39:])
    code, value = verified(tmp_path)
    errors = {Path(f["path"]).name for f in value["files"] for one in f["findings"] if one["severity"] == "error"}
    assert code == 6 and errors == {clear[0].name}
    assert "DAMAGED" in invoke("verify", str(tmp_path)).text


def test_a_wrong_key_is_told_and_is_no_damage(samples: Path, corpus: Path, tmp_path: Path) -> None:
    wrong, encrypted = tmp_path / "keys.txt", samples / MARIADB / "no-checksum.000001"
    wrong.write_text("1;" + "00" * 32 + "\n")
    for command in ("verify", "dump", "truncate-to-durable", "replay-dry-run", "hexdump-annotate", "stats"):
        done = invoke(command, "--keyfile", str(wrong), str(encrypted))
        assert done.code == 4 and "it is the wrong key" in done.err and "DAMAGED" not in done.text
    folder = corpus / "mysql-binlog/generated/mysql-9.7/encrypted"
    ring = json.loads((folder / "keyring.json").read_text())
    for one in ring["elements"]:
        one["data"] = "00" * (len(one["data"]) // 2)
    wrong.write_text(json.dumps(ring))
    done = invoke("verify", "--keyfile", str(wrong), str(folder / "enc-bin.000001"))
    assert done.code == 4 and "key" in done.err and "DAMAGED" not in done.text


def test_an_unusable_key_file_is_named(log: Path, tmp_path: Path) -> None:
    keys = tmp_path / "empty.key"
    keys.write_bytes(b"")
    done = invoke("verify", "--keyfile", str(keys), str(log))
    assert done.code == 4 and str(keys) in done.err
