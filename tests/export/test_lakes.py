"""The recipe docs/examples/lakes.py: what `--append` adds is in a Delta or an Iceberg table, each row once."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.invoke import ROOT, invoke
from tests.harness.mysql_writer import MARIADB, Made, binlog, query, rows, table_map, transaction

pytestmark = pytest.mark.full
CREATE = query(b"create table d.t (a int primary key)")
ALTER = query(b"alter table d.t add b int")


def int32(*values: int) -> bytes:
    return b"\0" + b"".join(value.to_bytes(4, "little") for value in values)


def read_delta(folder: Path) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    return list(DeltaTable(folder).to_pyarrow_table().to_pylist())


def read_iceberg(folder: Path) -> list[dict[str, Any]]:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    return list(catalog.load_table("d.t").scan().to_arrow().to_pylist())


@pytest.mark.parametrize(("kind", "package"), [("delta", "deltalake"), ("iceberg", "pyiceberg")])
def test_each_row_is_in_the_lake_table_once(
    kind: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(package)
    logs, output, lake = tmp_path / "logs", tmp_path / "out", tmp_path / "lake"
    logs.mkdir()

    def append(*events: Made) -> list[tuple[int, int | None]]:
        """Add a log, append it, commit twice; return the rows of the lake table."""
        number = len(list(logs.iterdir())) + 1
        (logs / f"log.{number:06}").write_bytes(binlog(list(events), MARIADB))
        done = invoke("convert", "--append", "--final", "--to", "parquet", "--per-table", "-o", str(output), str(logs))
        assert done.code == 0, done.text
        for _ in range(2):
            monkeypatch.setattr(sys, "argv", ["lakes.py", kind, str(output), "d.t", str(lake)])
            runpy.run_path(str(ROOT / "docs/examples/lakes.py"), run_name="__main__")
        found = (read_delta if kind == "delta" else read_iceberg)(lake)
        return sorted((row["a"], row.get("b")) for row in found)

    one, two = table_map(b"\3"), table_map(b"\3\3")
    first = transaction(one, rows(int32(1) + int32(2)), number=1)
    assert append(CREATE, *first) == [(1, None), (2, None)]
    second = transaction(two, rows(int32(3, 30), 2), number=2)
    assert append(ALTER, *second) == [(1, None), (2, None), (3, 30)]
