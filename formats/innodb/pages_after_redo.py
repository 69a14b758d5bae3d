"""Read pages of InnoDB as they are after crash recovery: from the tablespaces, with the changes in the redo log.

Source: MariaDB `storage/innobase/log/log0recv.cc` (`log_phys_t::apply`, `recv_recover_page`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from construct import Int16ub, Int32ub

from binlogtool.formats.innodb.redo_log import Mtr, RedoLog
from binlogtool.formats.innodb.redo_records import RedoRecord, RedoRecordType, encode_varint
from binlogtool.formats.innodb.tablespace_pages import PAGE_HEADER, TYPE_UNDO_LOG, Tablespace

MAX_REDO_BYTES = 16 << 20
"""Maximum size of the redo records after the checkpoint that are read, unless the caller gives another."""
MAX_FILTERED_PAGES = 32
"""Maximum number of pages for which mini-transactions are searched before they are decoded."""
_UNDO_INIT, _UNDO_APPEND = 2, 3
"""Subtypes of EXTENDED records about undo pages (`mrec_ext_t`)."""
_TYPE_AT, _SPACE_ID_AT, _PAGE_NUMBER_AT, _LINKS_AT = 24, 34, 4, 8

PageId = tuple[int, int]
"""Tablespace id and page number."""


class UnknownPageError(Exception):
    """A page cannot be determined; its text says why."""


class RecoveredPages:
    """Pages of tablespaces as they are after crash recovery."""

    def __init__(self, spaces: Mapping[int, Tablespace], log: RedoLog, max_bytes: int = MAX_REDO_BYTES) -> None:
        self._spaces, self._log, self._max_bytes = spaces, log, max_bytes
        if not log.is_readable or log.is_encrypted:
            raise UnknownPageError("the redo log (ib_logfile0) cannot be read")

    def read_recovered_pages(self, page_ids: Collection[PageId]) -> dict[PageId, bytes]:
        """Return pages.

        Raises:
            UnknownPageError: one of them, or the redo log, is damaged, encrypted, missing or too large.
        """
        pages: dict[PageId, bytearray | None] = {}
        searched = [encode_varint(space) + encode_varint(number) for space, number in page_ids]
        walk, size = self._log.walk_mtrs(), 0
        for mtr in walk:
            size += len(mtr.body)
            if size > self._max_bytes:
                raise UnknownPageError(f"the redo log has more than {self._max_bytes >> 20} MiB after its checkpoint")
            if len(searched) > MAX_FILTERED_PAGES or any(one in mtr.body for one in searched):
                self._apply_mtr(mtr, page_ids, pages)
        end, checkpoint = walk.end, self._log.checkpoint
        if end is None or checkpoint is None or end.lsn <= checkpoint.end_lsn or end.next_valid is not None:
            raise UnknownPageError("the redo log (ib_logfile0) is damaged")
        return {one: bytes(self._get_page(one, pages)) for one in page_ids}

    def _apply_mtr(self, mtr: Mtr, page_ids: Collection[PageId], pages: dict[PageId, bytearray | None]) -> None:
        """Apply the records of a mini-transaction about the wanted pages."""
        skipped: set[PageId] = set()
        for record in mtr.decode_records():
            if record.space_id is None or record.page_no is None:
                if record.problem:
                    raise UnknownPageError("the redo log (ib_logfile0) is damaged")
                continue
            page_id = record.space_id, record.page_no
            if page_id not in page_ids or page_id in skipped or record.type >= RedoRecordType.FILE_CREATE:
                continue
            if record.problem:
                raise UnknownPageError("the redo log (ib_logfile0) is damaged")
            if record.type is RedoRecordType.INIT_PAGE:
                space = self._spaces.get(page_id[0])
                if space is None:
                    raise UnknownPageError(f"the tablespace {page_id[0]} is missing")
                pages[page_id] = _make_empty_page(page_id, space.page_size)
            elif record.type is RedoRecordType.FREE_PAGE:
                pages[page_id] = None
            else:
                page = self._get_page(page_id, pages)
                if mtr.start_lsn < PAGE_HEADER.parse(page).lsn:
                    skipped.add(page_id)
                else:
                    _apply_record(record, page)

    def _get_page(self, page_id: PageId, pages: dict[PageId, bytearray | None]) -> bytearray:
        """Return the current state of a page, first from its tablespace."""
        if page_id not in pages:
            space = self._spaces.get(page_id[0])
            data = None if space is None else space.read_valid_page(page_id[1], page_id[0])
            pages[page_id] = None if data is None else bytearray(data)
        page = pages[page_id]
        if page is None:
            raise UnknownPageError(f"page {page_id[1]} of the tablespace {page_id[0]} is damaged, encrypted or missing")
        return page


def _make_empty_page(page_id: PageId, size: int) -> bytearray:
    """Return a page as INIT_PAGE makes it."""
    page = bytearray(size)
    page[_PAGE_NUMBER_AT:_LINKS_AT] = Int32ub.build(page_id[1])
    page[_LINKS_AT : _LINKS_AT + 8] = b"\xff" * 8
    page[_SPACE_ID_AT : _SPACE_ID_AT + 4] = Int32ub.build(page_id[0])
    return page


def _apply_record(record: RedoRecord, page: bytearray) -> None:
    """Apply a record to a page."""
    if record.type is RedoRecordType.EXTENDED:
        if record.subtype == _UNDO_INIT:
            page[_TYPE_AT : _TYPE_AT + 2] = Int16ub.build(TYPE_UNDO_LOG)
        elif record.subtype != _UNDO_APPEND:
            raise UnknownPageError("the redo log changes a page in a way that is not known")
        return
    if record.type is RedoRecordType.OPTION or record.offset is None:
        return
    end = record.offset + record.length
    if max(end, (record.source or 0) + record.length) > len(page):
        raise UnknownPageError("the redo log (ib_logfile0) is damaged")
    if record.type is RedoRecordType.MEMSET:
        page[record.offset : end] = (record.data * (record.length // len(record.data) + 1))[: record.length]
    elif record.source is not None:
        page[record.offset : end] = page[record.source : record.source + record.length]
    else:
        page[record.offset : end] = record.data
