"""Values of any MessagePack type in system rows and in the vinyl metadata log: each command ends without an internal
error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from binlogtool.formats.tarantool.codes import VYLOG_TYPES, VylogKey
from tests.cli.invoke import invoke
from tests.formats.tarantool.make import block, dml, log, row

VALUES: tuple[Any, ...] = (
    None, True, -1, 7, 2**31, 2**64 - 1, 1.5, "text", b"\xff", msgpack.ExtType(1, b"x"), [], {}, [[]], [{}], [None],
    [5], ["a"], [[0]], [[0, []]], [[[], []]], [{"field": []}], [{"field": {}, "type": []}], [{"name": []}],
    [{"field": 0, "type": {}, "path": 5}], [{"field": 0, "type": "unsigned", "collation": {}}],
    [{"name": {}, "type": []}], [{"name": "a", "type": {}}], {"a": []}, {"unique": []}, {"is_sync": {}}, {5: [{}]},
)  # fmt: skip
NUMBER_KEYS = sorted(set(VylogKey) - {VylogKey.BEGIN, VylogKey.END, VylogKey.KEY_DEF})
SYSTEM_ROWS: dict[int, list[Any]] = {
    272: ["cluster", "b9cb3be3-6bc7-4b2c-a6e6-a5b7a9b7a9b7"],
    280: [512, 1, "orders", "memtx", 0, {}, [{"name": "id", "type": "unsigned"}]],
    284: [1, 1, "numbers", 1, 1, 10, 1, 0, False],
    285: [1, 5],
    288: [512, 0, "pk", "tree", {"unique": True}, [[0, "unsigned"]]],
    320: [1, "b9cb3be3-6bc7-4b2c-a6e6-a5b7a9b7a9b7"],
    330: [512, 1],
    340: [512, 1, False, 0, ""],
}
COMMANDS = (
    ("verify", "--report", "html=OUT/v.html"),
    ("dump", "-O", "jsonl"),
    ("dump",),
    ("convert", "--to", "csv", "--per-table", "-o", "OUT/tables", "--on-damage", "skip"),
    ("replay-dry-run",),
    ("diagnose",),
    ("stats",),
)


def replace_fields(whole: list[Any]) -> Iterator[list[Any]]:
    for field in range(len(whole)):
        yield from ([*whole[:field], value, *whole[field + 1 :]] for value in VALUES)
    yield from (whole[:size] for size in range(len(whole)))


def make_system_log(space: int) -> bytes:
    """Return a log that defines a space, and then has odd rows of a system space, inserts and updates."""
    rows = [dml(1, type=2, space=280, tuple=SYSTEM_ROWS[280]), dml(2, type=2, space=288, tuple=SYSTEM_ROWS[288])]
    for odd in replace_fields(SYSTEM_ROWS[space]):
        rows.append(dml(len(rows) + 1, type=2, space=space, tuple=odd))
    for field in range(len(SYSTEM_ROWS[space])):
        for value in VALUES:
            head = {0: 4, 2: 1, 3: len(rows) + 1, 4: 1.0}
            rows.append(row(head, {0x10: space, 0x20: [512], 0x21: [["=", field, value]]}))
            rows.append(row({**head, 3: len(rows) + 1}, {0x10: space, 0x20: value, 0x21: value}))
    for value in VALUES:
        rows.append(dml(len(rows) + 1, type=2, space=space, tuple=value))
        head = {0: 4, 2: 1, 3: len(rows) + 1, 4: 1.0}
        rows.append(row(head, {0x10: space, 0x15: value, 0x20: [512], 0x21: [["=", 2, "renamed"]]}))
    rows.append(dml(len(rows) + 1, type=2, space=512, tuple=[1, "Ada"]))
    return log([block(one) for one in rows])


def make_vylog() -> bytes:
    """Return a vinyl metadata log in which ids, a bound and the key definition of each record type are odd values."""
    rows: list[bytes] = []
    for kind in VYLOG_TYPES:
        for key in (VylogKey.LSM_ID, VylogKey.RUN_ID, VylogKey.BEGIN, VylogKey.KEY_DEF):
            for value in VALUES:
                keys = {int(one): 1 for one in NUMBER_KEYS}
                rows.append(row({0: 2, 3: len(rows) + 1, 4: 1.0}, {0x21: [kind, {**keys, int(key): value}]}))
    return log([block(one) for one in rows], kind="VYLOG")


@pytest.mark.parametrize(
    ("name", "backend"),
    [*((str(space), "native") for space in SYSTEM_ROWS), ("280", "python"), ("288", "python"), ("vylog", "native")],
)
@pytest.mark.full
def test_odd_values_never_end_in_an_internal_error(name: str, backend: str, tmp_path: Path) -> None:
    path = tmp_path / ("00000000000000000000." + ("vylog" if name == "vylog" else "xlog"))
    path.write_bytes(make_vylog() if name == "vylog" else make_system_log(int(name)))
    for command in COMMANDS:
        words = [word.replace("OUT", str(tmp_path)) for word in command]
        done = invoke(*words, "--backend", backend, str(path))
        assert done.code in (0, 1, 4) and "internal error" not in done.err, (command, done.err)
