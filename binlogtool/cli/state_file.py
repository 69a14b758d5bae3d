"""`verify --state`: what was verified already. One line of JSON per path and run; lines are only ever appended."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from binlogtool.cli.collect import Call, report_from, report_value
from binlogtool.errors import InputOutputError, UsageError
from binlogtool.findings import finding
from binlogtool.recovery.report import FileReport, Report

_SCHEMA = "binlogtool/state/1"
_DEPTHS = ("frame", "checksum", "payload", "set")
_CHUNK = 1 << 20


class State:
    """The last line about each path."""

    def __init__(self, path: Path, entries: dict[str, dict[str, Any]]) -> None:
        self._path = path
        self._entries = entries

    @classmethod
    def load(cls, path: str) -> State:
        """The state in a file, or an empty one.

        Raises:
            InputOutputError: it cannot be read. UsageError: it is another file.
        """
        file, entries = Path(path), dict[str, dict[str, Any]]()
        try:
            lines = file.read_bytes().split(b"\n") if file.exists() else []
        except OSError as error:
            raise InputOutputError(f"{path}: {error.strerror}") from None
        for number, line in enumerate(lines):
            entry = _entry(line)
            if entry is not None:
                entries[entry["path"]] = entry
            elif line and number < len(lines) - 1:
                raise UsageError(f"{path} was not written by --state; nothing was changed")
        return cls(file, entries)

    def unchanged(self, call: Call) -> Report | None:
        """The earlier report, if nothing about the path has changed since and it was at least as deep."""
        entry = self._entries.get(_key(call.path))
        if entry is None or entry["stamp"] != _stamp(call.path):
            return None
        deep = _DEPTHS.index(entry["depth"]) >= _DEPTHS.index(call.depth)
        same = entry["options"] == _options(call)
        return report_from(entry["report"]) if deep and same else None

    def judged(self, call: Call, report: Report) -> Report:
        """Adds the findings about changed beginnings, and remembers a complete result."""
        entry = self._entries.get(_key(call.path))
        before = {f["path"]: f for f in entry["prefixes"]} if entry else {}
        changed = [_compared(f, before.get(f.path)) for f in report.files]
        result = replace(report, files=tuple(changed))
        if not report.incomplete and not report.failures and call.path != "-":
            self._append(call, result)
        return result

    def _append(self, call: Call, report: Report) -> None:
        entry: dict[str, Any] = {
            "schema": _SCHEMA,
            "path": _key(call.path),
            "depth": call.depth,
            "options": _options(call),
            "stamp": _stamp(call.path),
            "prefixes": [_prefix(f) for f in report.files],
            "report": report_value(report),
        }
        try:
            with self._path.open("ab") as file:
                file.write(json.dumps(entry).encode("ascii") + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputOutputError(f"{self._path}: {error.strerror}") from None
        self._entries[entry["path"]] = entry


def _options(call: Call) -> list[Any]:
    """What else a result depends on. Of the hints only a fingerprint is kept, and nothing of a secret."""
    options = [call.format, call.live, call.expect_closed]
    known = call.hints
    if known is not None:
        parts = (known.keyfile or b"", (known.schema or "").encode("utf-8", "backslashreplace"))
        digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
        options += [digest, known.keyfile_secret is not None]
    return options


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
        return value if value["schema"] == _SCHEMA else None
    except (ValueError, TypeError, KeyError):
        return None


def _key(path: str) -> str:
    return str(Path(path).absolute())


def _stamp(path: str) -> dict[str, list[int]] | None:
    """Size, modification time and inode of the file, or of every file of the directory."""
    here = Path(path)
    try:
        names = sorted(here.iterdir()) if here.is_dir() else [here]
        found = {name.name: name.stat() for name in names}
    except OSError:
        return None
    regular = {name: s for name, s in found.items() if stat.S_ISREG(s.st_mode)}
    return {name: [s.st_size, s.st_mtime_ns, s.st_ino] for name, s in regular.items()}


def _prefix(file: FileReport) -> dict[str, Any]:
    end = file.durable_end or 0
    return {"path": file.path, "end": end, "sha256": _sha256(file.path, end)}


def _compared(file: FileReport, before: dict[str, Any] | None) -> FileReport:
    """The report, with a finding if the part that was durable then is not the same now."""
    if before is None or _sha256(file.path, before["end"]) == before["sha256"]:
        return file
    end = before["end"]
    text = f"the first {end:,} bytes are not those of the last run" if file.size >= end else "the file became shorter"
    changed = finding("changed-while-read", 0, min(end, file.size), text, size_before=end, size_after=file.size)
    return replace(file, findings=(changed, *file.findings))


def _sha256(path: str, end: int) -> str | None:
    """Hash of the first `end` bytes; None if there are fewer."""
    digest, left = hashlib.sha256(), end
    try:
        with open(path, "rb") as file:
            while left > 0 and (chunk := file.read(min(left, _CHUNK))):
                digest.update(chunk)
                left -= len(chunk)
    except OSError:
        return None
    return digest.hexdigest() if left == 0 else None
