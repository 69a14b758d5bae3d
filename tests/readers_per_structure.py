"""Count kernels that read a structure by offsets of their own: `python -m tests.readers_per_structure [--at COMMIT]`.

A structure has one reader, its schema; kernels get its fields by `schema_fields.make_fields_kernel` or by offsets that
are made of the schema. Whoever else reads it is counted here, by name
(`tests.package_figures.kernels.list_hand_readers`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack

from tests.package_figures.kernels import count_kernels, list_hand_readers
from tests.package_figures.modules import ROOT, Code, checkout

STRUCTURES = {
    "common header of events": "append_group_events compute_in_use_crc_change find_event_form walk_group_events",
    "QUERY": "find_query_request find_query_text find_text_request is_readable_query write_query_session "
        "write_statement_and_variables",
    "INTVAR, RAND, XID": "track_xid_if_expected is_supported_variable scan_commit_records",
    "GTID of MySQL":
        "track_mysql_gtid_if_expected has_version load_commit_time write_mysql_gtid read_transaction_length "
        "try_set_gtid_owner",
    "GTID of MariaDB": "track_mariadb_gtid_if_expected is_plain_gtid write_mariadb_gtid",
    "TABLE_MAP": "find_map_number track_table_map_if_unchanged",
    "head of ROWS":
        "find_bitmaps find_statement_end track_rows_event_if_valid contains_table_id write_event_statements "
        "write_json_rows_event",
    "compressed block": "find_blocks load_block_head",
    "status variables": "find_client_collation write_json_collations write_number_member write_set_of_variable_event",
    "transaction of Manticore": "classify_transactions read_body skip_ordered_transactions",
    "update of Manticore": "get_value_width write_json_documents write_json_list write_json_value",
    "chunk of InnoDB's binary log": "walk_pages",
    "record of eblob": "classify_batch write_json_control_flags write_footer_members",
    "row of Tarantool": "read_row_header",
}  # fmt: skip
"""Structures, and the kernels that read, or once read, parts of them by hand."""


def count_readers(code: Code) -> dict[str, int]:
    """Return the number of such kernels of each structure, of all others, and of all."""
    found = [name for names in list_hand_readers(code).values() for name in names]
    counts = {what: len(set(found) & set(names.split())) for what, names in STRUCTURES.items()}
    counts["values, texts, bytes without a schema"] = len(found) - sum(counts.values())
    kernels, lines = count_kernels(code)
    return {**counts, "all": len(found), "kernels": kernels, "their lines": lines}


def table(columns: dict[str, dict[str, int]]) -> Iterator[str]:
    """Yield the table in Markdown, a column for each checkout."""
    yield f"| kernels that read by hand | {' | '.join(columns)} |"
    yield "|---|" + "---|" * len(columns)
    for what in next(iter(columns.values())):
        yield f"| {what} | {' | '.join(str(counts[what]) for counts in columns.values())} |"


def main(words: list[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.readers_per_structure", description=__doc__)
    parser.add_argument("--at", metavar="COMMIT", action="append", default=[], help="as it was there; several times")
    options = parser.parse_args(words)
    with ExitStack() as held:
        columns = {commit: count_readers(held.enter_context(checkout(commit))) for commit in options.at}
    sys.stdout.writelines(f"{line}\n" for line in table({**columns, "today": count_readers(Code(ROOT))}))


if __name__ == "__main__":
    main(sys.argv[1:])
