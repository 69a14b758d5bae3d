"""Parse the contents of records (docs/spec/mariadb-innodb-binlog.md#6-record-contents)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from binlogtool.formats.derived import place_of, unpacker_of
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.mariadb_innodb_binlog.codes import RecordType
from binlogtool.formats.mariadb_innodb_binlog.records.integers import compr_int_size, take
from binlogtool.formats.mariadb_innodb_binlog.schema import XID

Data = bytes | memoryview

MAX_XID_PART = 64
_XID_HEAD = place_of(XID, "xid")
_xid_head = unpacker_of(XID, "format_id", "gtrid_length", "bqual_length")


class Place(NamedTuple):
    """Where a record starts; (0, 0) = none. Positions of one log are ordered."""

    file_no: int
    offset: int

    def __bool__(self) -> bool:
        return self != (0, 0)

    def __str__(self) -> str:
        return f"({self.file_no}, {self.offset:#x})"


NOWHERE = Place(0, 0)


class Reference(NamedTuple):
    """Reference to out-of-band data: number of nodes, position of the node with index 0, position of the last one."""

    nodes: int
    first: Place
    last: Place


class Gtid(NamedTuple):
    """GTID of MariaDB."""

    domain_id: int
    server_id: int
    seq_no: int

    def __str__(self) -> str:
        return f"{self.domain_id}-{self.server_id}-{self.seq_no}"


class Commit(msgspec.Struct, frozen=True):
    """A COMMIT record.

    Attributes:
        payload_at: where the events start in it.
    """

    references: tuple[Reference, ...]
    payload: int


class State(msgspec.Struct, frozen=True):
    """A GTID_STATE record.

    Attributes:
        rest: number of bytes after the last GTID (0 in a sound record).
    """

    xa_ref_plus_1: int
    gtids: tuple[Gtid, ...]
    rest: int = 0


class Node(NamedTuple):
    """Header of an OOB_DATA record.

    Attributes:
        data_at: where its data starts in the record.
    """

    node_index: int
    left: Place
    right: Place
    data: int


class Xid(NamedTuple):
    """An XA transaction id as it is stored."""

    format_id: int
    gtrid: bytes
    bqual: bytes


class Prepared(msgspec.Struct, frozen=True):
    """An XA_PREPARE record."""

    engine_count: int
    xid: Xid
    reference: Reference


class Completed(msgspec.Struct, frozen=True):
    """An XA_COMPLETE record.

    Attributes:
        flags: bit 0 = rollback.
    """

    flags: int
    xid: Xid

    @property
    def rollback(self) -> bool:
        """True if the transaction was rolled back."""
        return bool(self.flags & 1)


def _place(data: Data, at: int) -> tuple[Place, int]:
    file_no, at = take(data, at)
    offset, at = take(data, at)
    return Place(file_no, offset), at


def _reference(data: Data, nodes: int, at: int) -> tuple[Reference, int]:
    first, at = _place(data, at)
    last, at = _place(data, at)
    return Reference(nodes, first, last), at


def parse_commit(data: Data) -> Commit:
    """Parse the header of a COMMIT record.

    Raises:
        MalformedError: it does not fit into the record.
    """
    nodes, at = take(data, 0)
    if not nodes:
        return Commit((), at)
    one, at = _reference(data, nodes, at)
    nodes, at = take(data, at)
    if not nodes:
        return Commit((one,), at)
    two, at = _reference(data, nodes, at)
    return Commit((one, two), at)


def parse_state(data: Data) -> State:
    """Parse a GTID_STATE record.

    Raises:
        MalformedError: a number is truncated or out of range, or there are more GTIDs than bytes.
    """
    count, at = take(data, 0)
    xa_ref, at = take(data, at)
    if 3 * count > len(data) - at:
        text = f"{count:,} GTIDs in {len(data) - at:,} bytes"
        raise MalformedError(text, finding_id="count-out-of-bounds")
    gtids = []
    for _ in range(count):
        domain, at = take(data, at)
        server, at = take(data, at)
        seq_no, at = take(data, at)
        if domain >> 32 or server >> 32:
            raise MalformedError(f"GTID {domain}-{server}-{seq_no}: domain or server over 32 bits")
        gtids.append(Gtid(domain, server, seq_no))
    return State(xa_ref, tuple(gtids), len(data) - at)


def parse_node(data: Data) -> Node:
    """Parse the header of an OOB_DATA record.

    Raises:
        MalformedError: it does not fit into the record, or no data follows.
    """
    index, at = take(data, 0)
    left, at = _place(data, at)
    right, at = _place(data, at)
    if at >= len(data):
        raise MalformedError("an out-of-band node without data")
    return Node(index, left, right, at)


def _xid(data: Data, at: int) -> tuple[Xid, int]:
    if len(data) < at + _XID_HEAD:
        raise MalformedError(f"an XID in a record of {len(data)} bytes")
    format_id, gtrid, bqual = _xid_head(data, at)
    if max(gtrid, bqual) > MAX_XID_PART:
        raise MalformedError(f"an XID of {gtrid} + {bqual} bytes; each part has at most {MAX_XID_PART}")
    start, end = at + _XID_HEAD, at + _XID_HEAD + gtrid + bqual
    if end > len(data):
        raise MalformedError(f"an XID of {gtrid} + {bqual} bytes runs over the end of the record")
    return Xid(format_id, bytes(data[start : start + gtrid]), bytes(data[start + gtrid : end])), end


def parse_prepared(data: Data) -> Prepared:
    """Parse an XA_PREPARE record.

    Raises:
        MalformedError: it is truncated, its XID is too long, or bytes are left over.
    """
    xid, at = _xid(data, 1)
    nodes, at = take(data, at)
    reference, at = _reference(data, nodes, at)
    _no_rest(data, at)
    return Prepared(data[0], xid, reference)


def parse_completed(data: Data) -> Completed:
    """Parse an XA_COMPLETE record.

    Raises:
        MalformedError: it is truncated, its XID is too long, or bytes are left over.
    """
    xid, at = _xid(data, 1)
    _no_rest(data, at)
    return Completed(data[0], xid)


def _no_rest(data: Data, at: int) -> None:
    if at != len(data):
        raise MalformedError(f"{len(data) - at} bytes behind the last field", finding_id="unmapped-bytes")


def shortest(record: Commit | Node, data: Data) -> bool:
    """Check that all integers of the header are in their shortest form, as the server writes them."""
    if isinstance(record, Node):
        numbers, end = [record.node_index, *record.left, *record.right], record.data
    else:
        numbers, end = [], record.payload
        for one in record.references:
            numbers += [one.nodes, *one.first, *one.last]
        numbers += [] if len(record.references) == 2 else [0]
    return end == sum(map(compr_int_size, numbers))


# -- as JSON -----------------------------------------------------------------------------------------------------------


def _at(place: Place) -> list[int] | None:
    return list(place) if place else None


def _reference_body(reference: Reference) -> dict[str, Any]:
    return {"nodes": reference.nodes, "first": list(reference.first), "last": list(reference.last)}


def _commit_body(data: Data) -> dict[str, Any]:
    commit = parse_commit(data)
    return {
        "oob": [_reference_body(reference) for reference in commit.references],
        "payload_bytes": len(data) - commit.payload,
    }


def _state_body(data: Data) -> dict[str, Any]:
    state = parse_state(data)
    return {
        "count": len(state.gtids),
        "xa_ref_file_no": state.xa_ref_plus_1 - 1 if state.xa_ref_plus_1 else None,
        "gtids": [str(gtid) for gtid in state.gtids],
    }


def _node_body(data: Data) -> dict[str, Any]:
    node = parse_node(data)
    return {
        "node_index": node.node_index,
        "left": _at(node.left),
        "right": _at(node.right),
        "data_bytes": len(data) - node.data,
    }


def _xid_body(xid: Xid) -> dict[str, Any]:
    return {"format_id": xid.format_id, "gtrid": xid.gtrid, "bqual": xid.bqual}


def _prepared_body(data: Data) -> dict[str, Any]:
    prepared = parse_prepared(data)
    shown = {"engine_count": prepared.engine_count, **_xid_body(prepared.xid)}
    return {**shown, "oob": _reference_body(prepared.reference)}


def _completed_body(data: Data) -> dict[str, Any]:
    completed = parse_completed(data)
    return {"result": "rollback" if completed.rollback else "commit", **_xid_body(completed.xid)}


def _dummy_body(data: Data) -> dict[str, Any]:
    return {"bytes": len(data)}


BODIES: Mapping[int, Callable[[Data], dict[str, Any]]] = {
    RecordType.COMMIT: _commit_body,
    RecordType.GTID_STATE: _state_body,
    RecordType.OOB_DATA: _node_body,
    RecordType.DUMMY: _dummy_body,
    RecordType.XA_PREPARE: _prepared_body,
    RecordType.XA_COMPLETE: _completed_body,
}
"""By type: what `dump` shows of a record. They raise `MalformedError`."""
