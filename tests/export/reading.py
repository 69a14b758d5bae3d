"""The data source driven as Spark drives it, without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from pyspark.sql.pandas.types import from_arrow_schema

from binlogtool.core.divide_file import WHOLE_FILE, FilePart, ResumePoint, ResumePointFinder
from binlogtool.core.open_log import LogReader
from binlogtool.core.record_and_selection_types import RecordBlock
from binlogtool.export.manifest import parse_data_source_options
from binlogtool.export.read_one_table_as_arrow import search_table
from binlogtool.export.read_rows_of_one_file import add_carried_states
from binlogtool.format_api.format import Hints
from binlogtool.schema.frame_scan_loop import Backend
from binlogtool.spark.data_source import BinlogReader, BinlogSource

Row = dict[str, Any]


def load(path: Path | str, **options: str) -> list[Row]:
    """The rows of all partitions."""
    reader = open_reader({"path": str(path), **options})
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def open_reader(options: dict[str, str]) -> BinlogReader:
    """The reader of a query; the schema that Spark would pass back to it is made without Java."""
    schema = None
    if "object" in options:
        request = parse_data_source_options(options)
        layout = search_table(add_carried_states(request)).make_layout()
        schema = from_arrow_schema(layout.schema.empty_table().select(request.columns or layout.schema.names).schema)
    return BinlogSource(options).reader(schema)


def hints_for(path: Path) -> Hints | None:
    """The keys that lie beside an encrypted log of the corpus."""
    for name in ("keys.txt", "keyring.json"):
        if (path.parent / name).exists():
            return Hints(keyfile=(path.parent / name).read_bytes())
    return None


def facts(log: LogReader, part: FilePart = WHOLE_FILE) -> list[Any]:
    """All that a pass over a part of a log tells: records with their places, envelopes, bodies and findings; damage."""
    made: list[Any] = []
    for one in log.blocks(part=part):
        made += [(repr(record), record.findings) for record in one] if isinstance(one, RecordBlock) else [one.finding]
    return made


@dataclass(frozen=True, slots=True)
class FrameByFrame:
    """A backend that finds one frame at a time, so that no border is passed over."""

    backend: Backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    def make_scanner(self, schema: Any, columns: tuple[str, ...], capacity: int = 1) -> Any:
        return self.backend.make_scanner(schema, columns, 1)


def borders(log: LogReader) -> list[ResumePoint]:
    """Every place where the file can be cut."""
    file = log.files[0]
    scan = log.make_scan(file)
    places = ResumePointFinder(replace(scan, backend=FrameByFrame(scan.backend))).iter_resume_points()
    return [place for place in places if file.layout.frames_at < place.offset < (file.size or 0)]
