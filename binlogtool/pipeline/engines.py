"""What runs the kernels on the executors, which may lack the native code that the driver has: they tell its name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from pyspark.accumulators import AccumulatorParam

T = TypeVar("T")


class _Names(AccumulatorParam[set[str]]):  # type: ignore[misc]
    """Adds what is new."""

    def zero(self, value: set[str]) -> set[str]:
        return set()

    def addInPlace(self, value1: set[str], value2: set[str]) -> set[str]:
        return value1 | value2


def tally(context: Any) -> Any:
    """What executors fill with the names of what runs the kernels there."""
    return context.accumulator(set(), _Names())


def noticed(shares: Iterable[Iterable[T]], names: Any) -> Iterator[T]:
    """On an executor: the items of all shares, and the name of what runs the kernels here, told once."""
    from binlogtool.errors import BinlogtoolError
    from binlogtool.schema.backends import choose

    with contextlib.suppress(BinlogtoolError):
        names.add({choose("auto").name})
    for share in shares:
        yield from share
