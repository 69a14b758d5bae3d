"""Parts of construct that an annotated parse meets in every record, with less work: expressions and structures."""

from __future__ import annotations

from typing import Any

from construct import Container, StopFieldError, Struct
from construct.expr import BinExpr, ExprMixin, FuncPath, Path, Path2, UniExpr, opnames

from binlogtool.schema.generate import load


class _OtherError(Exception):
    """An expression that is left as it is."""


def quick(expression: Any) -> Any:
    """A plain function with the value of a `this` expression; anything else is given back as it is."""
    if not isinstance(expression, ExprMixin):
        return expression
    constants: dict[str, Any] = {}
    try:
        text = _text(expression, constants)
    except _OtherError:
        return expression
    return load(f"def value(this, *_):\n    return {text}\n", "this", constants)["value"]


def _text(expression: Any, constants: dict[str, Any]) -> str:
    match expression:
        case Path():
            text = repr(expression)
            if not text.startswith("this["):
                raise _OtherError
            return text
        case BinExpr():
            left, right = _text(expression.lhs, constants), _text(expression.rhs, constants)
            return f"({left} {opnames[expression.op]} {right})"
        case UniExpr():
            return f"({opnames[expression.op]} {_text(expression.operand, constants)})"
        case Path2() | FuncPath():
            raise _OtherError
    if callable(expression):
        raise _OtherError
    name = f"c{len(constants)}"
    constants[name] = expression
    return name


class Members(Struct):  # type: ignore[misc]
    """A structure. steps: name and parser of each member."""

    steps: tuple[tuple[str | None, Any], ...]

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        values = Container(_io=stream)
        inner = Container(
            _=context, _params=context["_params"], _root=None, _parsing=context["_parsing"],
            _building=context["_building"], _sizing=context["_sizing"], _subcons=self._subcons, _io=stream,
            _index=context.get("_index"),
        )  # fmt: skip
        inner["_root"] = context.get("_root", inner)
        try:
            for name, read in self.steps:
                value = read(stream, inner, path)
                if name:
                    values[name] = inner[name] = value
        except StopFieldError:
            pass
        return values
