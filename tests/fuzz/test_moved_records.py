"""Records left out, doubled, swapped or taken from another file, checksums right: noticed, or help.md says why not.

This is the list: for each format what betrays them, and where nothing in a single file can.
"""

from __future__ import annotations

import gzip
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgpack
import pytest

from binlogtool import formats
from binlogtool.findings import Severity
from tests.fuzz.search import FORMAT, frames, zint
from tests.harness import oracle
from tests.harness.engine import opinion

PLACES = 8
GAP, AGAIN, BACK = "gap-in-sequence", "duplicate-sequence", "sequence-regression"
META, HEAD, REFERENCE, OPEN = "meta-mismatch", "bad-header", "dangling-reference", "incomplete-transaction"


class Moved(NamedTuple):
    """What was done where. pieces: the frames of the file as they were; donor: what was put in front of `at`."""

    pieces: list[bytes]
    at: int
    donor: bytes

    @property
    def here(self) -> bytes:
        """The frame in question."""
        return self.pieces[self.at]

    @property
    def next(self) -> bytes:
        """The frame after it."""
        return self.pieces[self.at + 1]


Silent = Callable[[Moved], bool]


class Case(NamedTuple):
    """A file and what betrays each change. silent: where nothing can. says: the words of help.md about it."""

    target: str
    file: str
    donor: str
    ids: dict[str, set[str]]
    silent: dict[str, Silent] = {}
    says: str = ""


def always(_: Moved) -> bool:
    return True


# -- tarantool: LSNs, for each replica by itself ----------------------------------------------------------------------


def replicas(block: bytes) -> set[int]:
    """Who wrote the rows of a block; 0 = rows that stay on this server."""
    payload = oracle.unpacked(block[19:]) if block[:4] == oracle.PACKED else block[19:]
    reader = msgpack.Unpacker(raw=True, strict_map_key=False)
    reader.feed(payload)
    writers = set()
    while reader.tell() < len(payload):
        header = reader.unpack()
        writers.add(header.get(2, 0))
        if reader.tell() < len(payload) and header.get(0) != 12:
            reader.skip()
    return writers


def of_two_replicas(moved: Moved) -> bool:
    return not replicas(moved.here) & replicas(moved.next)


# -- drizzle: transactions have numbers, but no order -----------------------------------------------------------------


def context(entry: bytes) -> tuple[object, object]:
    """Server and transaction of an entry."""
    members = dict(oracle.wire(dict(oracle.wire(entry[8:-4]))[1]))  # type: ignore[arg-type]
    return members[1], members[2]


def single(moved: Moved) -> bool:
    """Is the whole transaction in this one entry?"""
    return sum(context(entry) == context(moved.here) for entry in moved.pieces) == 1


def strangers(moved: Moved) -> bool:
    return context(moved.here) != context(moved.next)


def unknown(moved: Moved) -> bool:
    return context(moved.donor) not in [context(entry) for entry in moved.pieces]


# -- manticore: the transactions of each table are numbered -----------------------------------------------------------


def table_of(frame: bytes, old: bool) -> tuple[bool, int]:
    """Is it a change of a table, and of which one?"""
    change = frame[4] not in ((3, 4) if old else (1, 3))
    return change, zint(frame, 5)[0]


def at_an_end_of_its_table(old: bool) -> Silent:
    def silent(moved: Moved) -> bool:
        own, tables = table_of(moved.here, old), [table_of(entry, old) for entry in moved.pieces]
        return own[0] and (own not in tables[: moved.at] or own not in tables[moved.at + 1 :])

    return silent


def of_two_tables(old: bool) -> Silent:
    def silent(moved: Moved) -> bool:
        entry, two = table_of(moved.here, old), table_of(moved.next, old)
        return entry[1] != two[1] and (entry[0] or two[0])  # two declarations have an order

    return silent


# -- mysql: end_log_pos -----------------------------------------------------------------------------------------------


def cached(moved: Moved) -> bool:
    """MariaDB from 11.4 on writes no position in the events of a transaction: these two fit in either order."""
    return all(entry[13:17] == bytes(4) and entry[4] in (19, 160) for entry in (moved.here, moved.next))


DOUBLED = {AGAIN, BACK}
MYSQL = {"deleted": {GAP}, "doubled": {BACK}, "swapped": {HEAD, BACK, REFERENCE, OPEN}, "spliced": {HEAD, BACK}}
NUMBERED = {"deleted": {GAP}, "doubled": DOUBLED, "swapped": {BACK, GAP}, "spliced": {BACK, GAP, AGAIN}}
TABLES = {"deleted": {GAP, REFERENCE}, "doubled": {AGAIN, REFERENCE, META}, "swapped": {BACK, REFERENCE, META},
          "spliced": {BACK, GAP, AGAIN, REFERENCE, META}}  # fmt: skip
