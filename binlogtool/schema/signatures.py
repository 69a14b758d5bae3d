"""Declared types of kernels: the type of each parameter and the number of results (`formats.kernel_types`)."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, get_args, get_origin

import msgspec

from binlogtool.formats.kernel_types import ArrayType


class KernelError(ValueError):
    """A function uses something that a kernel may not use."""


class StructType(msgspec.Struct, frozen=True):
    """A struct. fields: in their order; None: an integer or a truth value."""

    name: str
    fields: dict[str, ArrayType | None]


class Signature(msgspec.Struct, frozen=True):
    """The types of one kernel.

    Attributes:
        parameters: In order; None = an integer or a truth value.
        results: How many integers it returns.
    """

    parameters: dict[str, ArrayType | StructType | None]
    results: int

    @property
    def passed(self) -> list[ArrayType | None]:
        """What compiled code passes: the fields of a struct one by one."""
        passed: list[ArrayType | None] = []
        for kind in self.parameters.values():
            passed += kind.fields.values() if isinstance(kind, StructType) else [kind]
        return passed


def read_signature(function: Callable[..., Any]) -> Signature:
    """Return the declared types of a kernel.

    Raises:
        KernelError: the function is not a plain one, or a type is missing or not one that a kernel can have.
    """
    if not isinstance(function, FunctionType) or function.__code__.co_freevars:
        raise KernelError(f"{function!r} is not a plain module-level function")
    code = function.__code__
    if code.co_kwonlyargcount or code.co_flags & 0x0C or function.__defaults__:
        raise KernelError(f"{_qualify_name(function)}: a kernel has positional parameters only, without defaults")
    names = code.co_varnames[: code.co_argcount]
    parameters = {name: _read_parameter_type(function, name) for name in names}
    return Signature(parameters, _count_results(function, _evaluate_annotation(function, "return")))


def struct_of(kind: type) -> StructType:
    """The declared types of the fields of a `NamedTuple`.

    Raises:
        KernelError: a field is neither an integer nor an array.
    """
    fields = {}
    for name, declared in kind.__annotations__.items():
        text = getattr(declared, "__forward_arg__", None)
        meant = declared if text is None else eval(text, vars(sys.modules[kind.__module__]), vars(builtins))
        fields[name] = _plain(meant, f"{kind.__module__}.{kind.__qualname__}: the type of field {name!r}")
    return StructType(f"{kind.__module__}.{kind.__qualname__}", fields)


def is_struct(declared: Any) -> bool:
    """Is it a class made by `NamedTuple`?"""
    return isinstance(declared, type) and issubclass(declared, tuple) and hasattr(declared, "_fields")


def _read_parameter_type(function: FunctionType, name: str) -> ArrayType | StructType | None:
    declared = _evaluate_annotation(function, name)
    if is_struct(declared):
        return struct_of(declared)
    return _plain(declared, f"{_qualify_name(function)}: the type of parameter {name!r}")


def _plain(declared: Any, what: str) -> ArrayType | None:
    if declared in (int, bool):
        return None
    for data in getattr(declared, "__metadata__", ()):
        if isinstance(data, ArrayType):
            return data
    raise KernelError(
        f"{what} is {declared!r}; declare it as int, bool, an array type of binlogtool.formats.kernel_types, or a "
        "NamedTuple of these"
    )


def _count_results(function: FunctionType, declared: Any) -> int:
    if declared in (int, bool):
        return 1
    elements = get_args(declared)
    if get_origin(declared) is tuple and len(elements) > 1 and all(one in (int, bool) for one in elements):
        return len(elements)
    raise KernelError(
        f"{_qualify_name(function)}: the type of the result is {declared!r}; declare int, bool or tuple[int, …]"
    )


def _evaluate_annotation(function: FunctionType, name: str) -> Any:
    """Return the value of an annotation, in the module of the function; None if there is none."""
    text = function.__annotations__.get(name)
    if not isinstance(text, str):
        return text
    try:
        return eval(text, function.__globals__, vars(builtins))
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise KernelError(
            f"{_qualify_name(function)}: the type {text!r} of {name!r} is not known when the module is "
            f"imported: {error}"
        ) from None


def _qualify_name(function: FunctionType) -> str:
    return f"{function.__module__}.{function.__qualname__}"
