"""Log-shaped outputs: an ordered stream of lines, written in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from binlogtool.errors import InputOutputError
from binlogtool.log.records import Block, Trouble
from binlogtool.pipeline.account import Account
from binlogtool.pipeline.jsontext import finding_value
from binlogtool.pipeline.manifest import Check, Input, Manifest, Output

Lines = Callable[[Block], bytes]
"""The lines of a block, one per record, each with its line end."""


def write_lines(
    parts: Iterable[Block | Trouble], lines: Lines, stage: Path, name: str, inputs: list[Input], on_damage: str
) -> Manifest:
    """Writes the records to `stage`, which will be called `name`; damage is told in the manifest, not in the stream.

    Raises:
        InputOutputError: the file does not hold one line per record afterwards.
    """
    account = Account()
    taken: Counter[str] = Counter()
    with stage.open("xb") as out:
        for part in parts:
            if isinstance(part, Block):
                out.write(lines(part))
                taken[part.file] += len(part)
                for one in (f for findings in part.findings.values() for f in findings):
                    account.add(part.file, finding_value(one), damage=False)
            else:
                account.add(part.file, finding_value(part.finding), damage=True)
    rows = taken.total()
    found = _count_lines(stage)
    if found != rows:
        raise InputOutputError(f"{name}: {found:,} lines were found where {rows:,} were written")
    return Manifest(
        to="",
        output="",
        complete=not (account.errors and on_damage == "stop"),
        on_damage=on_damage,
        inputs=tuple(replace(i, records=taken[i.path]) for i in inputs),
        outputs=(Output(name, rows, stage.stat().st_size),),
        rows=rows,
        damage=0,
        findings=tuple(account.listed),
        finding_counts=dict(account.counts),
        checks=(Check("rows-in-equal-rows-out", f"{rows:,} records read, {rows:,} lines counted in the output"),),
    )


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
