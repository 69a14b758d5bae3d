"""Prediction of a server start with this index, these logs and this state.

Both servers open the last file that the index lists. MySQL needs only its magic. MariaDB also needs its
FORMAT_DESCRIPTION; after a crash it also needs every file from the last BINLOG_CHECKPOINT on
(`TC_LOG_BINLOG::recover`), and after a clean shutdown a state file that it can parse
(`MYSQL_BIN_LOG::read_state_from_file`). Source: docs/spec/mysql_binlog.md#transactions-and-truncation.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.replay_rules import DANGLING_LINK, FILE_LINK, ExaminedFile, ReplaySituation, ReplayStop
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.gtid.gtid_events import find_impossible_interval, read_previous_gtids
from binlogtool.formats.binlog_events.wire_format import (
    CHECKSUM_SIZE,
    ENCRYPTED_MAGIC,
    FLAGS_AT,
    HEADER_SIZE,
    MAGIC,
    TYPE_AT,
    ChecksumAlgorithm,
    EventFlag,
    EventType,
    parse_version_numbers,
    read_event_size,
)
from binlogtool.formats.innodb.pages_after_redo import UnknownPageError
from binlogtool.formats.innodb.prepared_transactions import PreparedTransactions, read_prepared_transactions
from binlogtool.formats.mysql_binlog.index_and_state_files import (
    MAX_INDEX_BYTES,
    ServerIndexNames,
    TextFileContext,
    TextFileKind,
    parse_log_name,
    read_index_like_server,
    to_printable,
)
from binlogtool.formats.mysql_binlog.replay.crash_recovery import (
    RecoveryExtent,
    find_recovery_fault,
    is_decoded_by_mysql,
    read_newest_log_for_recovery,
)
from binlogtool.formats.mysql_binlog.replay.logs_to_apply import ReplayedLog, get_base_name

_MAX_LOG_NUMBER = 0x7FFFFFFF
"""`MAX_LOG_UNIQUE_FN_EXT`: the highest number of a log."""

_DESCRIPTION_FIXED_SIZE = 57
"""Size of FORMAT_DESCRIPTION after the event header, up to and including the header length, in bytes."""
_MAX_HEAD_EVENTS = 100
"""Most events between FORMAT_DESCRIPTION and PREVIOUS_GTIDS that are looked at."""
_MYSQL_EVENTS = frozenset(one for one in EventType if one < EventType.ANNOTATE_ROWS)
_OLD_HEADER_SIZE = 13
"""Size of an event header of version 1."""
_ENGINE_FILES = ("ibdata1", "mysql.ibd", "aria_log_control")
_ROCKSDB_FOLDER = b"#rocksdb"
_MAX_LISTED = 20
"""Maximum number of XIDs in a message."""
_STATE_NUMBER = rb"[ \t\v\f\r\xa0]*\+?([0-9]+)"
"""A number after white space of latin1 (`my_strtoll10`)."""
_STATE_LINE = re.compile(rb"-".join((_STATE_NUMBER,) * 3))
_MAX_STATE_LINE = 43
"""Bytes that MariaDB reads of a state file at once (`rpl_binlog_state::read_from_iocache`)."""
_MAX_STATE_BYTES = 4 << 20
_DECIDES_BY_CHECKPOINT_SINCE = (10, 6, 0)
"""Version of MariaDB whose recovery decides on prepared transactions only after a BINLOG_CHECKPOINT."""
_NOT_CHECKED = "not checked: "


class ManualStep(NamedTuple):
    """A step that the user must do by hand; `command`: for a POSIX shell, or None."""

    what: str
    command: str | None


class StartPrediction(msgspec.Struct, frozen=True):
    """Prediction of a server start, without crash recovery.

    `starts`: None if it cannot be determined. `blocker`: the fault at which the server stops. `unchecked`: why the
    prediction is uncertain. `remedy`: manual steps that make the server start where no repair plan does.
    `skips_newest`: it does not read the newest log, which was not closed. `counts_newest`: it counts its GTIDs.
    """

    starts: bool | None
    blocker: ReplayStop | None = None
    findings: tuple[tuple[str, Finding], ...] = ()
    unchecked: tuple[str, ...] = ()
    remedy: tuple[ManualStep, ...] = ()
    skips_newest: bool = False
    counts_newest: bool = True

    @property
    def report_details(self) -> Mapping[str, Any]:
        """The prediction for the report."""
        result: dict[str, Any] = {"starts": self.starts}
        if self.blocker is not None:
            result |= {"file": self.blocker.file, "offset": self.blocker.offset, "why": self.blocker.why}
        result |= {"not_checked": list(self.unchecked)} if self.unchecked else {}
        return result | ({"remedy": [step._asdict() for step in self.remedy]} if self.remedy else {})


class _ServerDirectory(msgspec.Struct, frozen=True):
    """A server's log in its directory.

    `index`: name of the index; None if there is none. `listed`: the names that the server reads from it. `is_mysql`:
    None if no log shows which server wrote it. `is_own`: at least one line names this directory, so names are resolved
    as written; otherwise the directory may be a copy.
    """

    situation: ReplaySituation
    logs: Sequence[ReplayedLog]
    folder: str
    base: str
    index: str | None
    listed: ServerIndexNames
    is_mysql: bool | None
    is_own: bool = False

    def resolve_path(self, name: bytes) -> str:
        """Return the path of a relative name in the index."""
        return os.path.join(self.folder, os.fsdecode(name))

    def has_file(self, name: bytes) -> bool:
        """Return whether a file of this name exists; in a copy only the last part of an absolute path is compared."""
        return os.path.exists(self.resolve_path(name if self.is_own or not name.startswith(b"/") else _base_name(name)))

    def find_log(self, name: bytes) -> ReplayedLog | None:
        """Return the log file of this name; None if it was not examined."""
        wanted_name = os.fsdecode(_base_name(name))
        return next((one for one in self.logs if get_base_name(one.file.name) == wanted_name), None)

    def read_newest_for_recovery(self, newest: ReplayedLog) -> RecoveryExtent:
        """Return how far crash recovery reads the newest log."""
        read_sibling = self.situation.read_sibling
        return read_newest_log_for_recovery(
            newest, None if read_sibling is None else read_sibling(get_base_name(newest.file.name))
        )

    def read_bytes(self, name: bytes, offset: int, size: int) -> bytes | None:
        """Return bytes of a listed file; None if it does not exist."""
        return _read_directory_file(self.situation, os.fsdecode(_base_name(name)), offset, size)


def _read_directory_file(situation: ReplaySituation, name: str, offset: int, size: int) -> bytes | None:
    """Return bytes of a file of the directory; None if it cannot be read."""
    read_range = None if situation.read_sibling is None else situation.read_sibling(name)
    try:
        return None if read_range is None else read_range(offset, size)
    except OSError:
        return None


def predict_server_start(situation: ReplaySituation, logs: Sequence[ReplayedLog]) -> StartPrediction | None:
    """Predict the start of a server with a whole directory; None if this is not the directory of a server's own log."""
    server = _find_server_directory(situation, logs)
    if server is None:
        return None
    if server.index is not None and os.path.isdir(server.resolve_path(os.fsencode(server.index))):
        step = _make_move_away_step(server, server.index, "the server creates a new index")
        return _make_refusal(server.index, None, "the index is a directory: the server stops (Is a directory)", step)
    if server.index is not None and (prediction := _predict_linked_index(server, server.index)) is not None:
        return prediction
    newest = server.logs[-1] if server.logs else None
    if server.index is None or not server.listed.names:
        return _predict_without_index(server, newest)
    prediction = _predict_startup_refusal(server, server.listed.names[-1])
    if prediction is None:
        prediction = _predict_start_with_index(server, newest)
    caveat = None if server.is_own else _explain_foreign_folder(server, server.listed.names[-1])
    return (
        prediction
        if caveat is None or prediction.unchecked
        else msgspec.structs.replace(prediction, unchecked=(caveat,))
    )


