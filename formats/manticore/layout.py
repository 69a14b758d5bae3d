"""Detection, and the layout of one file from its head.

Source: `docs/spec/manticore-binlog.md#1-the-directory`, `#3-binlogmeta`, `#4-log-file`, `#9-versions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
from construct import Const, ConstructError, Struct
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.checksums import CRC32
from binlogtool.formats.detecting import Head, Match
from binlogtool.formats.layouts import FrameLevel, Layout
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.judge.proof import prove
from binlogtool.formats.manticore.payloads.sphinx4 import LAST_LOWEST_FIRST
from binlogtool.formats.manticore.payloads.zint import read_zint
from binlogtool.limits import MIB, Limits

META_NAMES = ("binlog.meta", "binlog.meta.new")
MAX_META = 4096
"""Bytes of a meta file that are looked at: about a thousand files at least."""

PROVEN_BY_DATA = frozenset({4, 5, 7, 14, 15, 16})
"""Versions that were compared with files of a real server."""

OLD_WIDTH = 3
"""Digits in file names up to version 14; from 15 on four unless configured otherwise."""

LOG_NAME = re.compile(r"binlog\.(\d{1,18})")
_MAX_FRAME = 512 * MIB
_NOT_A_TABLE_LOG = "cluster seqno file, not a table binlog"


class MetaContext(msgspec.Struct):
    """`binlog.meta` as far as it can be read.

    Attributes:
        setting: digits of file names (version 15 on), or the 64-bit flag.
        numbers: file numbers in replay order.
        whole: the list is complete.
        cut: it is incomplete only because no more than the first bytes were read.
    """

    version: int | None = None
    setting: int | None = None
    count: int | None = None
    numbers: tuple[int, ...] = ()
    whole: bool = False
    cut: bool = False
    leftover: bool = False

    @property
    def digits(self) -> int:
        """Number of digits in file names."""
        known = self.version is not None and self.version >= schema.NEW_FRAME and self.setting is not None
        return min(max(self.setting or 1, 1), 18) if known else 3 if self.version is not None else 4

    def name(self, number: int) -> str:
        """Return the name of a log file, which depends on its number alone."""
        return f"binlog.{number:0{self.digits}d}"


class LogContext(msgspec.Struct):
    """Facts about one log file.

    Attributes:
        number: from the file's name, or None.
        max_memory: see `Limits`.
        names: table names by id, as defined so far.
        described: number of the first record that was not searched for names.
        declared: tables that the validator has seen so far.
        actions: offset of a damaged range -> what a starting server does there ("refuse", "drop", "delete").
        id_size: bytes of a document id, in versions 2 to 14.
        ids_proven: a transaction parses with ids of no other size.
    """

    version: int
    number: int | None
    max_memory: int = Limits().max_memory
    header: str = "whole"
    names: dict[int, bytes] = msgspec.field(default_factory=dict)
    described: int = 0
    declared: int = 0
    actions: dict[int, str] = msgspec.field(default_factory=dict)
    ids: int = schema.ID64
    ids_proven: bool = False

    @property
    def new(self) -> bool:
        """True if the file has frames of version 15 or later."""
        return self.version >= schema.NEW_FRAME

    @property
    def ops(self) -> Any:
        """The enumeration of its operations."""
        return schema.Op if self.new else schema.OldOp


REST = FrameLevel(Struct("rest" / Const(b"SPLI")), (), None, 4, 4, name="rest")
TORN_HEADER = FrameLevel(schema.LOG_HEADER, (), None, schema.HEADER_SIZE, schema.HEADER_SIZE, name="header")


def apart(context: Any) -> Any:
    """Copy a context: it knows the same table names, but shares none that either learns later."""
    return replace(context, names=dict(context.names)) if isinstance(context, LogContext) else context


def frame_level(version: int, ids: int = schema.ID64) -> FrameLevel:
    """Create the frame level of a version.

    Args:
        id_size: bytes of a document id.
    """
    new = version >= schema.NEW_FRAME
    return FrameLevel(
        name="txn",
        schema=schema.frame(version, ids),
        columns=schema.COLUMNS if new else schema.OLD_COLUMNS,
        sync=schema.START if new else schema.SYNC,
        min_size=10,
        max_size=_MAX_FRAME,
        prove=prove if new else None,
        checksum=CRC32,
        stored="check.crc32" if new else "crc32",
        covered=("covered_start", "covered_end"),
        trailing=len(schema.SYNC),
    )


# -- detection ---------------------------------------------------------------------------------------------------------


def detect(head: Head) -> Match:
    """Match a file by its magic; one that lost its head by the records in it; an empty one by its name."""
    data, name = head.data, head.name.rsplit("/", 1)[-1]
    if data[:4] == b"SPLI":
        return Match(100, "starts with SPLI")
    if data[:4] == b"SPBL":
        return Match(100, "starts with SPBL")
    named = name in META_NAMES or LOG_NAME.fullmatch(name) is not None
    if data.find(schema.SYNC, 0, 64) >= 0 and proven_inside(data):
        return Match(70, "no SPBL at the start; a transaction with the right checksum stands behind")
    if named and len(data) < schema.HEADER_SIZE and b"SPBL".startswith(data[:4]):
        return Match(20, "named like a log of Manticore or Sphinx, and empty" if not data else "a torn header")
    if name in META_NAMES:
        return Match(30, "only the file name fits")
    return Match(0, "neither SPLI nor SPBL at the start")


def stem(name: str) -> str | None:
    """Return "" for files of a log: a directory has one. None for other names."""
    return "" if name in META_NAMES or LOG_NAME.fullmatch(name) else None


def proven_inside(data: bytes) -> bool:
    """Check that these bytes contain a transaction, of any version, with its right checksum."""
    places = [match.start() for match in re.finditer(schema.SYNC, data)][:16]
    return any(fits(data[at:], version) for at in places for version in (16, 14, 13, 5, 4))


def fits(data: bytes, version: int, ids: int = schema.ID64) -> bool:
    """Check that these bytes start with a transaction of this version, its checksum right.

    Args:
        id_size: bytes of a document id.
    """
    try:
        parsed = schema.frame(version, ids).parse(data)
    except (ConstructError, OverflowError):
        return False
    return bool((parsed.check if version >= schema.NEW_FRAME else parsed).checksum.ok)


def id_bytes(data: bytes, version: int, said: int = schema.ID64) -> int:
    """Return the bytes of a document id: of the first transaction that parses with one size only, else the default.

    Args:
        said: size as binlog.meta states it.
    """
    if version >= schema.NEW_FRAME:
        return schema.ID64
    ops = schema.OldOp.COMMIT.value, schema.OldOp.UPDATE_ATTRS.value
    starts = (found.start() for found in re.finditer(schema.SYNC, data))
    for at in islice((at for at in starts if at + 4 < len(data) and data[at + 4] in ops), 16):
        fit = [ids for ids in (schema.ID64, schema.ID32) if fits(data[at:], version, ids)]
        if len(fit) == 1:
            return fit[0]
    return said


def _read_as(data: bytes, version: int) -> int:
    """Choose the version as which a file is read: versions 2 to 4 and version 5 write numbers in different byte
    order,
    and one flipped bit in the head makes 4 of 5.
    """
    first = data[schema.HEADER_SIZE :]
    if version > LAST_LOWEST_FIRST or first[:4] != schema.SYNC or fits(first, version):
        return version
    return LAST_LOWEST_FIRST + 1 if fits(first, LAST_LOWEST_FIRST + 1) else version


def _said_id_bytes(head: Head) -> int:
    """Read the size of document ids from the meta file beside a log."""
    read = None if head.beside is None else head.beside(META_NAMES[0])
    try:
        meta = b"" if read is None else read(0, 9)
    except OSError:
        return schema.ID64
    old = len(meta) == 9 and meta[:4] == b"SPLI" and int.from_bytes(meta[4:8], "little") < schema.NEW_FRAME
    return schema.ID32 if old and meta[8] != 1 else schema.ID64


# -- layout ------------------------------------------------------------------------------------------------------------


def layout(head: Head, limits: Limits) -> Layout:
    """Read the layout of a meta file or a log file. Never raises: errors become findings."""
    name = head.name.rsplit("/", 1)[-1]
    if head.data[:4] == b"SPLI" or name in META_NAMES:
        return _meta_layout(head, name)
    return _log_layout(head, name, limits)


def _meta_layout(head: Head, name: str) -> Layout:
    data = head.data[:MAX_META]
    context, found = read_meta(data, head.whole and len(head.data) <= MAX_META)
    if name == "binlog.meta.new":
        context.leftover = True
        text = "left behind by an interrupted rewrite; the server ignores it"
        found = [one.raised_to(Severity.NOTE) for one in found]
        found.insert(0, finding("extra-member", 0, len(data), text, severity=Severity.NOTE, diagnosis="meta left-over"))
    variant = "binlog.meta" if context.version is None else f"binlog.meta v{context.version}"
    return Layout(variant, len(data), REST, schema.META, None, context, tuple(found), records=False)


def read_meta(data: bytes, whole: bool) -> tuple[MetaContext, list[Finding]]:
    """Parse a meta file; return its context and what is wrong with it.

    Args:
        whole: `data` is the whole file.
    """
    context = MetaContext()
    if data[:4] != b"SPLI":
        torn = b"SPLI".startswith(data[:4])
        text = f"the meta file ends after {len(data)} bytes" if torn else "the meta file does not start with SPLI"
        id_, word = ("bad-header", "meta torn") if torn else ("bad-magic", "meta magic bad")
        return context, [finding(id_, 0, min(len(data), 4), text, diagnosis=word, server="refuse")]
    if len(data) < 10:
        if whole and len(data) > 4 and data[4] < schema.NEW_FRAME and not any(data[5:8]):
            context.version, context.setting, context.count = data[4], data[8] if len(data) > 8 else 0, 0
            context.whole = True  # up to version 14 the server reads missing bytes as 0: an empty list
        return context, [_torn_meta(len(data), "the meta file ends inside its head")]
    context.version, context.setting = int.from_bytes(data[4:8], "little"), data[8]
    context.count, at = _zint(data, 9)
    found = list(_meta_head(context))
    if context.count is None:
        return context, [*found, _torn_meta(len(data), "the number of files is cut off")]
    numbers: list[int] = []
    while len(numbers) < context.count:
        number, after = _zint(data, at)
        if number is None:
            break
        numbers.append(number)
        at = after
    context.numbers, context.whole = tuple(numbers), len(numbers) == context.count
    context.cut = not context.whole and not whole
    return context, [*found, *_meta_list(context, data, at, whole)]


def _zint(data: bytes, at: int) -> tuple[int | None, int]:
    value, after = read_zint(data, at, len(data))
    return (None, at) if after < 0 else (value & (1 << 64) - 1, after)


def _torn_meta(size: int, text: str) -> Finding:
    return finding("bad-header", 0, size, text, diagnosis="meta torn")


def _meta_head(context: MetaContext) -> Iterator[Finding]:
    version, setting = context.version or 0, context.setting or 0
    if version == 0 and context.count == 0:
        text = "version 0 is not known; servers up to version 14 accept it, as the list is empty"
        yield finding("unsupported-version", 4, 4, text, severity=Severity.WARNING, diagnosis="meta version unknown")
    elif not schema.FIRST_VERSION <= version <= schema.LAST_VERSION:
        newer = version > schema.LAST_VERSION
        diagnosis = "meta version newer than known" if newer else "meta version unknown"
        text = f"version {version} is not known (known: {schema.FIRST_VERSION} to {schema.LAST_VERSION})"
        yield finding("unsupported-version", 4, 4, text, diagnosis=diagnosis, server="refuse")
    elif version >= schema.NEW_FRAME and not 1 <= setting <= 9:
        yield finding(
            "bad-header", 8, 1, f"{setting} digits in file names; 1 to 9 are possible", diagnosis="meta digits"
        )
    elif version < schema.NEW_FRAME and setting != 1:
        text = f"document ids of 32 bits ({setting}): a server of today refuses them"
        yield finding("bad-header", 8, 1, text, severity=Severity.WARNING, diagnosis="meta id64")


def _meta_list(context: MetaContext, data: bytes, at: int, whole: bool) -> Iterator[Finding]:
    listed = len(context.numbers)
    if not context.whole and not whole:
        text = f"{context.count:,} files listed; only the {listed:,} in the first {len(data):,} bytes were looked at"
        yield finding("count-out-of-bounds", 9, len(data) - 9, text, diagnosis="meta too long", listed=listed)
    elif not context.whole:
        text = f"{context.count:,} files listed, {listed:,} numbers are there; the server reads those missing as 0"
        facts: dict[str, Any] = {"diagnosis": "meta torn in the file list", "listed": listed, "count": context.count}
        impossible = (context.count or 0) > listed + 1
        yield finding("count-out-of-bounds" if impossible else "bad-header", 0, len(data), text, **facts)
    elif at < len(data) or not whole:
        text = f"bytes behind the list of {listed:,} files; the server does not look at them"
        yield finding("unmapped-bytes", at, len(data) - at, text, diagnosis="trailing bytes")
    doubled = sorted({number for number in context.numbers if context.numbers.count(number) > 1})
    if doubled:
        severity = Severity.ERROR if (context.version or 0) >= schema.NEW_FRAME else Severity.WARNING
        text = f"listed more than once: {', '.join(map(str, doubled[:10]))}"
        yield finding("duplicate-sequence", 9, at - 9, text, severity=severity, diagnosis="file listed twice")


def _log_layout(head: Head, name: str, limits: Limits) -> Layout:
    data = head.data
    matched = LOG_NAME.fullmatch(name)
    number = int(matched[1]) if matched else None
    version = int.from_bytes(data[4:8], "little") if len(data) >= schema.HEADER_SIZE else 0
    known = schema.FIRST_VERSION <= version <= schema.LAST_VERSION
    context = LogContext(version if known else schema.LAST_VERSION, number, limits.max_memory)
    variant = f"v{version}" + (" (Sphinx)" if version <= 5 else "")
    if head.whole and len(data) < schema.HEADER_SIZE:
        return _short_layout(data, context, len(matched[1]) if matched else 0)
    found = list(_log_head(data, version, known))
    context.version = _read_as(data, context.version)
    context.ids = id_bytes(data, context.version, _said_id_bytes(head))
    context.ids_proven = context.ids == schema.ID32 and id_bytes(data, context.version) == schema.ID32
    level = frame_level(context.version, context.ids)
    readable = _NOT_A_TABLE_LOG not in (one.facts.get("diagnosis") for one in found)
    if head.size == schema.HEADER_SIZE and data[:4] == b"SPBL":
        found.append(_empty("a header and no transaction", context))
    if data[:4] != b"SPBL":
        context.header = "bad magic"
    elif not known:
        variant, context.header = f"v{version}, read as v{context.version}", "version not known"
    return Layout(
        variant, schema.HEADER_SIZE, level, schema.LOG_HEADER, None, context, tuple(found), readable
    )  # fmt: skip


def _short_layout(data: bytes, context: LogContext, width: int) -> Layout:
    """Create the layout of a file that ends inside its header.

    Args:
        width: digits in its name, which distinguish old from new without a version.
    """
    if width == OLD_WIDTH:
        context.version = schema.NEW_FRAME - 1
    if data:
        context.header = "torn"
        context.version = data[4] if len(data) > 4 else context.version
        return Layout("torn header", 0, TORN_HEADER, context=context)
    context.header = "empty"
    note = _empty("nothing was written yet: the header reaches the disk with the first commit", context)
    return Layout("empty", 0, frame_level(context.version), context=context, findings=(note,))


def _empty(text: str, context: LogContext) -> Finding:
    action = "delete" if context.new else "replay"
    return finding("unclean-close", 0, 0, text, severity=Severity.NOTE, diagnosis="empty file", server=action)


def _log_head(data: bytes, version: int, known: bool) -> Iterator[Finding]:
    if data[:4] != b"SPBL":
        text = "the file does not start with SPBL; the server refuses to start"
        yield finding("bad-magic", 0, 4, text, diagnosis="file magic bad", server="refuse")
    elif version == 1 and data.find(schema.SYNC) < 0:
        yield finding("unsupported-version", 4, 4, _NOT_A_TABLE_LOG, diagnosis=_NOT_A_TABLE_LOG)
        return
    if not known:
        text = f"version {version} is not known (known: {schema.FIRST_VERSION} to {schema.LAST_VERSION}); "
        text += f"read as version {schema.LAST_VERSION}"
        yield finding("unsupported-version", 4, 4, text, diagnosis="version not known", server="refuse")
        return
    if version not in PROVEN_BY_DATA:
        text = f"version {version} is decoded by its description, without a file of a real server to compare with"
        yield finding("unsupported-version", 4, 4, text, severity=Severity.NOTE, diagnosis="best effort")
    first = data[schema.HEADER_SIZE :]
    if first[:4] == schema.SYNC and not fits(first, version) and not fits(first, version, id_bytes(data, version)):
        other = next(
            (v for v in (16, 14, 13, 5, 4) if frame_family(v) != frame_family(version) and fits(first, v)), None
        )
        if other is not None:
            text = f"the header says version {version}, the first transaction is one of version {other}"
            yield finding("bad-header", 4, 4, text, diagnosis="header version differs from content", content=other)


def frame_family(version: int) -> int:
    """Return a number that is the same for versions with the same frames."""
    return min(version, schema.NEW_FRAME) if version != 6 else 5
