"""What the tests of the InnoDB binlog share: logs in directories, what verify says, groups as they are read."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import binlogtool
from binlogtool.core.record_and_selection_types import Record, RecordBlock
from binlogtool.findings import Finding, Severity
from binlogtool.format_api.format import Hints
from binlogtool.format_api.layout import Batch
from binlogtool.formats.mariadb_innodb_binlog.event_groups import CommitGroupReader, EventGroup
from binlogtool.formats.mariadb_innodb_binlog.schema import IbbRecordType
from binlogtool.limits import Limits
from binlogtool.verification.verify_report import Report

FORMAT = "mariadb-innodb-binlog"


@cache
def manifest(corpus: Path) -> Any:
    """The facts of the corpus."""
    return json.loads((corpus / FORMAT / "generated" / "manifest.json").read_bytes())


def written(folder: Path, files: Mapping[str, bytes]) -> Path:
    """A directory with these files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def damaged(corpus: Path, folder: Path, variant: Mapping[str, Any]) -> Path:
    """The base of a damaged variant with its changes."""
    home = corpus / FORMAT / "generated"
    folder.mkdir()
    for path in (home / variant["base"]).iterdir():
        if path.name not in variant["removed_files"]:
            (folder / path.name).write_bytes(path.read_bytes())
    for name in variant["changed_files"]:
        (folder / name).write_bytes(gzip.decompress((home / variant["dir"] / f"{name}.gz").read_bytes()))
    return folder


def crashed(corpus: Path, folder: Path, case: Mapping[str, Any]) -> tuple[Path, Path]:
    """The files of a crash case, and its redo log beside their directory."""
    logs, redo = folder / "logs", folder / "ib_logfile0"
    logs.mkdir(parents=True)
    for path in (corpus / FORMAT / "generated" / case["dir"]).iterdir():
        target = redo if "ib_logfile0" in path.name else logs / path.name.removesuffix(".gz")
        target.write_bytes(gzip.decompress(path.read_bytes()))
    return logs, redo


def copied(source: Path, folder: Path) -> Path:
    """A directory that may be changed."""
    shutil.copytree(source, folder, copy_function=lambda a, b: Path(b).write_bytes(Path(a).read_bytes()))
    return folder


def verified(path: Path, *, redo: Path | None = None, backend: str = "python", **options: Any) -> Report:
    """What verify says; every byte is in one class."""
    hints = None if redo is None else Hints(redo=str(redo))
    report = binlogtool.verify([path], format=FORMAT, backend=backend, hints=hints, **options)
    assert not report.failures
    for one in report.files:
        assert sum(one.bytes.values()) == one.size == Path(one.path).stat().st_size
    return report


def diagnoses(report: Report, least: Severity = Severity.NOTE) -> set[str]:
    """The diagnoses of the findings."""
    return {str(one.facts.get("diagnosis")) for one in report.findings if one.severity >= least}


def errors(report: Report) -> list[Finding]:
    """The findings that say that data is damaged."""
    return [one for one in report.findings if one.severity is Severity.ERROR]


def records(path: Path, level: str = "record", backend: str = "python", **selection: Any) -> list[Record]:
    """All records of a log."""
    from binlogtool.core.record_and_selection_types import Selection

    with binlogtool.open(path, format=FORMAT, backend=backend, hints=Hints(level=level)) as log:
        blocks = log.blocks(Selection(**selection))
        return [record for block in blocks if isinstance(block, RecordBlock) for record in block]


def groups(path: Path, limits: Limits = Limits()) -> Iterator[EventGroup | Finding]:
    """All event groups of a log, as a converter reads them."""
    with binlogtool.open(path, format=FORMAT, limits=limits) as log:
        for file in log.files:
            reader = CommitGroupReader(file.layout.context)
            for segment in log.make_scan(file).segments():
                if isinstance(segment, Batch):
                    codes = segment.frames["type_code"][: segment.frames.count]
                    yield from (
                        reader.read_group(segment, i) for i, code in enumerate(codes) if code == IbbRecordType.COMMIT
                    )


def whole(path: Path) -> list[EventGroup]:
    """The groups that can be put together."""
    return [one for one in groups(path) if isinstance(one, EventGroup)]


def gtids(path: Path) -> list[str]:
    """Their GTIDs."""
    return [str(one.gtid) for one in whole(path) if one.gtid is not None]


def digest(data: bytes) -> str:
    """SHA-256."""
    return hashlib.sha256(data).hexdigest()