def _predict_linked_index(server: _ServerDirectory, index: str) -> StartPrediction | None:
    """Return the prediction for an index that is a link; None for a file, and where the server creates the index."""
    kind = server.situation.other_entries.get(index)
    if kind == FILE_LINK:
        return StartPrediction(None, None, (), (f"not checked: {index} is a link, which is not followed",))
    target = os.path.realpath(server.resolve_path(os.fsencode(index)))
    if kind != DANGLING_LINK or os.path.isdir(os.path.dirname(target)):
        return None
    message = f"the index is a link to {target}, whose directory does not exist: the server cannot open it, and stops"
    return _make_refusal(index, None, message, ManualStep(f"restore {target}, or the link {index}", None))


def _find_server_directory(situation: ReplaySituation, logs: Sequence[ReplayedLog]) -> _ServerDirectory | None:
    """Return the server's log in a directory; None if the directory has no server's log."""
    relay_logs = sum(one.is_relay for one in logs)
    if not situation.is_directory or not situation.files or (relay_logs and 2 * relay_logs >= len(logs)):
        return None
    indexes = [one for one in situation.files if _is_index_file(one)]
    parsed = parse_log_name(logs[0].file.name) if logs else None
    base = (
        parsed.base
        if parsed is not None
        else get_base_name(indexes[0].name).removesuffix(".index")
        if indexes
        else None
    )
    if base is None:
        return None
    first_file = logs[0].file if logs else indexes[0]
    folder = os.path.dirname(first_file.path)
    index = _find_index_name(indexes, folder, base)
    if index is None and not _is_data_directory(folder):
        return None  # a copy of logs, not a server's directory
    facts = [one.facts for one in logs if one.facts is not None and one.facts.server_version]
    is_mysql = (
        2 * sum(not one.is_mariadb for one in facts) > len(facts) if facts else None
    )  # one FORMAT_DESCRIPTION may be damaged
    data = b"" if index is None else _read_directory_file(situation, index, 0, MAX_INDEX_BYTES) or b""
    listed = read_index_like_server(data, is_mysql=bool(is_mysql))
    is_own = any(_is_in(folder, name) for name in listed.names)
    return _ServerDirectory(situation, logs, folder, base, index, listed, is_mysql, is_own)


def _is_data_directory(folder: str) -> bool:
    """Return whether a folder is a data directory, and not a copy of logs."""
    return any(os.path.exists(os.path.join(folder, name)) for name in _ENGINE_FILES)


def _is_index_file(file: ExaminedFile) -> bool:
    context = None if file.layout is None else file.layout.context
    return isinstance(context, TextFileContext) and context.kind is TextFileKind.INDEX


