"""The JSON line of a row in compiled code: the kernel of each member."""

from __future__ import annotations

from binlogtool.formats.jsonline import JsonLine, JsonMember
from binlogtool.formats.jsontext import put_null_member, put_text_member, put_unsigned_member
from binlogtool.formats.tarantool.codes import FileKind
from binlogtool.formats.tarantool.layout.layout import TarantoolContext
from binlogtool.formats.tarantool.rows.jsonlines import (
    MAX_DEPTH,
    put_body_member,
    put_header_member,
    put_space_member,
    put_time_member,
    put_transaction_member,
)
from binlogtool.formats.tarantool.rows.names import BODY_NAMES, HEADER_NAMES, TYPE_NAMES


def create_json_line(context: TarantoolContext) -> JsonLine | None:
    """Return the members of a line of a log or snapshot; None for the vinyl engine's files, which are shown
    differently.
    """
    if context.kind not in (FileKind.XLOG, FileKind.SNAP):
        return None
    is_log = context.kind is FileKind.XLOG
    return JsonLine(
        type=JsonMember(put_text_member, ("type",), texts=TYPE_NAMES),
        seq=JsonMember(put_unsigned_member, ("lsn",)),
        time=JsonMember(put_time_member, ("timestamp", "header_keys")),
        object=JsonMember(put_space_member, ("space_id",), names=context.spaces),
        origin=JsonMember(put_unsigned_member, ("replica_id",)),
        txn=JsonMember(put_transaction_member, ("replica_id", "lsn", "tsn")) if is_log else JsonMember(put_null_member),
        body=JsonMember(put_body_member, ("type", "body", "body_keys", "end"), texts=BODY_NAMES),
        extras=(
            (
                "header",
                JsonMember(
                    put_header_member,
                    ("header_keys", "type", "replica_id", "lsn", "timestamp", "group_id", "tsn", "flags"),
                    texts=HEADER_NAMES,
                ),
            ),
        ),
        depth=MAX_DEPTH,
    )
