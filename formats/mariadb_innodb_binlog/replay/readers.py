"""Predict how readers walk the log: where they stop, what they miss, how they get from file to file.

The rules are those of `mariadb-binlog` (`chunk_reader_mysqlbinlog::read_data`; docs/spec/mariadb-innodb-binlog.md,
sections 5, 16 and 17): a type byte of 0 or a page of zeros silently ends a file, and a record continues in whatever
file comes next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Read
from binlogtool.formats.mariadb_innodb_binlog.codes import (
    CHUNK_HEAD,
    CRC_SIZE,
    FILLER,
    KIND,
    LAST,
    NESTED,
    RecordType,
    file_name,
    file_number,
)
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext
from binlogtool.formats.mariadb_innodb_binlog.records.records import Place, State, parse_state
from binlogtool.formats.mariadb_innodb_binlog.records.store import Store, UnreadableError
from binlogtool.formats.replay_rules import Examined, Situation
from binlogtool.limits import MIB

_HEADER = ("header-damaged", "header-lost", "unsupported-version", "unsupported-page-size")
_MALFORMED = ("commit-malformed", "event-misaligned", "record-too-long", "page-order")
_UNREACHED = ("oob-missing", "oob-wrong-type", "oob-shape", "oob-too-large")
_GOES_ON = "and more follows in later files"
_MOST_STATE = 64 * MIB


class Damage(NamedTuple):
    """Where a reader stops, and why.

    Attributes:
        is_conditional: only if the group at this offset could not be assembled.
    """

    offset: int
    why: str
    perhaps: bool = False


class ReadFile(msgspec.Struct, frozen=True):
    """A file of the log as a reader sees it.

    Attributes:
        context: None if it could not be opened.
        stops: where a reader stops, ascending.
        reader_end: where the reader considers the file ended, although more follows in it; None = at its end of data.
        is_short: it has less than it should.
        open_type: type of the record that continues after what the reader sees; 0 = none.
        leading_type: type of the record that continues at the start.
        is_blank: the reader sees no record in it.
        is_exactly_full: FLUSH BINARY LOGS found it full (`flush-exact-end`).
    """

    file: Examined
    number: int
    context: FileContext | None
    damages: tuple[Damage, ...] = ()
    end: int | None = None
    short: bool = False
    open: int = 0
    leading: int = 0
    blank: bool = False
    exact: bool = False

    @property
    def page_size(self) -> int:
        """Page size in bytes; 0 if the file could not be opened."""
        return 0 if self.context is None else self.context.page_size

    def state(self) -> State | None:
        """Read the full GTID state at its start; None if there is none that can be read."""
        if self.context is None:
            return None
        store = Store(replace(self.context, read=None))
        try:
            record = store.record(Place(self.number, self.page_size), RecordType.GTID_STATE, _MOST_STATE)
            return parse_state(record)
        except (UnreadableError, MalformedError):
            return None


class Chosen(msgspec.Struct, frozen=True):
    """The files that are read, in order, and the reasons why others are not.

    Attributes:
        skipped: name -> reason.
    """

    files: tuple[ReadFile, ...]
    passed: Mapping[str, str] = msgspec.field(default_factory=dict)


def choose(situation: Situation, healed: tuple[int, int] | None = None) -> Chosen:
    """Select the files of the log that a reader reads.

    Args:
        recovered_from: (file number, offset) from which recovery rewrites all pages before any reader; None = no
            recovery.
    """
    passed: dict[str, str] = {}
    read: list[ReadFile] = []
    empty: list[Examined] = []
    for file in situation.files:
        number = file_number(file.name)
        if situation.whole and (number is None or file.name.rsplit("/", 1)[-1] != file_name(number)):
            passed[file.name] = "not-a-log"
        elif _reserve(file):
            empty.append(file)
        else:
            read.append(_made(file, situation, healed))
    last = read[-1].number if read else -1
    for file in empty:
        number = file_number(file.name) or 0
        if number > last:
            passed[file.name] = "reserve"
        else:
            read.append(
                ReadFile(file, number, _context(file), (Damage(0, "a file of zeros, and files with data follow"),))
            )
    return Chosen(tuple(sorted(read, key=lambda one: one.number)), passed)


def _context(file: Examined) -> FileContext | None:
    known = None if file.layout is None else file.layout.context
    return known if isinstance(known, FileContext) else None


def _reserve(file: Examined) -> bool:
    context = _context(file)
    return context is not None and context.empty and context.reserve


def _made(file: Examined, situation: Situation, healed: tuple[int, int] | None) -> ReadFile:
    context = _context(file)
    number = file_number(file.name)
    if context is None:
        return ReadFile(file, number or 0, None, (Damage(0, "it cannot be read"),))
    number = context.number or 0 if number is None else number
    seen, found = context.seen, file.findings
    if healed is not None and number >= healed[0]:
        start = healed[1] if number == healed[0] else 0
        found = tuple(one for one in found if (one.offset or 0) < start)
    end = _end(found, context)
    read = None if situation.beside is None else situation.beside(file.name)
    damages: dict[int, Damage] = {}
    for one in _damages(found):
        damages.setdefault(one.offset, one)
    return ReadFile(
        file, number, context,
        damages=tuple(damages[at] for at in sorted(damages) if end is None or at < end),
        end=end,
        short=any(_ends_early(one) for one in found),
        open=seen.open if end is None else _open_at(read, end, context.page_size),
        leading=seen.leading,
        blank=not seen.leading and (not file.records or (end is not None and end <= context.page_size)),
        exact=any(one.facts.get("diagnosis") == "flush-exact-end" for one in found),
    )  # fmt: skip


# -- what stands in the way --------------------------------------------------------------------------------------------


def _end(found: Sequence[Finding], context: FileContext) -> int | None:
    """Find the offset at which readers see an end of data and ignore the rest of the file."""
    ends = []
    for one in found:
        diagnosis, at = one.facts.get("diagnosis"), one.offset or 0
        if diagnosis == "hole":
            known = context.seen.data_end
            ends.append(at if known is None else min(at, known))
        elif diagnosis == "garbage-after-end" and one.severity is Severity.ERROR:
            ends.append(at - at % context.page_size)
    return min(ends, default=None)


def _damages(found: Sequence[Finding]) -> Iterator[Damage]:
    """Iterate over the places where readers stop with an error."""
    for one in found:
        diagnosis, at = str(one.facts.get("diagnosis")), one.offset or 0
        if diagnosis in _HEADER:
            yield Damage(0, one.message)
        elif diagnosis == "torn-tail-page" or (one.severity is Severity.ERROR and _stops(one, diagnosis)):
            yield Damage(at, one.message)
        elif diagnosis in _UNREACHED and one.severity is Severity.ERROR and one.facts.get("gtid") is not None:
            yield Damage(at, one.message, perhaps=True)


def _stops(found: Finding, diagnosis: str) -> bool:
    """Check for a page with a wrong CRC, or an impossible chunk or record."""
    if found.id in ("checksum-mismatch", "damaged-range"):
        return diagnosis not in ("hole", "header-tail-damaged")
    if diagnosis == "bad-chunk":
        return found.id in ("bad-header", "length-out-of-bounds")
    return diagnosis in _MALFORMED or (diagnosis == "missing-end-chunk" and not found.message.endswith(_GOES_ON))


def _ends_early(found: Finding) -> bool:
    """Check if the file has less than its header says, or ends inside a record although the next one has more."""
    cut = found.facts.get("diagnosis") == "truncated-file"
    return found.severity is Severity.ERROR and (cut or found.message.endswith(_GOES_ON))


def _open_at(read: Read | None, end: int, size: int) -> int:
    """Return the type of the record that is incomplete before `end`, where a reader sees an end of data; 0 = none."""
    number = (end - 1) // size
    if read is None or number < 1:
        return 0
    page, at, kind = read(number * size, size), 0, 0
    limit = min(end - number * size, len(page) - CRC_SIZE)
    while at < limit - CHUNK_HEAD and page[at] not in (0, FILLER):
        if page[at] & KIND not in NESTED:
            kind = 0 if page[at] & LAST else page[at] & KIND
        at += CHUNK_HEAD + int.from_bytes(page[at + 1 : at + CHUNK_HEAD], "little")
    return kind