def _find_index_name(indexes: Sequence[ExaminedFile], folder: str, base: str) -> str | None:
    """Return the index of a log: the one with the same base name, else an index that lists it; None without either."""
    expected_name = f"{base}.index"
    if os.path.lexists(os.path.join(folder, expected_name)):
        return expected_name
    listing_names = (one for one in indexes if one.layout is not None and base in one.layout.context.listings)
    return next((get_base_name(one.name) for one in listing_names), None)


def _base_name(name: bytes) -> bytes:
    """Return the last part of a path."""
    return name[name.rfind(b"/") + 1 :]


# -- opened files ------------------------------------------------------------------------------------------------------


def _predict_startup_refusal(server: _ServerDirectory, opened_log_name: bytes) -> StartPrediction | None:
    """Return the prediction if something prevents the server from starting, or may prevent it; None otherwise.

    `opened_log_name`: the log that the server opens.
    """
    assert server.index is not None
    if server.is_mysql and not opened_log_name:
        return None
    caveat = _explain_foreign_folder(server, opened_log_name)
    is_absolute = opened_log_name.startswith(b"/")
    if not (server.has_file(opened_log_name) and (caveat is None or is_absolute)):
        message = (
            f"the last line names {_format_name(opened_log_name)}, which does not exist: the server opens it first, "
            "and stops"
        )
        if caveat is not None and is_absolute and not server.is_own:
            return StartPrediction(
                None, None, (), (f"{caveat}; {_format_name(opened_log_name)} is not in this directory",)
            )
        return _make_refusal(server.index, None, message, _make_unlist_step(server, opened_log_name))
    if caveat is not None and server.is_own:
        return StartPrediction(
            None, None, (), (f"not checked: {_format_name(opened_log_name)} is outside of this directory",)
        )
    if os.path.islink(server.resolve_path(_base_name(opened_log_name))):
        return StartPrediction(
            None, None, (), (f"not checked: {_format_name(opened_log_name)} is a link, which is not followed",)
        )
    reason = _explain_open_failure(server, opened_log_name)
    remedy = (
        _make_move_away_step(server, _get_report_name(server, opened_log_name), "the server cannot open it"),
        _make_unlist_step(server, opened_log_name),
    )
    if reason is not None:
        return _make_refusal(_get_report_name(server, opened_log_name), 0, reason, *remedy)
    if _find_highest_log_number(server) >= _MAX_LOG_NUMBER:
        return _make_refusal(
            server.index, None, f"no number is left: {_MAX_LOG_NUMBER} is the highest that a log can have"
        )
    if caveat is not None and _is_data_directory(server.folder):
        return StartPrediction(None, None, (), (caveat,))
    header = server.read_bytes(opened_log_name, len(MAGIC), HEADER_SIZE) or b""
    in_use = len(header) == HEADER_SIZE and bool(header[FLAGS_AT] & EventFlag.BINLOG_IN_USE)
    opened_log = server.find_log(opened_log_name)
    if in_use and opened_log is not None and opened_log.is_relay:
        message = (
            f"not checked: {_format_name(_base_name(opened_log_name))} begins as a relay log, the other logs here do "
            "not"
        )
        return StartPrediction(None, None, (), (message,))
    if server.is_mysql is None:
        return StartPrediction(None, None, (), ("not checked: no log here shows which server wrote it",))
    if server.is_mysql:
        fault = _predict_recovery_sequence_refusal(server, opened_log) if in_use and opened_log is not None else None
        return fault or _predict_previous_gtids_refusal(server)
    reason = _explain_unaccepted_description(server, opened_log_name)
    if reason is not None:
        return _make_refusal(_get_report_name(server, opened_log_name), len(MAGIC), reason, *remedy)
    if not in_use:
        state = _predict_start_from_state_file(server)
        return _predict_unrecovered_refusal(server, opened_log_name) if state is None or state.starts else state
    if opened_log is None:
        message = (
            f"not checked: {_format_name(_base_name(opened_log_name))} was not closed, and its events cannot be read "
            "here; "
        )
        return StartPrediction(None, None, (), (f"{message}MariaDB reads them as crash recovery",), remedy)
    return _predict_recovery_start(server, opened_log)


def _make_refusal(name: str, offset: int | None, reason: str, *remedy: ManualStep) -> StartPrediction:
    """Return the prediction that the server refuses to start."""
    return StartPrediction(False, ReplayStop(name, offset, reason), remedy=remedy)


def _make_move_away_step(server: _ServerDirectory, name: str, reason: str) -> ManualStep:
    """Return the step that moves a file away."""
    path = server.resolve_path(os.fsencode(name))
    return ManualStep(f"move {get_base_name(name)} away: {reason}", shlex.join(("mv", "--", path, f"{path}.aside")))


def _make_unlist_step(server: _ServerDirectory, name: bytes) -> ManualStep:
    """Return the step that removes the last lines naming a file from the index."""
    pattern = re.sub(r"[][\\.*^$/]", r"\\\g<0>", os.fsdecode(_base_name(name)))
    path = server.resolve_path(os.fsencode(server.index or ""))
    command = shlex.join(("sed", "-i", f"/{pattern}\\r*$/d", path))
    return ManualStep("remove its line from the index; its transactions are then missing from the log", command)


def _get_report_name(server: _ServerDirectory, name: bytes) -> str:
    """Return the name of a listed file as it is shown in the report."""
    log = server.find_log(name)
    return os.fsdecode(_base_name(name)) if log is None else log.file.name


