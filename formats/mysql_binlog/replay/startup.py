"""Prediction of a server start with this index, these logs and this state.

Both servers open the last file that the index lists. MySQL needs its magic; MariaDB its FORMAT_DESCRIPTION
as well and, after a crash, every file from the last BINLOG_CHECKPOINT on (`TC_LOG_BINLOG::recover`), after
a clean shutdown a state file that it can parse (`MYSQL_BIN_LOG::read_state_from_file`).
Source: docs/spec/mysql-mariadb-binlog.md#8-transactions-durability-truncation.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.binlog_events.codes import CHECKSUM_SIZE, ENCRYPTED_MAGIC, MAGIC, EventType
from binlogtool.formats.binlog_events.gtid.bodies import previous_gtids
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.mysql_binlog.members.index import MAX_TEXT, TextContext, TextKind
from binlogtool.formats.mysql_binlog.members.names import log_name, printable
from binlogtool.formats.mysql_binlog.members.server_list import ServerList, server_list
from binlogtool.formats.mysql_binlog.replay.recovery_reader import RecoveryRead, recovery_read
from binlogtool.formats.mysql_binlog.replay.replayed_logs import Binlog, base_name
from binlogtool.formats.replay_rules import Examined, Situation, Stop

_LAST_NUMBER = 0x7FFFFFFF
"""`MAX_LOG_UNIQUE_FN_EXT`: no log gets a higher number."""

_HEADER, _FIXED = 19, 57
"""Bytes of an event's header, and of FORMAT_DESCRIPTION behind it up to the length of headers."""
_UNDECODED = ("checksum-mismatch", "payload-undecodable")
_ENGINE_FILES = ("ibdata1", "mysql.ibd", "aria_log_control")
_STATE_LINE = re.compile(rb"[ \t]*([0-9]+)-([0-9]+)-([0-9]+)")
_MAX_STATE = 4 << 20


class Step(NamedTuple):
    """One thing to do by hand; `command`: for a POSIX shell."""

    what: str
    command: str


class Startup(msgspec.Struct, frozen=True):
    """Prediction of a server start, without crash recovery.

    `starts`: None if it cannot be determined. `blocker`: what the server stops at. `unchecked`: why the
    prediction is uncertain. `remedy`: what makes the server come up where no repair plan does.
    """

    starts: bool | None
    blocker: Stop | None = None
    findings: tuple[tuple[str, Finding], ...] = ()
    unchecked: tuple[str, ...] = ()
    remedy: tuple[Step, ...] = ()

    @property
    def details(self) -> Mapping[str, Any]:
        """The prediction for the report."""
        told: dict[str, Any] = {"starts": self.starts}
        if self.blocker is not None:
            told |= {"file": self.blocker.file, "offset": self.blocker.offset, "why": self.blocker.why}
        told |= {"not_checked": list(self.unchecked)} if self.unchecked else {}
        return told | ({"remedy": [step._asdict() for step in self.remedy]} if self.remedy else {})


class _Server(msgspec.Struct, frozen=True):
    """The log of a server in its directory.

    `index`: its name, None if there is none. `listed`: what the server reads of it. `is_mysql`: None if no log
    shows which server wrote it. `is_own`: at least one line names this directory, so that names are resolved as
    written; otherwise it may be a copy.
    """

    situation: Situation
    logs: Sequence[Binlog]
    folder: str
    base: str
    index: str | None
    listed: ServerList
    mysql: bool | None
    is_own: bool = False

    def place(self, name: bytes) -> str:
        """Return the path of a relative name in the index."""
        return os.path.join(self.folder, os.fsdecode(name))

    def has(self, name: bytes) -> bool:
        """Return whether a file of this name exists; in a copy only the last part of an absolute name counts."""
        return os.path.exists(self.place(name if self.is_own or not name.startswith(b"/") else _base(name)))

    def find(self, name: bytes) -> Binlog | None:
        """Return the log file of this name, if it was examined."""
        own = os.fsdecode(_base(name))
        return next((one for one in self.logs if base_name(one.file.name) == own), None)

    def reading(self, newest: Binlog) -> RecoveryRead:
        """Return how far crash recovery reads the newest log."""
        beside = self.situation.beside
        return recovery_read(newest, None if beside is None else beside(base_name(newest.file.name)), self.logs)

    def read(self, name: bytes, offset: int, size: int) -> bytes | None:
        """Return bytes of a listed file; None if it does not exist."""
        return _read(self.situation, os.fsdecode(_base(name)), offset, size)


