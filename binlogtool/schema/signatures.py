"""Declared types of kernels: what each parameter is and how many values come back (`formats.kernel_types`)."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from types import FunctionType
from typing import Any, get_args, get_origin

import msgspec

from binlogtool.formats.kernel_types import ArrayType


class KernelError(ValueError):
    """A function uses something that a kernel may not use."""


class Signature(msgspec.Struct, frozen=True):
    """The types of one kernel.

    parameters: in their order; None: an integer or a truth value.
    results: how many integers it returns.
    """

    parameters: dict[str, ArrayType | None]
    results: int

    @property
    def arrays(self) -> dict[str, ArrayType]:
        """The parameters that are arrays."""
        return {name: kind for name, kind in self.parameters.items() if kind is not None}


def signature_of(function: Callable[..., Any]) -> Signature:
    """The declared types of a kernel.

    Raises:
        KernelError: the function is not a plain one, or a type is missing or none that a kernel can have.
    """
    if not isinstance(function, FunctionType) or function.__code__.co_freevars:
        raise KernelError(f"{function!r} is not a plain module-level function")
    code = function.__code__
    if code.co_kwonlyargcount or code.co_flags & 0x0C or function.__defaults__:
        raise KernelError(f"{_title(function)}: a kernel has positional parameters only, without defaults")
    names = code.co_varnames[: code.co_argcount]
    parameters = {name: _parameter(function, name) for name in names}
    return Signature(parameters, _results(function, _declared(function, "return")))


def _parameter(function: FunctionType, name: str) -> ArrayType | None:
    declared = _declared(function, name)
    if declared in (int, bool):
        return None
    for data in getattr(declared, "__metadata__", ()):
        if isinstance(data, ArrayType):
            return data
    raise KernelError(
        f"{_title(function)}: the type of parameter {name!r} is {declared!r}; declare it as int, bool, or one of the "
        "array types of binlogtool.formats.kernel_types"
    )


def _results(function: FunctionType, declared: Any) -> int:
    if declared in (int, bool):
        return 1
    elements = get_args(declared)
    if get_origin(declared) is tuple and len(elements) > 1 and all(one in (int, bool) for one in elements):
        return len(elements)
    raise KernelError(f"{_title(function)}: the type of the result is {declared!r}; declare int, bool or tuple[int, …]")


def _declared(function: FunctionType, name: str) -> Any:
    """What an annotation means, in the module of the function; None = there is none."""
    text = function.__annotations__.get(name)
    if not isinstance(text, str):
        return text
    try:
        return eval(text, function.__globals__, vars(builtins))
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise KernelError(
            f"{_title(function)}: the type {text!r} of {name!r} is not known when the module is imported: {error}"
        ) from None


def _title(function: FunctionType) -> str:
    return f"{function.__module__}.{function.__qualname__}"
