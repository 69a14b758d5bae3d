"""Report which backend runs the kernels on the executors, which may lack the driver's native code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from pyspark.accumulators import AccumulatorParam

T = TypeVar("T")


class _BackendNamesParam(AccumulatorParam[set[str]]):  # type: ignore[misc]
    """Accumulator parameter that joins sets of backend names."""

    def zero(self, value: set[str]) -> set[str]:
        return set()

    def addInPlace(self, value1: set[str], value2: set[str]) -> set[str]:
        return value1 | value2


def create_backend_accumulator(context: Any) -> Any:
    """Return a Spark accumulator of the backend names that executors use."""
    return context.accumulator(set(), _BackendNamesParam())


def yield_items_and_record_backend(item_groups: Iterable[Iterable[T]], backend_accumulator: Any) -> Iterator[T]:
    """Yield the items of all shares, on an executor, after adding the name of its backend to the accumulator."""
    from binlogtool.errors import BinlogtoolError
    from binlogtool.schema.backends import choose_backend

    with contextlib.suppress(BinlogtoolError):
        backend_accumulator.add({choose_backend("auto").name})
    for share in item_groups:
        yield from share
