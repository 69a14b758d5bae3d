"""Parse the contents of records (docs/spec/mariadb_innodb_binlog.md#record-contents)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from binlogtool.formats.derived import field_offset, make_unpacker
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.mariadb_innodb_binlog.codes import IbbRecordType
from binlogtool.formats.mariadb_innodb_binlog.records.integers import compr_int_size, parse_compr_int
from binlogtool.formats.mariadb_innodb_binlog.schema import XID

RecordBytes = bytes | memoryview

MAX_XID_PART = 64
_XID_HEAD_SIZE = field_offset(XID, "xid")
_unpack_xid_head = make_unpacker(XID, "format_id", "gtrid_length", "bqual_length")


class IbbPosition(NamedTuple):
    """Where a record starts; (0, 0) = none. Positions of one log are ordered."""

    file_no: int
    offset: int

    def __bool__(self) -> bool:
        return self != (0, 0)

    def __str__(self) -> str:
        return f"({self.file_no}, {self.offset:#x})"


NO_POSITION = IbbPosition(0, 0)


class OobReference(NamedTuple):
    """Reference to out-of-band data: number of nodes, position of the node with index 0, position of the last one."""

    nodes: int
    first: IbbPosition
    last: IbbPosition


class IbbGtid(NamedTuple):
    """GTID of MariaDB."""

    domain_id: int
    server_id: int
    seq_no: int

    def __str__(self) -> str:
        return f"{self.domain_id}-{self.server_id}-{self.seq_no}"


class CommitRecord(msgspec.Struct, frozen=True):
    """A COMMIT record.

    Attributes:
        payload_at: where the events start in it.
    """

    references: tuple[OobReference, ...]
    payload_at: int


class GtidStateRecord(msgspec.Struct, frozen=True):
    """A GTID_STATE record.

    Attributes:
        rest: number of bytes after the last GTID (0 in a sound record).
    """

    xa_ref_plus_1: int
    gtids: tuple[IbbGtid, ...]
    rest: int = 0


class OobNode(NamedTuple):
    """Header of an OOB_DATA record.

    Attributes:
        data_at: where its data starts in the record.
    """

    node_index: int
    left: IbbPosition
    right: IbbPosition
    data_at: int


class IbbXaId(NamedTuple):
    """An XA transaction id as it is stored."""

    format_id: int
    gtrid: bytes
    bqual: bytes


class XaPrepareRecord(msgspec.Struct, frozen=True):
    """An XA_PREPARE record."""

    engine_count: int
    xid: IbbXaId
    reference: OobReference


class XaCompleteRecord(msgspec.Struct, frozen=True):
    """An XA_COMPLETE record.

    Attributes:
        flags: bit 0 = rollback.
    """

    flags: int
    xid: IbbXaId

    @property
    def is_rollback(self) -> bool:
        """True if the transaction was rolled back."""
        return bool(self.flags & 1)


def _parse_position(data: RecordBytes, pos: int) -> tuple[IbbPosition, int]:
    file_no, pos = parse_compr_int(data, pos)
    offset, pos = parse_compr_int(data, pos)
    return IbbPosition(file_no, offset), pos


def _parse_reference(data: RecordBytes, nodes: int, pos: int) -> tuple[OobReference, int]:
    first, pos = _parse_position(data, pos)
    last, pos = _parse_position(data, pos)
    return OobReference(nodes, first, last), pos


def parse_commit(data: RecordBytes) -> CommitRecord:
    """Parse the header of a COMMIT record.

    Raises:
        MalformedError: it does not fit into the record.
    """
    nodes, pos = parse_compr_int(data, 0)
    if not nodes:
        return CommitRecord((), pos)
    first, pos = _parse_reference(data, nodes, pos)
    nodes, pos = parse_compr_int(data, pos)
    if not nodes:
        return CommitRecord((first,), pos)
    second, pos = _parse_reference(data, nodes, pos)
    return CommitRecord((first, second), pos)


def parse_state(data: RecordBytes) -> GtidStateRecord:
    """Parse a GTID_STATE record.

    Raises:
        MalformedError: a number is truncated or out of range, or there are more GTIDs than bytes.
    """
    count, pos = parse_compr_int(data, 0)
    xa_ref, pos = parse_compr_int(data, pos)
    if 3 * count > len(data) - pos:
        text = f"{count:,} GTIDs in {len(data) - pos:,} bytes"
        raise MalformedError(text, finding_id="count-out-of-bounds")
    gtids = []
    for _ in range(count):
        domain, pos = parse_compr_int(data, pos)
        server, pos = parse_compr_int(data, pos)
        seq_no, pos = parse_compr_int(data, pos)
        if domain >> 32 or server >> 32:
            raise MalformedError(f"GTID {domain}-{server}-{seq_no}: domain or server over 32 bits")
        gtids.append(IbbGtid(domain, server, seq_no))
    return GtidStateRecord(xa_ref, tuple(gtids), len(data) - pos)


def parse_node(data: RecordBytes) -> OobNode:
    """Parse the header of an OOB_DATA record.

    Raises:
        MalformedError: it does not fit into the record, or no data follows.
    """
    index, pos = parse_compr_int(data, 0)
    left, pos = _parse_position(data, pos)
    right, pos = _parse_position(data, pos)
    if pos >= len(data):
        raise MalformedError("an out-of-band node without data")
    return OobNode(index, left, right, pos)


def _parse_xid(data: RecordBytes, pos: int) -> tuple[IbbXaId, int]:
    if len(data) < pos + _XID_HEAD_SIZE:
        raise MalformedError(f"an XID in a record of {len(data)} bytes")
    format_id, gtrid_size, bqual_size = _unpack_xid_head(data, pos)
    if max(gtrid_size, bqual_size) > MAX_XID_PART:
        raise MalformedError(f"an XID of {gtrid_size} + {bqual_size} bytes; each part has at most {MAX_XID_PART}")
    start, end = pos + _XID_HEAD_SIZE, pos + _XID_HEAD_SIZE + gtrid_size + bqual_size
    if end > len(data):
        raise MalformedError(f"an XID of {gtrid_size} + {bqual_size} bytes runs over the end of the record")
    return IbbXaId(format_id, bytes(data[start : start + gtrid_size]), bytes(data[start + gtrid_size : end])), end


def parse_xa_prepare(data: RecordBytes) -> XaPrepareRecord:
    """Parse an XA_PREPARE record.

    Raises:
        MalformedError: it is truncated, its XID is too long, or bytes are left over.
    """
    xid, pos = _parse_xid(data, 1)
    nodes, pos = parse_compr_int(data, pos)
    reference, pos = _parse_reference(data, nodes, pos)
    _check_no_rest(data, pos)
    return XaPrepareRecord(data[0], xid, reference)


def parse_xa_complete(data: RecordBytes) -> XaCompleteRecord:
    """Parse an XA_COMPLETE record.

    Raises:
        MalformedError: it is truncated, its XID is too long, or bytes are left over.
    """
    xid, pos = _parse_xid(data, 1)
    _check_no_rest(data, pos)
    return XaCompleteRecord(data[0], xid)


def _check_no_rest(data: RecordBytes, pos: int) -> None:
    if pos != len(data):
        raise MalformedError(f"{len(data) - pos} bytes behind the last field", finding_id="unmapped-bytes")


def has_shortest_integers(record: CommitRecord | OobNode, data: RecordBytes) -> bool:
    """Check that all integers of the header are in their shortest form, as the server writes them."""
    if isinstance(record, OobNode):
        numbers, end = [record.node_index, *record.left, *record.right], record.data_at
    else:
        numbers, end = [], record.payload_at
        for reference in record.references:
            numbers += [reference.nodes, *reference.first, *reference.last]
        numbers += [] if len(record.references) == 2 else [0]
    return end == sum(map(compr_int_size, numbers))


# -- as JSON -----------------------------------------------------------------------------------------------------------


def _position_as_json(position: IbbPosition) -> list[int] | None:
    return list(position) if position else None


def _reference_as_json(reference: OobReference) -> dict[str, Any]:
    return {"nodes": reference.nodes, "first": list(reference.first), "last": list(reference.last)}


def _decode_commit_body(data: RecordBytes) -> dict[str, Any]:
    commit = parse_commit(data)
    return {
        "oob": [_reference_as_json(reference) for reference in commit.references],
        "payload_bytes": len(data) - commit.payload_at,
    }


def _decode_state_body(data: RecordBytes) -> dict[str, Any]:
    state = parse_state(data)
    return {
        "count": len(state.gtids),
        "xa_ref_file_no": state.xa_ref_plus_1 - 1 if state.xa_ref_plus_1 else None,
        "gtids": [str(gtid) for gtid in state.gtids],
    }


def _decode_node_body(data: RecordBytes) -> dict[str, Any]:
    node = parse_node(data)
    return {
        "node_index": node.node_index,
        "left": _position_as_json(node.left),
        "right": _position_as_json(node.right),
        "data_bytes": len(data) - node.data_at,
    }


def _xid_as_json(xid: IbbXaId) -> dict[str, Any]:
    return {"format_id": xid.format_id, "gtrid": xid.gtrid, "bqual": xid.bqual}


def _decode_xa_prepare_body(data: RecordBytes) -> dict[str, Any]:
    prepared = parse_xa_prepare(data)
    body = {"engine_count": prepared.engine_count, **_xid_as_json(prepared.xid)}
    return {**body, "oob": _reference_as_json(prepared.reference)}


def _decode_xa_complete_body(data: RecordBytes) -> dict[str, Any]:
    completed = parse_xa_complete(data)
    return {"result": "rollback" if completed.is_rollback else "commit", **_xid_as_json(completed.xid)}


def _decode_dummy_body(data: RecordBytes) -> dict[str, Any]:
    return {"bytes": len(data)}


BODY_READERS: Mapping[int, Callable[[RecordBytes], dict[str, Any]]] = {
    IbbRecordType.COMMIT: _decode_commit_body,
    IbbRecordType.GTID_STATE: _decode_state_body,
    IbbRecordType.OOB_DATA: _decode_node_body,
    IbbRecordType.DUMMY: _decode_dummy_body,
    IbbRecordType.XA_PREPARE: _decode_xa_prepare_body,
    IbbRecordType.XA_COMPLETE: _decode_xa_complete_body,
}
"""By type: what `dump` shows of a record. They raise `MalformedError`."""
