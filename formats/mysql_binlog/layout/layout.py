"""Detection of a binary log, and its layout: the server that wrote it and the format of its events.

Source: docs/spec/mysql-mariadb-binlog.md#1-file-kinds and #3-format_description-15-and-checksums-v.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

from construct import Const, Struct
from msgspec.structs import replace

from binlogtool.errors import UnknownFormatError
from binlogtool.findings import Finding, finding
from binlogtool.formats.binlog_events.codes import (
    CHECKSUM_SIZE,
    ENCRYPTED_MAGIC,
    HEADER_SIZE,
    MAGIC,
    EventFlag,
    EventType,
)
from binlogtool.formats.binlog_events.crypt.headers import (
    ENCRYPTED_FILE_HEADER,
    ENCRYPTED_HEADER_SIZE,
    ENCRYPTION_HEADER,
    NO_KEY,
    StartEncryption,
    mariadb_unveiler,
    mysql_unveiler,
    parse_encryption_header,
    parse_start_encryption,
)
from binlogtool.formats.binlog_events.crypt.keys import maria_key, mysql_master_key
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory, earlier_definitions
from binlogtool.formats.binlog_events.events.schema import Form
from binlogtool.formats.binlog_events.groups.tracking import TableMaps, Tracker
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.binlog_events.stream.proofs import witness_of
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.binlog_events.wire.header import END_AT, SIZE_AT, TYPE_AT
from binlogtool.formats.detecting import Head, Match
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Layout
from binlogtool.formats.mysql_binlog.layout.description import (
    checksum_right,
    description_at,
    foreign,
    form_by_next,
    form_of,
    misread,
    plain_event,
)
from binlogtool.formats.mysql_binlog.layout.levels import INNER, clear_level, level
from binlogtool.formats.mysql_binlog.members.names import LOGS, goes_on
from binlogtool.limits import Limits

FILE_HEADER = Struct("magic" / Const(MAGIC))
FRAMES_AT = len(MAGIC)
_HEADER_V1, _START_V1 = 13, 13 + 56
"""Bytes of a header, and of a START event, in logs of MySQL 3.23."""
_SMALLEST_START = _START_V1
ENCRYPTED_FRAMES_AT = ENCRYPTED_HEADER_SIZE + FRAMES_AT


def detect(head: Head) -> Match:
    """Detect a log by its magic, or by the FORMAT_DESCRIPTION after a damaged magic."""
    if head.data.startswith(MAGIC):
        return Match(100, "it starts with fe 62 69 6e")
    if head.data.startswith(ENCRYPTED_MAGIC):
        return Match(100, "it starts with fd 62 69 6e (encrypted)")
    if description_at(head.data, FRAMES_AT) is not None:
        return Match(90, "a FORMAT_DESCRIPTION event stands at offset 4")
    if head.data[:4] and MAGIC.startswith(head.data[:4]) and any(fnmatchcase(head.name, p) for p in LOGS):
        return Match(30, "a log's name, and the beginning of its magic")
    return Match(0, "neither magic nor FORMAT_DESCRIPTION")


def layout(head: Head, limits: Limits) -> Layout:
    """Return the layout of a log: server, event format, and what is wrong with the beginning of the file.

    Raises:
        KeyFileError: the keys that the user named do not decrypt this log.
    """
    if head.data.startswith(ENCRYPTED_MAGIC):
        return _encrypted_layout(head)
    return binlog_layout(head, FRAMES_AT)


def _encrypted_layout(head: Head) -> Layout:
    """Return the layout of an encrypted MySQL file: a header, and the plain file after it."""
    try:
        header = parse_encryption_header(head.data)
    except MalformedError as error:
        found = finding(error.finding_id, 0, min(len(head.data), ENCRYPTED_HEADER_SIZE), str(error.args[0]))
        return replace(_unreadable(head, ENCRYPTED_FRAMES_AT, [found]), header=ENCRYPTION_HEADER)
    if head.hints.keyfile is None:
        found = finding("encrypted", ENCRYPTED_HEADER_SIZE, 0, NO_KEY, key_id=header.key_id)
        made = _unreadable(head, ENCRYPTED_HEADER_SIZE, [found])
        size = min(ENCRYPTED_HEADER_SIZE, len(head.data))
        return replace(made, frames_at=size, header=ENCRYPTION_HEADER, variant="encrypted", sealed=True)
    unveil = mysql_unveiler(head.data, mysql_master_key(head.hints.keyfile, header.key_id))
    plain = bytearray(head.data)
    unveil(_nothing)(0, memoryview(plain))
    found_layout = binlog_layout(replace(head, data=bytes(plain)), ENCRYPTED_FRAMES_AT)
    variant = f"{found_layout.variant}, encrypted"
    return replace(found_layout, header=ENCRYPTED_FILE_HEADER, unveil=unveil, variant=variant)


def _nothing(offset: int, size: int) -> bytes:
    """Return no bytes: the head needs no further reads."""
    return b""


def binlog_layout(head: Head, start: int) -> Layout:
    """Return the layout of a file whose events begin at `start` and whose plain bytes are in `head`."""
    found: list[Finding] = []
    magic = head.data[start - FRAMES_AT : start]
    if magic != MAGIC:
        text = f"the file starts with {magic.hex(' ') or 'nothing'}, expected {MAGIC.hex(' ')}"
        at, seen = start - FRAMES_AT, magic.hex()
        found.append(finding("bad-magic", at, len(magic), text, expected=MAGIC.hex(), actual=seen))
    described = description_at(head.data, start)
    if described is None and not found:
        _refuse_old(head, start)
    if described is None:
        found += [] if found else [_no_description(head, start)]
        return _unreadable(head, start, found)
    if why := foreign(described):
        version = described.server_version
        found.append(finding("unsupported-version", start, described.size, why, server_version=version))
        return replace(_unreadable(head, start, found), variant=version)
    form = form_of(described)
    if not checksum_right(head.data, start, described):
        form = form_by_next(head.data, start, described) or form
        if form is Form.PLAIN:
            found.append(_unprotected(start, described))
    if form is Form.BARE and misread(described):
        found.append(_wrong_version(start, described))
    context = _context(head, described, start)
    sealing = _start_encryption(head.data, start + described.size)
    unveil = None
    if sealing is not None and head.hints.keyfile is not None:
        unveil = mariadb_unveiler(sealing, maria_key(head.hints.keyfile, head.hints.keyfile_secret), head.data)
    elif sealing is not None:
        context.sealed = True
        borders = (start, start + described.size, sealing.end) if form is Form.CRC else ()
        found += _sealed_head(head.data, borders)
        found.append(finding("encrypted", sealing.end, 0, NO_KEY, key_version=sealing.key_version))
    return Layout(
        variant=sys.intern(_variant(described, form, context.relay)),
        frames_at=start,
        frame=clear_level(form) if context.sealed else level(form),
        header=FILE_HEADER,
        context=context,
        findings=tuple(found),
        inner=None if context.sealed else INNER,
        unveil=unveil,
        sealed=context.sealed,
    )


def _refuse_old(head: Head, start: int) -> None:
    """Reject logs of MySQL 3.23 to 4.1 by their first event, START: its version is 1 or 3, and its header size
    matches.

    Raises:
        UnknownFormatError: it is such a log.
    """
    data = head.data[start:]
    if len(data) < _SMALLEST_START or data[4] != EventType.START_V3:
        return
    header = _HEADER_V1 if int.from_bytes(data[SIZE_AT:END_AT], "little") == _START_V1 else HEADER_SIZE
    version = int.from_bytes(data[header : header + 2], "little")
    server = data[header + 2 : header + 52].split(b"\0")[0].decode("latin-1")
    if 1 <= version <= 3 and server[:2] in ("3.", "4."):
        text = f"{head.name}: a log of MySQL {server} (binlog version {version}); only version 4 (5.0 on) is read"
        raise UnknownFormatError(text)


def _start_encryption(data: bytes, at: int) -> StartEncryption | None:
    """Return the START_ENCRYPTION event after the FORMAT_DESCRIPTION; None if the file is not encrypted."""
    if len(data) < at + HEADER_SIZE or data[at + TYPE_AT] != EventType.START_ENCRYPTION:
        return None
    try:
        return parse_start_encryption(data[at:], at)
    except MalformedError:
        return None


def _unreadable(head: Head, start: int, found: list[Finding]) -> Layout:
    """Return the layout of a file whose events cannot be read."""
    described = FormatDescription(4, "", 0, HEADER_SIZE, b"", None)
    context = _context(head, described, start)
    return Layout("unknown", 0, level(Form.CRC), FILE_HEADER, context=context, findings=tuple(found), readable=False)


def _no_description(head: Head, start: int) -> Finding:
    """Return the finding about a missing FORMAT_DESCRIPTION."""
    size = len(head.data) - start
    if size < HEADER_SIZE + 57 and head.whole:
        return finding("bad-header", start, max(size, 0), "the file ends before its FORMAT_DESCRIPTION event does")
    return finding("bad-header", start, min(size, HEADER_SIZE), "the first event is no FORMAT_DESCRIPTION of version 4")


def _wrong_version(start: int, described: FormatDescription) -> Finding:
    """Return the finding about a damaged server version."""
    text = (
        f"{described.server_version!r} is the version of a server without checksums, but it lists "
        f"{len(described.post_header_len)} types of events: the version is damaged"
    )
    return finding("bad-header", start, described.size, text, record=0)


def _sealed_head(data: bytes, borders: tuple[int, ...]) -> Iterator[Finding]:
    """Yield findings about the readable events before the encrypted ones, for a file without a key."""
    for record, (low, high) in enumerate(pairwise(borders)):
        event = plain_event(data[low:high]) if not record else data[low:high]
        if zlib.crc32(event[:-CHECKSUM_SIZE]) != int.from_bytes(event[-CHECKSUM_SIZE:], "little"):
            text = "the checksum of an event in front of the encrypted ones is wrong"
            yield finding("checksum-mismatch", low, high - low, text, record=record)


def _unprotected(start: int, described: FormatDescription) -> Finding:
    """Return the finding about a FORMAT_DESCRIPTION with a wrong checksum in a file without other checksums."""
    text = "the checksum of FORMAT_DESCRIPTION is wrong; with checksum_alg 0 it is the only one of the file"
    return finding("checksum-mismatch", start, described.size, text, record=0)


def _variant(described: FormatDescription, form: Form, relay: bool) -> str:
    """Return the variant as text: kind, version, server, checksums."""
    checksums = {Form.BARE: "without checksums", Form.PLAIN: "checksum NONE", Form.CRC: "CRC32"}[form]
    kind = "relay log" if relay else "binlog"
    return f"{kind} v{described.binlog_version}, {described.server_version}, {checksums}"


def _context(head: Head, described: FormatDescription, start: int) -> FileContext:
    """Return the context of a file, continued from the preceding file of the same log."""
    relay = bool(described.flags & EventFlag.RELAY_LOG)
    earlier = earlier_definitions(head, goes_on)
    history = None if head.hints.as_stored else TableHistory(head.hints.schema, earlier, described.server_version)
    maps = TableMaps(described.table_id_size, described.is_mariadb, history)
    before, previous, end = head.shared.get("mysql-binlog.tracker", (None, None, 0))
    follows = before is not None and goes_on(before, head.name)
    tracker = Tracker(previous if relay and follows else None, maps, before=(previous, end) if follows else None)
    head.shared["mysql-binlog.tracker"] = head.name, tracker, head.size or 0
    witness = witness_of(head.data, start)
    return FileContext(described, tracker, relay, start, name=head.name, hints=head.hints, witness=witness)


# -- levels ------------------------------------------------------------------------------------------------------------


def position(context: Any, offset: int) -> int:
    """Return the position of an event as the server counts it, without the header of an encrypted MySQL file."""
    start: int = context.start
    return offset - (start - FRAMES_AT)