def _format_name(name: bytes) -> str:
    """Return a name for messages, quoted if necessary."""
    return repr(to_printable(name)) if name.strip() != name or not name.isascii() or not name else to_printable(name)


def _explain_foreign_folder(server: _ServerDirectory, name: bytes) -> str | None:
    """Return a caveat if the index names another directory, so that its files may be elsewhere."""
    if _is_in(server.folder, name):
        return None
    folder = to_printable(_get_folder(name))
    return f"not checked: the index names files in {folder}, and this directory is {server.folder or '.'}"


def _get_folder(name: bytes) -> bytes:
    """Return the folder of a path."""
    return name[: name.rfind(b"/")] or b"/" if b"/" in name else b"."


def _is_in(folder: str, name: bytes) -> bool:
    """Return whether the index names a file of this directory."""
    return os.path.realpath(os.path.join(folder, os.fsdecode(_get_folder(name)))) == os.path.realpath(folder or ".")


def _find_highest_log_number(server: _ServerDirectory) -> int:
    """Return the highest log number in the index and the directory."""
    names = [*(one.file.name for one in server.logs), *map(os.fsdecode, server.listed.names[-1:])]
    return max((parsed.number for name in names if (parsed := parse_log_name(name)) is not None), default=0)


def _explain_open_failure(server: _ServerDirectory, name: bytes) -> str | None:
    """Return why a file cannot be opened as a log (both servers require its magic number); None if it can."""
    if os.path.isdir(server.resolve_path(_base_name(name))):
        return "it is a directory: the server cannot read it"
    head = server.read_bytes(name, 0, len(MAGIC))
    if head is None:
        return None
    if len(head) < len(MAGIC):
        return f"the file has {len(head)} bytes, no magic number: the server opens it when it starts, and stops"
    if head != MAGIC and (head != ENCRYPTED_MAGIC or server.is_mysql is False):
        return "bad magic number: the server stops (It's not a binary log file that can be used by this version)"
    return None


def _predict_recovery_sequence_refusal(server: _ServerDirectory, newest: ReplayedLog) -> StartPrediction | None:
    """Return the prediction if MySQL's recovery stops in a log whose FORMAT_DESCRIPTION no validator accepts."""
    read_sibling = server.situation.read_sibling
    read_range = None if read_sibling is None else read_sibling(get_base_name(newest.file.name))
    fault = None if newest.facts is not None or read_range is None else find_recovery_fault(newest, read_range)
    return None if fault is None else _make_refusal(newest.file.name, *fault)


def _predict_previous_gtids_refusal(server: _ServerDirectory) -> StartPrediction | None:
    """Return the prediction if MySQL cannot decode the first PREVIOUS_GTIDS of its first log, or any of its last one.

    MySQL reads the event without verifying its checksum, and stops at an invalid set (`Gtid_set::add_gtid_encoding`).
    """
    for name in (server.listed.names[-1], server.listed.names[0]):
        log = server.find_log(name)
        start = server.read_bytes(name, 0, len(MAGIC) + HEADER_SIZE) or b""
        if log is None or len(start) < len(MAGIC) + HEADER_SIZE:
            continue
        at = len(MAGIC) + read_event_size(start, len(MAGIC))
        offset = _find_gtid_before_previous_gtids(server, name, log, at)
        if offset is not None:
            message = (
                f"{_format_name(_base_name(name))} has a GTID before PREVIOUS_GTIDS: MySQL reads it at "
                f"its start, and stops"
            )
            return _make_refusal(_get_report_name(server, name), offset, message, _make_unlist_step(server, name))
        errors = {one.offset for one in log.file.findings if one.severity is Severity.ERROR}
        offsets = sorted({at, *(one for one in errors if one is not None and one > at)})
        for place in offsets if name == server.listed.names[-1] else offsets[:1]:
            refusal = _predict_gtid_set_refusal(server, name, log, place)
            if refusal is not None and (place == at or _is_read_at_start(server, name, log, place)):
                return refusal
    return None


def _predict_gtid_set_refusal(
    server: _ServerDirectory, name: bytes, log: ReplayedLog, at: int
) -> StartPrediction | None:
    """Return the prediction if the event at an offset is a PREVIOUS_GTIDS that MySQL cannot decode."""
    header = server.read_bytes(name, at, HEADER_SIZE) or b""
    if len(header) < HEADER_SIZE or header[TYPE_AT] != EventType.PREVIOUS_GTIDS:
        return None
    size = read_event_size(header)
    rest = server.read_bytes(name, at + HEADER_SIZE, max(0, size - HEADER_SIZE)) or b""
    if HEADER_SIZE + len(rest) < size:  # the file ends in it: MySQL finds no event
        return None
    has_checksums = log.facts is None or log.facts.checksum != ChecksumAlgorithm.NONE.name
    if _is_decodable_gtid_set(rest[:-CHECKSUM_SIZE] if has_checksums else rest):
        return None
    message = (
        f"the set in PREVIOUS_GTIDS of {_format_name(_base_name(name))} cannot be decoded: MySQL reads "
        f"it at its start, and stops"
    )
    remedy = (
        _make_move_away_step(server, _get_report_name(server, name), "MySQL cannot read its set of GTIDs"),
        _make_unlist_step(server, name),
    )
    return _make_refusal(_get_report_name(server, name), at, message, *remedy)


