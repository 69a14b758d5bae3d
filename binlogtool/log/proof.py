"""Proof that a file is a log: by its head, else by the first provable record in it. A name proves nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from binlogtool.errors import BinlogtoolError, InputOutputError
from binlogtool.formats.base import Format
from binlogtool.formats.detecting import FileHead
from binlogtool.formats.layouts import Batch, LogFileLayout
from binlogtool.limits import MIB, Limits
from binlogtool.log.resync import CHECKSUM_RIGHT
from binlogtool.log.scan import Scan
from binlogtool.log.source import (
    GZIP,
    ZSTD,
    FileSource,
    Source,
    TruncatedSource,
    base_name,
    is_url,
    open_source,
    read_head,
    read_range,
)

NASCENT_SCORE = 20
"""See `Match`."""
SEARCHED_BYTES = 4 * MIB
"""Bytes of a file without a head that are searched for a record."""


class FileProof(msgspec.Struct, frozen=True):
    """What a file turned out to be.

    Args:
        proven: the format that is proven.
        nascent: the formats whose server may leave a file like this (empty or torn).
        error: why it cannot be read.
        is_compressed: it is compressed.
        is_gone: it was removed since it was listed.
    """

    proven: Format | None = None
    nascent: tuple[str, ...] = ()
    error: str | None = None
    is_compressed: bool = False
    is_gone: bool = False


def prove_file(path: str, candidates: Sequence[Format]) -> FileProof:
    """Read the start of a file, once, and test it for these formats."""
    source: Source
    try:
        source = open_source(path) if is_url(path) else FileSource(path)
    except InputOutputError as error:
        return FileProof(error=str(error), is_gone=not is_url(path) and not os.path.lexists(path))
    try:
        return _prove_source(source, path, candidates)
    except InputOutputError as error:
        return FileProof(error=str(error))
    finally:
        source.close()


def _prove_source(source: Source, path: str, candidates: Sequence[Format]) -> FileProof:
    data = read_head(source)
    if source.size is None or data.startswith((GZIP, ZSTD)):
        return FileProof(is_compressed=True)
    head = FileHead(data, base_name(path), source.size, peek=partial(read_range, source))
    matches = sorted(((one.reading.detect(head), one) for one in candidates), key=lambda pair: -pair[0].score)
    best_match, format_ = matches[0]
    if best_match.is_proven:
        return FileProof(format_)
    for _, candidate in matches if data else ():
        if _holds_record(source, head, candidate):
            return FileProof(candidate)
    zeros = not any(data)
    return FileProof(nascent=tuple(one.name for match, one in matches if match.score >= NASCENT_SCORE or zeros))


def _holds_record(source: Source, head: FileHead, format_: Format) -> bool:
    """Return True if a record is proven among the first bytes of a file whose head is no proof."""
    try:
        layout = format_.reading.layout(head, Limits())
    except BinlogtoolError:
        return False
    if layout.frame.checksum is None and not layout.readable:  # structure alone is no proof in an arbitrary file
        return False
    layout = replace(layout, readable=layout.frame.sync is not None or layout.readable)
    part = TruncatedSource(source, SEARCHED_BYTES)
    from binlogtool.schema.python_backend import PythonBackend

    scan = Scan(part, format_, layout, PythonBackend(), Limits(), rows=False)
    return any(isinstance(one, Batch) and _is_proof(one, layout) for one in scan.segments())


def _is_proof(batch: Batch, layout: LogFileLayout) -> bool:
    """Return True for a matching checksum, or, if the writer stored none, for the format's own proof."""
    count = batch.frames.count
    if any(batch.frames["checksum"][i] == CHECKSUM_RIGHT for i in range(count)):
        return True
    prove = layout.frame.prove
    return prove is not None and any(prove(batch.frame_bytes(i), layout.context) for i in range(count))