def _read(situation: Situation, name: str, offset: int, size: int) -> bytes | None:
    """Return bytes of a file of the directory; None if it cannot be read."""
    read = None if situation.beside is None else situation.beside(name)
    try:
        return None if read is None else read(offset, size)
    except OSError:
        return None


def startup(situation: Situation, logs: Sequence[Binlog]) -> Startup | None:
    """Predict the start of a server with a whole directory; None if it is not the directory of a server's own log."""
    server = _server(situation, logs)
    if server is None:
        return None
    if server.index is not None and os.path.isdir(server.place(os.fsencode(server.index))):
        step = _move(server, server.index, "the server makes a new list")
        return _refused(server.index, None, "the index is a directory: the server stops (Is a directory)", step)
    newest = server.logs[-1] if server.logs else None
    if server.index is None or not server.listed.names:
        return _unlisted(server, newest)
    found = _first_refusal(server, server.listed.names[-1])
    if found is None:
        found = _passed_over(server, newest)
    away = None if server.is_own else _away(server, server.listed.names[-1])
    return found if away is None or found.unchecked else msgspec.structs.replace(found, unchecked=(away,))


def _server(situation: Situation, logs: Sequence[Binlog]) -> _Server | None:
    """Return the server's log in a directory; None if it is not such a directory."""
    if not situation.whole or not situation.files or any(one.is_relay for one in logs):
        return None
    indexes = [one for one in situation.files if _is_index(one)]
    known = log_name(logs[0].file.name) if logs else None
    base = known.base if known is not None else base_name(indexes[0].name).removesuffix(".index") if indexes else None
    if base is None:
        return None
    place = logs[0].file if logs else indexes[0]
    folder = os.path.dirname(place.path)
    index = _index_of(indexes, folder, base)
    if index is None and not _has_engine(folder):
        return None  # a copy of logs, not a server's directory
    facts = [one.facts for one in logs if one.facts is not None and one.facts.server_version]
    mysql = (
        2 * sum(not one.is_mariadb for one in facts) > len(facts) if facts else None
    )  # one FORMAT_DESCRIPTION may be damaged
    data = b"" if index is None else _read(situation, index, 0, MAX_TEXT) or b""
    listed = server_list(data, mysql=bool(mysql))
    is_own = any(_is_in(folder, name) for name in listed.names)
    return _Server(situation, logs, folder, base, index, listed, mysql, is_own)


def _has_engine(folder: str) -> bool:
    """Return whether it is a data directory, not a copy of logs."""
    return any(os.path.exists(os.path.join(folder, name)) for name in _ENGINE_FILES)


def _is_index(file: Examined) -> bool:
    """Return whether a file is an index."""
    context = None if file.layout is None else file.layout.context
    return isinstance(context, TextContext) and context.kind is TextKind.INDEX


def _index_of(indexes: Sequence[Examined], folder: str, base: str) -> str | None:
    """Return the index of a log: the one named like it, else one that lists it."""
    own = f"{base}.index"
    if os.path.lexists(os.path.join(folder, own)):
        return own
    listing = (one for one in indexes if one.layout is not None and base in one.layout.context.listings)
    return next((base_name(one.name) for one in listing), None)


def _base(name: bytes) -> bytes:
    """Return the last part of a path."""
    return name[name.rfind(b"/") + 1 :]


# -- what the server opens ---------------------------------------------------------------------------------------------


