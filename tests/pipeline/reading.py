"""The data source driven as Spark drives it, without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from binlogtool.formats.detecting import Hints
from binlogtool.log.open import Log
from binlogtool.log.parts import WHOLE, Cuts, Part, Place
from binlogtool.log.records import Block
from binlogtool.pipeline.datasource import BinlogSource
from binlogtool.schema.scanner import Backend

Row = dict[str, Any]


def load(path: Path | str, **options: str) -> list[Row]:
    """The rows of all partitions."""
    reader = BinlogSource({"path": str(path), **options}).reader(None)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def hints_for(path: Path) -> Hints | None:
    """The keys that lie beside an encrypted log of the corpus."""
    for name in ("keys.txt", "keyring.json"):
        if (path.parent / name).exists():
            return Hints(keyfile=(path.parent / name).read_bytes())
    return None


def facts(log: Log, part: Part = WHOLE) -> list[Any]:
    """All that a pass over a part of a log tells: records with their places, envelopes, bodies and findings; damage."""
    made: list[Any] = []
    for one in log.blocks(part=part):
        made += [(repr(record), record.findings) for record in one] if isinstance(one, Block) else [one.finding]
    return made


@dataclass(frozen=True, slots=True)
class FrameByFrame:
    """A backend that finds one frame at a time, so that no border is passed over."""

    backend: Backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    def scanner(self, schema: Any, columns: tuple[str, ...], capacity: int = 1) -> Any:
        return self.backend.scanner(schema, columns, 1)


def borders(log: Log) -> list[Place]:
    """Every place where the file can be cut."""
    file = log.files[0]
    scan = log.scan(file)
    places = Cuts(replace(scan, backend=FrameByFrame(scan.backend))).places()
    return [place for place in places if file.layout.frames_at < place.offset < (file.size or 0)]
