"""Typed rows of tables: `convert --per-table`, start-up and proof included, and `Log.rows`; whole processes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from bench import mysql_log
from bench.cases import MIB, TOOL, Case, Figure, Result, Setting
from bench.measure import cpu_of_child, rounds

AIM = 150_000
"""Rows in a second of CPU: 300,000 in a second of two cores."""
LIBRARY = """
import sys, binlogtool
with binlogtool.open(sys.argv[1]) as log:
    print(sum(batch.num_rows for batch in log.rows("bench.account").batches()))
"""


def tables(setting: Setting) -> Result:
    """Typed rows of a table as Parquet: of a log with events of 8 KiB, one with small transactions, one with a row in
    each transaction."""
    logs = (("8 KiB events", mysql_log.wide, 160), ("small events", mysql_log.small, 128), ("single rows", single, 128))
    for name, make, size in logs:
        folder = setting.directory / name.replace(" ", "-")
        folder.mkdir()
        made = make(folder, setting.size(size))
        out = folder / "out"
        command = [*TOOL, "convert", "--to", "parquet", "--per-table", "--overwrite", "-o", str(out), str(made.path)]
        seen = rounds(setting.rounds, whole=cpu_of_child(command))["whole"]
        count = rows_of(out)
        title = f"convert --per-table, {name}, {made.size / MIB:.0f} MiB, {count:,} rows"
        yield Figure(f"{title}: typed rows", seen.inverse(count), "rows/CPU s", AIM)
        taken = rounds(setting.rounds, whole=cpu_of_child([sys.executable, "-c", LIBRARY, str(made.path)]))["whole"]
        yield Figure(f"Log.rows, {name}: typed rows", taken.inverse(count), "rows/CPU s", AIM)
        shutil.rmtree(out)
        made.path.unlink()


def single(folder: Path, size: int) -> mysql_log.Made:
    """Transactions of one row event with one row, in the form of MariaDB's."""
    path = mysql_log.synthetic(folder, size, 1)
    return mysql_log.Made(path, path.stat().st_size, *mysql_log.counted(path), real=False)


def rows_of(out: Path) -> int:
    """How many rows there are."""
    import pyarrow.parquet as parquet

    return sum(parquet.read_metadata(path).num_rows for path in out.rglob("part-*"))


CASES: dict[str, Case] = {"tables": tables}