def _is_read_at_start(server: _ServerDirectory, name: bytes, newest: ReplayedLog, at: int) -> bool:
    """Return whether MySQL reads an offset of the newest log: all of it, after a crash what recovery leaves."""
    extent = server.read_newest_for_recovery(newest)
    end = extent.end if extent.uncertain_from is None else min(extent.end, extent.uncertain_from + 1)
    return at < end and not (newest.in_use and _is_in_last_transaction(server, name, at, extent.end))


def _is_in_last_transaction(server: _ServerDirectory, name: bytes, at: int, end: int) -> bool:
    """Return whether an offset of a log is inside its last transaction, which has no commit before `end`."""
    event_at, started_at = len(MAGIC), None
    while event_at < end:
        header = server.read_bytes(name, event_at, HEADER_SIZE) or b""
        if len(header) < HEADER_SIZE or read_event_size(header) < HEADER_SIZE:
            break
        if header[TYPE_AT] in (EventType.GTID_LOG, EventType.GTID_TAGGED_LOG, EventType.ANONYMOUS_GTID):
            started_at = event_at
        elif header[TYPE_AT] == EventType.XID:
            started_at = None
        event_at += read_event_size(header)
    return started_at is not None and started_at < at


def _find_gtid_before_previous_gtids(server: _ServerDirectory, name: bytes, log: ReplayedLog, at: int) -> int | None:
    """Return the offset of a GTID before PREVIOUS_GTIDS; None if there is none (`read_gtids_from_binlog`)."""
    for _ in range(_MAX_HEAD_EVENTS):
        header = server.read_bytes(name, at, HEADER_SIZE) or b""
        if len(header) < HEADER_SIZE or header[TYPE_AT] == EventType.PREVIOUS_GTIDS:
            return None
        size = read_event_size(header)
        if header[TYPE_AT] not in _MYSQL_EVENTS or not HEADER_SIZE <= size <= log.file.size - at:
            return None  # the server cannot decode the event, and reads no further
        if not is_decoded_by_mysql(log, server.read_bytes(name, at, size) or b""):
            return None
        if header[TYPE_AT] in (EventType.GTID_LOG, EventType.GTID_TAGGED_LOG):
            return at
        at += size
    return None


def _is_decodable_gtid_set(body: bytes) -> bool:
    """Return whether MySQL can decode this GTID set: intervals must ascend; bytes after the last one are ignored."""
    try:
        return find_impossible_interval(read_previous_gtids(body)) is None
    except MalformedError:
        return False


def _explain_unaccepted_description(server: _ServerDirectory, name: bytes) -> str | None:
    """Return why MariaDB does not accept the first event as a FORMAT_DESCRIPTION.

    The server verifies neither its checksum nor its version (`Format_description_log_event::is_valid`).
    """
    header = server.read_bytes(name, len(MAGIC), HEADER_SIZE) or b""
    consequence = "MariaDB reads it when it starts, and stops (Found invalid event in binary log)"
    if len(header) < HEADER_SIZE:
        return f"the file ends inside its FORMAT_DESCRIPTION event: {consequence}"
    length = read_event_size(header)
    if header[TYPE_AT] != EventType.FORMAT_DESCRIPTION or length < HEADER_SIZE:
        return f"the first event is not a FORMAT_DESCRIPTION: {consequence}"
    if len(MAGIC) + length > os.path.getsize(server.resolve_path(_base_name(name))):
        return f"the file ends inside its FORMAT_DESCRIPTION event: {consequence}"
    body = server.read_bytes(name, len(MAGIC) + HEADER_SIZE, _DESCRIPTION_FIXED_SIZE) or b""
    if length < HEADER_SIZE + _DESCRIPTION_FIXED_SIZE or len(body) < _DESCRIPTION_FIXED_SIZE:
        return f"its FORMAT_DESCRIPTION event is too short: {consequence}"
    if not _has_readable_server_version(body[2:52]):
        return f"its FORMAT_DESCRIPTION names no server version: {consequence}"
    least = _OLD_HEADER_SIZE if body[:2] == b"\x01\0" else HEADER_SIZE
    if body[-1] < least:
        return f"its FORMAT_DESCRIPTION gives events headers of {body[-1]} bytes, fewer than {least}: {consequence}"
    return None


def _has_readable_server_version(text: bytes) -> bool:
    """Return whether MariaDB reads a version from the text: three numbers, not all 0 (`server_version_split`)."""
    rest = text.partition(b"\0")[0]
    numbers = []
    for place in range(3):
        match = re.match(rb"\s*([0-9]+)", rest)
        number = 0 if match is None else int(match[1])
        rest = rest if match is None else rest[match.end() :]
        if number > 255 or not (place or rest.startswith(b".")):
            return False
        numbers.append(number)
        rest = rest.removeprefix(b".")
    return any(numbers)


# -- MariaDB -----------------------------------------------------------------------------------------------------------


