"""Small files of MariaDB's InnoDB binlog that ask for much: all checksums are right."""

from __future__ import annotations

from collections.abc import Callable

from tests.formats.mariadb_innodb_binlog.ibb_make import (
    COMMIT,
    CONT,
    DUMMY,
    LAST,
    NONE,
    OOB,
    PREPARE,
    STATE,
    cint,
    cints,
    event,
    group,
    gtid_event,
    header,
    sealed,  # fmt: skip
)

MIB = 1 << 20
P = 16384


def chunk(kind: int, data: bytes) -> bytes:
    """A chunk with its head."""
    return bytes([kind]) + len(data).to_bytes(2, "little") + data


def log(*pages: bytes, size: int = P, interval: int = 4, **fields: int) -> bytes:
    """A file: the header, and pages with right CRCs."""
    head = header(0, 1 + len(pages), size, interval, **fields)
    return head + b"".join(sealed(page, size) for page in pages)


def state(count: int, rest: bytes = b"") -> bytes:
    """A state that says it has so many GTIDs."""
    return chunk(STATE | LAST, cints(count, 0) + rest)


def started(*chunks: bytes, **fields: int) -> bytes:
    """A file of one page that begins with an empty state."""
    return log(state(0) + b"".join(chunks), **fields)


def commit(data: bytes) -> bytes:
    return chunk(COMMIT | LAST, data)


def reference(nodes: int, first: tuple[int, int], last: tuple[int, int]) -> bytes:
    """A group whose data is out of band."""
    return commit(cints(nodes, *first, *last, 0) + gtid_event(1))


def many(size: int, unit: bytes, page_size: int = P) -> bytes:
    """Pages full of one chunk over and over, up to about `size` bytes."""
    room = page_size - 4
    page = unit * (room // len(unit))
    left = room - len(page)
    page += b"\xff" * left if left < 4 else chunk(unit[0], b"d" * (left - 3))
    return log(*[page] * max(1, size // page_size - 1), size=page_size)


def tall_tree(nodes: int) -> bytes:
    """Each node says that both of its children are the node before: a naive reader visits 2**nodes."""
    content, places = state(0), []
    for number in range(nodes):
        places.append(P + len(content))
        before = places[-2] if number else 0
        content += chunk(OOB | LAST, cints(number, *((0, before) * 2)) + b"x")
    content += reference(nodes, (0, places[0]), (0, places[-1]))
    return log(content)


def never_ends(pages: int) -> bytes:
    """A record that goes on through all pages."""
    room = P - 4 - 3
    first = chunk(COMMIT, b"x" * room)
    return log(first, *[chunk(COMMIT | CONT, b"x" * room)] * pages)


def nested(pages: int) -> bytes:
    """A record that goes on, with states between its chunks that go on, too."""
    page = chunk(COMMIT, b"x") + chunk(STATE, b"y") + chunk(STATE | CONT, b"z") * 100
    return log(*[page] * pages)


def lengths(value: int) -> bytes:
    """Of an XA_PREPARE record: the two parts of its name say that they are so long."""
    return chunk(PREPARE | LAST, b"\1" + (7).to_bytes(4, "little") + bytes([value, value]) + b"abc")


CASES: dict[str, Callable[[], bytes]] = {
    "state of 2**60 GTIDs": lambda: log(state(1 << 60)),
    "state of 2**63 - 1 GTIDs, 16 KiB of them": lambda: log(state((1 << 63) - 1, cints(1, 2, 3) * 4000)),
    "node number of 2**64 - 1": lambda: started(chunk(OOB | LAST, cint(NONE) + cints(0, 0, 0, 0) + b"x")),
    "group of 2**60 nodes": lambda: started(reference(1 << 60, (0, P), (0, P))),
    "group that refers to file 2**60": lambda: started(reference(3, (1 << 60, P), (1 << 60, P))),
    "group that refers behind the end": lambda: started(reference(3, (0, 1 << 60), (0, 1 << 60))),
    "tree of 60 nodes that are each their own twins": lambda: tall_tree(60),
    "tree of 1,000 nodes that are each their own twins": lambda: tall_tree(1000),
    "number cut short": lambda: started(commit(b"\xff")),
    "events that say 4 GiB": lambda: started(commit(cint(0) + gtid_event(1)[:9] + b"\xff" * 4 + bytes(10))),
    "events of no size": lambda: started(commit(cint(0) + bytes(19) * 200)),
    "query with lengths that lie": lambda: started(commit(cint(0) + gtid_event(1) + event(2, b"\xff" * 200))),
    "names of 255 bytes in 3": lambda: started(lengths(255)),
    "records nested in records": lambda: nested(3),
    "chunks of one byte: 60 KiB": lambda: many(60 * 1024, chunk(DUMMY | LAST, b"d")),
    "chunks of one byte: 1 MiB": lambda: many(MIB, chunk(DUMMY | LAST, b"d")),
    "chunks that go on with nothing: 60 KiB": lambda: many(60 * 1024, chunk(COMMIT | CONT, b"d")),
    "chunks that go on with nothing: 1 MiB": lambda: many(MIB, chunk(COMMIT | CONT, b"d")),
    "groups of one event: 8 MiB": lambda: many(8 * MIB, commit(cint(0) + group(1, 1))),
    "states over and over: 1 MiB": lambda: many(MIB, state(0)),
    "a record of 8 MiB without end": lambda: never_ends(8 * MIB // P),
    "chunk of no length": lambda: started(bytes([COMMIT | LAST, 0, 0])),
    "chunk longer than its page": lambda: started(bytes([COMMIT | LAST, 0xFF, 0xFF]) + b"x"),
    "pages of 512 bytes: 60 KiB": lambda: many(60 * 1024, chunk(DUMMY | LAST, b"d"), 512),
    "page_size_shift 63": lambda: header(0, 4, P, 4, shift=63) + bytes(3 * P),
    "page_size_shift 2**32 - 1": lambda: header(0, 4, P, 4, shift=(1 << 32) - 1) + bytes(3 * P),
    "page count of 2**64 - 1": lambda: header(0, NONE, P, 4) + sealed(state(0), P),
    "interval of 0": lambda: started(commit(cint(0) + group(1)), interval=0),
    "interval of 2**63": lambda: started(commit(cint(0) + group(1)), interval=1 << 63),
    "file number of 2**64 - 1": lambda: started(commit(cint(0) + group(1)), file_no=NONE, oob=NONE),
    "header of 512 bytes only": lambda: header(0, 8, P, 4)[:512],
    "8 MiB of zeros behind the header": lambda: header(0, 513, P, 4) + bytes(8 * MIB),
    "a page of data every other page: 8 MiB": lambda: header(0, 513, P, 4) + (sealed(state(0), P) + bytes(P)) * 256,
    "8 MiB of pages with wrong CRCs": lambda: header(0, 513, P, 4) + b"\xc1\x05\x00abcde" * MIB,
    "control characters in a statement": lambda: started(
        commit(cint(0) + gtid_event(1) + event(2, bytes(4) + bytes(4) + bytes(5) + b"\0\x1b]0;x\x07\x1b[31m"))
    ),
}
