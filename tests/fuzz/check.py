"""Check what must hold for any bytes: reading, both backends, repairs and their undo."""

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
from binlogtool.core.record_and_selection_types import RecordBlock, Selection
from binlogtool.errors import InputOutputError, RefusedError, UnknownFormatError
from binlogtool.findings import Finding, Severity
from binlogtool.format_api.format import Hints, is_header_correction
from binlogtool.formats.binlog_events.crypt.keys_and_ciphers import KeyFileError
from binlogtool.repair.plan_types import RepairPlan, RepairPolicy
from binlogtool.report.dump_output_formats import RecordJsonEncoder
from binlogtool.schema import backends
from binlogtool.verification.verify_report import FileReport, Report
from tests.fuzz.search import search
from tests.fuzz.seeds import Seed
from tests.harness.engine import account_holds
from tests.harness.scan_results import Judged, dumped, judged

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
"""Findings about a frame whose checksum is right and whose content cannot be decoded."""


class InputResult(NamedTuple):
    """The result of one input. repaired: refused, nothing to do, repaired, not a log, - (no repair was tried)."""

    refused: bool
    repaired: str
    ids: frozenset[str]


def check_input(
    seed: Seed, rng: random.Random, scratch: Path, engines: Sequence[str], repair: bool, deep: bool
) -> InputResult:
    """Check the promises of the product on one input.

    engines: the backends that must agree; the first one is checked in depth. repair: also plan, apply,
    verify and undo. deep: also run the other commands.
    """
    path = write_input(seed, scratch)
    try:
        if seed.beside:
            return check_directory(seed, path, rng, engines, repair)
        seen = [verify_input(seed, path, engine) for engine in engines]
        assert all(entry == seen[0] for entry in seen), f"{engines} disagree: {describe_difference(seen)}"
        if deep:
            run_other_commands(seed, path)
        findings = seen[0].findings if seen[0] else ()
        repaired = repair_input(seed, path, rng, findings) if repair else "-"
        return InputResult(seen[0] is None, repaired, frozenset(finding.id for finding in findings))
    finally:
        shutil.rmtree(path.parent)


def write_input(seed: Seed, scratch: Path) -> Path:
    """Write the files of an input to a new directory; return the path of the mutated one."""
    folder = scratch / "input"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / Path(seed.name).name
    path.write_bytes(seed.data)
    for name, data in seed.beside:
        (folder / name).write_bytes(data)
    return path


def time_verify(seed: Seed, path: Path, engine: str) -> tuple[float, Judged]:
    """Return the CPU seconds that verify takes, and its report."""
    began = time.thread_time()
    seen = judged(path, formats.load_format(seed.format), engine, seed.hints)
    return time.thread_time() - began, seen


def verify_input(seed: Seed, path: Path, engine: str) -> FileReport | None:
    """Compare the report of verify with dump and with the independent search; None if the file is refused."""
    format = formats.load_format(seed.format)
    try:
        seconds, seen = time_verify(seed, path, engine)
        if seconds >= SLOWEST:  # the first use of a kernel compiles it: the second use is measured
            seconds, seen = time_verify(seed, path, engine)
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
        compare_with_search(seed, seen)
    return replace(report, seconds=0.0)


def compare_with_search(seed: Seed, seen: Judged) -> None:
    """Check that no frame is invented, and that no intact one is lost."""
    report = seen.report
    if report is None or any("corrected" in f.facts or f.id == "encrypted" for f in report.findings):
        return
    data = correct_header(seed.data, report.findings)
    expected = search(seed.target, data, seed.known)
    if expected is None:
        return
    if seed.target == "eblob" and not report.variant.startswith("B "):
        return
    if expected.sure:
        false_frames = [frame for frame in seen.frames if not expected.proven(*frame)]
        assert not false_frames, f"false frames: {false_frames[:5]}"
    bad_ranges = list_bad_content(report.findings)
    at = report.bytes["header"]
    for start, end in [*sorted(seen.frames), (len(data), len(data))]:
        lost = (
            [entry for entry in expected.between(data, at, start) if not is_within(entry, bad_ranges)]
            if start > at
            else []
        )
        assert not lost, f"intact frames that are not reported, in [{at}, {start}): {lost[:5]}"
        at = max(at, end)


def correct_header(data: bytes, findings: Iterable[Finding]) -> bytes:
    """Correct the bit of the file header that the report names: the search reads that header."""
    corrected = bytearray(data)
    for finding in findings:
        if is_header_correction(finding):
            corrected[finding.facts["flipped_byte"]] ^= 1 << finding.facts["flipped_bit"]
    return bytes(corrected)


def list_bad_content(findings: Iterable[Finding]) -> list[range]:
    """List the ranges of frames that cannot be decoded: what looks like a frame inside them is not one."""
    bad = (f for f in findings if (f.id in CONTENT or "inner_offset" in f.facts) and f.severity is Severity.ERROR)
    return [range(f.offset, f.offset + f.length) for f in bad if f.offset is not None]


