"""What must hold for any bytes: of reading, of both backends, of repairs and of their undo."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

import binlogtool
from binlogtool import formats
from binlogtool.core.record_selection import RecordBlock, Selection
from binlogtool.errors import InputOutputError, RefusedError, UnknownFormatError
from binlogtool.findings import Finding, Severity
from binlogtool.format_api.format import Hints, is_header_correction
from binlogtool.formats.binlog_events.crypt.keys_and_ciphers import KeyFileError
from binlogtool.repair.plan import RepairPlan, RepairPolicy
from binlogtool.report.dump import RecordJsonEncoder
from binlogtool.schema import backends
from binlogtool.verification.verify_report import FileReport, Report
from tests.fuzz.search import search
from tests.fuzz.seeds import Seed
from tests.harness.engine import account_holds
from tests.harness.walks import Judged, dumped, judged

ENGINES = tuple(name for name in backends.BACKEND_NAMES if name != "auto")
SLOWEST = 1.0
"""Seconds of CPU for one verify of at most 64 KiB (goal R2)."""
CHOICES = (
    RepairPolicy(),
    RepairPolicy(),
    RepairPolicy(transactions=True),
    RepairPolicy(allow_discard_valid=True),
    RepairPolicy(allow_discard_valid=True, fix_meta=True, write_close_marker=True),
)

CONTENT = {"payload-undecodable", "compression-error", "inflate-limit", "nesting-too-deep"}
"""What is said of a frame that was found, and whose checksum is right, but whose content is none."""


class Done(NamedTuple):
    """How an input went. repaired: refused, nothing to do, repaired, not a log, - (not asked)."""

    refused: bool
    repaired: str
    ids: frozenset[str]


def checked(seed: Seed, rng: random.Random, scratch: Path, engines: Sequence[str], repair: bool, deep: bool) -> Done:
    """Holds the product to its promises on one input.

    engines: the backends that must agree, the first one is the one that is looked at closely. repair: also plan, apply,
    verify and undo. deep: also what the other commands do with it.
    """
    path = written(seed, scratch)
    try:
        if seed.beside:
            return directory(seed, path, rng, engines, repair)
        seen = [reading(seed, path, engine) for engine in engines]
        assert all(one == seen[0] for one in seen), f"{engines} have different opinions: {differences(seen)}"
        if deep:
            others(seed, path)
        found = seen[0].findings if seen[0] else ()
        repaired = repairing(seed, path, rng, found) if repair else "-"
        return Done(seen[0] is None, repaired, frozenset(f.id for f in found))
    finally:
        shutil.rmtree(path.parent)


def written(seed: Seed, scratch: Path) -> Path:
    """The files on disk, in a directory of their own."""
    folder = scratch / "input"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / Path(seed.name).name
    path.write_bytes(seed.data)
    for name, data in seed.beside:
        (folder / name).write_bytes(data)
    return path


def timed(seed: Seed, path: Path, engine: str) -> tuple[float, Judged]:
    """Seconds of CPU that verify takes, and what it says."""
    began = time.thread_time()
    seen = judged(path, formats.load_format(seed.format), engine, seed.hints)
    return time.thread_time() - began, seen


def reading(seed: Seed, path: Path, engine: str) -> FileReport | None:
    """What verify says, held against dump and against the independent search. None: refused as a whole."""
    format = formats.load_format(seed.format)
    try:
        seconds, seen = timed(seed, path, engine)
        if seconds >= SLOWEST:  # the first use of a kernel compiles it: the second use is measured
            seconds, seen = timed(seed, path, engine)
    except (UnknownFormatError, KeyFileError):
        return None
    assert seconds < SLOWEST, f"verify takes {seconds:.2f} s with {engine}"
    report = seen.report
    assert report is not None
    account_holds(report, len(seed.data))
    printed = dumped(path, format, engine, hints=seed.hints)
    if format.validation.validator_reports_sequences or report.records is not None:
        assert len(printed) == report.records, f"verify counts {report.records}, dump prints {len(printed)}"
    if not seen.assembled:
        assert printed == seen.records, f"verify and dump see records at other places: {printed} {seen.records}"
        searched(seed, seen)
    return replace(report, seconds=0.0)


def searched(seed: Seed, seen: Judged) -> None:
    """No frame is invented, and no intact one is lost."""
    report = seen.report
    if report is None or any("corrected" in f.facts or f.id == "encrypted" for f in report.findings):
        return
    data = put_right(seed.data, report.findings)
    found = search(seed.target, data, seed.known)
    if found is None:
        return
    if seed.target == "eblob" and not report.variant.startswith("B "):
        return
    if found.sure:
        made = [frame for frame in seen.frames if not found.proven(*frame)]
        assert not made, f"frames that are none: {made[:5]}"
    told = bad_content(report.findings)
    at = report.bytes["header"]
    for start, end in [*sorted(seen.frames), (len(data), len(data))]:
        lost = [one for one in found.between(data, at, start) if not within(one, told)] if start > at else []
        assert not lost, f"intact frames that are passed over, in [{at}, {start}): {lost[:5]}"
        at = max(at, end)


def put_right(data: bytes, findings: Iterable[Finding]) -> bytes:
    """The file with the bit of its head put right that the report names: by that head its frames are searched for."""
    made = bytearray(data)
    for one in findings:
        if is_header_correction(one):
            made[one.facts["flipped_byte"]] ^= 1 << one.facts["flipped_bit"]
    return bytes(made)


def bad_content(findings: Iterable[Finding]) -> list[range]:
    """Frames that were found, and told as such, though what is in them is nothing: what looks like a frame there."""
    bad = (f for f in findings if (f.id in CONTENT or "inner_offset" in f.facts) and f.severity is Severity.ERROR)
    return [range(f.offset, f.offset + f.length) for f in bad if f.offset is not None]


def within(place: int, ranges: Sequence[range]) -> bool:
    """Does a place lie in one of them?"""
    return any(place in one for one in ranges)


def differences(seen: Sequence[FileReport | None]) -> str:
    """Where two reports differ."""
    first = seen[0]
    for other in seen[1:]:
        if first is None or other is None:
            return f"{first} {other}"
        for name in FileReport.__struct_fields__:
            if getattr(first, name) != getattr(other, name):
                return f"{name}: {getattr(first, name)} {getattr(other, name)}"
    return "none"


def others(seed: Seed, path: Path) -> None:
    """Salvage and bodies as JSON, and the replay: any result, but never an exception, and JSON that can be read."""
    lines = RecordJsonEncoder()
    try:
        with binlogtool.open(path, format=seed.format, backend="python", hints=seed.hints) as log:
            for block in log.blocks(Selection(on_damage="salvage")):
                if isinstance(block, RecordBlock):
                    for line in lines.encode_lines(block).splitlines():
                        json.loads(line)
        binlogtool.replay([path], format=seed.format, backend="python", hints=seed.hints)
    except (UnknownFormatError, KeyFileError):
        pass


def repairing(seed: Seed, path: Path, rng: random.Random, before: Iterable[Finding], redo: Hints | None = None) -> str:
    """Plan, apply, verify, undo. before: what verify found. redo: of a directory, where its redo log is."""
    asked, hints, contents, set = rng.choice(CHOICES), redo or seed.hints, bad_content(before), redo is not None
    if asked.transactions and formats.load_format(seed.format).repair.transactions is None:
        asked = RepairPolicy()
    target = path.parent if set else path
    original = state(path.parent)
    try:
        plan = binlogtool.plan_truncate(target, format=seed.format, hints=hints, policy=asked, backend="python")
    except (UnknownFormatError, RefusedError):
        return "not a log"
    except InputOutputError as error:  # as `verify` says it
        assert any(words in str(error) for words in ("key file", "a wrong key", "has no key")), error
        return "not a log"
    assert state(path.parent) == original, "a plan changes files"
    if plan.refused:
        assert plan.reasons
        return "refused"
    done = binlogtool.apply_plan(plan, hints=hints) if plan.changes else None
    if not set:
        kept(seed, path, plan, contents)
    gone = bool(plan.changes) and all(one.action == "remove" for one in plan.files)  # as the server's recovery does it
    report = Report((), ()) if gone else binlogtool.verify([target], format=seed.format, hints=hints, backend="python")
    if not any(one.is_encrypted for one in report.files):
        wrong = [str(f) for f in report.findings if f.severity is Severity.ERROR] + [str(f) for f in report.failures]
        assert not wrong, f"{asked}: errors after the repair: {wrong[:3]}"
    if not gone:
        again = binlogtool.plan_truncate(target, format=seed.format, hints=hints, policy=asked, backend="python")
        assert (again.refused, again.changes) == (False, ()), f"{asked}: there is more to repair: {again}"
    if done is None:
        return "nothing to do"
    assert done.undo is not None
    binlogtool.undo(done.undo)
    Path(done.undo).unlink()
    assert state(path.parent) == original, "undo gives something else back"
    return "repaired"


def kept(seed: Seed, path: Path, plan: RepairPlan, contents: Sequence[range]) -> None:
    """No intact frame is cut off that the plan does not count. contents: of frames in which nothing can be read."""
    size, found = path.stat().st_size, search(seed.target, seed.data, seed.known)
    result, told = path.read_bytes(), sum(file.cut_valid_records for file in plan.files)
    if found is None or not found.sure or result != seed.data[:size]:
        return
    lost = [one for one in found.between(seed.data, size, len(seed.data)) if not within(one, contents)]
    if len(lost) > told:
        raise AssertionError(f"the repair cuts more intact frames off than told: {told}, behind {size}: {lost[:9]}")


def state(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Bytes, mode and time of every file."""
    return {
        one.name: (one.read_bytes(), one.stat().st_mode, one.stat().st_mtime_ns)
        for one in folder.iterdir()
        if one.is_file()
    }


def directory(seed: Seed, path: Path, rng: random.Random, engines: Sequence[str], repair: bool) -> Done:
    """A log with its redo log: verify, and the repair that does what the server's recovery does."""
    hints = Hints(redo=str(path.parent / "ib_logfile0"))
    seen = []
    for engine in engines:
        report = binlogtool.verify([path.parent], format=seed.format, hints=hints, backend=engine)
        for file in report.files:
            account_holds(file, Path(file.path).stat().st_size)
        seen.append((tuple(replace(one, seconds=0.0) for one in report.files), report.sets, report.failures))
    assert all(one == seen[0] for one in seen), f"{engines} have different opinions"
    repaired = repairing(seed, path, rng, (), hints) if repair else "-"
    ids = frozenset(f.id for one in seen[0][0] for f in one.findings)
    return Done(not seen[0][0], repaired, ids)
