"""Log-shaped outputs: one file, made of the records in their order (or reversed), in this process."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

import binlogtool
from binlogtool.errors import BinlogtoolError, InputOutputError, UsageError
from binlogtool.findings import LEFT_OUT, Severity
from binlogtool.formats.changes import Changes
from binlogtool.formats.detecting import Hints
from binlogtool.formats.scripting import Wording
from binlogtool.limits import Limits
from binlogtool.log import detect
from binlogtool.log.body_json import finding_json
from binlogtool.log.logset import members_among
from binlogtool.log.longvalues import Filler
from binlogtool.log.records import Block, Passage, ScriptEnd, Text, Trouble
from binlogtool.log.select import Selection, is_partial, proven_only
from binlogtool.pipeline.account import Account, OnStep, Step
from binlogtool.pipeline.envelopes.messages import Messages, beginning
from binlogtool.pipeline.envelopes.values import Line
from binlogtool.pipeline.envelopes.wishes import Options
from binlogtool.pipeline.inputs import sha256
from binlogtool.pipeline.manifest import Check, Input, Manifest, Output
from binlogtool.pipeline.writers.backwards import Backwards
from binlogtool.pipeline.writers.scripts import count_statements, pieces, reach

Lines = Callable[[Block], bytes]
"""Encodes a block as lines, one per record, each with its line end."""

Part = Block | Passage | Text | Trouble


class StreamJob(msgspec.Struct):
    """One conversion to jsonl (`lines` encodes blocks, or `envelope` describes messages), raw, sql or sql-undo
    (`wording`).

    take: receives the messages in place of the file.
    """

    to: str
    limits: Limits
    backend: str
    selection: Selection
    hints: Hints | None = None
    lines: Lines | None = None
    wording: Wording = Wording()
    on_step: OnStep | None = None
    envelope: Options | None = None
    take: Callable[[Line], None] | None = None
    messages: list[Messages] = msgspec.field(default_factory=list)
    account: Account = msgspec.field(default_factory=Account)
    taken: Counter[str] = msgspec.field(default_factory=Counter)
    raw_bytes: int = 0
    damaged: bool = False
    unchosen: bool = False
    """True if an option left something out, which was reported as a finding."""
    ends: list[ScriptEnd] = msgspec.field(default_factory=list)
    remarks: tuple[str, ...] = ()
    """Names in the selection that the log does not have."""

    def write(self, format: str, inputs: list[Input], stage: Path) -> Manifest:
        """Write the file at `stage`, and read it back.

        Raises:
            InputOutputError: the file does not hold what was read.
            UsageError: the format has no such records.
        """
        files = [i.path for i in inputs]
        with (
            binlogtool.open(files, format=format, limits=self.limits, backend=self.backend, hints=self.hints) as log,
            stage.open("xb") as out,
        ):
            made = self._made(self.told(self.parts(log), inputs), stage.parent)
            digest = hashlib.sha256()
            for data in made:
                digest.update(data)
                out.write(data)
            if not self.damaged and self.account.errors <= int(self.unchosen):
                self._demand_names(log)
        if self.wording.undo:
            self.remarks += tuple(_unread_later(inputs))
        stopped = self.selection.on_damage == "stop" and self.account.errors > 0
        checks = () if stopped else tuple(self._proven(stage, digest.hexdigest()))
        lines = self._rows
        output = Output(stage.name, lines, stage.stat().st_size)
        return self.manifest(inputs, (output,), checks, complete=not stopped)

    # -- writing -----------------------------------------------------------------------------------------------

    @property
    def _is_script(self) -> bool:
        return self.to in ("sql", "sql-undo")

    def _demand_names(self, log: binlogtool.Log) -> None:
        """Check that something was selected.

        Raises:
            UsageError: the selection names what the log does not have, or a script would be empty.
        """
        is_script, chosen = self._is_script, self.taken.total() if self.envelope is None else self.messages_made
        chosen = sum(not one.is_empty for one in self.ends) if is_script else chosen
        found = log.unmatched(self.selection, chosen)
        if not chosen:
            found.demand_none()
            if is_script and not self.account.errors and (self.wording.undo or is_partial(self.selection)):
                what = "no change of rows to take back" if self.wording.undo else "nothing for a script"
                why = f" ({'; '.join(found.absent)})" if found.absent else ""
                raise UsageError(f"the selection has {what}; nothing was written{why}")
        self.remarks = (*found.missing, *found.absent)

    @property
    def row_changes(self) -> int | None:
        """Number of row changes in the scripts; None = they are not counted."""
        counts = [one.row_changes for one in self.ends if one.row_changes is not None]
        return sum(counts) if counts else None

    @property
    def messages_made(self) -> int:
        """Number of messages written so far."""
        return sum(one.count for one in self.messages)

    def parts(self, log: Any) -> Iterator[Part]:
        """Return the parts of the log that the target is made of."""
        if self._is_script:
            return iter(log.statements(reach(self.selection), self.wording))
        if self.to == "raw":
            proven_only(self.selection, "a stream of raw bytes")
            return iter(log.blocks(self.selection, decode="frame", raw=True))
        if self.envelope is not None:
            begin = beginning(self.envelope, self.selection, self.take)

            def begun(changes: Changes) -> Messages:
                self.messages.append(begin(changes))
                return self.messages[-1]

            return iter(log.messages(reach(self.selection), begun))
        return iter(log.blocks(self.selection))

    def told(self, parts: Iterable[Part], inputs: list[Input]) -> Iterator[Block | Passage | Text]:
        """Yield the parts except damage, which is recorded for the manifest; count records and report progress."""
        before, total = _places(inputs)
        for part in parts:
            if isinstance(part, Trouble):
                self.account.add(part.file, finding_json(part.finding), damage=True)
                if part.finding.severity is Severity.ERROR:
                    self.unchosen |= part.finding.id == LEFT_OUT
                    self.damaged |= part.finding.id != LEFT_OUT
                continue
            if isinstance(part, Text) and part.end is not None:
                self.ends.append(part.end)
            if isinstance(part, Passage):
                self.taken[part.file] += len(part.record)
            if isinstance(part, Block) and len(part):
                self._book(part)
                if self.on_step is not None:
                    done = before[part.file] + int(part.offset[-1]) + int(part.size[-1])
                    self.on_step(Step("converting", done, total, self.taken.total()))
            yield part

    def _book(self, block: Block) -> None:
        self.taken[block.file] += len(block)
        for one in (f for findings in block.findings.values() for f in findings):
            unwritten = (self._is_script or self.envelope is not None) and one.severity is Severity.ERROR
            self.account.add(block.file, finding_json(one), damage=unwritten)

    def _made(self, parts: Iterable[Block | Passage | Text], folder: Path) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the file."""
        if not self.wording.undo:
            filler = Filler()
            for part in parts:
                if isinstance(part, Text | Passage):
                    yield part.data
                else:
                    yield from filler.filled(self._encoded(part), part.taken)
            return
        with Backwards(folder) as script:
            for part in parts:
                script.add([bytes(part.data)] if isinstance(part, Text | Passage) else pieces(part))
            yield from script.read()

    def _encoded(self, block: Block) -> bytes:
        if self.envelope is not None:
            return b"".join(body or b"" for body in block.bodies)
        if self.lines is not None:
            return self.lines(block)
        if self._is_script:
            return b"".join(pieces(block))
        data = b"".join(block.raw or ())
        self.raw_bytes += sum(
            int(inner.size if inner else size) for size, inner in zip(block.size, block.inner, strict=True)
        )
        return data

    @property
    def _rows(self) -> int:
        """Number of records; of a script its row changes if they are counted; of an envelope its messages."""
        records = self.taken.total() if self.row_changes is None else self.row_changes
        return records if self.envelope is None else self.messages_made

    # -- the proof -----------------------------------------------------------------------------------------------------

    def _proven(self, stage: Path, digest: str) -> Iterator[Check]:
        rows, size, found = self.taken.total(), stage.stat().st_size, sha256(str(stage))
        if found != digest:
            raise InputOutputError(f"{stage}: what was read back is not what was written")
        if self.envelope is not None:
            lines, made = _count_lines(stage), self.messages_made
            if lines != made:
                raise InputOutputError(f"{stage}: {lines:,} lines were found where {made:,} were written")
            yield Check("messages-in-equal-lines-out", f"{made:,} messages of {rows:,} records, {lines:,} lines")
        elif self.to == "jsonl":
            lines = _count_lines(stage)
            if lines != rows:
                raise InputOutputError(f"{stage}: {lines:,} lines were found where {rows:,} were written")
            yield Check("rows-in-equal-rows-out", f"{rows:,} records read, {lines:,} lines counted in the output")
        if self.to == "raw":
            if self.raw_bytes != size:
                raise InputOutputError(f"{stage}: {size:,} bytes were written for records of {self.raw_bytes:,}")
            yield Check("bytes-in-equal-bytes-out", f"{rows:,} records of {self.raw_bytes:,} bytes, {size:,} written")
        if self._is_script:
            of = "" if self.row_changes is None else f" with {self.row_changes:,} row changes"
            yield Check("statements-are-whole", f"{count_statements(stage):,} statements of {rows:,} records{of}")
        yield Check("read-back-equal", f"sha256 {digest} of {size:,} bytes")

    def manifest(
        self, inputs: list[Input], outputs: tuple[Output, ...], checks: tuple[Check, ...], *, complete: bool
    ) -> Manifest:
        """Build the manifest. complete: the output is published."""
        stopped = "options" if self.unchosen else self.to if self.envelope is None else "envelope"
        details: dict[str, Any] = {} if self.envelope is None else {"envelope": self.envelope.envelope}
        details |= {} if complete or self.damaged else {"stopped_by": stopped}
        details |= {"remarks": list(self.remarks)} if self.remarks else {}
        details |= {} if self.row_changes is None else {"row_changes": self.row_changes}
        return Manifest(
            to="",
            output="",
            complete=complete,
            on_damage=self.selection.on_damage,
            inputs=tuple(replace(i, records=self.taken[i.path]) for i in inputs),
            outputs=outputs,
            rows=self._rows,
            damage=0,
            findings=tuple(self.account.listed),
            finding_counts=dict(self.account.counts),
            checks=checks,
            details=details,
        )


