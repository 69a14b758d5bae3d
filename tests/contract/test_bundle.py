"""The file to carry to a host that has only Python; `.ci/check-bundle` proves it on a bare machine."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("click", "construct", "crcmod", "crc32c", "isal", "msgspec", "protobuf")
"""What the commands below need; three of them have extension modules, one is a namespace package."""
DRIZZLE = ROOT / "tests" / "corpus" / "drizzle" / "basic-checksum.log"
EBLOB = ROOT / "tests" / "corpus" / "eblob" / "api-sync.binlog"


@pytest.fixture(scope="module")
def build() -> ModuleType:
    """The script that makes it."""
    loader = SourceFileLoader("build_bundle", str(ROOT / ".ci" / "build-bundle"))
    spec = importlib.util.spec_from_loader("build_bundle", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


@pytest.fixture(scope="module")
def bundle(build: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the packages that are installed here."""
    site = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "binlogtool", site / "binlogtool", ignore=shutil.ignore_patterns("__pycache__"))
    for name in PARTS:
        for file in distribution(name).files or ():
            source = Path(str(file.locate()))
            if ".." not in file.parts and "__pycache__" not in file.parts and source.is_file():
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, site / file)
    build.compiled(site / "click")
    target = tmp_path_factory.mktemp("medium") / "binlogtool.pyz"
    build.write(site, target)
    target.parent.chmod(0o555)
    return target


def run(bundle: Path, words: Sequence[str | Path], status: int = 0) -> str:
    """With nothing but the interpreter and its standard library."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", bundle, *map(str, words)], env={}, cwd="/", capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.mark.full
def test_the_commands_read_logs_out_of_one_file(bundle: Path) -> None:
    assert "ok" in run(bundle, ["verify", DRIZZLE])
    assert run(bundle, ["dump", "-n", "3", "-O", "jsonl", DRIZZLE]).count("\n") == 3
    assert "eblob" in run(bundle, ["formats", "eblob"])
    page = run(bundle, ["hexdump-annotate", "-O", "html", DRIZZLE])
    assert "drawBytes" in page and "--paper:" in page  # the script and the style
    assert [one.name for one in bundle.parent.iterdir()] == ["binlogtool.pyz"]


@pytest.mark.full
def test_processes_that_share_the_work_start_from_it(bundle: Path) -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm here")
    said = run(bundle, ["verify", "--jobs", "2", DRIZZLE, EBLOB])
    assert DRIZZLE.name in said and EBLOB.name in said


def test_what_is_in_it_is_what_runs(bundle: Path) -> None:
    said = run(bundle, ["--version", "-v"])
    assert "crc32 by isal, crc32c by crc32c" in said
    native = (ROOT / "binlogtool" / "schema" / "_native.so").exists()
    assert f"backend    {'native' if native else 'python'}\n" in said


def test_compiled_code_is_used_and_so_is_a_source_without_it(bundle: Path) -> None:
    program = f"""
import builtins, runpy, sys
sys.argv = ["x"]
sys.path.insert(0, {str(bundle)!r})
runpy.run_path({str(bundle)!r}, run_name="other")
compiled, plain = [], builtins.compile
def noted(text, name, *more, **how):
    compiled.append(name)
    return plain(text, name, *more, **how)
builtins.compile = noted
import binlogtool, click
print(click.__file__, *compiled)
"""
    words = [sys.executable, "-I", "-S", "-c", program]
    done = subprocess.run(words, env={}, capture_output=True, text=True, check=True)
    file, *compiled = done.stdout.split()
    assert file == f"{bundle}/click/__init__.py"
    assert f"{bundle}/binlogtool/__init__.py" in compiled
    assert not [name for name in compiled if "/click/" in name]


def test_the_same_files_make_the_same_bundle(build: ModuleType, tmp_path: Path) -> None:
    site = tmp_path / "site" / "one"
    site.mkdir(parents=True)
    (site / "a.py").write_text("A = 1\n")
    build.write(tmp_path / "site", tmp_path / "first.pyz")
    os.utime(site / "a.py", (0, 0))
    build.write(tmp_path / "site", tmp_path / "second.pyz")
    assert (tmp_path / "first.pyz").read_bytes() == (tmp_path / "second.pyz").read_bytes()


@pytest.mark.nightly
def test_the_whole_bundle_is_made_of_what_the_index_has(tmp_path: Path) -> None:
    words = [ROOT / ".ci" / "build-bundle", "--deb", tmp_path / "binlogtool.deb", tmp_path / "binlogtool.pyz"]
    subprocess.run([sys.executable, *map(str, words)], check=True)
    assert "0.1.0" in run(tmp_path / "binlogtool.pyz", ["--version"])
    assert run(tmp_path / "binlogtool.pyz", ["dump", "-n", "1", DRIZZLE]).count("\n") == 1
    listed = subprocess.run(["dpkg-deb", "-c", tmp_path / "binlogtool.deb"], capture_output=True, text=True, check=True)
    for place in ("usr/bin/binlogtool", "usr/share/man/man1/binlogtool-verify.1.gz", "completions/binlogtool"):
        assert place in listed.stdout
    if os.environ.get("FRESH_ROOT") and os.geteuid() == 0:
        subprocess.run([ROOT / ".ci" / "check-bundle", words[3], words[2]], check=True)
