"""Tables that are called like the place of rows without a table: each has a directory and a name of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from binlogtool import convert
from binlogtool.core.record_and_selection_types import Selection
from tests.export.typed_logs import rows, tables
from tests.formats.tarantool import make
from tests.formats.tarantool.server import program

SKIP = Selection(on_damage="skip")
LUA = """
box.cfg{work_dir = arg[1], log = 'server.log'}
for _, name in ipairs({'damage', 'DAMAGE', '__none__', 'plain'}) do
    local space = box.schema.space.create(name)
    space:format{{'id', 'unsigned'}, {'name', 'string'}}
    space:create_index('pk')
    space:replace{1, name}
end
os.exit(0)
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Four spaces as a server writes them, if there is one; then a block whose checksum is wrong."""
    path = tmp_path / f"{0:020}.xlog"
    if program() is None:
        names = ("damage", "DAMAGE", "__none__", "plain")
        spaces = [make.dml(i + 1, space=280, tuple=[512 + i, 1, n, "memtx", 0]) for i, n in enumerate(names)]
        made = [make.dml(i + 5, space=512 + i, tuple=[1, n]) for i, n in enumerate(names)]
        data = make.header() + b"".join(make.block(one) for one in (*spaces, *made))
    else:
        script, home = tmp_path / "spaces.lua", tmp_path / "home"
        script.write_text(LUA)
        home.mkdir()
        subprocess.run([str(program()), str(script), str(home)], check=True, timeout=60, capture_output=True)
        own = min(home.glob("*.xlog"))
        data = own.read_bytes().removesuffix(make.END)
    block = bytearray(make.block(make.dml(999, space=515, tuple=[2, "lost"])))
    block[-1] ^= 1
    behind = make.block(make.dml(1000, space=515, tuple=[3, "behind"]))
    path.write_bytes(data + block + behind + make.END)
    return path


def own(found: list[dict[str, Any]]) -> list[Any]:
    """What the rows hold: in columns as the server's spaces have them, or in tuples as they are."""
    return [row["name"] if "name" in row else json.loads(row["tuple"])[1] for row in found]


def test_rows_of_no_table_are_alone_in_damage(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found, done = tables(log, out, selection=SKIP)
    assert {row["op"] for row in found["DAMAGE"]} == {"DAMAGE"} and len(found["DAMAGE"]) == done.damage
    assert own(found["`DAMAGE`"]) == ["DAMAGE"] and own(found["damage"]) == ["damage"]
    assert own(found["plain"]) == ["plain", "behind"]
    said = {one["name"]: one["directory"] for one in json.loads((out / "_tables.json").read_text())["tables"]}
    assert said["DAMAGE"] == "DAMAGE" and said["`DAMAGE`"] == "`DAMAGE`"
    assert len({one.casefold() for one in said.values()}) == len(said)


def test_such_a_table_is_chosen_by_its_own_name(log: Path, tmp_path: Path) -> None:
    convert([log], "parquet", tmp_path / "out", selection=Selection(objects=("DAMAGE",), on_damage="skip"))
    found = rows(tmp_path / "out")
    assert own([row for row in found if row["op"] != "DAMAGE"]) == ["DAMAGE"]


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("to", ["parquet", "avro"])
def test_a_partition_of_records_without_an_object_has_no_others(log: Path, tmp_path: Path, to: str) -> None:
    out = tmp_path / "out"
    done = convert([log], to, out, selection=SKIP, partition_by=["object"])
    assert done.complete
    folders = {one.name for one in out.iterdir() if one.is_dir()}
    assert {"object=DAMAGE", "object=damage", "object=__none__", "object=%5F_none__"} <= folders
