"""How compiled code writes lines of JSON: a format names a kernel for each member."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from binlogtool.formats.bodies import Shown
from binlogtool.formats.layouts import Batch, Column, Kernel

Quote = Callable[[Any], bytes]
"""Any JSON value in the words of the general writer."""


class JsonMember(msgspec.Struct, frozen=True):
    """How compiled code writes the value of one member of a line of JSON.

    kernel: `kernel(buf, texts, notes, out, o, z, *columns) -> next`: writes to `out[o:z]`, returns the place behind
        it, or `jsontext.NO_ROOM`, or NOT_MINE (then the general writer does this record, whatever it is made of).
    columns: the record columns (of the batch or `JsonLine.derive`) whose values it gets. buf: the arena. notes: 256
        integers for its own use.
    texts: the table of `jsontext.put_text` (as JSON); names: that of `jsontext.put_name`, which may grow while records
        are described. table: gives a table of the format's own; asked after `derive`, and it must give the same object
        as long as nothing in it has changed. At most one of the three.
    bodies: the kernel gets those records only that are none of these.
    """

    kernel: Kernel
    columns: tuple[str, ...] = ()
    texts: Mapping[int, str] | None = None
    names: Mapping[int, str | None] | None = None
    table: Callable[[Quote], bytes] | None = None
    bodies: JsonBodies | None = None


class JsonBodies(msgspec.Struct, frozen=True):
    """Bodies that compiled code writes as their schemas say.

    of: values of the column `code`, the most frequent first, each with the body that it stands for. start, end: the
    columns that say where the body lies in the arena. given: names and columns of the numbers that `Shown` asks for.
    """

    of: tuple[tuple[int, Shown], ...]
    code: str
    start: str
    end: str
    given: tuple[tuple[str, str], ...] = ()


class JsonLine(msgspec.Struct, frozen=True):
    """How compiled code writes the records that are most frequent, in exactly the words of the general writer.

    The members are those of `Described`, `body` and what `extras` adds; the engine knows all others. A record from
    which `describe` learns something for later ones must be NOT_MINE, unless `derive` learns it too. depth: the deepest
    nesting that is printed.

    narrow: columns of rows, "only rows?" -> a member `body` for questions that speak of no more: it has no other
        columns, and perhaps nothing but rows; a body that cannot be decoded is not its own either.
    derive: batch, `compile` -> more columns, one value per record: what follows from the records before (to which
        transaction, to which table does a record belong?). Asked in file order for each batch that compiled code may
        write of, perhaps twice and after `describe`; the other batches are only described. None = the general writer
        does this batch. The columns are valid until the next batch.
    inside: the records are inside of others (`layouts.RecordPlaces.record`), and have no checksums of their own.
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
