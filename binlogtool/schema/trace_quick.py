"""Fast versions of what an annotated parse uses in every record: expressions and structures."""

from __future__ import annotations

import operator
import re
from typing import Any

from construct import Container, StopFieldError, Struct
from construct.expr import BinExpr, Path, UniExpr

from binlogtool.schema.trace_shapes import RecordingContext
from binlogtool.schema.trace_words import find_field_paths

_PLAIN_PATH = re.compile(r"this(\['\w+'\])+")


def compile_expression(expression: Any) -> Any:
    """Return a plain function for a `this` expression; anything else is returned unchanged."""
    match expression:
        case Path() if _PLAIN_PATH.fullmatch(repr(expression)):
            return _compile_path(*find_field_paths(expression)[0])
        case BinExpr():
            return _compile_binary(
                expression.op, compile_expression(expression.lhs), compile_expression(expression.rhs)
            )
        case UniExpr() if callable(operand := compile_expression(expression.operand)):
            op = expression.op
            return lambda this: op(operand(this))
    return expression


def _compile_path(first: str, *names: str) -> Any:
    if not names:
        return operator.itemgetter(first)
    if len(names) == 1:
        (second,) = names
        return lambda this: this[first][second]
    inner = _compile_path(*names)
    return lambda this: inner(this[first])


def _compile_binary(op: Any, left: Any, right: Any) -> Any:
    if not callable(left):
        return lambda this: op(left, right(this) if callable(right) else right)
    if not callable(right):
        return lambda this: op(left(this), right)
    return lambda this: op(left(this), right(this))


class FastContext(dict[Any, Any]):
    """The context that expressions of a structure see: a `Container` without its slow bookkeeping of the order."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    __setattr__ = dict.__setitem__


class TracedStruct(Struct):  # type: ignore[misc]
    """A structure.

    Attributes:
        steps: Name and parser of each member, or the names of several members whose parser gives all values.
    """

    steps: tuple[tuple[str | tuple[str, ...] | None, Any], ...]

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        values, get = Container(_io=stream), dict.get
        recorder = getattr(path, "recorder", None)
        inner: Any = (FastContext if recorder is None else RecordingContext)(
            _=context, _params=get(context, "_params"), _root=None, _parsing=get(context, "_parsing"),
            _building=get(context, "_building"), _sizing=get(context, "_sizing"), _subcons=self._subcons, _io=stream,
            _index=get(context, "_index"),
        )  # fmt: skip
        if recorder is not None:
            inner.recorder, inner.stem = recorder, path.prefix
        inner["_root"] = get(context, "_root", inner)
        try:
            for name, read in self.steps:
                value = read(stream, inner, path)
                if name.__class__ is tuple:
                    dict.update(values, zip(name, value, strict=True))
                    dict.update(inner, zip(name, value, strict=True))
                elif name:
                    values[name] = inner[name] = value
        except StopFieldError:
            pass
        finally:
            inner["_root"] = None  # no cycle: its memory is free at once
        return values
