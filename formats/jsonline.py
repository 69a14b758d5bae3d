"""Rules for compiled JSON lines: a format names a kernel for each member."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from binlogtool.formats.bodies import BodySchema
from binlogtool.formats.layouts import Batch, Column, Kernel

JsonEncoder = Callable[[Any], bytes]
"""Any JSON value in the words of the general writer."""


class JsonMember(msgspec.Struct, frozen=True):
    """How compiled code writes the value of one member of a JSON line.

    Args:
        kernel: `kernel(buf, texts, notes, out, o, z, *columns) -> next`: writes to `out[o:z]` and returns the end of
            what it wrote, or `jsontext.NO_SPACE`, or `UNSUPPORTED` (the general writer does this record).
        columns: the record columns (of the batch or `JsonLine.derive`) whose values it gets. buf: the arena. notes:
            256
            integers for its own use.
        texts: the table of `jsontext.put_text` (as JSON). names: that of `jsontext.put_name`; it may grow while
            envelopes are decoded. table: returns a table of the format's own; called after `derive`, it must return the
            same object as long as nothing in it has changed. At most one of the three.
        bodies: the kernel gets only those records that are none of these.
    """

    kernel: Kernel
    columns: tuple[str, ...] = ()
    texts: Mapping[int, str] | None = None
    names: Mapping[int, str | None] | None = None
    table: Callable[[JsonEncoder], bytes] | None = None
    bodies: JsonBodies | None = None


class JsonBodies(msgspec.Struct, frozen=True):
    """Bodies that compiled code writes as their schemas say.

    Args:
        by_code: values of the column `code` with the body of each, the most frequent first.
        start, end: the columns with the range of the body in the arena.
        parameters: names of the parameters of `BodySchema`, and the columns that hold them.
    """

    by_code: tuple[tuple[int, BodySchema], ...]
    code: str
    start: str
    end: str
    parameters: tuple[tuple[str, str], ...] = ()


class JsonLine(msgspec.Struct, frozen=True):
    """How compiled code writes the most frequent records, byte for byte as the general writer does.

    The members are those of `EnvelopeColumns`, `body`, and those of `decode_extras`; the engine writes all others. A
    record from which `decode_envelopes` learns something for later ones must be UNSUPPORTED, unless `derive` learns it
    too.

    Args:
        depth: the deepest nesting that is printed.
        narrow: columns of rows, "only rows?" -> a `body` member for queries that need no more than these: it leaves
            out
            other columns, and perhaps everything but rows; a body that cannot be decoded is UNSUPPORTED as well.
        derive: batch, `compile` -> additional columns, one value per record, that follow from the records before (the
            transaction or table that a record belongs to). Called in file order for each batch that compiled code may
            write, perhaps twice and after `decode_envelopes`; for other batches only `decode_envelopes` is called. None
            = the general writer does this batch. The columns are valid until the next batch.
        inside: the records are inside others (`layouts.RecordPositions.record`), and have no checksums of their own.
    """

    type: JsonMember
    seq: JsonMember
    time: JsonMember
    object: JsonMember
    origin: JsonMember
    txn: JsonMember
    body: JsonMember
    extras: tuple[tuple[str, JsonMember], ...] = ()
    depth: int = 16
    narrow: Callable[[frozenset[str], bool], JsonMember] | None = None
    derive: Callable[[Batch, Callable[[Kernel], Kernel]], Mapping[str, Column] | None] | None = None
    inside: bool = False