def _first_refusal(server: _Server, last: bytes) -> Startup | None:
    """Return the prediction if something keeps the server from starting, or may; None otherwise.

    Args:
        last: the file that it opens.
    """
    assert server.index is not None
    if server.mysql and not last:
        return None
    away = _away(server, last)
    absolute = last.startswith(b"/")
    if not (server.has(last) and (away is None or absolute)):
        text = f"the last line names {_shown(last)}, which is not there: the server opens it first, and stops"
        if away is not None and absolute and not server.is_own:
            return Startup(None, None, (), (f"{away}; {_shown(last)} is not in this directory",))
        return _refused(server.index, None, text, _unlist(server, last))
    if away is not None and server.is_own:
        return Startup(None, None, (), (f"not checked: {_shown(last)} is outside of this directory",))
    if os.path.islink(server.place(_base(last))):
        return Startup(None, None, (), (f"not checked: {_shown(last)} is a link, which is not followed",))
    fault = _unopenable(server, last)
    aside = _move(server, _own_name(server, last), "the server cannot open it"), _unlist(server, last)
    if fault is not None:
        return _refused(_own_name(server, last), 0, fault, *aside)
    if _highest(server) >= _LAST_NUMBER:
        return _refused(server.index, None, f"no number is left: {_LAST_NUMBER} is the highest that a log can have")
    if away is not None and _has_engine(server.folder):
        return Startup(None, None, (), (away,))
    if server.mysql is None:
        return Startup(None, None, (), ("not checked: no log here says which server wrote it",))
    if server.mysql:
        return _gtid_refusal(server)
    fault = _head_fault(server, last)
    if fault is not None:
        return _refused(_own_name(server, last), len(MAGIC), fault, *aside)
    body = server.read(last, len(MAGIC) + _HEADER, _FIXED) or b""
    own = body[:2] == b"\x04\0" or (body[:2] == b"\0\0" and _names_server(server, last))
    if len(body) < _FIXED or not own or body[-1] != _HEADER:
        text = f"the FORMAT_DESCRIPTION of {_shown(_base(last))} is damaged: MariaDB may not take it for one, and stop"
        return Startup(None, None, (), (text,), aside)
    newest = server.find(last)
    if newest is not None and newest.facts is not None and newest.in_use:
        return _chain_refusal(server, newest)
    return _state_refusal(server)


def _refused(name: str, offset: int | None, why: str, *remedy: Step) -> Startup:
    """Return the prediction of a refused start."""
    return Startup(False, Stop(name, offset, why), remedy=remedy)


def _move(server: _Server, name: str, why: str) -> Step:
    """Return the step that moves a file away."""
    path = server.place(os.fsencode(name))
    return Step(f"move {base_name(name)} away: {why}", shlex.join(("mv", "--", path, f"{path}.aside")))


def _unlist(server: _Server, name: bytes) -> Step:
    """Return the step that removes the last lines naming a file from the index."""
    pattern = re.sub(r"[][\\.*^$/]", r"\\\g<0>", os.fsdecode(_base(name)))
    path = server.place(os.fsencode(server.index or ""))
    command = shlex.join(("sed", "-i", f"/{pattern}\\r*$/d", path))
    return Step("take its line out of the index; its transactions are missing from the log after that", command)


def _own_name(server: _Server, name: bytes) -> str:
    """Return the name of a listed file in the report."""
    found = server.find(name)
    return os.fsdecode(_base(name)) if found is None else found.file.name


def _shown(name: bytes) -> str:
    """Return a name for messages, quoted if necessary."""
    return repr(printable(name)) if name.strip() != name or not name.isascii() or not name else printable(name)


def _away(server: _Server, name: bytes) -> str | None:
    """Return a caveat if the index names another directory, so that its files may be elsewhere."""
    if _is_in(server.folder, name):
        return None
    folder = printable(_folder(name))
    return f"not checked: the index names files in {folder}, and this directory is {server.folder or '.'}"


def _folder(name: bytes) -> bytes:
    """Return the folder of a path."""
    return name[: name.rfind(b"/")] or b"/" if b"/" in name else b"."


def _is_in(folder: str, name: bytes) -> bool:
    """Return whether the index names a file of this directory."""
    return os.path.realpath(os.path.join(folder, os.fsdecode(_folder(name)))) == os.path.realpath(folder or ".")


