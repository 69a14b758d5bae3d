"""What a record says."""

from binlogtool.format_api.format import EnvelopeColumns
from my_log.schema import RECORD, TYPES


def _parsed(batch, start, stop):
    return [RECORD.parse(batch.record_bytes(i)) for i in range(start, stop)]


def describe(context, batch, start, stop):
    found, none = _parsed(batch, start, stop), [None] * (stop - start)
    types = [TYPES.get(one.type, str(one.type)) for one in found]
    tables = [one.table.decode(errors="backslashreplace") for one in found]
    return EnvelopeColumns(types, [one.seq for one in found], [one.time for one in found], tables, none, none)


def bodies(context, batch, start, stop, limits):
    """Keys and data are bytes to the application, and so here."""
    return [{"key": one.key, "data": one.data} for one in _parsed(batch, start, stop)]