def is_within(place: int, ranges: Sequence[range]) -> bool:
    """Return True if an offset is in one of the ranges."""
    return any(place in entry for entry in ranges)


def describe_difference(seen: Sequence[FileReport | None]) -> str:
    """Describe the first difference of two reports."""
    first = seen[0]
    for other in seen[1:]:
        if first is None or other is None:
            return f"{first} {other}"
        for name in FileReport.__struct_fields__:
            if getattr(first, name) != getattr(other, name):
                return f"{name}: {getattr(first, name)} {getattr(other, name)}"
    return "none"


def run_other_commands(seed: Seed, path: Path) -> None:
    """Run salvage with bodies as JSON, and a replay: any result, but no exception, and JSON that can be parsed."""
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


def repair_input(
    seed: Seed, path: Path, rng: random.Random, before: Iterable[Finding], redo: Hints | None = None
) -> str:
    """Plan, apply, verify, undo. before: the findings of verify. redo: the redo log of a directory."""
    policy, hints, contents, set = rng.choice(CHOICES), redo or seed.hints, list_bad_content(before), redo is not None
    if policy.transactions and formats.load_format(seed.format).repair.transactions is None:
        policy = RepairPolicy()
    target = path.parent if set else path
    original = read_state(path.parent)
    try:
        plan = binlogtool.plan_truncate(target, format=seed.format, hints=hints, policy=policy, backend="python")
    except (UnknownFormatError, RefusedError):
        return "not a log"
    except InputOutputError as error:  # the message of `verify`
        assert any(words in str(error) for words in ("key file", "a wrong key", "has no key")), error
        return "not a log"
    assert read_state(path.parent) == original, "a plan changes files"
    if plan.refused:
        assert plan.reasons
        return "refused"
    done = binlogtool.apply_plan(plan, hints=hints) if plan.changes else None
    if not set:
        check_cut_frames(seed, path, plan, contents)
    # the server's recovery, too, can remove all files
    gone = bool(plan.changes) and all(entry.action == "remove" for entry in plan.files)
    report = Report((), ()) if gone else binlogtool.verify([target], format=seed.format, hints=hints, backend="python")
    if not any(entry.is_encrypted for entry in report.files):
        wrong = [str(f) for f in report.findings if f.severity is Severity.ERROR] + [str(f) for f in report.failures]
        assert not wrong, f"{policy}: errors after the repair: {wrong[:3]}"
    if not gone:
        again = binlogtool.plan_truncate(target, format=seed.format, hints=hints, policy=policy, backend="python")
        assert (again.refused, again.changes) == (False, ()), f"{policy}: there is more to repair: {again}"
    if done is None:
        return "nothing to do"
    assert done.undo is not None
    binlogtool.undo(done.undo)
    Path(done.undo).unlink()
    assert read_state(path.parent) == original, "undo restores other bytes"
    return "repaired"


def check_cut_frames(seed: Seed, path: Path, plan: RepairPlan, contents: Sequence[range]) -> None:
    """Check that the plan counts each intact frame that it cuts off. contents: ranges that cannot be decoded."""
    size, expected = path.stat().st_size, search(seed.target, seed.data, seed.known)
    result, counted = path.read_bytes(), sum(file.cut_valid_records for file in plan.files)
    if expected is None or not expected.sure or result != seed.data[:size]:
        return
    lost = [entry for entry in expected.between(seed.data, size, len(seed.data)) if not is_within(entry, contents)]
    if len(lost) > counted:
        raise AssertionError(
            f"the repair cuts more intact frames off than it counts: {counted}, after {size}: {lost[:9]}"
        )


def read_state(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Read bytes, mode and time of every file."""
    return {
        entry.name: (entry.read_bytes(), entry.stat().st_mode, entry.stat().st_mtime_ns)
        for entry in folder.iterdir()
        if entry.is_file()
    }


def check_directory(seed: Seed, path: Path, rng: random.Random, engines: Sequence[str], repair: bool) -> InputResult:
    """Check a log with its redo log: verify, and the repair that does what the server's recovery does."""
    hints = Hints(redo=str(path.parent / "ib_logfile0"))
    seen = []
    for engine in engines:
        report = binlogtool.verify([path.parent], format=seed.format, hints=hints, backend=engine)
        for file in report.files:
            account_holds(file, Path(file.path).stat().st_size)
        seen.append((tuple(replace(entry, seconds=0.0) for entry in report.files), report.sets, report.failures))
    assert all(entry == seen[0] for entry in seen), f"{engines} disagree"
    repaired = repair_input(seed, path, rng, (), hints) if repair else "-"
    ids = frozenset(f.id for entry in seen[0][0] for f in entry.findings)
    return InputResult(not seen[0][0], repaired, ids)