def _highest(server: _Server) -> int:
    """Return the highest number of a log."""
    names = [*(one.file.name for one in server.logs), *map(os.fsdecode, server.listed.names[-1:])]
    return max((known.number for name in names if (known := log_name(name)) is not None), default=0)


def _unopenable(server: _Server, name: bytes) -> str | None:
    """Return why a file cannot be opened as a log: both servers require its magic number."""
    if os.path.isdir(server.place(_base(name))):
        return "it is a directory: the server cannot read it"
    head = server.read(name, 0, len(MAGIC))
    if head is None:
        return None
    if len(head) < len(MAGIC):
        return f"the file has {len(head)} bytes, no magic number: the server opens it at its start, and stops"
    if head != MAGIC and (head != ENCRYPTED_MAGIC or server.mysql is False):
        return "bad magic number: the server stops (It's not a binary log file that can be used by this version)"
    return None


def _gtid_refusal(server: _Server) -> Startup | None:
    """Return the prediction if MySQL cannot decode PREVIOUS_GTIDS of its first or last log.

    MySQL reads it without verifying the checksum, and stops at an invalid set (`Gtid_set::add_gtid_encoding`).
    """
    for name in (server.listed.names[-1], server.listed.names[0]):
        log = server.find(name)
        start = server.read(name, 0, len(MAGIC) + _HEADER) or b""
        if log is None or len(start) < len(MAGIC) + _HEADER:
            continue
        at = len(MAGIC) + int.from_bytes(start[-10:-6], "little")
        errors = [one for one in log.file.findings if one.severity is Severity.ERROR and one.offset is not None]
        head = server.read(name, at, _HEADER) or b""
        if head[4:5] != bytes([EventType.PREVIOUS_GTIDS]):
            continue
        if not any(one.offset == at and one.id in _UNDECODED for one in errors):
            continue
        size = int.from_bytes(head[9:13], "little")
        body = server.read(name, at + _HEADER, max(0, size - _HEADER - CHECKSUM_SIZE)) or b""
        if not _is_gtid_set(body):
            text = f"the set in PREVIOUS_GTIDS cannot be decoded: MySQL reads it in {_shown(_base(name))}, and stops"
            aside = _move(server, _own_name(server, name), "MySQL cannot read its set of GTIDs"), _unlist(server, name)
            return _refused(_own_name(server, name), at, text, *aside)
    return None


def _is_gtid_set(body: bytes) -> bool:
    """Return whether MySQL decodes this set: intervals rise; bytes after the last one are ignored."""
    try:
        sources = previous_gtids(body)
    except MalformedError:
        return False
    for source in sources:
        last = 0
        for start, end in source.intervals:
            if start <= last or end <= start:
                return False
            last = end
    return True


def _head_fault(server: _Server, name: bytes) -> str | None:
    """Return why MariaDB does not accept the first event as a FORMAT_DESCRIPTION."""
    head = server.read(name, len(MAGIC), _HEADER) or b""
    what = "MariaDB reads it at its start, and stops"
    if len(head) < _HEADER:
        return f"the file ends before its FORMAT_DESCRIPTION event does: {what}"
    length = int.from_bytes(head[9:13], "little")
    if head[4] != EventType.FORMAT_DESCRIPTION or length < _HEADER:
        return f"the first event is no FORMAT_DESCRIPTION: {what}"
    version = server.read(name, len(MAGIC) + _HEADER, 2)
    if version == b"\0\0" and not _names_server(server, name):
        return f"its FORMAT_DESCRIPTION says version 0 (Found invalid event in binary log): {what}"
    if len(MAGIC) + length > os.path.getsize(server.place(_base(name))):
        return f"the file ends before its FORMAT_DESCRIPTION event does: {what}"
    return None