PAGES = {kind: {GAP, META, BACK, REFERENCE} for kind in ("deleted", "doubled", "swapped", "spliced")}
NOTHING: dict[str, set[str]] = {kind: set() for kind in PAGES}
DRIZZLE = {"deleted": {GAP, OPEN}, "doubled": {AGAIN}, "swapped": {GAP, AGAIN}, "spliced": {AGAIN, GAP}}
ALL_SILENT: dict[str, Silent] = dict.fromkeys(NOTHING, always)
T, M, S = "tarantool/generated", "manticore/generated/v16", "sphinx/generated"
Q, I = "mysql-binlog/generated", "mariadb-innodb-binlog/generated"  # noqa: E741
CASES = (
    Case("tarantool", f"{T}/chain/00000000000000000111.xlog", f"{T}/single/00000000000000000000.xlog", NUMBERED,
         {"swapped": of_two_replicas}, "blocks of different replicas"),
    Case("tarantool", f"{T}/rotated/524/0/00000000000000000010.run", f"{T}/rotated/524/0/00000000000000000010.run",
         NOTHING, ALL_SILENT, "A `.run` by itself has no numbers"),
    Case("drizzle", "drizzle/generated/basic-checksum.log", "drizzle/generated/transaction_writer.log", DRIZZLE,
         {"deleted": single, "swapped": strangers, "spliced": unknown}, "Whole transactions that are missing, swapped"),
    Case("drizzle", "drizzle/generated/segmented.log", "drizzle/generated/transaction_writer.log", DRIZZLE,
         {"deleted": single, "swapped": strangers, "spliced": unknown}, "Whole transactions that are missing, swapped"),
    Case("eblob", "eblob/generated/api-sync.binlog", "eblob/generated/api-small.binlog", NOTHING, ALL_SILENT,
         "left out, doubled, swapped or taken from another log"),
    Case("manticore", f"{M}/common-mixed-kill9/binlog.0000", f"{M}/common-three-starts/binlog.0000", TABLES,
         {"deleted": at_an_end_of_its_table(False), "swapped": of_two_tables(False)}, "first or the last transaction"),
    Case("sphinx", f"{S}/mixed-kill9/binlog.001", f"{S}/rotation-24k/binlog.002", TABLES,
         {"deleted": at_an_end_of_its_table(True), "swapped": of_two_tables(True)}, "first or the last transaction"),
    Case("mysql-binlog", f"{Q}/mysql-9.7/row-full-types/binlog.000001", f"{Q}/mysql-9.7/stmt/binlog.000001", MYSQL),
    Case("mysql-binlog", f"{Q}/mariadb-10.11/row-full-types/mariadb-bin.000001",
         f"{Q}/mariadb-10.11/stmt/mariadb-bin.000001", MYSQL),
    Case("mysql-binlog", f"{Q}/mariadb-11.8/row-full-types/mariadb-bin.000001",
         f"{Q}/mariadb-11.8/stmt/mariadb-bin.000001", MYSQL, {"swapped": cached}, "TABLE_MAP and ANNOTATE_ROWS"),
    Case("mariadb-innodb-binlog", f"{I}/dbase/binlog-000000.ibb", f"{I}/xa/binlog-000000.ibb", PAGES),
)  # fmt: skip


def content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def count_findings(format: str, name: str, data: bytes) -> Counter[str]:
    """How many findings of each kind there are, notes left out."""
    return Counter(entry.id for entry in opinion(format, name, data).findings if entry.severity > Severity.NOTE)


def make_changes(moved: Moved) -> dict[str, list[bytes]]:
    """The four changes at one place; equal neighbours are not swapped."""
    at, old = moved.at, moved.pieces
    changes = {
        "deleted": old[:at] + old[at + 1 :],
        "doubled": old[: at + 1] + old[at:],
        "spliced": [*old[:at], moved.donor, *old[at:]],
    }
    if moved.here != moved.next:
        changes["swapped"] = [*old[:at], moved.next, moved.here, *old[at + 2 :]]
    return changes


def spread(count: int) -> list[int]:
    """Places inside a file, evenly; neither the first nor the last two."""
    places = range(1, max(count - 2, 2))
    return list(places)[:: max(1, len(places) // PLACES)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.target}-{'-'.join(Path(case.file).parts[-2:])}")
def test_records_left_out_doubled_swapped_or_spliced_are_noticed_or_help_says_why_not(corpus: Path, case: Case) -> None:
    format, name = FORMAT.get(case.target, case.target), Path(case.file).name
    data, other = content(corpus / case.file), content(corpus / case.donor)
    borders, foreign = frames(case.target, data), frames(case.target, other)
    pieces, rng = [data[a:b] for a, b in borders], random.Random(1)
    head, tail = data[: borders[0][0]], data[borders[-1][1] :]
    original = count_findings(format, name, data)
    help_ = " ".join((Path(formats.__file__).parent / format.replace("-", "_") / "help.md").read_text().split())
    assert case.says in help_
    tried = 0
    for at in spread(len(pieces)):
        start, end = rng.choice(foreign[1:])
        moved = Moved(pieces, at, other[start:end])
        for kind, result in make_changes(moved).items():
            ids = set(count_findings(format, name, head + b"".join(result) + tail) - original)
            if case.silent.get(kind, lambda _: False)(moved):
                assert not ids & (case.ids[kind] or {GAP, AGAIN, BACK}), (kind, at, ids)
            else:
                assert ids & case.ids[kind], (kind, at, ids)
            tried += 1
    assert tried >= 3
