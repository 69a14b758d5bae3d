"""Directories and files through the whole reader, with the format named by the test itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from binlogtool.annotation.annotate_file import annotate_file
from binlogtool.core import resolve_paths
from binlogtool.core.open_file import BytesSource, open_file
from binlogtool.core.scan_file import DamagedRange, Scan
from binlogtool.findings import Finding
from binlogtool.format_api.format import FileHead
from binlogtool.format_api.layout import Batch
from binlogtool.formats.manticore.format import FORMAT
from binlogtool.limits import Limits
from binlogtool.schema.annotation_types import Annotation
from binlogtool.schema.backends import PythonBackend
from binlogtool.verification.verify_logs import LogVerifyOptions, VerifiedMember, verify_file
from binlogtool.verification.verify_report import FileReport

OPTIONS = LogVerifyOptions(backend="python")


class Directory:
    """A verified directory: reports and facts by file name, findings of the set as (file, finding)."""

    def __init__(self, path: Path, options: LogVerifyOptions = OPTIONS) -> None:
        ((_, _, names, _),) = resolve_paths.find_logs_in_directory(str(path), FORMAT).logs
        self.judged: dict[str, VerifiedMember] = {}
        for name in names:
            file = open_file(os.path.join(path, name), name, FORMAT, options.limits)
            self.judged[name] = verify_file(file, options)
            file.source.close()
        assert FORMAT.validation.validate_set is not None
        found = FORMAT.validation.validate_set([one.member for one in self.judged.values()])
        self.found = [(one.file, one.finding) for one in found]

    def report(self, name: str) -> FileReport:
        """The report of one file."""
        return self.judged[name].report

    def facts(self, name: str) -> Any:
        """What the judge of one file hands to the rules of the directory."""
        verdict = self.judged[name].member.verdict
        return None if verdict is None else verdict.facts

    def all(self, name: str) -> list[Finding]:
        """Findings of one file, those of the set included."""
        of_file = list(self.judged[name].report.findings) if name in self.judged else []
        return of_file + [finding for file, finding in self.found if file == name]


def verified(name: str, data: bytes, options: LogVerifyOptions = OPTIONS) -> FileReport:
    """One file in memory."""
    return verify_file(open_file(name, name, FORMAT, options.limits, BytesSource(name, data)), options).report


def segments(name: str, data: bytes, backend: Any = None) -> Iterator[tuple[Any, Batch | DamagedRange]]:
    """(layout context, segment) of one file in memory."""
    file = open_file(name, name, FORMAT, Limits(), BytesSource(name, data))
    scan = Scan(file.source, FORMAT, file.layout, backend or PythonBackend(), Limits())
    for segment in scan.segments():
        yield file.layout.context, segment


def records(name: str, data: bytes, backend: Any = None) -> list[dict[str, Any]]:
    """What dump would show of each transaction."""
    out = []
    for context, segment in segments(name, data, backend):
        if isinstance(segment, DamagedRange):
            continue
        count, frames = segment.frames.count, segment.frames
        envelope = FORMAT.output.decode_envelopes(context, segment, 0, count)
        bodies = FORMAT.output.decode_bodies(context, segment, 0, count, Limits())
        for i in range(count):
            out.append(
                {
                    "offset": segment.base + int(frames["offset"][i]),
                    "size": int(frames["end"][i] - frames["offset"][i]),
                    "type": envelope.type[i],
                    "seq": envelope.seq[i],
                    "time": envelope.time[i],
                    "object": envelope.object[i],
                    "crc": int(frames["check.crc32" if context.has_new_frames else "crc32"][i]) & 0xFFFFFFFF,
                    "body": bodies[i],
                }
            )
    return out


def head(data: bytes, name: str = "binlog.0000") -> FileHead:
    """The head of a file in memory."""
    return FileHead(data[:4096], name, len(data))


def annotation(path: str, data: bytes) -> Annotation:
    """All annotated bytes of one file in memory."""
    file = open_file(path, path, FORMAT, Limits(), BytesSource(path, data))
    return annotate_file(file).collect_annotation()
