"""Finished tables, counted again from what is on disk: each part file by other readers than wrote it, on the executors.

Rows, records, findings, bytes of text, and the hash of the file: what a manifest says of an output comes from here.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as compute

from binlogtool.errors import InputOutputError
from binlogtool.pipeline.account import Account
from binlogtool.pipeline.fleet import Fleet, each
from binlogtool.pipeline.inputs import sha256
from binlogtool.pipeline.manifest import Output
from binlogtool.pipeline.rows import DAMAGE
from binlogtool.pipeline.writers import readback, tables
from binlogtool.pipeline.writers.tables import Shape

NEEDED = ("file", "record", "type", "findings")


@dataclass(frozen=True, slots=True)
class PartFile:
    """One file of an output. name: relative to the output's folder. size in bytes."""

    folder: str
    name: str
    size: int


@dataclass(slots=True)
class Counted:
    """What was found in one part file, or in several. last: the highest record number of each log file."""

    outputs: list[Output] = field(default_factory=list)
    records: Counter[str] = field(default_factory=Counter)
    last: dict[str, int] = field(default_factory=dict)
    text_bytes: int = 0
    account: Account = field(default_factory=Account)

    @property
    def rows(self) -> int:
        """All rows."""
        return sum(output.rows for output in self.outputs)

    def add(self, other: Counted) -> None:
        """Takes what was found in more files."""
        self.outputs += other.outputs
        self.records += other.records
        for file, record in other.last.items():
            self.last[file] = max(self.last.get(file, -1), record)
        self.text_bytes += other.text_bytes
        self.account.join(other.account)

    def demand_no_holes(self) -> None:
        """Every record number from 0 to the last one is there once.

        Raises:
            InputOutputError: it is not so.
        """
        for file, last in self.last.items():
            if self.records[file] != last + 1:
                raise InputOutputError(
                    f"{file}: {self.records[file]:,} records in the output, the last one is number {last:,}"
                )


def counted(fleet: Fleet, folder: Path, shape: Shape) -> Counted:
    """Reads all part files below `folder`.

    Raises:
        InputOutputError: one of them cannot be read.
    """
    parts = list(_parts(folder))
    job = partial(each, work=partial(count_part, shape=shape), home=os.getcwd())
    whole = Counted()
    for one in fleet.results("reading back", parts, job):
        whole.add(one)
    return whole


def _parts(folder: Path) -> Iterator[PartFile]:
    for path in sorted(folder.rglob("part-*")):
        yield PartFile(str(folder.absolute()), str(path.relative_to(folder)), path.stat().st_size)


# -- on an executor ----------------------------------------------------------------------------------------------------


def count_part(part: PartFile, shape: Shape) -> Counted:
    """What is in one part file.

    Raises:
        InputOutputError: it cannot be read.
    """
    path, found = Path(part.folder) / part.name, Counted()
    texts, fixed = tables.texts(shape), readback.partition_values(Path(part.name))
    wanted = [name for name in shape.stored if name in (*texts, *NEEDED)]
    rows = sum(_take(table, texts, fixed, found) for table in readback.tables(shape.to, path, wanted))
    found.outputs.append(Output(part.name, rows, part.size, sha256(str(path))))
    return found


def _take(table: pa.Table, texts: Iterable[str], fixed: Mapping[str, str | None], found: Counted) -> int:
    for name in texts:
        found.text_bytes += compute.sum(compute.binary_length(table[name])).as_py() or 0
    for name in NEEDED:
        if name in fixed:
            table = table.append_column(name, pa.array([fixed[name]] * table.num_rows, pa.string()))
    for row in table.group_by("file").aggregate([("record", "count"), ("record", "max")]).to_pylist():
        found.records[row["file"]] += row["record_count"]
        if row["record_max"] is not None:
            found.last[row["file"]] = max(found.last.get(row["file"], -1), row["record_max"])
    for row in table.filter(table["findings"].is_valid()).to_pylist():
        for one in msgspec.json.decode(row["findings"]):
            found.account.add(row["file"], one, damage=row["type"] == DAMAGE)
    return int(table.num_rows)
