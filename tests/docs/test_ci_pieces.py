"""The pieces for CI do what docs/ci.md says: their steps are run as the services would, without the services."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT, make_place

GUIDES = ROOT / "tests" / "corpus" / "guides"
CI = ROOT / "docs" / "ci"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return make_place(tmp_path, {"backup": GUIDES})


def shell(command: str, place: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{place / 'shims'}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command], cwd=place, capture_output=True, text=True,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **variables}, timeout=600, check=False,
    )  # fmt: skip


def steps() -> tuple[dict[str, Any], dict[str, Any]]:
    install, verify = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    return install, verify


def inputs_of(step: dict[str, Any], **given: str) -> dict[str, str]:
    """The environment of a step, with the inputs put in as the runner does."""
    known = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    values = {name: given.get(name.replace("-", "_"), what.get("default", "")) for name, what in known.items()}
    return {k: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: values[m[1]], v) for k, v in step["env"].items()}


def test_the_action_verifies_annotates_and_writes_sarif(place: Path) -> None:
    _, verify = steps()
    for name, status in (("mariadb", 0), ("tarantool-flipped", 1)):
        variables = inputs_of(verify, paths=f"backup/{name}\n", options="--expect-closed\n")
        done = shell(verify["run"], place, GITHUB_STEP_SUMMARY=str(place / "summary.md"), **variables)
        assert done.returncode == status, done.stdout + done.stderr
        found = json.loads((place / "binlogtool.sarif").read_text())["runs"][0]["results"]
        assert bool(found) == bool(status)
        assert ("::error " in done.stdout) == bool(status)
    assert "checksum-mismatch" in (place / "summary.md").read_text()


def test_the_action_takes_patterns_spaces_and_options_with_values(place: Path) -> None:
    _, verify = steps()
    (place / "backup" / "with space").mkdir()
    (place / "backup" / "mariadb" / "mariadb-bin.000001").rename(place / "backup" / "with space" / "bin.000001")
    for paths, options, status in (
        ("  backup/mariadb/mariadb-bin.00000?  \n", "--max-age 36500d", 0),
        ("backup/with space/*\n", "", 0),
        ("backup/nothing-*\n", "", 4),
        ("backup/tarantool-torn\n", "  --fail-on never\n--expect-closed", 0),
        ("# a comment\nbackup/tarantool-torn\n", "--fail-on never --expect-closed  # one line", 0),
        ("backup/mariadb\n", "--ignore 'no such id'", 2),
        ("backup/mariadb\n", "--ignore 'open quote", 1),
    ):
        done = shell(verify["run"], place, **inputs_of(verify, paths=paths, options=options))
        assert done.returncode == status, (paths, done.stdout + done.stderr)


def test_no_report_of_an_earlier_run_is_left_after_a_wrong_option(place: Path) -> None:
    _, verify = steps()
    (place / "binlogtool.sarif").write_text("{}")
    assert shell(verify["run"], place, **inputs_of(verify, paths="backup", options="--no-such")).returncode == 2
    assert not (place / "binlogtool.sarif").exists()


def test_what_a_workflow_gives_to_the_action_is_no_code(place: Path) -> None:
    _, verify = steps()
    hostile = "$(touch made)\n`touch made`\n--output=made; touch made\n"
    done = shell(verify["run"], place, **inputs_of(verify, paths=hostile, sarif='"; touch made; "'))
    assert done.returncode == 4 and not (place / "made").exists()


@pytest.mark.nightly
def test_the_action_installs_this_checkout(place: Path) -> None:
    install, _ = steps()
    added, temporary = place / "github_path", place / "temporary"
    temporary.mkdir()
    done = shell(install["run"], place, SOURCE=str(ROOT), RUNNER_TEMP=str(temporary), GITHUB_PATH=str(added))
    assert done.returncode == 0, done.stderr
    made = shell("binlogtool --version", place, PATH=f"{added.read_text().strip()}:/usr/bin:/bin", PYTHONPATH="")
    assert made.stdout.startswith("binlogtool ")


def test_the_workflow_for_github_asks_for_inputs_that_the_action_has() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    used = yaml.safe_load((CI / "github.yml").read_text())["jobs"]["verify"]["steps"]
    (own,) = [step for step in used if "binlogtool" in step["uses"]]
    assert set(own["with"]) <= set(action["inputs"])
    assert used[-1]["with"]["sarif_file"] == "${{ steps.logs.outputs.sarif }}" and set(action["outputs"]) == {"sarif"}


def test_the_job_for_gitlab_writes_the_reports_that_it_uploads(place: Path) -> None:
    job = yaml.safe_load((CI / "gitlab.yml").read_text())["binlogs"]
    for report in job["artifacts"]["reports"].values():  # a workspace that a run of yesterday has left
        (place / report).write_text("old")
    for logs, status in (("backup/mariadb", 0), ("backup/tarantool-flipped", 1)):
        done = shell("\n".join(job["script"]), place, LOGS=logs)
        assert done.returncode == status, done.stderr
        for report in job["artifacts"]["reports"].values():
            (place / report).rename(place / f"{report}.{status}")
    issues = json.loads((place / "gl-code-quality-report.json.1").read_text())
    assert issues[0]["check_name"] == "checksum-mismatch"
    assert issues[0]["location"]["path"] == "backup/tarantool-flipped/00000000000000000003.xlog"


def test_the_pipeline_for_jenkins_writes_the_report_that_it_reads(place: Path) -> None:
    text = (CI / "Jenkinsfile").read_text()
    _, verify = re.findall(r"sh '([^']+)'", text)
    command = verify.replace(".binlogtool/bin/", "").replace("backup/binlogs", "backup/mariadb")
    assert (shell(command, place).returncode, shell(command, place).returncode) == (0, 0)
    (report,) = re.findall(r"junit '([^']+)'", text)
    assert (place / report).read_text().startswith("<?xml")
    assert text.count("{") == text.count("}")


def hook() -> dict[str, Any]:
    (one,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    return dict(one)


def test_the_hook_takes_logs_and_nothing_else() -> None:
    pattern = re.compile(hook()["files"])
    taken = {p.name for p in GUIDES.rglob("*") if p.is_file() and pattern.search(str(p.relative_to(ROOT)))}
    assert taken == {
        "00000000000000000003.snap", "00000000000000000003.xlog", "binlog.001", "binlog.meta", "mariadb-bin.000001",
        "mariadb-bin.000002", "binlog-000000.ibb.gz", "binlog-000001.ibb.gz", "mariadb-bin.index", "mariadb-bin.state",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["binlog.000001", "bin.000042", "mysql-bin.1000000", "relay-bin.000001", "binlog.001",
                                  "data/binlog.000001", "transaction.log", "a/b/mariadb-bin.000001",
                                  "binlog.meta", "00000000000000000007.run", "00000000000000000042.xlog.gz",
                                  "mysql-bin.000001.gz", "mysql_binlog.000001", "master.000001",
                                  "mysql-bin-changelog.000123", "MYSQL-BIN.000001", "binlog.000001.lz4",
                                  "data/mysql-bin.index", "binlog.index", "rot-bin.state"])  # fmt: skip
def test_the_hook_takes_logs_at_the_root_and_below(name: str) -> None:
    assert re.search(hook()["files"], name)


@pytest.mark.parametrize(
    "name",
    [
        "robin.000001",
        "notes.txt",
        "bin.index",
        "old-transaction.log",
        "install.run",
        "search.index",
        "notes.snap.txt",
        "webmaster.000001",
    ],
)
def test_the_hook_leaves_other_files_alone(name: str) -> None:
    assert re.search(hook()["files"], name) is None


def test_the_hook_fails_on_a_torn_log(place: Path) -> None:
    log = place / "backup" / "mariadb" / "mariadb-bin.000001"
    whole = log.read_bytes()
    for lost in (1, 5, 20):
        log.write_bytes(whole[:-lost])
        assert shell(f"{hook()['entry']} {log}", place).returncode == 1, lost


def test_the_hook_fails_on_a_damaged_log_only(place: Path) -> None:
    assert shell(f"{hook()['entry']} backup/mariadb/mariadb-bin.000001", place).returncode == 0
    assert shell(f"{hook()['entry']} backup/tarantool-flipped/00000000000000000003.xlog", place).returncode == 1


@pytest.mark.nightly
def test_pre_commit_runs_the_hook_from_a_clone(tmp_path: Path) -> None:
    """Installs pre-commit, clones the checkout, and commits a sound and a damaged log."""
    clone, work = tmp_path / "clone", tmp_path / "work"
    shell(f"git clone -q {ROOT} {clone}", tmp_path)
    shell(f"{sys.executable} -m venv tool && tool/bin/pip install -q pre-commit", tmp_path)
    work.mkdir()
    config = yaml.safe_load((CI / "pre-commit-config.yaml").read_text())
    rev = shell("git rev-parse HEAD", clone).stdout.strip()
    config["repos"][0] |= {"repo": str(clone), "rev": rev}
    (work / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    for name, status in (("mariadb/mariadb-bin.000001", 0), ("tarantool-flipped/00000000000000000003.xlog", 1)):
        log = work / Path(name).name
        log.write_bytes((GUIDES / name).read_bytes())
        done = shell(
            f"git init -q . && git add -A && {tmp_path}/tool/bin/pre-commit run --all-files", work,
            PRE_COMMIT_HOME=str(tmp_path / "home"), PYTHONPATH="",
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        assert ("binlogtool verify" in done.stdout) and (status == 0 or "checksum-mismatch" in done.stdout)
        log.unlink()
