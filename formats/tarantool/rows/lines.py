"""The JSON line of a row in compiled code: the kernel of each member."""

from __future__ import annotations

from binlogtool.formats.jsonline import JsonLine, JsonMember
from binlogtool.formats.jsontext import null_member, text_member, unsigned_member
from binlogtool.formats.tarantool.codes import FileKind
from binlogtool.formats.tarantool.layout.layout import FileContext
from binlogtool.formats.tarantool.rows.jsonlines import (
    DEPTH,
    body_member,
    header_member,
    object_member,
    time_member,
    txn_member,
)
from binlogtool.formats.tarantool.rows.names import BODY_NAMES, HEADER_NAMES, TYPE_NAMES


def json_line(context: FileContext) -> JsonLine | None:
    """Return the members of a line of a log or snapshot; None for the vinyl engine's files, which are shown
    differently.
    """
    if context.kind not in (FileKind.XLOG, FileKind.SNAP):
        return None
    logged = context.kind is FileKind.XLOG
    return JsonLine(
        type=JsonMember(text_member, ("type",), texts=TYPE_NAMES),
        seq=JsonMember(unsigned_member, ("lsn",)),
        time=JsonMember(time_member, ("timestamp", "header_keys")),
        object=JsonMember(object_member, ("space_id",), names=context.spaces),
        origin=JsonMember(unsigned_member, ("replica_id",)),
        txn=JsonMember(txn_member, ("replica_id", "lsn", "tsn")) if logged else JsonMember(null_member),
        body=JsonMember(body_member, ("type", "body", "body_keys", "end"), texts=BODY_NAMES),
        extras=(
            (
                "header",
                JsonMember(
                    header_member,
                    ("header_keys", "type", "replica_id", "lsn", "timestamp", "group_id", "tsn", "flags"),
                    texts=HEADER_NAMES,
                ),
            ),
        ),
        depth=DEPTH,
    )