def _names_server(server: _Server, name: bytes) -> bool:
    """Return whether a FORMAT_DESCRIPTION has the server version of another log here.

    Then a server accepts version 0 in it (observed).
    """
    text = (server.read(name, len(MAGIC) + _HEADER + 2, 50) or b"").partition(b"\0")[0].decode("latin-1")
    others = (log for log in server.logs if base_name(log.file.name) != os.fsdecode(_base(name)))
    return any(log.facts is not None and log.facts.server_version == text for log in others)


# -- MariaDB -----------------------------------------------------------------------------------------------------------


def _chain_refusal(server: _Server, newest: Binlog) -> Startup | None:
    """Return the prediction for a start after a crash: recovery reads the files from the last BINLOG_CHECKPOINT
    on.
    """
    reading = server.reading(newest)
    found = [_refusal_from(server, newest, mark) for mark in reading.last_checkpoints]
    stops = [one for one in found if one is not None]
    if not stops or len(stops) == len(found):
        return stops[0] if stops else None
    assert stops[0].blocker is not None
    text = f"not checked: MariaDB may or may not decode the damaged event at {reading.doubt:#x} of "
    text += f"{base_name(newest.file.name)}, and if it does not go on there: {stops[0].blocker.why}"
    return Startup(None, None, (), (text,), stops[0].remedy)


def _refusal_from(server: _Server, newest: Binlog, mark: str | None) -> Startup | None:
    """Return the prediction if recovery cannot read the files from a BINLOG_CHECKPOINT on.

    Its name is resolved in the folder of the newest file's name, and searched in the index.
    """
    assert server.index is not None
    if mark is None:
        return None
    names = [_normal(name) for name in server.listed.names]
    wanted = names[-1][: names[-1].rfind(b"/") + 1] + os.fsencode(mark)
    told = f"BINLOG_CHECKPOINT in {base_name(newest.file.name)} names {_shown(os.fsencode(mark))}: "
    told += "crash recovery reads from there"
    steps = _decide_by_hand(server)
    if wanted not in names:
        return _refused(server.index, None, f"{told}, and the index does not list it as {_shown(wanted)}", *steps)
    for name in names[names.index(wanted) : names.index(names[-1])]:
        if not server.has(name):
            text = f"{told}; the index lists {_shown(name)}, which is not there"
            return _refused(server.index, None, text, *steps)
        fault = _unopenable(server, name)
        if fault is not None:
            return _refused(_own_name(server, name), 0, f"{fault}; {told}", *steps)
    return None


def _decide_by_hand(server: _Server) -> tuple[Step, ...]:
    """Return MariaDB's own procedure where its recovery cannot read the log (observed on 10.11)."""
    folder, index = server.folder or ".", server.index or ""
    aside = os.path.join(folder, f"{server.base}.aside")
    logs = f"{shlex.quote(os.path.join(folder, server.base))}.[0-9]*"
    place = shlex.quote(aside)
    move = f"mkdir -- {place} && mv -- {logs} {shlex.quote(os.path.join(folder, index))} {place}/"
    once = f"mariadbd --datadir={shlex.quote(os.path.abspath(folder))} --tc-heuristic-recover=rollback"
    return (
        Step("put the missing file back from a backup; or, without it, move the whole log away", move),
        Step("decide over prepared transactions: once, with the server's usual options (it ends by itself)", once),
    )


def _normal(name: bytes) -> bytes:
    """Return a name as `normalize_binlog_name` makes it."""
    return name if name.startswith(b"/") else b"./" + name.removeprefix(b"./")


def _state_refusal(server: _Server) -> Startup | None:
    """Return the prediction for a start after a clean shutdown from the state file; None if it is valid or absent."""
    name = f"{server.base}.state"
    data = server.read(os.fsencode(name), 0, _MAX_STATE)
    if data is None:
        return None
    *lines, unfinished = data.split(b"\n")
    at = 0
    for line in lines:
        if not _is_gtid(line):
            text = (
                f"no GTID (domain-server-number): {printable(line)!r}: MariaDB stops (Error reading binlog GTID state)"
            )
            return _refused(name, at, text, _move(server, name, "MariaDB reads the newest log instead"))
        at += len(line) + 1
    if _is_gtid(unfinished):
        text = "the last line has no line feed: MariaDB does not read it, and numbers of GTIDs are used again"
        found = finding("silent-loss", at, len(unfinished), text, situation="start", gtid=printable(unfinished))
        return Startup(True, None, ((name, found),))
    return None


