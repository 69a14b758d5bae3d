"""Table outputs: write the rows of all files with Spark, then count them again in the written files."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict, replace

from binlogtool.errors import InputOutputError, UsageError
from binlogtool.formats.detecting import Hints
from binlogtool.limits import MIB, Limits
from binlogtool.log import detect
from binlogtool.log.open import Log
from binlogtool.log.select import Selection
from binlogtool.pipeline import notes
from binlogtool.pipeline.account import OnStep, Phases, Step
from binlogtool.pipeline.fleet import Fleet
from binlogtool.pipeline.inputs import full_path
from binlogtool.pipeline.manifest import Check, Input, Manifest
from binlogtool.pipeline.master import Master, common_folder, work_of
from binlogtool.pipeline.session import OnProgress, Session, cause_of, open_session, running
from binlogtool.pipeline.tasks import Member, can_split
from binlogtool.pipeline.writers import table_form
from binlogtool.pipeline.writers.table_form import Shape

if TYPE_CHECKING:
    from binlogtool.pipeline.handing import Handed
    from binlogtool.pipeline.request import Request
    from binlogtool.pipeline.small import Made
    from binlogtool.pipeline.written import Counted

_PARQUET = Shape("parquet")
_PHASES = {"reading headers": 0.1, "converting": 0.8, "reading back": 0.1}
"""Stages of a job, and the share of its time that each takes."""
_PARTS_PER_FILE = 4
MOST_SPLIT = 1024 * MIB
"""Maximum part of a log in a big job."""
SPLIT_SIZE = 16 * MIB
"""Shorter logs are not split: parts must be small compared with an output file, so that the files have similar sizes.
"""


class TableJob(msgspec.Struct, frozen=True):
    """One conversion of records to a table format. session: a running Spark to use instead of starting one at
    `master`.
    """

    limits: Limits
    backend: str
    selection: Selection
    master: str | Master
    session: Session | None = None
    on_step: OnStep | None = None
    hints: Hints | None = None
    shape: Shape = _PARQUET

    def write(self, inputs: list[Input], stage: Path) -> Manifest:
        """Write a directory of files at `stage`.

        Raises:
            UsageError: --skip, --limit or --tail with several files.
            MissingExtraError, InputOutputError, LimitError, KeyboardInterrupt.
        """
        return replace(self, on_step=self._phases(inputs))._written(inputs, stage)

    def _phases(self, inputs: list[Input]) -> OnStep | None:
        return None if self.on_step is None else Phases(self.on_step, _PHASES, sum(i.size for i in inputs))

    def _written(self, inputs: list[Input], stage: Path) -> Manifest:
        from binlogtool.pipeline.handing import Handed, Sums
        from binlogtool.pipeline.written import counted

        _demand_order(inputs, self.selection)
        end = None if self.limits.timeout is None else time.monotonic() + self.limits.timeout
        small, inputs = self._small(inputs, end)
        self._tell("starting Spark", 0, sum(i.size for i in inputs))
        with self._running(small, self._work(inputs)) as session:
            fleet = Fleet(
                session=session,
                on_step=self.on_step,
                timeout=_left(end),
                here=small is not None,
                work=self._work(inputs),
            )
            sums = session.spark.sparkContext.accumulator(Handed(), Sums())
            if small is None:
                frame, inputs = self._read(session, fleet, inputs, stage, sums)
            else:
                sums.add(small.handed(self.shape))
                frame = session.spark.createDataFrame(small.rows).coalesce(1)
            work = partial(self._spark_write, session, frame, stage)
            name = f"{fleet.work}: converting"
            session.run(work, self._progress(inputs), _left(end), name=name, record=fleet.record)
            fleet = replace(fleet, timeout=_left(end))
            written = counted(fleet, stage, self.shape, events=self._is_of_events(inputs))
        notes.take(stage / notes.FOLDER, written.account)
        if small is not None:
            written.account.join(small.notes)
        done = _proven(inputs, written, sums.value, self.selection, self.shape)
        if session.executors is None:
            return done
        return replace(done, details={"spark": {**fleet.record.as_value(), "observed": asdict(sums.value)}})

    def _small(self, inputs: list[Input], end: float | None) -> tuple[Made | None, list[Input]]:
        """Return the rows of a small job, and the inputs with their hashes; None for the rows if the job is not
        small.
        """
        from binlogtool.pipeline.small import is_small, made

        if self.session is not None or not Master.of(self.master).is_local or not is_small([i.size for i in inputs]):
            return None, inputs
        request, found = self._surveyed(Fleet(on_step=self.on_step, here=True), inputs, 1)
        rows = made(request, self.hints, end)
        return rows, inputs if rows is None else found

    @contextlib.contextmanager
    def _running(self, small: Made | None, work: str) -> Iterator[Session]:
        master = Master.of(self.master).doing(work)
        with running(self.session, master) if small is None else open_session(master, small=True) as session:
            yield session

    def _read(
        self, session: Session, fleet: Fleet, inputs: list[Input], stage: Path, sums: Any
    ) -> tuple[Any, list[Input]]:
        """Return the rows of a job on executors, and the inputs with their hashes. sums: see `ArrowRowMapper`."""
        from binlogtool.pipeline.datasource import BinlogReader
        from binlogtool.pipeline.handing import Handing

        request, inputs = self._surveyed(fleet, inputs, session.cores())
        reader = BinlogReader(replace(request, notes=str(stage.absolute() / notes.FOLDER)), self.hints)
        return Handing(reader, self.shape, sums).frame(session.spark), inputs

    def _work(self, inputs: list[Input]) -> str:
        return work_of(f"convert --to {self.shape.to}", [common_folder([i.path for i in inputs])])

    def _is_of_events(self, inputs: list[Input]) -> bool:
        """Return True if records are events that share the number of the record that contains them."""
        level = None if self.hints is None else self.hints.level
        return level is not None and level in {detect.by_name(i.format).reading.event_level for i in inputs if i.format}

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self.on_step is not None:
            self.on_step(Step(stage, done, total))

    def _progress(self, inputs: list[Input]) -> OnProgress | None:
        """Return a callback that reports Spark tasks as bytes, assuming groups of similar size; None without
        `on_step`.
        """
        if self.on_step is None:
            return None
        total = sum(i.size for i in inputs)
        return lambda p: self._tell(p.waiting or "converting", total * p.done // max(p.total, 1), total)

    def _surveyed(self, fleet: Fleet, inputs: list[Input], cores: int) -> tuple[Request, list[Input]]:
        """Return the request, in tasks that write one file each, and the inputs with their hashes."""
        from binlogtool.pipeline.request import Request
        from binlogtool.pipeline.survey import Ways, surveyed
        from binlogtool.pipeline.table_definitions import with_histories

        members = self._members(inputs)
        size = sum(i.size for i in inputs)
        files = self.shape.files(size, cores)
        most = min(max(SPLIT_SIZE, size // (_PARTS_PER_FILE * files)), MOST_SPLIT)
        limits = replace(self.limits, timeout=None)  # enforced here: a reader that stops early would look complete
        split_size = most if can_split(self.selection) else None
        request = with_histories(Request(members, 1, self.backend, limits, self.selection, files=files), self.hints)
        how = Ways(split_size, request, self.hints)
        known = surveyed(fleet, request.members, how, lenient=self.selection.on_damage != "stop")
        inputs = [replace(i, sha256=h.sha256, trouble=h.trouble) for i, h in zip(inputs, known.hashes, strict=True)]
        members = tuple(replace(m, trouble=i.trouble) for m, i in zip(request.members, inputs, strict=True))
        return replace(request, members=members, cuts=known.cuts), inputs

    def _members(self, inputs: list[Input]) -> tuple[Member, ...]:
        """Return the inputs with the part of the selection that applies to each; files after the stop position get
        none.
        """
        there = [i for i in inputs if not i.trouble]
        log = Log([(i.path, i.path, detect.by_name(i.format)) for i in there], self.limits, self.backend)
        known = [*log.shares(self.selection), *[replace(self.selection, start=None, stop="0")] * len(there)]
        log.close()
        share = {i.path: None if one == self.selection else one for i, one in zip(there, known, strict=False)}
        return tuple(Member(full_path(i.path), i.path, i.format, i.size, share.get(i.path), i.trouble) for i in inputs)

    def _spark_write(self, session: Session, frame: Any, stage: Path) -> None:
        """Run the Spark job that writes the rows."""
        from pyspark.errors import PythonException

        try:
            table_form.write(table_form.shaped(frame, self.shape), self.shape, stage.absolute().as_uri(), session.spark)
        except PythonException as error:
            if _OWN_ERROR not in str(error):
                raise RuntimeError(str(error)) from None  # a bug in our reader; its text is lost with the session
            raise InputOutputError(str(error).split(_OWN_ERROR)[1].splitlines()[0]) from error
        except Exception as error:
            raise InputOutputError(f"Spark could not write the output: {cause_of(error)}") from error


def _demand_order(inputs: list[Input], selection: Selection) -> None:
    """Raise UsageError for selections that count records of several files, which are read in parallel."""
    counted = (selection.skip or None, selection.limit, selection.tail) != (None, None, None)
    if len(inputs) > 1 and counted:
        raise UsageError("--skip, --limit and --tail need an order of records: convert one file, or to jsonl")


_OWN_ERROR = "binlogtool.errors.InputOutputError: "
"""Prefix of an error of our own writer in a worker's traceback."""


