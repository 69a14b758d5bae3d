"""Read out-of-band data: forests of perfect binary trees.

See docs/spec/mariadb_innodb_binlog.md#out-of-band-data. The shape is a function of
the
number of nodes. Node i has height 1 (a leaf), or is the parent of the last two trees if these have the same height; in
both cases its right link leads to node i - 1. So the right links alone give all positions, from the last to the first,
each smaller than the one before; the left links must agree with them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from binlogtool.formats.fields import MalformedError
from binlogtool.formats.mariadb_innodb_binlog.codes import IbbRecordType
from binlogtool.formats.mariadb_innodb_binlog.records.records import (
    NO_POSITION,
    IbbPosition,
    OobNode,
    OobReference,
    parse_node,
)
from binlogtool.formats.mariadb_innodb_binlog.records.store import PageStore, UnreadableError

_MAX_HEADER_AND_BYTE = 46
"""The longest header, and one byte of data."""

NODE_COST = 128
"""Bytes of the ceiling of a group that a node counts for, however little data it has."""

_OOB_DATA = IbbRecordType.OOB_DATA


class OobForest:
    """The nodes of a reference, checked in shape and order; their data is read by `iter_pieces`.

    Attributes:
        problem: what is wrong although all nodes are present.
        nodes: number of nodes.

    Args:
        before: position of the record that holds the reference; all nodes are before it.
        max_bytes: size limit of a group in bytes.

    Raises:
        UnreadableError: a node is missing, invalid, or not where the shape demands it; `oob-too-large`: over the
            limit.
    """

    def __init__(self, store: PageStore, reference: OobReference, before: IbbPosition, max_bytes: int) -> None:
        self._store = store
        self._links_flat = array("Q")
        self.reference = reference
        self.problem: UnreadableError | None = None
        last = reference.last
        if not last or last >= before:
            raise UnreadableError(f"the last out-of-band node at {last} is not before {before}", "oob-shape")
        self.nodes = read_node(store, last).node_index + 1
        if self.nodes * NODE_COST > max_bytes:
            text = f"{self.nodes:,} nodes of out-of-band data are more than the ceiling of {max_bytes:,} bytes allows"
            raise UnreadableError(text, "oob-too-large")
        if self.nodes != reference.nodes:
            node_text = f"the last out-of-band node at {last} has index {self.nodes - 1}"
            text = f"{node_text}, the reference has {reference.nodes} nodes"
            self.problem = UnreadableError(text, "oob-shape")
        self._follow_right_links(before)
        self._check_left_links()

    def node_place(self, index: int) -> IbbPosition:
        """Return the position of a node."""
        at = 4 * (self.nodes - 1 - index)
        return IbbPosition(self._links_flat[at], self._links_flat[at + 1])

    def iter_places(self) -> Iterator[IbbPosition]:
        """Iterate over the positions of the nodes, by index."""
        return map(self.node_place, range(self.nodes))

    def iter_pieces(self) -> Iterator[memoryview]:
        """Iterate over the data, in order, chunk by chunk.

        Raises:
            UnreadableError: a record is incomplete.
        """
        for place in self.iter_places():
            yield from iter_node_data(self._store, place)

    def _follow_right_links(self, before: IbbPosition) -> None:
        """Follow the right links from the last node to the first."""
        place, above = self.reference.last, before
        for index in range(self.nodes - 1, -1, -1):
            if not place:
                raise UnreadableError(f"out-of-band node {index} is not linked", "oob-shape")
            if place >= above:
                raise UnreadableError(f"out-of-band node {index} at {place} is not before {above}", "oob-shape")
            node = read_node(self._store, place)
            if node.node_index != index:
                text = f"the out-of-band node at {place} has index {node.node_index}, expected {index}"
                raise UnreadableError(text, "oob-shape")
            self._links_flat.extend((*place, *node.left))
            place, above = node.right, place
        if place:
            raise UnreadableError(f"the first out-of-band node at {above} has a link to {place}", "oob-shape")
        if above != self.reference.first:
            text = f"the first out-of-band node is at {above}, the reference says {self.reference.first}"
            raise UnreadableError(text, "oob-shape")

    def _check_left_links(self) -> None:
        """Compare the left links with the shape."""
        heights: list[int] = []
        for index in range(self.nodes):
            expected = NO_POSITION
            if len(heights) > 1 and heights[-1] == heights[-2]:
                height = heights.pop()
                heights[-1] += 1
                expected = self.node_place(index - (1 << height))
            else:
                heights.append(1)
            at = 4 * (self.nodes - 1 - index)
            left = IbbPosition(self._links_flat[at + 2], self._links_flat[at + 3])
            if left != expected:
                self._raise_wrong_left_link(index, left, expected)

    def _raise_wrong_left_link(self, index: int, left: IbbPosition, expected: IbbPosition) -> None:
        if left:
            read_node(self._store, left)  # raises an error if there is no node
        text = f"out-of-band node {index} has the left link {left}, the shape demands {expected}"
        raise UnreadableError(text, "oob-shape")


def read_node(store: PageStore, position: IbbPosition) -> OobNode:
    """Read the header of the node at a position.

    Raises:
        UnreadableError: there is none.
    """
    head = b""
    for piece in store.iter_record_pieces(position, _OOB_DATA):
        head += piece[:_MAX_HEADER_AND_BYTE]
        if len(head) >= _MAX_HEADER_AND_BYTE:
            break
    try:
        return parse_node(head)
    except MalformedError as error:
        raise UnreadableError(f"the out-of-band node at {position}: {error.args[0]}", "oob-shape") from None


def iter_node_data(store: PageStore, position: IbbPosition) -> Iterator[memoryview]:
    """Iterate over the data of the node at a position, without its header.

    Raises:
        UnreadableError: the record is incomplete.
    """
    head = b""
    skipped = False
    for piece in store.iter_record_pieces(position, _OOB_DATA):
        if skipped:
            yield piece
            continue
        head += piece
        if len(head) >= _MAX_HEADER_AND_BYTE:
            yield memoryview(head)[parse_node(head).data_at :]
            skipped = True
    if not skipped:
        yield memoryview(head)[parse_node(head).data_at :]