def _predict_recovery_start(server: _ServerDirectory, newest: ReplayedLog) -> StartPrediction | None:
    """Return the prediction for a start after a crash: recovery reads the files from the last BINLOG_CHECKPOINT on."""
    extent = server.read_newest_for_recovery(newest)
    predictions = [_predict_from_recovery_files(server, newest, mark) for mark in extent.last_checkpoints]
    refusals = [one for one in predictions if one is not None]
    if not refusals or len(refusals) == len(predictions):
        return refusals[0] if refusals else None
    blocker = refusals[0].blocker
    reason = refusals[0].unchecked[0].removeprefix(_NOT_CHECKED) if blocker is None else blocker.why
    caveat = f"{_NOT_CHECKED}MariaDB may or may not decode the damaged event at {extent.uncertain_from:#x} of "
    caveat += f"{get_base_name(newest.file.name)}, and if it does not: {reason}"
    return StartPrediction(None, None, (), (caveat,), refusals[0].remedy)


def _predict_from_recovery_files(
    server: _ServerDirectory, newest: ReplayedLog, checkpoint_name: str | None
) -> StartPrediction | None:
    """Return the prediction if recovery cannot read the files from a BINLOG_CHECKPOINT on.

    The checkpoint's file name is resolved in the folder of the newest file's name, and then looked up in the index.
    """
    assert server.index is not None
    if checkpoint_name is None:
        return _predict_without_checkpoint(server, newest)
    names = server.listed.names
    expected_name = names[-1][: names[-1].rfind(b"/") + 1] + os.fsencode(checkpoint_name)
    cause = (
        f"BINLOG_CHECKPOINT in {get_base_name(newest.file.name)} names {_format_name(os.fsencode(checkpoint_name))}: "
    )
    cause += "crash recovery reads from there"
    steps = _make_manual_recovery_steps(server)
    if expected_name not in names:
        return _make_refusal(
            server.index, None, f"{cause}, but the index does not list it as {_format_name(expected_name)}", *steps
        )
    for name in names[names.index(expected_name) : names.index(names[-1])]:
        if not server.has_file(name):
            text = f"{cause}; the index lists {_format_name(name)}, which does not exist"
            return _make_refusal(server.index, None, text, *steps)
        reason = _explain_open_failure(server, name)
        if reason is not None:
            return _make_refusal(_get_report_name(server, name), 0, f"{reason}; {cause}", *steps)
    return None


def _predict_without_checkpoint(server: _ServerDirectory, newest: ReplayedLog) -> StartPrediction | None:
    """Return the prediction if recovery reads no BINLOG_CHECKPOINT: since 10.6 it then decides on no transaction.

    MariaDB 10.11 and 11.8 stop if InnoDB holds prepared transactions, although they log the end of recovery.
    """
    version = parse_version_numbers("" if newest.facts is None else newest.facts.server_version)
    if (0, 0, 0) < version < _DECIDES_BY_CHECKPOINT_SINCE:
        return None
    reason = f"recovery reads no BINLOG_CHECKPOINT in {get_base_name(newest.file.name)}"
    steps = _make_manual_recovery_steps(server)
    try:
        prepared = _read_prepared_transactions(server)
    except UnknownPageError as error:
        return StartPrediction(
            None, None, (), (f"{_NOT_CHECKED}{_explain_unknown_engine_state(reason, error)}",), steps
        )
    return _make_prepared_transactions_refusal(newest.file.name, reason, prepared.own, steps) if prepared.own else None


def _predict_unrecovered_refusal(server: _ServerDirectory, name: bytes) -> StartPrediction | None:
    """Return the prediction if InnoDB holds prepared transactions, but the opened log has no in-use flag.

    MariaDB clears the flag when nothing is prepared any more; so the flag was damaged, or the log was copied.
    """
    newest, opened_log = server.logs[-1] if server.logs else None, server.find_log(name)
    prepared = _find_prepared_transactions(server)
    if not prepared or (newest is not None and newest.in_use):
        return None
    member = _get_report_name(server, name)
    steps = _make_manual_recovery_steps(server)
    if opened_log is newest:
        steps = (_set_in_use_step(server, name),)
    reason = f"{get_base_name(member)} has no in-use flag, so there is no crash recovery"
    return _make_prepared_transactions_refusal(member, reason, prepared, steps)


def _set_in_use_step(server: _ServerDirectory, name: bytes) -> ManualStep:
    """Return the step that sets the in-use flag of the newest log, so that the server recovers."""
    path = shlex.quote(server.resolve_path(_base_name(name)))
    command = f"printf '\\001' | dd of={path} bs=1 seek={len(MAGIC) + FLAGS_AT} conv=notrunc"
    what = "set the in-use flag of the newest log again: the server then decides on prepared transactions by the log"
    return ManualStep(what, command)


def _make_manual_recovery_steps(server: _ServerDirectory) -> tuple[ManualStep, ...]:
    """Return the manual procedure that MariaDB offers if its recovery cannot read the log (observed on 10.11)."""
    folder, index = server.folder or ".", server.index or ""
    target = os.path.join(folder, f"{server.base}.aside")
    logs = f"{shlex.quote(os.path.join(folder, server.base))}.[0-9]*"
    quoted_target = shlex.quote(target)
    move = f"mkdir -- {quoted_target} && mv -- {logs} {shlex.quote(os.path.join(folder, index))} {quoted_target}/"
    command = f"mariadbd --datadir={shlex.quote(os.path.abspath(folder))} --tc-heuristic-recover=rollback"
    return (
        ManualStep("restore the missing file from a backup; if there is no backup, move the whole log away", move),
        ManualStep(
            "decide about prepared transactions: run once with the server's usual options (it exits by itself)", command
        ),
    )


