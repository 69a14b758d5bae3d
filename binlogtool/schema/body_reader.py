"""Generate Python that reads bodies: neighbouring fields of fixed size are one `struct` unpack after one bounds
check.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from binlogtool.formats.bodies import Leaf, too_many
from binlogtool.formats.fields import Form
from binlogtool.schema.body_ops import Place, short, wrong
from binlogtool.schema.body_source import BodySource, Fixed
from binlogtool.schema.expressions import PYTHON, U64, Expr
from binlogtool.schema.lower_bodies import Body
from binlogtool.schema.operations import Fit, Literal, Load, Many, Op, Scalar, size_of
from binlogtool.schema.scopes import Unlowerable
from binlogtool.schema.shown import Choice, Group, Items, Member, Number, Outside, Piece, Title, Value, lists_of

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


class BodyReader(BodySource):
    """Generates a Python function of `data`.

    Attributes:
        constants: The globals of the function.
        decoded_paths: Variables that hold decoded values already.
    """

    dialect = PYTHON
    end = "limit"

    def __init__(self, body: Body, members: tuple[Member, ...], given: tuple[str, ...] = ()) -> None:
        super().__init__(body, members, Place("", 0))
        self.space: dict[str, Any] = {"short": short, "wrong": wrong, "too_many": too_many}
        self.made: set[str] = set()
        self.lists = {items.path: items for items in lists_of(members)}
        self._given = given

    def function(self) -> Callable[..., Any]:
        """Compile and return the function."""
        head = f"def read(data{''.join(f', {name}' for name in self._given)}):\n    limit = len(data)\n"
        text = head + "".join(f"    {line}\n" for line in self.line.text().splitlines())
        space = dict(self.space)
        exec(compile(text, "<body>", "exec"), space)
        made: Callable[..., Any] = space["read"]
        made.__doc__ = text
        return made

    def constant(self, prefix: str, value: Any) -> str:
        """Add a constant; return its name."""
        name = f"{prefix}{len(self.space)}"
        self.space[name] = value
        return name

    # -- operations --------------------------------------------------------------------------------------------------

    def fixed(self, run: list[Fixed]) -> None:
        """Unpack the used fields of the run at once."""
        sizes = tuple((op.path, size_of(op) or 0) for op in run)
        end = self.at.behind(sum(size for _, size in sizes))
        self._unless(f"limit < {end}", f"short({self.constant('sizes', sizes)}, {self.left})")
        layout, targets, odd = self._layout(run)
        self._unpack(layout, targets)
        for op in odd:
            name = self.names[op.path]
            self.line(f"{name} = int.from_bytes({name}, {'big' if op.big else 'little'!r}, signed={op.signed})")
        self.at = end

    def _layout(self, run: list[Fixed]) -> tuple[str, list[str], list[Load]]:
        """Return the `struct` layout, its target variables, and the integers that it gives as bytes."""
        layout, targets, odd = "<", list[str](), list[Load]()
        for op in run:
            size = size_of(op) or 0
            if isinstance(op, Literal):
                raise Unlowerable(op.path, "a constant in a body")
            if op.path not in (self.used if isinstance(op, Load) else self.wanted):
                layout += f"{size}x"
                continue
            targets.append(self.names[op.path])
            code = _CODES.get(size) if isinstance(op, Load) and not op.big else None
            layout += f"{size}s" if code is None else code.lower() if isinstance(op, Load) and op.signed else code
            odd += [op] if isinstance(op, Load) and code is None else []
        return layout, targets, odd

    def _unpack(self, layout: str, targets: list[str]) -> None:
        if layout == "<B":
            self.line(f"{targets[0]} = data[{self.at}]")
        elif len(targets) == 1 and re.fullmatch(r"<\d+s", layout):
            self.line(f"{targets[0]} = data[{self.at}:{self.at.behind(struct.calcsize(layout))}]")
        elif targets:
            unpack = self.constant("unpack", struct.Struct(layout).unpack_from)
            where = "" if str(self.at) == "0" else f", {self.at}"
            self.line(f"{', '.join(targets)}, = {unpack}(data{where})")

    def skip(self, path: str, length: Expr) -> None:
        """Pass over bytes whose size other fields give."""
        start, end, size = self.at, self.variable(), self.value_of(length)
        self.line(f"{end} = {start} + {size}")
        wrong_size = f"limit < {end}" if length.lo >= 0 else f"not {start} <= {end} <= limit"
        self._unless(wrong_size, f"short((({path!r}, {size}),), {self.left})")
        self.at = Place(end, 0)
        self.piece(path, start, self.at)

    def scalar(self, op: Scalar) -> None:
        """Decode the frequent forms inline, all others by the kernel."""
        line, name, end = self.line, self.names[op.path], self.variable()
        line(f"t = data[{self.at}] if {self.at} < limit else -1")
        for form in (form for form in op.kernel.forms if not form.skips):
            room = "" if form.layout is None else f" and {self.left} >= {form.largest}"
            line(f"{'if' if form is op.kernel.forms[0] else 'elif'} {form.first} <= t <= {form.last}{room}:")
            with line.indented():
                line(f"{name} = {self._form(form)}")
                line(f"{end} = {self.at.behind(form.largest)}")
        line("else:" if op.kernel.forms else "if True:")
        with line.indented():
            line(f"{name}, {end} = {self.constant('kernel', op.kernel.read)}(data, {self.at}, limit)")
            if op.kernel.unsigned:
                line(f"{name} &= {U64:#x}")
            self._unless(f"{end} < 0", f"wrong({op.path!r}, {end}, {self.left})")
        self.at = Place(end, 0)

    def _form(self, form: Form) -> str:
        if form.layout is None:
            return f"t - {form.base}" if form.base else "t"
        order, code = form.layout[0], form.layout[1]
        where = f"data[{self.at.behind(1)}:{self.at.behind(form.largest)}]"
        return f"int.from_bytes({where}, {'big' if order == '>' else 'little'!r}, signed={code.islower()})"

    def piece(self, path: str, start: Place, end: Place) -> None:
        """Slice the bytes where they are read: a case that is not taken has none."""
        if path in self.wanted:
            self.line(f"{self.names[path]} = data[{start}:{'' if str(end) == self.end else end}]")

    def fit(self, op: Fit) -> None:
        """Refuse a count whose elements cannot fit."""
        count = self.value_of(op.count)
        self._unless(f"{count} > ({self.left}) // {op.smallest}", f"too_many({op.what!r}, {count}, {self.left})")

    def special(self, op: Op) -> None:
        """Read lists."""
        if not isinstance(op, Many):
            return super().special(op)
        items = self.lists.get(op.path)
        sizes = [size_of(one) for one in op.ops]
        if all(isinstance(one, Load) and not one.big and one.width in _CODES for one in op.ops) and items is not None:
            return self._table(op, items, sum(size or 0 for size in sizes))
        return self._loop(op, items)

    def _table(self, op: Many, items: Items, size: int) -> None:
        """Read a list whose elements are numbers of fixed sizes."""
        start, end, count = self.at, self.variable(), self.value_of(op.count)
        self.line(f"{end} = {start} + {size} * {count}")
        self._unless(f"not {start} <= {end} <= limit", f"short((({op.path!r}, {size} * {count}),), {self.left})")
        layout, targets, _ = self._layout(list(op.ops))  # type: ignore[arg-type]
        unpack, made = self.constant("unpack", struct.Struct(layout).iter_unpack), self.element(items)
        numbers = f"{', '.join(targets)},"
        source = f"{unpack}(data[{start}:{end}])"
        self.line(
            f"{self.names[op.path]} = "
            + self.listed(source if made == f"({numbers})" else f"[{made} for {numbers} in {source}]")
        )
        self.at = Place(end, 0)

    def _loop(self, op: Many, items: Items | None) -> None:
        """Read a list of any elements; each takes at least a byte, so there are never more rounds than bytes."""
        place, out, line = self.variable(), self.names[op.path], self.line
        line(f"{place} = {self.at}")
        line(f"{out} = []")
        line(f"for _ in range({self.value_of(op.count)}):")
        with line.indented():
            self.at = Place(place, 0)
            self.zeros(op.ops)
            self.read(op.ops)
            if items is not None:
                line(f"{out}.append({self.element(items)})")
            line(f"{place} = {self.at}")
        line(f"{out} = {self.listed(out)}")
        self.at = Place(place, 0)

    def listed(self, source: str) -> str:
        """Return the source of a list of what an expression yields."""
        return source if source.startswith("[") or source.isidentifier() else f"list({source})"

    def element(self, items: Items) -> str:
        """Return the source of one element of a list."""
        return self.shown(items.element)

    def _unless(self, test: str, error: str) -> None:
        self.line(f"if {test}: raise {error}")

    # -- values ------------------------------------------------------------------------------------------------------

    def dictionary(self, members: tuple[Member, ...]) -> str:
        """Return the source of a dictionary of unconditional members.

        Raises:
            UnlowerableError: one of them may be absent.
        """
        if any(member.test is not None for member in members):
            raise Unlowerable(members[0].name, "what is inside of each other is there as a whole")
        return "{" + ", ".join(f"{member.name!r}: {self.shown(member.value)}" for member in members) + "}"

    def shown(self, value: Value | Outside) -> str:
        """Return the source of a value as `dump` shows it."""
        match value:
            case Number(path=path) | Items(path=path):
                return self.names[path]
            case Choice(path=path, names=names):
                return f"{self.constant('names', dict(names))}.get({self.names[path]}, {self.names[path]})"
            case Piece(path=path, leaf=leaf):
                name = self.names[path]
                return name if path in self.made else self.leaf(leaf, name)
            case Group(members=members):
                return self.dictionary(members)
            case Title(parts=parts):
                return "None" if parts is None else "f'" + "".join(map(self._part, parts)) + "'"
            case Outside(name=name):
                return name

    def _part(self, part: str | Number | Piece | Outside) -> str:
        return repr(part)[1:-1] if isinstance(part, str) else f"{{{self.shown(part)}}}"

    def leaf(self, leaf: Leaf | None, data: str) -> str:
        """Return the source of bytes as their leaf format shows them."""
        if leaf is not None and leaf.read is None:
            raise Unlowerable(data, "only compiled code writes it")
        return data if leaf is None else f"{self.constant('leaf', leaf.read)}({data})"
