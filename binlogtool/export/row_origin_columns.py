"""Metadata of typed rows: the columns about their record, and texts about places and transactions in the log."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from binlogtool.core import open_file as open_file_module
from binlogtool.core.record_and_selection_types import RecordBlock
from binlogtool.export import records_to_arrow
from binlogtool.findings import Finding
from binlogtool.format_api.encode_json import findings_to_json
from binlogtool.format_api.row_output_interfaces import RecordTableRows


def record_metadata(
    block: RecordBlock, i: int, content: RecordTableRows, findings: tuple[Finding, ...]
) -> dict[str, Any]:
    """Return the columns about the record of its rows, except commit and row."""
    envelope = block.envelope
    return {
        "op": envelope.type[i],
        "seq": _fit_int64(envelope.seq[i]),
        "txn": None if envelope.txn[i] is None else str(envelope.txn[i]),
        "time": _fit_int64(envelope.time[i] if content.time is None else content.time),
        "server": _fit_int64(envelope.origin[i]),
        "file": records_to_arrow.printable_path(block.file),
        "record": int(block.record[i]),
        "offset": int(block.offset[i]),
        "findings": findings_to_json(findings),
    }


@functools.cache
def has_transaction_ends(format: str) -> bool:
    """Return True if logs of this format contain the end of transactions."""
    rules = open_file_module.find_format(format).tables
    return rules is None or rules.transactions


def describe_row_transaction(meta: Mapping[str, Any]) -> str:
    """Return a text about the transaction of a row; "" if the format has no ends of transactions."""
    return "" if meta["commit"] is None else describe_transaction(meta["file"], meta["offset"], meta["txn"])


def describe_transaction(file: str, offset: int, transaction: str | None) -> str:
    """Return a text about the transaction of the row event at this place."""
    return f"{records_to_arrow.printable_path(file)} at {offset:,}: transaction {transaction or 'without GTID'}"


def _fit_int64(value: int | None) -> int | None:
    """Return a number that fits a signed 64-bit column; otherwise None."""
    return value if value is not None and -1 << 63 <= value < 1 << 63 else None


def has_content(content: RecordTableRows) -> bool:
    """Return True if a record has rows, or information about rows."""
    return bool(content.rows or content.cells or content.ends or content.findings or content.remark)


def format_place(block: RecordBlock, i: int) -> str:
    """Return the place of a record as text."""
    return f"{records_to_arrow.printable_path(block.file)} at {int(block.offset[i]):,}"