def _predict_start_from_state_file(server: _ServerDirectory) -> StartPrediction | None:
    """Return the prediction for a start after a clean shutdown from the state file; None if it is valid or absent."""
    name = f"{server.base}.state"
    data = server.read_bytes(os.fsencode(name), 0, _MAX_STATE_BYTES)
    if data is None:
        return None
    *lines, unfinished = _iter_state_lines(data)
    offset = 0
    for line in lines:
        if not _is_state_line(line):
            text = to_printable(line.removesuffix(b"\n"))
            message = f"not a GTID (domain-server-number): {text!r}: MariaDB stops (Error reading binlog GTID state)"
            return _make_refusal(
                name, offset, message, _make_move_away_step(server, name, "MariaDB reads the newest log instead")
            )
        offset += len(line)
    if _is_state_line(unfinished):
        message = "the last line has no line feed: MariaDB ignores it, and reuses GTID sequence numbers"
        loss = make_finding(
            "silent-loss", offset, len(unfinished), message, situation="start", gtid=to_printable(unfinished)
        )
        return StartPrediction(True, None, ((name, loss),))
    return None


def _iter_state_lines(data: bytes) -> Iterator[bytes]:
    """Yield the lines of a state file with their line feeds, long ones in pieces; the last one is unfinished."""
    for line in data.split(b"\n")[:-1]:
        for at in range(0, len(line) + 1, _MAX_STATE_LINE):
            yield (line + b"\n")[at : at + _MAX_STATE_LINE]
    rest = data[data.rfind(b"\n") + 1 :]
    whole = len(rest) // _MAX_STATE_LINE * _MAX_STATE_LINE
    yield from (rest[at : at + _MAX_STATE_LINE] for at in range(0, whole, _MAX_STATE_LINE))
    yield rest[whole:]


def _is_state_line(line: bytes) -> bool:
    """Return whether a line begins with a GTID, like `gtid_parser_helper`; the rest of the line is ignored."""
    match = _STATE_LINE.match(line)
    if match is None:
        return False
    domain, server, number = (int(part) for part in match.groups())
    return domain < 1 << 32 and server < 1 << 32 and number < 1 << 64


# -- skipped files -----------------------------------------------------------------------------------------------------


def _predict_without_index(server: _ServerDirectory, newest: ReplayedLog | None) -> StartPrediction | None:
    """Return the prediction for a server that has no index and creates a new one."""
    if newest is None:
        return None
    name = server.index or f"{server.base}.index"
    reason = "there is no index" if server.index is None else "the index lists nothing that the server reads"
    if newest.in_use:
        return _predict_start_without_recovery(
            server, newest, f"{reason}: {get_base_name(newest.file.name)} was not closed, and is not read"
        )
    prepared = () if server.is_mysql is not False else _find_prepared_transactions(server)
    if prepared:
        return _make_prepared_transactions_refusal(
            name, reason, prepared, _make_create_index_step(server) or _make_manual_recovery_steps(server)
        )
    message = (
        f"{reason}: the server creates a new index; it neither sends nor purges the {len(server.logs):,} files here"
    )
    mismatch = make_finding("meta-mismatch", None, 0, message, situation="start")
    return StartPrediction(
        True, None, ((name, mismatch), *_iter_missing_line_feed_finding(server)), remedy=_make_create_index_step(server)
    )


def _make_create_index_step(server: _ServerDirectory) -> tuple[ManualStep, ...]:
    """Return the step that creates the missing index."""
    if server.index is not None:
        return ()
    base = shlex.quote(server.base)
    command = f"(cd -- {shlex.quote(server.folder or '.')} && printf './%s\\n' {base}.[0-9]*[0-9] > {base}.index)"
    return (ManualStep("list the logs in a new index; give it the owner of the logs", command),)


def _predict_start_without_recovery(server: _ServerDirectory, newest: ReplayedLog, reason: str) -> StartPrediction:
    """Return the prediction for a start after a crash whose recovery does not read the newest file.

    MariaDB stops if an engine holds prepared transactions of its own, MySQL rolls them back (both observed).
    """
    name = get_base_name(newest.file.name)
    if server.is_mysql is not False:
        message = (
            f"{reason}: the server rolls back all prepared transactions of its engines, also those "
            f"that {name} has as committed"
        )
        loss = make_finding("silent-loss", None, 0, message, situation="start")
        findings = ((newest.file.name, loss), *_iter_missing_line_feed_finding(server))
        return StartPrediction(server.is_mysql, None, findings, skips_newest=True)
    steps = _make_create_index_step(server)
    findings = tuple(_iter_missing_line_feed_finding(server))
    try:
        prepared = _read_prepared_transactions(server)
    except UnknownPageError as error:
        unchecked = (_explain_unknown_engine_state(reason, error),)
        return StartPrediction(None, None, findings, unchecked, steps, skips_newest=True)
    if prepared.own:
        return _make_prepared_transactions_refusal(
            newest.file.name, reason, prepared.own, steps or _make_manual_recovery_steps(server)
        )
    message = f"{reason}: MariaDB starts, as InnoDB holds no prepared transactions of its own; it neither sends nor "
    mismatch = make_finding("meta-mismatch", None, 0, f"{message}purges {name}", situation="start")
    return StartPrediction(True, None, ((newest.file.name, mismatch), *findings), remedy=steps, skips_newest=True)


