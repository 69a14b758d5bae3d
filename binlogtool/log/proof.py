"""Proof that a file is a log: by its head, else by the first provable record in it. A name proves nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from binlogtool.errors import BinlogtoolError, InputOutputError
from binlogtool.formats.base import Format
from binlogtool.formats.detecting import Head
from binlogtool.formats.layouts import Batch, Layout
from binlogtool.limits import MIB, Limits
from binlogtool.log.resync import CHECKSUM_RIGHT
from binlogtool.log.scan import Scan
from binlogtool.log.source import (
    GZIP,
    ZSTD,
    FileSource,
    PartSource,
    Source,
    base_name,
    is_url,
    open_source,
    read_head,
    read_range,
)

NASCENT = 20
"""See `Match`."""
SEARCHED = 4 * MIB
"""Bytes of a file without a head that are searched for a record."""


class Look(msgspec.Struct, frozen=True):
    """What a file turned out to be.

    Args:
        proven: the format that is proven.
        nascent: the formats whose server may leave a file like this (empty or torn).
        trouble: why it cannot be read.
        packed: it is compressed.
        gone: it was removed since it was listed.
    """

    proven: Format | None = None
    nascent: tuple[str, ...] = ()
    trouble: str | None = None
    packed: bool = False
    gone: bool = False


def look(path: str, candidates: Sequence[Format]) -> Look:
    """Read the start of a file, once, and test it for these formats."""
    source: Source
    try:
        source = open_source(path) if is_url(path) else FileSource(path)
    except InputOutputError as error:
        return Look(trouble=str(error), gone=not is_url(path) and not os.path.lexists(path))
    try:
        return _seen(source, path, candidates)
    except InputOutputError as error:
        return Look(trouble=str(error))
    finally:
        source.close()


def _seen(source: Source, path: str, candidates: Sequence[Format]) -> Look:
    data = read_head(source)
    if source.size is None or data.startswith((GZIP, ZSTD)):
        return Look(packed=True)
    head = Head(data, base_name(path), source.size, peek=partial(read_range, source))
    matches = sorted(((one.reading.detect(head), one) for one in candidates), key=lambda pair: -pair[0].score)
    best, format_ = matches[0]
    if best.proven:
        return Look(format_)
    for _, one in matches if data else ():
        if _holds_record(source, head, one):
            return Look(one)
    zeros = not any(data)
    return Look(nascent=tuple(one.name for match, one in matches if match.score >= NASCENT or zeros))


def _holds_record(source: Source, head: Head, format_: Format) -> bool:
    """Return True if a record is proven among the first bytes of a file whose head is no proof."""
    try:
        layout = format_.reading.layout(head, Limits())
    except BinlogtoolError:
        return False
    if layout.frame.checksum is None and not layout.readable:  # structure alone is no proof in an arbitrary file
        return False
    layout = replace(layout, readable=layout.frame.sync is not None or layout.readable)
    part = PartSource(source, SEARCHED)
    from binlogtool.schema.python_backend import PythonBackend

    scan = Scan(part, format_, layout, PythonBackend(), Limits(), rows=False)
    return any(isinstance(one, Batch) and _is_proof(one, layout) for one in scan.segments())


def _is_proof(batch: Batch, layout: Layout) -> bool:
    """Return True for a matching checksum, or, if the writer stored none, for the format's own proof."""
    count = batch.frames.count
    if any(batch.frames["checksum"][i] == CHECKSUM_RIGHT for i in range(count)):
        return True
    prove = layout.frame.prove
    return prove is not None and any(prove(batch.frame_bytes(i), layout.context) for i in range(count))
