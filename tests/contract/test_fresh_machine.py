"""What README, SECURITY and CI promise about commands and tests is there; `.ci/fresh-machine` runs them for real."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def command(name: str) -> str:
    done = subprocess.run([ROOT / ".ci" / "readme-command", name], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_readme_has_exactly_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert re.findall(r"^<!-- command: (\w+) -->$", text, re.MULTILINE) == ["run", "test"]


def test_the_first_command_installs_and_does_the_main_job_on_shipped_samples() -> None:
    words = command("run")
    assert "pip install" in words
    for job in ("verify", "dump", "convert --to parquet"):
        assert f".venv/bin/binlogtool {job}" in words
    samples = re.findall(r"tests/corpus/\S+", words)
    assert samples
    assert all((ROOT / sample).exists() for sample in samples)


def test_the_second_command_runs_the_tests_and_ci_runs_that_very_command() -> None:
    assert command("test").endswith(".venv/bin/pytest -n auto --maxprocesses 4 --dist loadgroup")
    assert '"$(.ci/readme-command test)"' in (ROOT / ".ci" / "run").read_text()


def test_neither_command_needs_root_a_compiler_or_a_system_java() -> None:
    for name in ("run", "test"):
        assert not re.search(r"\b(sudo|apt|apt-get|gcc|java|make)\b", command(name))


@pytest.mark.parametrize(("suite", "made"), [(None, "bookworm"), ("trixie", "trixie"), ("not-yet", "not-yet")])
def test_a_fresh_machine_is_of_the_release_that_is_asked_for(tmp_path: Path, suite: str | None, made: str) -> None:
    """With a `debootstrap` that only says what it was asked; nothing stays behind."""
    folder = tmp_path / "bin"
    folder.mkdir()
    stub = folder / "debootstrap"
    stub.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/asked\nexit 9\n')
    stub.chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    environment |= {} if suite is None else {"FRESH_SUITE": suite}
    done = subprocess.run([ROOT / ".ci" / "fresh-machine", "test"], env=environment, capture_output=True, check=False)
    assert done.returncode == 9
    words = (tmp_path / "asked").read_text().split()
    assert made in words and "--include=python3,python3-venv,git,ca-certificates" in words
    assert (words[-1].endswith("/scripts/sid")) == (suite == "not-yet" or not Path("/usr/share/debootstrap").is_dir())
    assert sorted(one.name for one in tmp_path.iterdir()) == ["asked", "bin"]


def test_an_unknown_command_name_is_an_error() -> None:
    done = subprocess.run([ROOT / ".ci" / "readme-command", "nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "nothing" in done.stderr


@pytest.mark.parametrize("document", ["SECURITY.md", "CONTRIBUTING.md", "README.md"])
def test_every_test_and_folder_that_a_document_names_exists(document: str) -> None:
    text = (ROOT / document).read_text()
    named = set(re.findall(r"`((?:tests|formats|bench|man|\.ci)/[\w./-]*[\w/])`", text)) - {"formats/NAME"}
    assert [name for name in sorted(named) if "NAME" not in name and not (ROOT / name).exists()] == []


def test_each_promise_of_the_security_page_names_a_test() -> None:
    table = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line.startswith("| ")]
    promises = table[table.index("| promise | test |") + 1 :]
    assert len(promises) >= 5
    assert all("`tests/" in line for line in promises)