def _explain_unknown_engine_state(reason: str, error: UnknownPageError) -> str:
    """Return why the start is open if the prepared transactions of the engines cannot be read."""
    message = f"{reason}: MariaDB stops if an engine holds prepared transactions (Found N prepared transactions!); "
    return f"{message}whether one does cannot be determined: {error}"


def _make_prepared_transactions_refusal(
    name: str, reason: str, prepared: Sequence[int], steps: Sequence[ManualStep]
) -> StartPrediction:
    """Return the prediction that MariaDB stops at prepared transactions (XIDs) on which no log decides."""
    numbers = ", ".join(map(str, prepared[:_MAX_LISTED]))
    message = f"{reason}, and InnoDB holds prepared transactions (XID {numbers}): MariaDB stops (Found "
    return _make_refusal(name, None, f"{message}{len(prepared)} prepared transactions!)", *steps)


def _find_prepared_transactions(server: _ServerDirectory) -> tuple[int, ...]:
    """Return the XIDs that InnoDB holds as prepared although the log is closed; none if they cannot be read."""
    try:
        return _read_prepared_transactions(server).own
    except UnknownPageError:
        return ()


def _read_prepared_transactions(server: _ServerDirectory) -> PreparedTransactions:
    """Return the transactions that InnoDB holds as prepared.

    Raises:
        UnknownPageError: they cannot be determined, or another engine may hold some.
    """
    read_sibling = server.situation.read_sibling
    if read_sibling is None or os.path.exists(server.resolve_path(_ROCKSDB_FOLDER)):
        raise UnknownPageError("not all engines can be read")
    try:
        return read_prepared_transactions(read_sibling, os.path.getsize(server.resolve_path(b"ib_logfile0")))
    except OSError as error:
        raise UnknownPageError(f"the redo log (ib_logfile0) cannot be read: {error.strerror}") from None


def _predict_start_with_index(server: _ServerDirectory, newest: ReplayedLog | None) -> StartPrediction:
    """Return the prediction for a server that starts, with the logs that it ignores."""
    assert server.index is not None
    last = server.listed.names[-1]
    opened_log = server.find_log(last)
    is_closed = opened_log is None or not opened_log.in_use
    if newest is not None and newest.in_use and is_closed and opened_log is not newest:
        reason = f"the last line that the server reads in {server.index} names {_format_name(last)}"
        return _predict_start_without_recovery(
            server, newest, f"{reason}: {get_base_name(newest.file.name)} was not closed, and is not read"
        )
    state = _predict_start_from_state_file(server) if is_closed and server.is_mysql is False else None
    findings = () if state is None else state.findings
    uncounted = _make_blank_index_line_finding(server, opened_log)
    unrecovered = _check_lost_in_use_flag(server, opened_log) if opened_log is newest else ()
    result = (*_iter_missing_line_feed_finding(server), *findings, *uncounted, *unrecovered)
    steps = (_set_in_use_step(server, last),) if unrecovered else ()
    return StartPrediction(True, None, result, remedy=steps, counts_newest=not uncounted)


def _check_lost_in_use_flag(
    server: _ServerDirectory, opened_log: ReplayedLog | None
) -> tuple[tuple[str, Finding], ...]:
    """Return the finding about a log of MySQL that was not closed, but has no in-use flag.

    MySQL 9.7 rolled the prepared transactions back, and counted their GTIDs as executed.
    """
    if not server.is_mysql or opened_log is None:
        return ()
    message = "the log was not closed, but has no in-use flag: MySQL does not recover, and rolls back the transactions "
    message += "that its engines hold as prepared (not checked), also those that are committed here; their GTIDs count "
    message += "as executed"
    name, severity = opened_log.file.name, Severity.WARNING
    ends = (one.offset for one in opened_log.file.findings if one.facts.get("diagnosis") == "no-end")
    return tuple(
        (name, make_finding("silent-loss", at, 0, message, severity=severity, situation="start")) for at in ends
    )


def _make_blank_index_line_finding(
    server: _ServerDirectory, opened_log: ReplayedLog | None
) -> tuple[tuple[str, Finding], ...]:
    """Return the finding about a blank line after the names: MySQL counts no GTID of the newest log."""
    if not (server.is_mysql and server.listed.ends_blank and opened_log is not None and opened_log.in_use):
        return ()
    name = opened_log.file.name
    message = f"after the names in {server.index} there is a blank line: MySQL does not count the GTIDs in "
    message += f"{get_base_name(name)}, and assigns them again"
    return ((name, make_finding("silent-loss", None, 0, message, situation="start")),)


def _iter_missing_line_feed_finding(server: _ServerDirectory) -> Iterator[tuple[str, Finding]]:
    """Yield a finding if the last line has no line feed: the server would append the name of a new log to this line."""
    line = server.listed.unfinished_line.partition(b"\0")[0]
    if line.endswith(b"/") and _is_in(server.folder, line):
        return  # even with the appended name it is a path in this directory
    if (
        server.index is None
        or not server.listed.unfinished_line
        or not (line or not (server.is_mysql or server.listed.names))
    ):
        return
    message = f"the last line ({_format_name(server.listed.unfinished_line)}) has no line feed: the server ignores it, "
    message += "appends the name of the next log to it, and then cannot start any more"
    mismatch = make_finding("meta-mismatch", None, 0, message, situation="start", next_start="refuse")
    yield server.index, mismatch