def _left(end: float | None) -> float | None:
    """Return the seconds until the deadline; None = no deadline."""
    return None if end is None else max(end - time.monotonic(), 0.1)


def _proven(inputs: list[Input], written: Counted, taken: Handed, selection: Selection, shape: Shape) -> Manifest:
    """Build the manifest from what was read back, after comparing it with what was read.

    Raises:
        InputOutputError: rows or texts are missing, or too many.
    """
    rows_in, text_in = taken.rows, taken.text_bytes
    if written.rows != rows_in:
        raise InputOutputError(f"{rows_in:,} rows were read and {written.rows:,} written: the output is not usable")
    if written.text_bytes != text_in:
        text = f"rows with {text_in:,} bytes of text were read and {written.text_bytes:,} written"
        raise InputOutputError(f"{text}: the output is not usable")
    checks = [
        Check("rows-in-equal-rows-out", f"{rows_in:,} rows read, {written.rows:,} counted in the output"),
        Check("texts-in-equal-texts-out", f"{text_in:,} bytes read, {written.text_bytes:,} counted in the output"),
    ]
    if selection == Selection(on_damage=selection.on_damage, live=selection.live):
        checks += written.whole(partitioned=bool(shape.partition_by))
    account = written.account
    from binlogtool.pipeline.rows import file_name

    return Manifest(
        to="",
        output="",
        complete=not (account.errors and selection.on_damage == "stop"),
        on_damage=selection.on_damage,
        inputs=tuple(
            replace(i, records=written.records[table_form.stored_text(shape, file_name(i.path))]) for i in inputs
        ),
        outputs=tuple(written.outputs),
        rows=written.rows,
        damage=account.damage_rows,
        findings=tuple(account.listed),
        finding_counts=dict(account.counts),
        checks=tuple(checks),
    )
