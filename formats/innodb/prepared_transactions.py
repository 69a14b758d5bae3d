"""Read the transactions that InnoDB holds as prepared, from its undo logs and its redo log.

At a start MariaDB asks the engine for them (`trx_undo_mem_create_at_db_start`, `trx_recover_for_mysql`) and decides on
each by the binary log; without a binary log to decide by, it stops if one of them is its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from binlogtool.format_api.layout import RangeReader
from binlogtool.formats.innodb.pages_after_redo import (
    MAX_FILTERED_PAGES,
    MAX_REDO_BYTES,
    PageId,
    RecoveredPages,
    UnknownPageError,
)
from binlogtool.formats.innodb.redo_log import RedoLog
from binlogtool.formats.innodb.tablespace_pages import (
    NO_PAGE,
    OWN_XID,
    PAGE_HEADER,
    TRANSACTION_SYSTEM,
    TRX_SYS_PAGE,
    TYPE_SYS,
    TYPE_TRX_SYS,
    TYPE_UNDO_LOG,
    UNDO_LOG_HEADER,
    UNDO_SEGMENT,
    OpenSibling,
    iter_undo_slots,
    make_rollback_segment,
    open_system_tablespaces,
)

_PREPARED = 5
"""`TRX_UNDO_PREPARED`."""
_STATES = frozenset({1, 2, 4, _PREPARED})
"""Active, cached, to be purged, prepared."""
_OWN_PREFIX = b"MySQLXid"
_MAX_UNDO_SEGMENTS = 1024


class PreparedTransactions(NamedTuple):
    """Prepared transactions.

    `own`: numbers of those that the server prepared for its binary log (the XIDs of XID events). `external`: number of
    the others, which clients prepared with XA PREPARE.
    """

    own: tuple[int, ...]
    external: int


def read_prepared_transactions(open_sibling: OpenSibling, redo_size: int) -> PreparedTransactions:
    """Return the prepared transactions in a data directory.

    Args:
        redo_size: size of `ib_logfile0` in bytes.

    Raises:
        UnknownPageError: they cannot be determined.
    """
    pages = _open_pages(open_sibling, redo_size)
    undo_ids: list[PageId] = []
    for space_id, header in _read_segments(pages):
        undo_ids += [(space_id, number) for number in iter_undo_slots(header.undo_slots)]
    if len(undo_ids) > _MAX_UNDO_SEGMENTS:
        raise UnknownPageError(f"there are more than {_MAX_UNDO_SEGMENTS:,} undo logs")
    found = [_read_prepared_xid_number(page) for page in _read_pages_of_type(pages, undo_ids, TYPE_UNDO_LOG)]
    own = {number for number in found if number}
    return PreparedTransactions(tuple(sorted(own)), sum(number == 0 for number in found))


def read_rollback_segments(open_sibling: OpenSibling, redo_size: int, max_bytes: int) -> list[Any]:
    """Return the headers of the rollback segments, see `make_rollback_segment`.

    Args:
        redo_size: size of `ib_logfile0` in bytes.
        max_bytes: how much of the redo log is applied at most.

    Raises:
        UnknownPageError: they cannot be determined.
    """
    return [header for _, header in _read_segments(_open_pages(open_sibling, redo_size, max_bytes))]


def _open_pages(open_sibling: OpenSibling, redo_size: int, max_bytes: int = MAX_REDO_BYTES) -> RecoveredPages:
    spaces, read_redo = open_system_tablespaces(open_sibling), open_sibling("ib_logfile0")
    if not spaces or read_redo is None:
        raise UnknownPageError("the system tablespace (ibdata1) or the redo log (ib_logfile0) is missing")
    return RecoveredPages(spaces, RedoLog(_read_bytes(read_redo), redo_size), max_bytes)


def _read_segments(pages: RecoveredPages) -> list[tuple[int, Any]]:
    """Return the rollback segments: tablespace and header page of each."""
    transactions = _read_pages_of_type(pages, [(0, TRX_SYS_PAGE)], TYPE_TRX_SYS)[0]
    slots = [(slot.space_id, slot.page_number) for slot in TRANSACTION_SYSTEM.parse(transactions).slots]
    segment_ids = [slot for slot in slots if slot[1] != NO_PAGE]
    headers: list[bytes] = []
    for first in range(0, len(segment_ids), MAX_FILTERED_PAGES):
        headers += _read_pages_of_type(pages, segment_ids[first : first + MAX_FILTERED_PAGES], TYPE_SYS)
    return [
        (one[0], make_rollback_segment(len(page)).parse(page)) for one, page in zip(segment_ids, headers, strict=True)
    ]


def _read_bytes(read: RangeReader) -> RangeReader:
    return lambda offset, size: bytes(read(offset, size))


def _read_pages_of_type(pages: RecoveredPages, page_ids: list[PageId], page_type: int) -> list[bytes]:
    """Return pages of a type, in their order."""
    read = pages.read_recovered_pages(page_ids) if page_ids else {}
    for space_id, number in page_ids:
        if PAGE_HEADER.parse(read[space_id, number]).type != page_type:
            raise UnknownPageError(f"page {number} of the tablespace {space_id} has another type")
    return [read[one] for one in page_ids]


def _read_prepared_xid_number(undo_page: bytes) -> int | None:
    """Return the number of the server's own prepared transaction, 0 for another one, None if it is not prepared."""
    segment = UNDO_SEGMENT.parse(undo_page)
    if segment.state not in _STATES or segment.last_log + UNDO_LOG_HEADER.sizeof() > len(undo_page):
        raise UnknownPageError("an undo log is damaged")
    if segment.state != _PREPARED:
        return None
    header = UNDO_LOG_HEADER.parse(undo_page[segment.last_log :])
    own_xid = OWN_XID.parse(header.xid)
    is_own = (header.gtrid_length, header.bqual_length, own_xid.prefix) == (OWN_XID.sizeof(), 0, _OWN_PREFIX)
    return int(own_xid.number) if is_own else 0