def _is_gtid(line: bytes) -> bool:
    """Return whether a line begins with a GTID, as `gtid_parser_helper` does; what follows is ignored."""
    matched = _STATE_LINE.match(line)
    if matched is None:
        return False
    domain, server, number = (int(part) for part in matched.groups())
    return domain < 1 << 32 and server < 1 << 32 and number < 1 << 64


# -- what the server passes over ---------------------------------------------------------------------------------------


def _unlisted(server: _Server, newest: Binlog | None) -> Startup | None:
    """Return the prediction for a server that has no index and creates a new one."""
    if newest is None:
        return None
    name = server.index or f"{server.base}.index"
    why = "there is no index" if server.index is None else "the index lists nothing that the server reads"
    if newest.in_use:
        return _unrecovered(server, newest, f"{why}: {base_name(newest.file.name)} was not closed, and is not read")
    text = f"{why}: the server makes a new list; it neither sends nor purges the {len(server.logs):,} files here"
    found = finding("meta-mismatch", None, 0, text, situation="start")
    return Startup(True, None, ((name, found), *_next_start(server)), remedy=_relist(server))


def _relist(server: _Server) -> tuple[Step, ...]:
    """Return the step that creates the missing index."""
    if server.index is not None:
        return ()
    base = shlex.quote(server.base)
    command = f"(cd -- {shlex.quote(server.folder or '.')} && printf './%s\\n' {base}.[0-9]*[0-9] > {base}.index)"
    return (Step("list the logs in a new index; give it the owner of the logs", command),)


def _unrecovered(server: _Server, newest: Binlog, why: str) -> Startup:
    """Return the prediction for a start after a crash whose recovery does not read the newest file.

    MariaDB stops if an engine holds prepared transactions, MySQL rolls them back (both observed).
    """
    name = base_name(newest.file.name)
    if server.mysql is not False:
        text = f"{why}: the server rolls back what engines hold prepared, also what {name} has as committed"
        found = finding("silent-loss", None, 0, text, situation="start")
        return Startup(server.mysql, None, ((newest.file.name, found), *_next_start(server)))
    text = f"{why}: MariaDB stops if an engine holds prepared transactions (Found N prepared transactions!); "
    unchecked = (f"{text}whether one does is not in the log",)
    return Startup(None, None, tuple(_next_start(server)), unchecked, _relist(server))


def _passed_over(server: _Server, newest: Binlog | None) -> Startup:
    """Return the prediction for a server that comes up, with the logs that it ignores."""
    assert server.index is not None
    last = server.listed.names[-1]
    own = server.find(last)
    closed = own is None or not own.in_use
    if newest is not None and newest.in_use and closed and own is not newest:
        text = f"the last line that the server reads in {server.index} names {_shown(last)}"
        return _unrecovered(server, newest, f"{text}: {base_name(newest.file.name)} was not closed, and is not read")
    state = _state_refusal(server) if closed and server.mysql is False else None
    found = () if state is None else state.findings
    return Startup(True, None, (*_next_start(server), *found))


def _next_start(server: _Server) -> Iterator[tuple[str, Finding]]:
    """Yield a finding if the last line has no line feed: the server appends the name of a new log to it."""
    rest = server.listed.unfinished.partition(b"\0")[0]
    if rest.endswith(b"/") and _is_in(server.folder, rest):
        return  # with the appended name it is still a path in this directory
    if server.index is None or not server.listed.unfinished or not (rest or not (server.mysql or server.listed.names)):
        return
    text = f"the last line ({_shown(server.listed.unfinished)}) has no line feed: the server does not read it, "
    text += "appends the name of the next log to it, and never starts again after that"
    found = finding("meta-mismatch", None, 0, text, situation="start", next_start="refuse")
    yield server.index, found
