"""Copy the transactions of a log to new files of a MariaDB binary log, and verify the copy."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from binlogtool.core import open_file as open_file_module
from binlogtool.core.decode_batches import SelectedEventGroup
from binlogtool.core.open_log import LogReader, open_log
from binlogtool.core.record_and_selection_types import (
    FileFinding,
    ReadOptions,
    Selection,
    refuse_salvage,
    refuse_where,
)
from binlogtool.errors import InputOutputError, LimitError, UsageError
from binlogtool.export.manifest import (
    FindingTally,
    Manifest,
    ManifestCheck,
    ManifestInput,
    ManifestOutput,
    ReadRequest,
)
from binlogtool.findings import Finding, Severity, finding_to_value, make_finding
from binlogtool.format_api.row_output_interfaces import PortableEventGroup, PriorGtids
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.write_mariadb_binlog import (
    DEFAULT_MAX_FILE_SIZE,
    BinlogWriter,
    GtidContinuity,
    TransactionDigest,
    parse_mariadb_gtid,
    record_newest_gtid,
)
from binlogtool.verification.verify_logs import LogVerifyOptions, verify_paths

# --- Transactions copied to a MariaDB log ---

CHANGED_FIELDS = "event_size, end_log_pos and checksum are those of the new files"
_EVENT_FILTERS = ("types", "objects", "exclude_objects")
_MAX_LISTED_GTIDS = 1000


class BinlogCopyJob(msgspec.Struct):
    """Job that converts a log to a new binary log.

    limit: bytes of a file (see `BinlogWriter`); None = the servers' default.
    allow_rule_breaks: also write transactions that violate the log's rules, if the input is not damaged.
    """

    request: ReadRequest
    limit: int | None = None
    allow_rule_breaks: bool = False
    finding_tally: FindingTally = msgspec.field(default_factory=FindingTally)
    written_groups: Counter[str] = msgspec.field(default_factory=Counter)
    group_digest: TransactionDigest = msgspec.field(default_factory=TransactionDigest)
    excluded_groups: int = 0
    continuity: GtidContinuity = msgspec.field(default_factory=GtidContinuity)

    def __post_init__(self) -> None:
        if self.request.hints is not None:
            self.request = self.request.with_hints(level=None, redo=None, objects=False)

    def copy_and_verify_log(
        self, inputs: list[ManifestInput], paths: list[str], format: str, folder: Path, base_name: str
    ) -> Manifest:
        """Write the files into `folder`, read them back and compare.

        Raises:
            UsageError: the inputs are no server's binary log.
            InputOutputError: the files that were read back differ.
        """
        stop = self.request.selection.on_damage == "stop"
        if stop:
            self._verify_inputs(paths, format)
        if stop and self.finding_tally.errors:
            return self._build_manifest(inputs, BinlogWriter(folder, base_name), ())
        folder.mkdir()
        writer = BinlogWriter(folder, base_name, self.limit or DEFAULT_MAX_FILE_SIZE)
        try:
            self._copy_transactions(inputs, format, writer, stop)
        except BaseException:
            writer.abandon()
            raise
        if stop and self.finding_tally.errors:
            writer.abandon()
            return self._build_manifest(inputs, writer, ())
        writer.complete_and_write_index()
        return self._build_manifest(inputs, writer, tuple(self._compare_read_back_transactions(writer)))

    # -- input and output ----------------------------------------------------------------------------------------------

    def _verify_inputs(self, paths: list[str], format: str) -> None:
        """Verify the input log, and record its findings, before anything is copied."""
        for path, finding_ in self._iter_verify_findings(paths, self.request.read_options(format)):
            self._record_finding(path, finding_)

    def _iter_verify_findings(
        self, paths: Sequence[str | Path], read_options: ReadOptions
    ) -> Iterator[tuple[str, Finding]]:
        """Run `verify`, and yield each finding with the file or directory that it is about."""
        options = LogVerifyOptions.from_read_options(
            read_options, depth="set", live=self.request.selection.live, expect_closed=False
        )
        report = verify_paths(paths, read_options.format, options)
        for failure in report.failures:
            raise InputOutputError(f"{failure.path}: {failure.message}")
        if report.incomplete:
            raise LimitError("the time limit ended the verification of the log early")
        for file in report.files:
            yield from ((file.path, found) for found in file.findings)
        for log in report.sets:
            yield from ((log.path, found) for found in log.findings)

    def _record_finding(self, file: str, finding_: Finding) -> None:
        self.finding_tally.add(file, finding_to_value(finding_), damage=finding_.severity is Severity.ERROR)

    def _copy_transactions(self, inputs: list[ManifestInput], format: str, writer: BinlogWriter, stop: bool) -> None:
        files = [i.path for i in inputs]
        with open_log(files, self.request.read_options(format), LogReader) as log:
            for part in log.event_groups(self.request.selection):
                if isinstance(part, SelectedEventGroup):
                    self._process_part(part, writer)
                elif not stop:
                    self._record_finding(*part)
                if isinstance(part, FileFinding) and part.finding.severity is Severity.ERROR and part.finding.length:
                    self.continuity.record_damage()
                if stop and self.finding_tally.errors:
                    return
            if not self.finding_tally.errors:
                unmatched = log.find_unmatched_names(self.request.selection, 0)
                unmatched.refuse_unmatched_gtids()
                if not self.written_groups.total():
                    unmatched.refuse_missing_names()

    def _process_part(self, source_part: SelectedEventGroup, writer: BinlogWriter) -> None:
        part = source_part.part
        if isinstance(part, Finding):
            self._record_incomplete_transaction(source_part.file, part)
        elif isinstance(part, PriorGtids):
            was_unknown = self.continuity.state is None
            for finding_ in self.continuity.compare_with_prior_gtids(part):
                self._record_finding(source_part.file, finding_)
            if was_unknown and self.continuity.state is not None:
                writer.state = dict(self.continuity.state)
        else:
            self.continuity.record_read_transaction(part)
            if source_part.selected:
                self._write_transaction(source_part.file, part, writer)
            else:
                self._count_excluded_transaction(part, writer)

    def _record_incomplete_transaction(self, file: str, finding_: Finding) -> None:
        """Record an incomplete transaction, with its GTID if it is known."""
        self._record_finding(file, finding_)
        gtid = finding_.facts.get("gtid")
        if isinstance(gtid, str):
            self.continuity.record_unread_transaction(gtid)
        else:
            self.continuity.record_damage()

    def _write_transaction(self, file: str, bundle: PortableEventGroup, writer: BinlogWriter) -> None:
        """Write one transaction to the copy; a malformed one becomes a finding instead."""
        try:
            writer.write_transaction(bundle)
        except MalformedError as error:
            text = f"{bundle.type}: {error.args[0]}"
            self._record_finding(
                file, make_finding(error.finding_id, bundle.offset, bundle.size, text, record=bundle.record)
            )
            return
        before = self.group_digest.bundles
        self.group_digest.add_transaction(bundle)
        self.written_groups[file] += self.group_digest.bundles - before

    def _count_excluded_transaction(self, event_group: PortableEventGroup, writer: BinlogWriter) -> None:
        """Count an unselected transaction; before the first selected one, also add it to the writer's GTID state."""
        self.excluded_groups += 1
        if event_group.txn is not None and not self.group_digest.bundles:
            record_newest_gtid(writer.state, *parse_mariadb_gtid(event_group.txn))

    # -- the proof -----------------------------------------------------------------------------------------------------

    def _compare_read_back_transactions(self, writer: BinlogWriter) -> Iterator[ManifestCheck]:
        """Yield the manifest checks that the copied transactions passed when they were read back and verified.

        Raises:
            InputOutputError: they do not contain the transactions that were read.
        """
        paths, digest_back = [str(writer.folder / one.name) for one in writer.written], TransactionDigest()
        with open_log(paths, replace(self.request.read_options("mysql-binlog"), hints=None), LogReader) as log:
            for part in log.event_groups(Selection(on_damage="stop")):
                content = part.finding if isinstance(part, FileFinding) else part.part
                if isinstance(content, Finding):
                    raise InputOutputError(f"{part.file}: read back: {content.message}")
                if isinstance(content, PortableEventGroup):
                    digest_back.add_transaction(content)
        if digest_back != self.group_digest:
            text = f"{digest_back.bundles:,} groups of {digest_back.events:,} events"
            raise InputOutputError(
                f"{text} were read back, but {self.group_digest.bundles:,} of {self.group_digest.events:,} were read"
            )
        excluded = f"; excluded by the selection: {self.excluded_groups:,}" if self.excluded_groups else ""
        yield ManifestCheck(
            "groups-in-equal-groups-out",
            f"{self.group_digest.bundles:,} read, {digest_back.bundles:,} read back{excluded}",
        )
        yield ManifestCheck("gtids-in-equal-gtids-out", ", ".join(self.group_digest.list_gtids()) or "none")
        yield ManifestCheck(
            "event-bodies-equal", f"sha256 {digest_back.sha256} of {digest_back.events:,} events; {CHANGED_FIELDS}"
        )
        yield self._verify_output(writer)

    def _verify_output(self, writer: BinlogWriter) -> ManifestCheck:
        """Verify the new log like any other log; copied faults of the old log are reported again."""
        counts = Counter[Severity]()
        options = replace(self.request.read_options("mysql-binlog"), hints=None)
        for path, finding_ in self._iter_verify_findings([writer.folder], options):
            counts[finding_.severity] += 1
            if finding_.severity is not Severity.NOTE:
                is_rule_break = finding_.severity is Severity.ERROR and not self.allow_rule_breaks
                self.finding_tally.add(os.path.basename(path), finding_to_value(finding_), damage=is_rule_break)
        words = (f"{severity.label}s {counts[severity]}" for severity in sorted(Severity, reverse=True))
        return ManifestCheck("verified", ", ".join(words))

    def _build_manifest(
        self, inputs: list[ManifestInput], writer: BinlogWriter, checks: tuple[ManifestCheck, ...]
    ) -> Manifest:
        ranges = self.group_digest.list_gtids()
        details = {
            "gtids": ranges[:_MAX_LISTED_GTIDS],
            "gtids_left_out": self.continuity.list_lost_transactions()[:_MAX_LISTED_GTIDS],
            "server_version": writer.server_version,
            "changed": CHANGED_FIELDS,
        }
        if self.finding_tally.stops_conversion(self.request.selection):
            details["stopped_by"] = "result" if checks else "input"
        return self.finding_tally.build_manifest(
            self.request.selection,
            inputs=tuple(replace(i, records=self.written_groups[i.path]) for i in inputs),
            outputs=tuple(ManifestOutput(one.name, one.bundles, one.size) for one in writer.written),
            rows=self.group_digest.bundles,
            checks=checks,
            details=details,
        )


