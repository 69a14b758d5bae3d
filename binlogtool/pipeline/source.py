"""The PySpark data source `binlogtool`: log files in, rows of the one table layout out.

    spark.dataSource.register(BinlogSource)
    spark.read.format("binlogtool").load("/data/00000000000000000000.xlog")

Partitions are groups of whole files, balanced by size: a partition costs Spark far more than a batch does. Bad data
becomes DAMAGE rows; one bad file never fails a job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from binlogtool.errors import BinlogtoolError
from binlogtool.findings import finding
from binlogtool.formats.base import Hints
from binlogtool.limits import Limits
from binlogtool.log.records import Block
from binlogtool.log.select import Selection
from binlogtool.pipeline import rows


@dataclass(frozen=True, slots=True)
class Member:
    """One file: where to open it, the name its rows carry, its format and its size in bytes."""

    path: str
    name: str
    format: str
    size: int


@dataclass(frozen=True, slots=True)
class Request:
    """What to read, as one JSON option. groups: the largest number of partitions."""

    members: tuple[Member, ...]
    groups: int = 8
    backend: str = "auto"
    limits: Limits = field(default_factory=Limits)
    selection: Selection = field(default_factory=Selection)

    def to_json(self) -> str:
        """The value of the option `request`."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Request:
        """The request behind the option `request`."""
        return msgspec.json.decode(text, type=cls)


SECRET = "hints.secret"
"""The option with the hints, which may be keys: Spark shows no option of such a name."""


def hints_to_json(hints: Hints) -> str:
    """The value of the option `hints.secret`."""
    return msgspec.json.encode(hints).decode()


class Group(InputPartition):  # type: ignore[misc]
    """The files of one partition, in the order of the request."""

    def __init__(self, members: tuple[Member, ...]) -> None:
        super().__init__(members)
        self.members = members


class BinlogSource(DataSource):  # type: ignore[misc]
    """`format("binlogtool")`; option `request`, or the file to `load`."""

    @classmethod
    def name(cls) -> str:
        """The name behind `format`."""
        return "binlogtool"

    def schema(self) -> str:
        """The table layout as a Spark DDL string."""
        return rows.DDL

    def reader(self, schema: Any) -> BinlogReader:
        """The reader of this request."""
        if "request" in self.options:
            known = self.options.get(SECRET)
            hints = None if known is None else msgspec.json.decode(known, type=Hints)
            return BinlogReader(Request.from_json(self.options["request"]), hints)
        path = self.options["path"]
        return BinlogReader(Request((Member(path, path, "auto", 0),)))


class BinlogReader(DataSourceReader):  # type: ignore[misc]
    """Yields Arrow record batches; never raises for what is in a file."""

    def __init__(self, request: Request, hints: Hints | None = None) -> None:
        self.request = request
        self.hints = hints

    def partitions(self) -> Sequence[Group]:
        """Groups of files of about the same number of bytes."""
        return [Group(members) for members in grouped(self.request.members, self.request.groups)]

    def read(self, partition: Group) -> Iterator[pa.RecordBatch]:
        """The rows of one group, file after file."""
        for member in partition.members:
            yield from read_member(member, self.request, self.hints)


def grouped(members: Sequence[Member], groups: int) -> list[tuple[Member, ...]]:
    """Shares the files among at most `groups` groups, the biggest first, each to the group with the fewest bytes."""
    loads = [0] * min(groups, len(members))
    shares: list[list[int]] = [[] for _ in loads]
    for i in sorted(range(len(members)), key=lambda i: (-members[i].size, i)):
        lightest = loads.index(min(loads))
        loads[lightest] += members[i].size + 1
        shares[lightest].append(i)
    return [tuple(members[i] for i in sorted(share)) for share in sorted(shares, key=min)]


def read_member(member: Member, request: Request, hints: Hints | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of one file. Work that cannot go on (an unreadable file, a limit) ends in a DAMAGE row as well."""
    import binlogtool

    try:
        with binlogtool.open(
            member.path, format=member.format, limits=request.limits, backend=request.backend, hints=hints
        ) as log:
            for part in log.blocks(request.selection):
                if isinstance(part, Block):
                    yield from rows.block_batches(replace(part, file=member.name))
                else:
                    yield rows.damage_batch(member.name, member.format, part.finding)
    except BinlogtoolError as error:
        found = finding("changed-while-read", None, 0, f"readable before, not now: {error}")
        yield rows.damage_batch(member.name, member.format, found)