def _unread_later(inputs: Sequence[Input]) -> Iterator[str]:
    """Yield a remark if the last input belongs to a set whose later logs are not among the inputs."""
    path = os.path.abspath(inputs[-1].path)
    folder, base = os.path.dirname(path), os.path.splitext(path)[0]
    try:
        names = [name for name in os.listdir(folder) if os.path.splitext(os.path.join(folder, name))[0] == base]
        logs = members_among(folder, sorted(names), detect.by_name(inputs[-1].format)).logs if names[1:] else []
    except (BinlogtoolError, OSError):
        return
    given = {os.path.abspath(one.path) for one in inputs}
    for log in logs:
        paths = [os.path.abspath(os.path.join(log.home, name)) for name in log.names]
        later = [one for one in paths[paths.index(path) + 1 :] if one not in given] if path in paths else []
        if later:
            more = f" and {len(later) - 1:,} more" if later[1:] else ""
            text = f"not checked: whether the chosen rows were changed again in {os.path.basename(later[0])}{more}"
            yield f"{text}; give the later logs, or the directory, as well"


def _places(inputs: list[Input]) -> tuple[dict[str, int], int]:
    """Return the number of bytes before each file, and the total."""
    before, total = dict[str, int](), 0
    for one in inputs:
        before[one.path] = total
        total += one.size
    return before, total


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
