"""Write a few members of each record as JSON, with generated code that is compiled when the package is built.

Conditions are evaluated on them. The kernels are those of the JSON lines (`jsonline.JsonLine`), so a member has the
value
that `dump` shows. The members are selected when the function is called.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from msgspec.structs import replace

from binlogtool.formats.jsonline import JsonLine, JsonMember, Quote
from binlogtool.formats.jsonnumbers import put_unsigned
from binlogtool.formats.jsontext import NOT_MINE
from binlogtool.formats.layouts import Batch, Layout
from binlogtool.formats.room import words
from binlogtool.schema.jsonmembers import NOTES, PLACES, Members, Places, RecordSource, Shape, Written, padded
from binlogtool.schema.library import Held

ROOM = 1 << 20
_PARAMETERS = f"{PLACES}, asked, notes, out, z, base, first, i, stop"


class Picker:
    """Writes a list of members of each record of one file, one line per record.

    Args:
        names: The members.
        body: What makes the member `body`.
    """

    def __init__(self, line: JsonLine, layout: Layout, quote: Quote, names: Iterable[str], body: JsonMember) -> None:
        self._members = Members(replace(line, body=body), layout, quote, extras=False)
        self._plan = _planned(self._members.shape)
        self.order = tuple(name for name in self._plan.names if name in frozenset(names))
        self._asked = sum(1 << self._plan.names.index(name) for name in self.order)
        self._out = bytearray(ROOM)
        self._held = [Held(one) for one in (padded(self._plan.source.words), words(NOTES), self._out)]

    def places(self, batch: Batch) -> Places | None:
        """Return the addresses that `write` needs, valid as long as the batch; None if compiled code cannot handle
        the batch.
        """
        return self._members.places(batch, self._plan.source)

    def write(self, places: Places, start: int, stop: int) -> Written[memoryview]:
        """Write the members of as many of the records `[start, stop)` of a batch as fit."""
        if self._members.too_many:
            return Written(memoryview(b""), start, True)
        function, tables = self._plan.source.function, self._members.tables()
        assert function is not None
        constant, notes, out = (held.address for held in self._held)
        reached, size, why = function(
            *places.arrays, tables.address, constant, self._asked, notes, out, ROOM, *places.numbers, start, stop
        )
        refused = why == NOT_MINE or (why < 0 and reached == start)
        return Written(memoryview(self._out)[:size], reached, refused)


class Plan:
    """The generated function that writes such lists.

    Attributes:
        names: The order of the members.
    """

    def __init__(self, shape: Shape) -> None:
        self.source = RecordSource(shape)
        numbers = {"record": self.source.number, "offset": "offset", "size": self.source.taken}
        calls = {name: self.source.call(put_unsigned, f"{value}, out, o, z") for name, value in numbers.items()}
        calls |= {slot.name: self.source.member(slot, "out", "o") for slot in shape.slots}
        self.names = tuple(calls)
        line = self.source.line
        line(f"def write({_PARAMETERS}):")
        with line.indented():
            self.source.load_columns()
            line("done = o = 0")
            line("while i < stop:")
            with line.indented():
                self.source.load_values()
                self.source.copy(b"[", "out", "o")
                for k, call in enumerate(calls.values()):
                    line(f"if asked >> {k} & 1:")
                    with line.indented():
                        line(f"o = {call}")
                        self.source.stop_if("o < 0", "o")
                        self.source.copy(b",", "out", "o")
                line("o -= 1")
                self.source.copy(b"]\n", "out", "o")
                line("done = o")
                line("i += 1")
            line("return i, done, min(o, 0)")
        self.source.find()


@lru_cache(maxsize=16)
def _planned(shape: Shape) -> Plan:
    return Plan(shape)
