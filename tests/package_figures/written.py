"""Which records compiled code writes as lines of JSON, and which the general writer does, by format and type.

python -m tests.package_figures --written FOLDER        a row for each type, of all logs below the folder
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import msgspec

import binlogtool
from binlogtool.core.record_and_selection_types import RecordBlock
from binlogtool.core.record_filter import RecordRange
from binlogtool.errors import BinlogtoolError
from binlogtool.report.dump_output_formats import CompiledLineEncoder, EncodedLines

_type_of = msgspec.json.Decoder(msgspec.defstruct("Line", [("type", str)])).decode


class Written(NamedTuple):
    """Records by format and type, and seconds by format: of compiled code, and of the general way without writing."""

    compiled: Counter[tuple[str, str]]
    general: Counter[tuple[str, str]]
    seconds: dict[bool, Counter[str]]


def written(folder: Path) -> Written:
    """What is written how, of every log below a folder."""
    found = Written(Counter(), Counter(), {True: Counter(), False: Counter()})
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        try:
            _count(path, found)
        except BinlogtoolError:
            continue  # no log, or none that can be read
    return found


def _count(path: Path, found: Written) -> None:
    with binlogtool.open(path) as log:
        lines = CompiledLineEncoder()
        for stretch in log.record_ranges():
            if not isinstance(stretch, RecordRange):
                continue
            name, began = stretch.decoder.format.name, perf_counter()
            for part in lines.encode_range(stretch):
                is_compiled = isinstance(part, EncodedLines)
                if isinstance(part, RecordBlock):
                    types = [record.type for record in part]
                    found.seconds[False][name] += perf_counter() - began
                else:
                    found.seconds[True][name] += perf_counter() - began
                    types = [_type_of(line).type for line in bytes(part.data).splitlines()]
                (found.compiled if is_compiled else found.general).update((name, type_) for type_ in types)
                began = perf_counter()


def table(found: Written) -> Iterator[str]:
    """All of it in Markdown: the formats, then their types, the most frequent first."""
    yield "| format | type | compiled | general | share compiled |"
    yield "|---|---|---:|---:|---:|"
    keys = set(found.compiled) | set(found.general)
    for name in sorted({name for name, _ in keys}):
        own = [(found.compiled[key], found.general[key], key[1]) for key in keys if key[0] == name]
        spent, other = (found.seconds[is_compiled][name] for is_compiled in (True, False))
        yield _row(
            name, f"all: {1000 * spent:.0f} and {1000 * other:.0f} ms", *map(sum, list(zip(*own, strict=True))[:2])
        )
        for compiled, general, type_ in sorted(own, key=lambda one: (-one[0] - one[1], one[2])):
            yield _row("", type_, compiled, general)


def _row(name: str, type_: str, compiled: int, general: int) -> str:
    return f"| {name} | {type_} | {compiled:,} | {general:,} | {100 * compiled / (compiled + general):.0f} % |"