def check_selects_whole_transactions(selection: Selection) -> None:
    """Check that a selection selects whole transactions, as a log requires.

    Raises:
        UsageError: the selection selects single events, or the last ones.
    """
    event_options = [name.rstrip("s").replace("_", "-") for name in _EVENT_FILTERS if getattr(selection, name)]
    if event_options:
        raise UsageError(f"--{event_options[0]} selects single events, but a log consists of whole transactions")
    if selection.tail is not None:
        raise UsageError("--tail cannot be used for a log; use --start-position")
    refuse_salvage(selection, "a log")
    refuse_where(selection, "a log")


def order_log_files(inputs: list[ManifestInput]) -> list[ManifestInput]:
    """Return the files of one log in the log's order.

    Raises:
        UsageError: they have different formats or directories, or the format has no transactions to copy.
    """
    if len({i.format for i in inputs}) > 1:
        raise UsageError("the inputs have different formats; name the files of one log")
    format_ = open_file_module.find_format(inputs[0].format)
    if format_.reading.event_groups is None:
        raise UsageError(f"the records of {format_.name} are not events of a server's binary log")
    folders = {os.path.dirname(os.path.abspath(i.path)) for i in inputs}
    if len(folders) > 1:
        raise UsageError("the inputs are in different directories; name the files of one log")
    by_name = {os.path.basename(i.path): i for i in inputs}
    order = format_.files.sort_names or sorted
    return [by_name[name] for name in order(list(by_name))]
