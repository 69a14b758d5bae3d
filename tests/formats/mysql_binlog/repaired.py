"""Damaged logs as the log of a server that starts on them: repaired, what is predicted, and what the server shows."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import binlogtool
from binlogtool.repair.plan_types import RepairPlan, RepairPolicy
from tests.formats.mysql_binlog.server import DidNotStart, Event, Programs, Server

IN_USE_AT = 21
"""Where the flags of the first event stand in the file; bit 0 says that a server writes to it."""

BARRED = ("-removed.bin", "-bad-magic.bin", "-fd-bitflip.bin")
"""No cut helps: bytes are missing in front of what follows, or the head is damaged."""

RENAMED = {
    "FORMAT_DESC": "FORMAT_DESCRIPTION",
    "GTID_LOG": "GTID",
    "WRITE_ROWS": "WRITE_ROWS_V2",
    "UPDATE_ROWS": "UPDATE_ROWS_V2",
    "DELETE_ROWS": "DELETE_ROWS_V2",
}
"""Types of events that servers or this project call otherwise."""

STANDARD = "third-party/mysql-test-std_data/std_data/binlog_recovery"
REFUSED_ALONE = (
    "duplicate_xid", "duplicate_xid_ddl", "duplicate_xid_xa_prepare", "malformed_xid_xa_commit",
    "malformed_xid_xa_rollback",
)  # fmt: skip
"""Logs of MySQL's own tests on which MySQL does not start, as far as a cut can repair them."""


@dataclass(frozen=True, slots=True)
class Case:
    """A damaged log. twin: the undamaged one; itself, where a crash tore it.

    name: below the corpus. end: the durable end by the manifest. unseen: no checksum, and the damage leaves no trace.
    """

    name: str
    source: Path
    twin: Path
    end: int | None = None
    unseen: bool = False

    @property
    def log(self) -> str:
        """Its name for the server."""
        return self.twin.name

    @property
    def mysql(self) -> bool:
        """Did a MySQL server write it?"""
        return "mysql-" in self.name


@dataclass(frozen=True, slots=True)
class Shown:
    """What a server has of a log that it started on. size: of the file afterwards. gtids: of the whole server.

    logs: names and sizes. complaints: the errors of its error log.
    """

    started: bool
    size: int
    events: tuple[Event, ...] = ()
    gtids: str = ""
    logs: tuple[tuple[str, int], ...] = ()
    complaints: tuple[str, ...] = ()
    version: str = ""

    def as_value(self) -> dict[str, Any]:
        """For the record: the events as a count and a digest."""
        value = {"started": self.started, "size": self.size, "complaints": list(self.complaints)}
        return {**value, **told(self.events), "gtids": self.gtids} if self.started else value


def told(events: tuple[Event, ...] | list[Event]) -> dict[str, Any]:
    """Events as a count and a digest of their places and types."""
    text = "".join(f"{one.at} {plain(one.type)}\n" for one in events)
    return {"events": len(events), "events_sha256": hashlib.sha256(text.encode()).hexdigest()}


def plain(kind: str) -> str:
    """One name for a type of events, by a server or by this project."""
    name = kind.upper().replace(" ", "_")
    return RENAMED.get(name, name)


def repairable(corpus: Path) -> list[Case]:
    """The damaged files that a cut can repair, and the logs of crashed servers."""
    return [one for one in [*_damaged(corpus), *_crashed(corpus)] if not one.name.endswith(BARRED)]


def _damaged(corpus: Path) -> Iterator[Case]:
    root = corpus / "mysql-binlog/generated"
    for one in json.loads((root / "damaged/expected.json").read_text("utf-8")):
        if one["file"].endswith(".bin"):
            twin = root / one["base"]
            unseen = not one["expect"]["detected_by"]
            end = one["size"] if unseen or "in-use" in one["file"] else one["expect"]["durable_end"]
            yield Case(one["file"], root / one["file"], twin, end, unseen)


def _crashed(corpus: Path) -> Iterator[Case]:
    root = corpus / "mysql-binlog/generated"
    for one in json.loads((root / "manifest.json").read_text("utf-8")):
        if "-before/" in one["file"]:
            path = root / one["file"]
            yield Case(one["file"], path, path, one["durable_end"])


def refused_alone(corpus: Path) -> list[Case]:
    """The logs on which MySQL itself does not start."""
    folder = corpus / "mysql-binlog" / STANDARD
    paths = [folder / f"{name}.000001" for name in REFUSED_ALONE]
    return [Case(f"{STANDARD}/{path.name}", path, path) for path in paths]


def put(case: Case, folder: Path) -> Path:
    """The log in a folder of its own, with an index, in use: as the crash of its server leaves it."""
    folder.mkdir()
    data = bytearray(case.source.read_bytes())
    data[IN_USE_AT] |= 1
    path = folder / case.log
    path.write_bytes(data)
    path.with_suffix(".index").write_text(f"{path}\n")
    return path


def plan_of(path: Path, *, fix_meta: bool = False) -> RepairPlan:
    """The repair of a log that is damaged anywhere."""
    return binlogtool.plan_truncate(path, policy=RepairPolicy(allow_discard_valid=True, fix_meta=fix_meta))


def predicted(path: Path, plan: RepairPlan) -> list[Event]:
    """The events that a repair will leave, by the plan and by what stands in front of the cut."""
    (file,) = plan.files
    found = []
    with binlogtool.open(path) as log:
        for record in log.records():
            if record.offset >= file.result_size:
                break
            if record.inner is None:
                found.append(Event(record.offset, plain(record.type)))
    assert len(found) == file.proof.get("records_kept", file.proof["records"])
    return found


def gtids_of(path: Path) -> str:
    """The GTIDs of a log, as a server with this log alone tells them."""
    text = str(binlogtool.verify([path]).files[0].details["gtids"])
    last = re.fullmatch(r"(\d+-\d+)-\d+\.\.(\d+)", text)
    return "-".join(last.groups()) if last else text


def look(path: Path, folder: Path, programs: Programs | None = None) -> Shown:
    """Starts a server (see `Server`: the folder has its data) on a log and asks what it has."""
    options = [f"--log-bin={path.with_suffix('')}", "--server-id=9", "--skip-networking"]
    if programs is not None and programs.mysql:
        options += ["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]
    server = Server(folder, *options, programs=programs)
    try:
        with server:
            return _shown(server, path)
    except DidNotStart:
        return Shown(False, path.stat().st_size, complaints=tuple(server.complaints()))


def _shown(server: Server, path: Path) -> Shown:
    return Shown(
        True,
        path.stat().st_size,
        tuple(server.events(path.name)),
        server.gtids(),
        tuple(server.logs()),
        tuple(server.complaints()),
        server.version(),
    )
