"""Copy transactions from one binary log container into new MariaDB binary log files, proven by reading them back."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

import binlogtool
from binlogtool.errors import InputOutputError, LimitError, UsageError
from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.bundling import Bundle, Reached
from binlogtool.formats.detecting import Hints
from binlogtool.formats.fields import MalformedError
from binlogtool.limits import Limits
from binlogtool.log import detect
from binlogtool.log.body_json import finding_json
from binlogtool.log.bundles import Bundled
from binlogtool.log.records import Trouble
from binlogtool.log.select import Selection, proven_only, whole_only
from binlogtool.pipeline.account import Account
from binlogtool.pipeline.manifest import Check, Input, Manifest, Output
from binlogtool.pipeline.writers.continuity import Continuity, book, gtid_numbers
from binlogtool.pipeline.writers.conversion_proof import Tally
from binlogtool.pipeline.writers.mysql_binlog import DEFAULT_LIMIT, BinlogWriter

CHANGED = "event_size, end_log_pos and checksum are those of the new files"
_SINGLE_EVENTS = ("types", "objects", "exclude_objects")
_LISTED = 1000


class BinlogJob(msgspec.Struct):
    """One conversion to a binary log.

    limit: bytes of a file (see `BinlogWriter`); None = the servers' default.
    allow_rule_breaks: also write transactions that break the log's rules, if the input itself is not damaged.
    """

    limits: Limits
    backend: str
    selection: Selection
    hints: Hints | None = None
    limit: int | None = None
    allow_rule_breaks: bool = False
    account: Account = msgspec.field(default_factory=Account)
    taken: Counter[str] = msgspec.field(default_factory=Counter)
    tally: Tally = msgspec.field(default_factory=Tally)
    passed: int = 0
    continuity: Continuity = msgspec.field(default_factory=Continuity)

    def __post_init__(self) -> None:
        self.hints = None if self.hints is None else replace(self.hints, level=None, redo=None, objects=False)

    def write(self, inputs: list[Input], paths: list[str], format: str, folder: Path, base: str) -> Manifest:
        """Write the files into `folder`, read them back and compare.

        Raises:
            UsageError: the inputs are not such a log.
            InputOutputError: what was read back differs.
        """
        stop = self.selection.on_damage == "stop"
        if stop:
            self._verify_inputs(paths, format)
        if stop and self.account.errors:
            return self._manifest(inputs, BinlogWriter(folder, base), ())
        folder.mkdir()
        writer = BinlogWriter(folder, base, self.limit or DEFAULT_LIMIT)
        try:
            self._copy(inputs, format, writer, stop)
        except BaseException:
            writer.abandon()
            raise
        if stop and self.account.errors:
            writer.abandon()
            return self._manifest(inputs, writer, ())
        writer.close()
        return self._manifest(inputs, writer, tuple(self._proven(writer)))

    # -- in and out ----------------------------------------------------------------------------------------------------

    def _verify_inputs(self, paths: list[str], format: str) -> None:
        """Verify the input log, and record its findings, before anything is copied."""
        for path, found in self._judged(paths, format, self.hints):
            self._tell(path, found)

    def _judged(self, paths: Sequence[str | Path], format: str, hints: Hints | None) -> Iterator[tuple[str, Finding]]:
        """Run `verify`, and yield each finding with the file or directory that it is about."""
        report = binlogtool.verify(
            paths, format=format, limits=self.limits, backend=self.backend, hints=hints, live=self.selection.live
        )
        for failure in report.failures:
            raise InputOutputError(f"{failure.path}: {failure.message}")
        if report.incomplete:
            raise LimitError("a limit ended the verification of the log early")
        for file in report.files:
            yield from ((file.path, found) for found in file.findings)
        for log in report.sets:
            yield from ((log.path, found) for found in log.findings)

    def _tell(self, file: str, found: Finding) -> None:
        self.account.add(file, finding_json(found), damage=found.severity is Severity.ERROR)

    def _copy(self, inputs: list[Input], format: str, writer: BinlogWriter, stop: bool) -> None:
        files = [i.path for i in inputs]
        with binlogtool.open(files, format=format, limits=self.limits, backend=self.backend, hints=self.hints) as log:
            for part in log.bundles(self.selection):
                if isinstance(part, Bundled):
                    self._take(part, writer)
                elif not stop:
                    self._tell(*part)
                if isinstance(part, Trouble) and part.finding.severity is Severity.ERROR and part.finding.length:
                    self.continuity.damage()
                if stop and self.account.errors:
                    return
            if not self.taken.total():
                log.unmatched(self.selection, 0).demand_none()

    def _take(self, bundled: Bundled, writer: BinlogWriter) -> None:
        part = bundled.part
        if isinstance(part, Finding):
            self._unread(bundled.file, part)
        elif isinstance(part, Reached):
            first = self.continuity.known is None
            for found in self.continuity.reached(part):
                self._tell(bundled.file, found)
            if first and self.continuity.known is not None:
                writer.state = dict(self.continuity.known)
        else:
            self.continuity.bundle(part)
            if bundled.wanted:
                self._write(bundled.file, part, writer)
            else:
                self._pass(part, writer)

    def _unread(self, file: str, found: Finding) -> None:
        """Record a transaction that is not complete, and its GTID if it is known."""
        self._tell(file, found)
        gtid = found.facts.get("gtid")
        if isinstance(gtid, str):
            self.continuity.unread(gtid)
        else:
            self.continuity.damage()

    def _write(self, file: str, bundle: Bundle, writer: BinlogWriter) -> None:
        try:
            writer.add(bundle)
        except MalformedError as error:
            text = f"{bundle.type}: {error.args[0]}"
            self._tell(file, finding(error.finding_id, bundle.offset, bundle.size, text, record=bundle.record))
            return
        before = self.tally.bundles
        self.tally.add(bundle)
        self.taken[file] += self.tally.bundles - before

    def _pass(self, bundle: Bundle, writer: BinlogWriter) -> None:
        """Count a transaction that is not selected; those before the first selected one enter the writer's GTID
        state.
        """
        self.passed += 1
        if bundle.txn is not None and not self.tally.bundles:
            book(writer.state, *gtid_numbers(bundle.txn))

    # -- the proof -----------------------------------------------------------------------------------------------------

    def _proven(self, writer: BinlogWriter) -> Iterator[Check]:
        """Read the new files back, and yield the checks that they passed.

        Raises:
            InputOutputError: they do not hold what was read.
        """
        paths, back = [str(writer.folder / one.name) for one in writer.written], Tally()
        with binlogtool.open(paths, format="mysql-binlog", limits=self.limits, backend=self.backend) as log:
            for one in log.bundles(Selection(on_damage="stop")):
                wrong = one.finding if isinstance(one, Trouble) else one.part
                if isinstance(wrong, Finding):
                    raise InputOutputError(f"{one.file}: read back: {wrong.message}")
                if isinstance(wrong, Bundle):
                    back.add(wrong)
        if back != self.tally:
            text = f"{back.bundles:,} groups of {back.events:,} events"
            raise InputOutputError(f"{text} were read back; {self.tally.bundles:,} of {self.tally.events:,} were read")
        passed = f"; the selection left out {self.passed:,}" if self.passed else ""
        yield Check("groups-in-equal-groups-out", f"{self.tally.bundles:,} read, {back.bundles:,} read back{passed}")
        yield Check("gtids-in-equal-gtids-out", ", ".join(self.tally.gtids.texts()) or "none")
        yield Check("event-bodies-equal", f"sha256 {back.sha256} of {back.events:,} events; {CHANGED}")
        yield self._verified(writer)

    def _verified(self, writer: BinlogWriter) -> Check:
        """Verify the new log like any other; faults of the old log that were copied are reported again."""
        counts = Counter[Severity]()
        for path, found in self._judged([writer.folder], "mysql-binlog", None):
            counts[found.severity] += 1
            if found.severity is not Severity.NOTE:
                breaks = found.severity is Severity.ERROR and not self.allow_rule_breaks
                self.account.add(os.path.basename(path), finding_json(found), damage=breaks)
        words = (f"{severity.label}s {counts[severity]}" for severity in sorted(Severity, reverse=True))
        return Check("verified", ", ".join(words))

    def _manifest(self, inputs: list[Input], writer: BinlogWriter, checks: tuple[Check, ...]) -> Manifest:
        complete = not (self.account.errors and self.selection.on_damage == "stop")
        ranges = self.tally.gtids.texts()
        details = {
            "gtids": ranges[:_LISTED],
            "gtids_left_out": self.continuity.lost()[:_LISTED],
            "server_version": writer.server_version,
            "changed": CHANGED,
        }
        if not complete:
            details["stopped_by"] = "result" if checks else "input"
        return Manifest(
            to="",
            output="",
            complete=complete,
            on_damage=self.selection.on_damage,
            inputs=tuple(replace(i, records=self.taken[i.path]) for i in inputs),
            outputs=tuple(Output(one.name, one.bundles, one.size) for one in writer.written),
            rows=self.tally.bundles,
            damage=0,
            findings=tuple(self.account.listed),
            finding_counts=dict(self.account.counts),
            checks=checks,
            details=details,
        )


def refuse_selection(selection: Selection) -> None:
    """Check that a selection leaves whole transactions, as a log needs.

    Raises:
        UsageError: the selection chooses single events, or the last ones.
    """
    given = [name.rstrip("s").replace("_", "-") for name in _SINGLE_EVENTS if getattr(selection, name)]
    if given:
        raise UsageError(f"--{given[0]} chooses single events, but a log is made of whole transactions")
    if selection.tail is not None:
        raise UsageError("--tail: a log has to be written from its beginning; give --start-position")
    proven_only(selection, "a log")
    whole_only(selection, "a log")


def in_order(inputs: list[Input]) -> list[Input]:
    """Return the files of one log in the log's order.

    Raises:
        UsageError: they have different formats or directories, or the format has no transactions to copy.
    """
    if len({i.format for i in inputs}) > 1:
        raise UsageError("the inputs are of different formats; name the files of one log")
    format_ = detect.by_name(inputs[0].format)
    if format_.reading.bundles is None:
        raise UsageError(f"the records of {format_.name} are no events of a server's binary log")
    folders = {os.path.dirname(os.path.abspath(i.path)) for i in inputs}
    if len(folders) > 1:
        raise UsageError("the inputs are in different directories; name the files of one log")
    by_name = {os.path.basename(i.path): i for i in inputs}
    order = format_.files.order or sorted
    return [by_name[name] for name in order(list(by_name))]
