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
    "common header of events": "append_group_event_columns compute_in_use_crc_change detect_checksum_form "
        "count_events_and_find_xid",
    "QUERY": "find_query_session_request find_query_text find_statement_session_request is_readable_query "
        "write_session_before_query "
        "write_statement_and_variables",
    "INTVAR, RAND, XID": "track_xid_if_expected is_supported_variable_event write_and_count_commit_numbers",
    "GTID of MySQL":
        "track_mysql_gtid_if_expected has_version load_commit_time write_mysql_gtid_event read_transaction_length "
        "try_set_transaction_gtid",
    "GTID of MariaDB": "track_mariadb_gtid_if_expected is_plain_gtid write_mariadb_gtid_event",
    "TABLE_MAP": "find_table_map_number track_table_map_if_unchanged",
    "head of ROWS":
        "find_bitmaps find_last_event_of_statement track_rows_event_if_valid is_table_id_of_statement "
        "write_rows_as_statements "
        "write_json_rows_event",
    "compressed block": "find_compressed_blocks load_compressed_block_head",
    "status variables": "find_client_collation write_json_collations write_number_member write_set_of_variable_event",
    "transaction of Manticore": "write_transaction_kinds read_v2_to_v14_body_columns skip_ordered_v15_transactions",
    "update of Manticore": "get_value_size_in_dwords write_json_updated_documents write_json_integer_list "
        "write_json_value",
    "chunk of InnoDB's binary log": "write_and_count_chunk_rows",
    "record of eblob": "write_record_columns write_json_control_flags write_footer_members",
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
