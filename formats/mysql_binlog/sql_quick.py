"""The frequent events of a script by compiled code (`sql_kernels`), in the words of `statements.Statements`."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from binlogtool.formats.base import Batch, Kernel
from binlogtool.formats.mysql_binlog import sql_kernels as kernels
from binlogtool.formats.mysql_binlog.codes import TYPES
from binlogtool.formats.mysql_binlog.following import MOST, Follower, integers_of
from binlogtool.formats.mysql_binlog.layout import FileContext
from binlogtool.formats.mysql_binlog.tracking import NOBODY

if TYPE_CHECKING:
    from binlogtool.formats.mysql_binlog.statements import Statements

_ROOM = 12 << 20
_NEVER = 3
"""A state that the kernel does not know."""

_NAMES = ("type_code", "timestamp", "server_id", "flags", "body_start", "body_end", "offset", "end")


@dataclass(slots=True)
class Begun:
    """The last BEGIN of MySQL that was written: whoever has the same session needs none. key: see `Session.key`."""

    key: tuple[int, int]
    body: bytes


class Quick:
    """The compiled writer of one file."""

    def __init__(self, context: FileContext, compile_: Callable[[Kernel], Kernel]) -> None:
        self._context = context
        self._follower = context.tracker.follower = Follower(context.tracker, compile_)
        self._run = compile_(kernels.write)
        self._texts = kernels.texts_of(dict(TYPES))
        self._out = bytearray(_ROOM)
        self._state = array("q", bytes(8 * kernels.STATE_SIZE))
        self._begin = array("q", [0, 0])
        self._begun: Begun | None = None

    def write(self, script: Statements, batch: Batch, start: int, stop: int) -> tuple[bytes | memoryview, int]:
        """The text of the first of these events, valid until the next is asked for, and where it ends."""
        if len(self._context.tracker.maps.by_id) > MOST or not self._takes(script):
            return b"", start
        notes = self._context.tracker.notes(batch)
        maps = self._follower.columns(notes)["map"]
        count = batch.frames.count
        given = [integers_of(batch.frames[name], count) for name in _NAMES]
        pieces = list[bytes]()
        while start < stop:
            self._load(script, batch)
            reached = self._run(
                start, stop, *given, maps, batch.window, self._texts, self._out, _ROOM, self._begin, self._state
            )
            if reached > start:
                self._store(script, notes)
            start, made = reached, memoryview(self._out)[: self._state[kernels.WRITTEN]]
            if not self._state[kernels.FULL]:
                return (b"".join([*pieces, made]) if pieces else made), start
            pieces.append(bytes(made))
        return b"".join(pieces), start

    @staticmethod
    def _takes(script: Statements) -> bool:
        """Is nothing asked for, and nothing pending, that only the general writer knows?"""
        w = script.wording
        plain = w.rows == "exact" and not (w.comments or w.flat or w.databases or w.only or w.until)
        return plain and w.tables is None and script.is_settled

    def _load(self, script: Statements, batch: Batch) -> None:
        """The script's state as numbers."""
        state, known, described = self._state, script.session.known, self._context.description
        state[kernels.OPEN] = _NEVER if len(script.undo) > 1 else 2 if script.undo else int(script.groups.open)
        state[kernels.BASE], state[kernels.MARIADB] = batch.base, described.is_mariadb
        state[kernels.TAIL] = 4 if described.has_checksums else 0
        state[kernels.GTIDS], state[kernels.ID_SIZE] = script.sets_gtids, described.table_id_size
        for place, name in _KNOWN:
            text = known.get(f"@@session.{name}", "")
            state[place] = int(text) if text.isdecimal() else -1
        skips = known.get("@@session.skip_parallel_replication")
        state[kernels.PARALLEL] = -1 if skips is None or "@@session.skip_replication" in known else int(skips == "0")
        if known.get("@@session.immediate_server_version") != known.get("@@session.original_server_version"):
            state[kernels.VERSION] = -1
        self._load_begin(script)

    def _load_begin(self, script: Statements) -> None:
        begun, state = script.begun, self._state
        same = begun is not None and script.session.key == begun.key and begun.key[0]
        time = script.session.known.get("TIMESTAMP", "")
        state[kernels.TIME] = int(time) if time.isdecimal() else -1
        state[kernels.BEGIN_SIZE] = len(begun.body) - 8 if same and begun is not None else -1
        if begun is not self._begun and begun is not None:
            self._begun = begun
            body = begun.body[8:]
            self._begin = array("q", [int.from_bytes(begun.body[:4], "little")])
            self._begin.frombytes(body.ljust(-(-len(body) // 8) * 8, b"\0"))

    def _store(self, script: Statements, notes: Any) -> None:
        """The numbers as the script's state."""
        state, known = self._state, script.session.known
        opened, last = state[kernels.OPEN], state[kernels.LAST_GTID]
        script.undo = (b"ROLLBACK",) if opened == 2 else ()
        script.groups.open, script.groups.begun, script.groups.standalone = opened > 0, opened == 2, False
        if last >= 0:
            script.current = notes.owners[last]
            script.implied, script.skipped = NOBODY, False
        if state[kernels.SERIAL] >= 0:
            known["@@session.gtid_seq_no"] = str(state[kernels.SERIAL])
        if last >= 0 and script.sets_gtids and not state[kernels.MARIADB]:
            script.session.gtid_next = script.current.gtid or ""
            known["@@session.original_commit_timestamp"] = str(state[kernels.COMMITTED])
        if state[kernels.TIME] >= 0:
            known["TIMESTAMP"] = str(state[kernels.TIME])


_KNOWN = (
    (kernels.DOMAIN, "gtid_domain_id"), (kernels.SERVER, "server_id"), (kernels.SERIAL, "gtid_seq_no"),
    (kernels.VERSION, "immediate_server_version"), (kernels.COMMITTED, "original_commit_timestamp"),
)  # fmt: skip
