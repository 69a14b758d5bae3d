"""Read-back check of finished tables: each part file is counted on the executors by another reader than its writer.

Rows, records, findings, bytes of text, and the hash of the file: the manifest's facts about an output come from here.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as compute

from binlogtool.errors import InputOutputError
from binlogtool.pipeline.account import Account
from binlogtool.pipeline.fleet import Fleet, each
from binlogtool.pipeline.inputs import sha256
from binlogtool.pipeline.manifest import Check, Output
from binlogtool.pipeline.rows import DAMAGE
from binlogtool.pipeline.writers import readback, table_form
from binlogtool.pipeline.writers.table_form import Shape

NEEDED = ("file", "record", "type", "findings")
PLACES = ("inner_offset", "inner_size")
"""Range of an event within the record that contains it."""


class PartFile(msgspec.Struct, frozen=True):
    """One file of an output. name: relative to the output's directory. size: bytes."""

    folder: str
    name: str
    size: int


class Counted(msgspec.Struct):
    """Counts of one part file, or of several.

    last: highest record number of each log file. tiles: check of event ranges, where events share a record number.
    """

    outputs: list[Output] = msgspec.field(default_factory=list)
    records: Counter[str] = msgspec.field(default_factory=Counter)
    last: dict[str, int] = msgspec.field(default_factory=dict)
    text_bytes: int = 0
    account: Account = msgspec.field(default_factory=Account)
    tiles: EventTiles | None = None

    @property
    def rows(self) -> int:
        """Total number of rows."""
        return sum(output.rows for output in self.outputs)

    def add(self, other: Counted) -> None:
        """Add the counts of more files."""
        self.outputs += other.outputs
        self.records += other.records
        for file, record in other.last.items():
            self.last[file] = max(self.last.get(file, -1), record)
        self.text_bytes += other.text_bytes
        self.account.join(other.account)
        if self.tiles is not None and other.tiles is not None:
            self.tiles.join(other.tiles)

    def whole(self, *, partitioned: bool) -> Iterator[Check]:
        """Yield the check that no record is missing. partitioned: the rows are not in their order.

        Raises:
            InputOutputError: a record is missing.
        """
        if self.tiles is None:
            self._demand_no_holes()
            yield Check("record-numbers-without-holes", f"{self.records.total():,} records")
        elif not partitioned:
            yield self.tiles.check()

    def _demand_no_holes(self) -> None:
        """Raise InputOutputError unless every record number from 0 to the last one is there once."""
        for file, last in self.last.items():
            if self.records[file] != last + 1:
                raise InputOutputError(
                    f"{file}: {self.records[file]:,} records in the output, the last one is number {last:,}"
                )


class EventTiles(msgspec.Struct):
    """Check that the events of each group are contiguous from its first byte, in the order of the rows.

    broken: per log file, the number of the first group with a gap.
    """

    groups: int = 0
    events: int = 0
    broken: dict[str, int] = msgspec.field(default_factory=dict)
    _last: tuple[str, int, int] | None = None

    def take(self, table: pa.Table) -> None:
        """Check the next rows of one part file."""
        columns = (table[name].to_pylist() for name in ("file", "record", *PLACES))
        for file, record, offset, size in zip(*columns, strict=True):
            if record is None or offset is None:
                continue
            self.events += 1
            self.groups += offset == 0
            if offset and (file, record, offset) != self._last:
                self.broken.setdefault(file, record)
            self._last = (file, record, offset + size)

    def join(self, other: EventTiles) -> None:
        """Add the results of another part file, which begins with a group."""
        self.groups += other.groups
        self.events += other.events
        self.broken = other.broken | self.broken

    def check(self) -> Check:
        """Return the result as a check of the manifest.

        Raises:
            InputOutputError: events are missing, or there twice.
        """
        for file, record in self.broken.items():
            raise InputOutputError(f"{file}: the events of record {record:,} do not follow each other in the output")
        text = f"{self.events:,} events of {self.groups:,} groups, one behind the other from each group's first byte on"
        return Check("events-without-holes", text)


def counted(fleet: Fleet, folder: Path, shape: Shape, *, events: bool = False) -> Counted:
    """Read all part files below `folder`, and return their counts. events: several rows share the number of a record.

    Raises:
        InputOutputError: one of them cannot be read.
    """
    parts = list(_parts(folder))
    job = partial(each, work=partial(count_part, shape=shape, events=events), home=os.getcwd())
    whole = Counted(tiles=EventTiles() if events else None)
    for one in fleet.results("reading back", parts, job):
        whole.add(one)
    return whole


def _parts(folder: Path) -> Iterator[PartFile]:
    for path in sorted(folder.rglob("part-*")):
        yield PartFile(str(folder.absolute()), str(path.relative_to(folder)), path.stat().st_size)


# -- on an executor ----------------------------------------------------------------------------------------------------


def count_part(part: PartFile, shape: Shape, *, events: bool = False) -> Counted:
    """Return the counts of one part file. events: see `count_output`.

    Raises:
        InputOutputError: it cannot be read.
    """
    path, found = Path(part.folder) / part.name, Counted(tiles=EventTiles() if events else None)
    texts, fixed = table_form.texts(shape), readback.partition_values(Path(part.name))
    wanted = [name for name in shape.stored if name in (*texts, *NEEDED, *(PLACES if events else ()))]
    rows = sum(_take(table, texts, fixed, found) for table in readback.tables(shape.to, path, wanted))
    found.outputs.append(Output(part.name, rows, part.size, sha256(str(path))))
    return found


def _take(table: pa.Table, texts: Iterable[str], fixed: Mapping[str, str | None], found: Counted) -> int:
    for name in texts:
        found.text_bytes += compute.sum(compute.binary_length(table[name])).as_py() or 0
    for name in NEEDED:
        if name in fixed:
            table = table.append_column(name, pa.array([fixed[name]] * table.num_rows, pa.string()))
    if found.tiles is not None:
        found.tiles.take(table)
    for row in table.group_by("file").aggregate([("record", "count"), ("record", "max")]).to_pylist():
        found.records[row["file"]] += row["record_count"]
        if row["record_max"] is not None:
            found.last[row["file"]] = max(found.last.get(row["file"], -1), row["record_max"])
    for row in table.filter(table["findings"].is_valid()).to_pylist():
        for one in msgspec.json.decode(row["findings"]):
            found.account.add(row["file"], one, damage=row["type"] == DAMAGE)
    return int(table.num_rows)
