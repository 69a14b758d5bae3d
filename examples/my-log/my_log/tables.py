"""Changed rows, for `convert --per-table` and `Log.rows`: the tables that records name, of keys and data."""

from functools import lru_cache

from binlogtool.format_api.row_output_interfaces import (
    RecordTableRows,
    TableColumn,
    TableReader,
    TableRow,
    TableSchema,
    TableSupport,
)  # fmt: skip
from my_log.schema import RECORD

COLUMNS = (TableColumn("key", "binary"), TableColumn("data", "binary"))


@lru_cache(1024)
def table_of(name):
    """One object for as long as the table stays as it is."""
    return TableSchema(name.decode(errors="backslashreplace"), COLUMNS, key=("key",))


class Reader(TableReader):
    """Takes the rows out of records; one for all files of a log."""

    def read_records(self, context, batch, start, stop, limits):
        for one in (RECORD.parse(batch.record_bytes(i)) for i in range(start, stop)):
            table, put, key = table_of(one.table), {"key": one.key, "data": one.data}, {"key": one.key}
            row = TableRow(table, "DELETE", key, None) if one.type == 2 else TableRow(table, "PUT", None, put)
            yield RecordTableRows((row,), described=(table,), ends=True)


TABLES = TableSupport(Reader)
