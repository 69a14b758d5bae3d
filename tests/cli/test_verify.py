"""`binlogtool verify` from the outside."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.invoke import ROOT, invoke, program
from tests.cli.samples import insert, plain_log


def test_a_clean_file_is_ok(plain: Path) -> None:
    done = invoke("verify", str(plain))
    assert (done.code, done.err) == (0, "")
    first, account = done.text.splitlines()
    assert first.startswith(f"{plain}   ok") and "3 records" in first and "seq 1..3" in first
    assert account == "bytes: records 285 · total 285 (100 %)"


def test_damage_is_told_with_place_and_next_step(damaged: Path) -> None:
    done = invoke("verify", str(damaged))
    assert done.code == 1
    shown = done.text.splitlines()
    assert "DAMAGED" in shown[0] and "4 records" in shown[0]
    assert shown[1].startswith("  error    0x0000005f  checksum-mismatch ")
    assert shown[-2] == f"next: binlogtool hexdump-annotate --at 0x5f {damaged}"
    assert shown[-1] == "exit 1"


def test_the_json_has_the_shape_of_the_contract(damaged: Path) -> None:
    done = invoke("verify", "-O", "json", str(damaged))
    value = json.loads(done.out)
    assert done.code == 1
    assert list(value) == ["schema", "tool", "status", "files", "sets", "summary"]
    (file,) = value["files"]
    assert file["path"] == str(damaged)
    assert sum(file["bytes"].values()) == file["size"] == 475
    assert (file["records"], file["durable_end"]) == (4, 95)
    found = {f["id"]: f for f in file["findings"]}
    assert found["checksum-mismatch"]["offset"] == 95
    assert found["checksum-mismatch"]["length"] == 95
    assert found["valid-after-damage"]["offset"] == 190


@pytest.mark.parametrize(("level", "code"), [("note", 1), ("warning", 0), ("error", 0), ("never", 0)])
def test_fail_on_decides_the_status(torn: Path, level: str, code: int) -> None:
    assert invoke("verify", "--fail-on", level, str(torn)).code == code


def test_a_torn_tail_is_an_error_when_the_log_should_be_closed(torn: Path) -> None:
    done = invoke("verify", "-O", "json", "--expect-closed", str(torn))
    value = json.loads(done.out)
    assert done.code == 1
    assert [f["severity"] for f in value["files"][0]["findings"] if f["id"] == "torn-tail"] == ["error"]


def test_severities_can_be_changed(torn: Path) -> None:
    assert invoke("verify", "--severity", "torn-tail=error", str(torn)).code == 1


def test_findings_can_be_ignored(damaged: Path) -> None:
    ignored = [w for id_ in ("checksum-mismatch", "damaged-range", "valid-after-damage") for w in ("--ignore", id_)]
    assert invoke("verify", *ignored, str(damaged)).code == 0


def test_what_was_left_out_is_counted(damaged: Path, torn: Path, tmp_path: Path) -> None:
    known = tmp_path / "known.json"
    assert invoke("verify", "--write-baseline", str(known), str(torn)).code == 0
    words = ["--ignore", "damaged-range", "--baseline", str(known), str(damaged), str(torn)]
    assert "left out: 2 findings (1 by --baseline, 1 by --ignore)" in invoke("verify", *words).text.splitlines()
    summary = json.loads(invoke("verify", "-O", "json", *words).out)["summary"]
    assert summary["left_out"] == {"baseline": 1, "ignore": 1}
    assert "left out" not in invoke("verify", str(damaged)).text
    assert "left_out" not in json.loads(invoke("verify", "-O", "json", str(damaged)).out)["summary"]


def test_a_baseline_hides_known_findings_only(damaged: Path, torn: Path, tmp_path: Path) -> None:
    known = tmp_path / "known.json"
    assert invoke("verify", "--write-baseline", str(known), str(damaged)).code == 1
    assert invoke("verify", "--baseline", str(known), str(damaged)).code == 0
    assert invoke("verify", "--baseline", str(known), "--fail-on", "note", str(torn)).code == 1


def test_reports_are_written_beside_the_text(damaged: Path, tmp_path: Path) -> None:
    kinds = {"junit": "x.xml", "sarif": "x.sarif", "gitlab": "x.gitlab", "json": "x.json", "markdown": "x.md"}
    wanted = [w for kind, name in kinds.items() for w in ("--report", f"{kind}={tmp_path / name}")]
    done = invoke("verify", *wanted, str(damaged))
    assert done.code == 1 and "DAMAGED" in done.text
    assert ElementTree.parse(tmp_path / "x.xml").find("testsuite/testcase/failure") is not None
    assert json.loads((tmp_path / "x.sarif").read_bytes())["version"] == "2.1.0"
    assert "checksum-mismatch" in {one["check_name"] for one in json.loads((tmp_path / "x.gitlab").read_bytes())}
    assert json.loads((tmp_path / "x.json").read_bytes())["schema"] == "binlogtool/verify/1"
    assert (tmp_path / "x.md").read_text().startswith("## binlogtool verify: findings\n")


def test_github_gets_annotations_and_a_summary(damaged: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    done = invoke("verify", "--report", "github", str(damaged), environment={"GITHUB_STEP_SUMMARY": str(summary)})
    assert f"::error file={damaged},line=1,title=checksum-mismatch::" in done.text
    assert summary.read_text().startswith("before\n## binlogtool verify")


@pytest.mark.parametrize("text", ["junit", "github=x", "pdf=x", "json=", ""])
def test_a_report_that_is_none_is_a_usage_error(plain: Path, text: str) -> None:
    done = invoke("verify", "--report", text, str(plain))
    assert (done.code, done.out) == (2, b"")
    assert done.err.count("\n") == 1


def test_a_missing_file_is_one_line_and_status_4(tmp_path: Path, plain: Path) -> None:
    done = invoke("verify", str(tmp_path / "gone.log"), str(plain))
    assert done.code == 4
    assert done.err.count("\n") == 1 and "gone.log" in done.err
    assert "plain.log   ok" in done.text


def test_an_unknown_file_is_status_3(tmp_path: Path) -> None:
    other = tmp_path / "other.bin"
    other.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    done = invoke("verify", str(other))
    assert done.code == 3 and done.err.count("\n") == 1


def test_the_most_severe_input_decides(tmp_path: Path, plain: Path, damaged: Path) -> None:
    other = tmp_path / "other.bin"
    other.write_bytes(b"\x7fELF" + bytes(100))
    assert invoke("verify", str(plain), str(damaged)).code == 1
    assert invoke("verify", str(damaged), str(other)).code == 3
    assert invoke("verify", str(other), str(tmp_path / "gone"), str(damaged)).code == 4


def test_failures_stand_in_the_json(tmp_path: Path) -> None:
    value = json.loads(invoke("verify", "-O", "json", str(tmp_path / "gone")).out)
    assert value["status"] == "incomplete"
    assert value["failures"][0]["exit_code"] == 4


def test_standard_input_can_be_verified(damaged: Path) -> None:
    with damaged.open("rb") as file:
        done = program("verify", "-", stdin=file)
    assert done.returncode == 1
    assert b"checksum-mismatch" in done.stdout


@pytest.mark.full
def test_several_processes_find_the_same(plain: Path, damaged: Path, torn: Path) -> None:
    paths = [str(p) for p in (plain, damaged, torn)]
    one, three = (program("verify", "-O", "json", "--jobs", n, *paths) for n in ("1", "3"))
    assert json.loads(one.stdout) == json.loads(three.stdout)
    assert one.returncode == three.returncode == 1


def test_state_skips_what_is_unchanged_and_keeps_its_findings(plain: Path, damaged: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.jsonl"
    first = invoke("verify", "-v", "--state", str(state), str(plain), str(damaged))
    second = invoke("verify", "-v", "--state", str(state), str(plain), str(damaged))
    assert second.err.count("unchanged since it was verified") == 2
    assert first.code == second.code == 1
    assert first.text.split() == second.text.replace("unchanged", "ok").split()
    assert len(state.read_bytes().splitlines()) == 1


def test_state_accepts_growth(plain: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.jsonl"
    invoke("verify", "--state", str(state), str(plain))
    plain.write_bytes(plain_log(5))
    done = invoke("verify", "--state", str(state), str(plain))
    assert (done.code, "5 records" in done.text) == (0, True)


def test_state_tells_a_changed_beginning(plain: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.jsonl"
    invoke("verify", "--state", str(state), str(plain))
    plain.write_bytes(insert(9, b"shop", b"u", b"1") + plain_log())
    done = invoke("verify", "--state", str(state), str(plain))
    assert done.code == 1 and "changed-since-run" in done.text


def test_state_survives_a_torn_last_line(plain: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.jsonl"
    invoke("verify", "--state", str(state), str(plain))
    state.write_bytes(state.read_bytes() + b'{"schema": "binlogtool/sta')
    done = invoke("verify", "-v", "--state", str(state), str(plain))
    assert done.code == 0 and "unchanged" in done.err


def test_another_file_is_no_state(plain: Path, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("my notes\nmore notes\n")
    assert invoke("verify", "--state", str(other), str(plain)).code == 2
    assert other.read_text() == "my notes\nmore notes\n"


def test_max_duration_ends_with_status_6(plain: Path) -> None:
    done = invoke("verify", "--max-duration", "0s", str(plain), str(plain))
    assert done.code == 6
    assert "2 of 2 paths were not verified" in done.err


def test_reading_changes_nothing(damaged: Path) -> None:
    before, stamp = damaged.read_bytes(), os.stat(damaged)
    invoke("verify", str(damaged))
    assert damaged.read_bytes() == before
    assert os.stat(damaged).st_mtime_ns == stamp.st_mtime_ns


MARIADB = ROOT / "tests" / "corpus" / "guides" / "mariadb"


def test_named_files_of_one_log_are_checked_as_a_set(tmp_path: Path) -> None:
    names = [f"{tmp_path}/mariadb-bin.00000{number}" for number in (1, 2, 4)]
    for name, source in zip(names, (1, 2, 2), strict=True):
        Path(name).write_bytes((MARIADB / f"mariadb-bin.00000{source}").read_bytes())
    assert invoke("verify", *names[:2]).code == 0
    done = invoke("verify", *names)
    assert done.code == 1 and "missing-member       mariadb-bin.000003 does not exist" in done.text
    assert invoke("verify", names[1], names[2], "--jobs", "2").code == 1  # together in one process


def test_a_gap_between_named_compressed_files_is_found(tmp_path: Path) -> None:
    names = [f"{tmp_path}/mariadb-bin.00000{number}.gz" for number in (1, 2, 4)]
    for name, source in zip(names, (1, 2, 2), strict=True):
        Path(name).write_bytes(gzip.compress((MARIADB / f"mariadb-bin.00000{source}").read_bytes()))
    assert invoke("verify", *names[:2]).code == 0
    done = invoke("verify", *names)
    assert done.code == 1 and "missing-member       mariadb-bin.000003 does not exist" in done.text


@pytest.mark.parametrize("end", ["", ".gz"])
def test_a_file_between_the_named_ones_is_noted_as_not_checked(tmp_path: Path, end: str) -> None:
    names = [f"{tmp_path}/mariadb-bin.00000{number}{end}" for number in (1, 2, 3)]
    for name, source in zip(names, (1, 2, 2), strict=True):
        data = (MARIADB / f"mariadb-bin.00000{source}").read_bytes()
        Path(name).write_bytes(gzip.compress(data) if end else data)
    (tmp_path / "mariadb-bin.000002.idx").write_bytes(b"index of GTIDs")
    done = invoke("verify", names[0], names[2])
    note = f"member-not-named     mariadb-bin.000002{end} exists between the named files and was not checked"
    assert done.code == 0 and done.text.count("member-not-named") == 1 and note in done.text
    assert "member-not-named" not in invoke("verify", *names).text


def test_a_log_whose_newest_record_is_too_old_is_reported_once() -> None:
    done = invoke("verify", "--max-age", "1h", str(MARIADB))
    assert done.code == 1 and done.text.count("log-outdated") == 1
    assert "mariadb-bin.000002   OUTDATED " in done.text
    assert "the newest record is from 2026-11-20T18:00:00Z, " in done.text and "--max-age allows 1 h" in done.text
    assert "DAMAGED" not in done.text
    assert invoke("verify", "--max-age", "36500d", str(MARIADB)).code == 0
    assert invoke("verify", "--max-age", "1h", "--depth", "checksum", str(MARIADB)).code == 2


def test_without_times_in_the_records_the_age_is_that_of_the_file(tmp_path: Path) -> None:
    log = Path(shutil.copyfile(ROOT / "tests/corpus/eblob/instance-a.binlog", tmp_path / "instance-a.binlog"))
    words = ("verify", "--max-age", "26h", "--fail-on", "warning", str(log))
    done = invoke(*words)
    assert done.code == 0 and "age-unknown" in done.text and "compared with the file's modification time" in done.text
    os.utime(log, (0, 0))
    done = invoke(*words)
    assert done.code == 1 and "no record has a time, and the file was modified at 1970-01-01T00:00:00Z" in done.text


def test_an_age_has_a_unit() -> None:
    done = invoke("verify", "--max-age", "26", str(MARIADB))
    assert done.code == 2 and "'26' has no unit; use 26h for hours" in done.err


def test_quiet_shows_only_files_with_findings(plain: Path, damaged: Path) -> None:
    lines = invoke("verify", "-q", str(plain), str(damaged)).text.splitlines()
    assert not any(str(plain) in line and " ok " in line for line in lines)
    assert any("DAMAGED" in line for line in lines)
    assert invoke("verify", "-q", str(plain)).out == b""


def test_a_file_that_is_not_closed_fails_where_it_is_expected_to_be_closed() -> None:
    crashed = str(ROOT / "tests/corpus/guides/mariadb-crashed/mariadb-bin.000002")
    assert invoke("verify", crashed).code == 0
    done = invoke("verify", "--expect-closed", crashed)
    assert done.code == 1 and "error    0x00000004  unclean-close" in done.text


def test_reports_for_ci_have_the_age_of_a_log(tmp_path: Path) -> None:
    out = tmp_path / "verify.xml"
    assert invoke("verify", "--max-age", "1h", "--report", f"junit={out}", str(MARIADB)).code == 1
    (failure,) = ElementTree.parse(out).iterfind(".//failure")
    assert failure.get("type") == "log-outdated"


def test_a_compressed_file_that_cannot_be_unpacked_says_so(tmp_path: Path) -> None:
    log = tmp_path / "bin.000001.bz2"
    log.write_bytes(b"BZh9" + bytes(range(200)))
    done = invoke("verify", str(log))
    assert done.code == 4 and "the bzip2 data is damaged before byte 5 of" in done.err and "empty" not in done.err
