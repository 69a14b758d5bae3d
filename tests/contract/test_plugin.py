"""The example of a plug-in format, found by its entry point as an installed package, works in every command."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import tomllib
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "my-log"
MAGIC = b"MYLOG\0\1\0"


def record(number: int, key: bytes, data: bytes) -> bytes:
    payload = struct.pack("<BQQBB", 1, number, 1_767_225_600_000_000, 4, len(key)) + b"shop" + key + data
    return struct.pack("<II", len(payload), zlib.crc32(payload)) + payload


WHOLE = MAGIC + b"".join(record(n, b"k%d" % n, b"value %d" % n) for n in range(1, 6))
TORN = WHOLE + record(6, b"k6", b"torn")[:-3]


def installed(site: Path, name: str, modules: Path | None, entries: str) -> None:
    """What pip leaves of a package: its modules and its metadata."""
    if modules is not None:
        shutil.copytree(modules, site / modules.name, ignore=shutil.ignore_patterns("__pycache__"))
    metadata = site / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entries)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The example as its pyproject.toml declares it."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    installed(tmp_path / "site", project["name"], EXAMPLE / "my_log", "\n".join(lines))
    return tmp_path / "site"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "whole.mylog").write_bytes(WHOLE)
    (folder / "torn.mylog").write_bytes(TORN)
    return folder


def run(site: Path, *words: str | Path, status: int = 0, **environment: str) -> str:
    """Standard output and error of one command."""
    done = subprocess.run(
        [sys.executable, "-m", "binlogtool", *map(str, words)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])} | environment,
        cwd=site, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_it_is_small() -> None:
    """Rows of tables are a part that a format may do without."""
    lines = {path.stem: path.read_text().count("\n") for path in (EXAMPLE / "my_log").glob("*.py")}
    assert lines.pop("tables") < 50 and sum(lines.values()) < 150


@pytest.mark.full
def test_its_own_tests_pass(site: Path) -> None:
    words = ["-q", "-c", os.devnull, "--rootdir", str(EXAMPLE), "-p", "no:cacheprovider", str(EXAMPLE / "tests")]
    path = os.pathsep.join([str(site), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "PYTEST_ADDOPTS": ""}
    done = subprocess.run([sys.executable, "-m", "pytest", *words], env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode()


@pytest.mark.full
def test_it_is_listed_and_described(site: Path) -> None:
    assert "my-log                  log of an application" in run(site, "formats")
    page = run(site, "formats", "my-log")
    assert (EXAMPLE / "my_log" / "help.md").read_text().rstrip() in page
    assert "its kernels run as Python" in page
    assert "1  PUT" in page and "the application's own source" in page
    assert json.loads(run(site, "formats", "my-log", "-O", "json"))["schemas"] == ["header", "record"]
    assert "2  DELETE" in run(site, "dump", "--type", "list", "--format", "my-log")


@pytest.mark.full
def test_records_are_read_in_every_form(site: Path, logs: Path) -> None:
    whole = logs / "whole.mylog"
    rows = [json.loads(line) for line in run(site, "dump", "-O", "jsonl", whole).splitlines()]
    assert [(row["seq"], row["type"], row["object"], row["checksum"]["ok"]) for row in rows] == [
        (n, "PUT", "shop", True) for n in range(1, 6)
    ]
    for form in ("text", "table", "csv"):
        assert "shop" in run(site, "dump", "-O", form, whole)
    assert 'record[1].table = "shop"' in run(site, "hexdump-annotate", "--record", "1", whole)
    assert "shop" in run(site, "stats", whole)


def test_it_is_verified_judged_and_replayed(site: Path, logs: Path) -> None:
    report = json.loads(run(site, "verify", "-O", "json", logs / "torn.mylog"))["files"][0]
    assert (report["format"], report["records"], report["durable_end"]) == ("my-log", 5, len(WHOLE))
    assert [one["id"] for one in report["findings"]] == ["torn-tail"]
    replayed = json.loads(run(site, "replay-dry-run", "-O", "json", logs / "torn.mylog"))
    assert replayed["decisions"] == {"applied": 5, "skipped": 0, "rejected": 0}
    assert "my-log" in run(site, "diagnose", logs)
    assert "torn" in run(site, "explain", "torn-tail")


@pytest.mark.full
def test_a_torn_log_is_cut_and_put_back(site: Path, logs: Path) -> None:
    torn = logs / "torn.mylog"
    run(site, "truncate-to-durable", torn)
    assert torn.read_bytes() == TORN
    run(site, "truncate-to-durable", "--apply", "--yes", torn)
    assert torn.read_bytes() == WHOLE
    (undo,) = logs.glob("*undo*")
    run(site, "undo", "--apply", "--yes", undo)
    assert torn.read_bytes() == TORN


def test_it_is_converted(site: Path, logs: Path, tmp_path: Path) -> None:
    run(site, "convert", "--to", "jsonl", "-o", tmp_path / "out.jsonl", logs / "whole.mylog")
    assert b"value 3".hex() in (tmp_path / "out.jsonl").read_text()
    run(site, "convert", "--to", "raw", "-o", tmp_path / "out.raw", logs / "whole.mylog")
    assert (tmp_path / "out.raw").read_bytes() == WHOLE[len(MAGIC) :]


def test_its_tables_are_converted(site: Path, logs: Path, tmp_path: Path) -> None:
    run(site, "convert", "--to", "json", "--object", "shop", "-o", tmp_path / "out", logs / "whole.mylog")
    (part,) = (tmp_path / "out").glob("part-*")
    found = [json.loads(line) for line in part.read_text().splitlines()]
    assert [(row["op"], row["key"], row["data"]) for row in found][:1] == [("PUT", "azE=", "dmFsdWUgMQ==")]  # base64
    assert len(found) == 5 and all(row["commit"] for row in found)


def test_native_code_that_is_asked_for_says_what_runs_as_python(site: Path, logs: Path) -> None:
    from binlogtool.schema.native_library import load_library

    if load_library() is None:
        pytest.skip("there is no native code here")
    asked = {"BINLOGTOOL_BACKEND": "native"}
    assert "backend    native (as Python: my-log)" in run(site, "--version", "-v", **asked)
    assert run(site, "dump", logs / "whole.mylog", **asked).count("PUT") == 5


@pytest.mark.full
def test_plug_ins_that_cannot_be_loaded_do_not_hinder_others(site: Path, logs: Path) -> None:
    why = {
        "absent = not_there:FORMAT": "ModuleNotFoundError",
        "strange = json:JSONDecoder": "no binlogtool.format_api.format.Format",
        "other = my_log.format:FORMAT": "the entry point is called other, the format my-log",
    }
    installed(site, "broken", None, "\n".join(["[binlogtool.formats]", *why]))
    listed = run(site, "formats")
    assert all(text in listed for text in why.values())
    assert "ModuleNotFoundError" in run(site, "formats", "absent", status=4)
    run(site, "verify", logs)
    (logs / "unknown").write_bytes(b"no log at all")
    assert "ModuleNotFoundError" in run(site, "verify", logs / "unknown", status=3)
