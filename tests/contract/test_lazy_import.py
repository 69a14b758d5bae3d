"""Parts of formats that are imported late: each name stands for something, and checking a sound file needs none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from binlogtool import formats
from binlogtool.format_api.lazy_import import LazyMapping, LazyRef

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "tests" / "corpus" / "guides"
SOUND = {
    "tarantool": GUIDES / "tarantool-flipped" / "00000000000000000003.snap",
    "mysql_binlog": GUIDES / "mariadb" / "mariadb-bin.000001",
}
PROGRAM = """
import json, sys
from binlogtool.cli import main
assert main(["verify", sys.argv[1]]) == 0
print(json.dumps(sorted(sys.modules)))
"""


def parts(value: Any) -> Iterator[Any]:
    """A format and what its members hold."""
    names = getattr(value, "__struct_fields__", None) or getattr(value, "__struct_fields__", ())
    for name in names:
        member = getattr(value, name)
        yield member
        yield from parts(member)


@pytest.mark.parametrize("name", [one.name for one in formats.iter_built_in()])
def test_every_name_stands_for_something(name: str) -> None:
    known = list(parts(formats.load_format(name)))
    late = [one for one in known if isinstance(one, LazyRef)]
    assert late
    assert all(callable(one.value) for one in late)
    tables = [one for one in known if isinstance(one, LazyMapping)]
    assert tables
    assert all(isinstance(table, Mapping) and len(dict(table)) == len(table) > 0 for table in tables)


LATE = {
    "tarantool": ("tarantool.replay", "tarantool.read_spaces_as_tables", "tarantool.rows.json_line_kernels"),
    "mysql_binlog": (
        "mysql_binlog.replay", "mysql_binlog.extract_transactions", "binlog_events.replay", "binlog_events.sql",
        "binlog_events.changes",
    ),
}  # fmt: skip
"""Replay, scripts, tables and lines of JSON, below `binlogtool.formats`."""


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_file_is_checked_without_replay_scripts_and_tables(name: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(SOUND[name])], env=environment, capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert f"binlogtool.formats.{name}.format" in loaded
    late = {f"binlogtool.formats.{one}" for one in LATE[name]}
    assert all(find_spec(one) for one in late)
    assert not late & loaded
