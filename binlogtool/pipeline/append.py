"""`convert --append`: add what is new since the last run to an existing output, each record exactly once.

A run continues where the last commit ends (`commits`), as a streaming query does (`growing`): whole transactions of
files that grow, rotate and are purged. It writes one file, proves it by reading it back, moves it into place and then
writes its commit; a run that is killed earlier has no effect.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from binlogtool.errors import BinlogtoolError, InputOutputError, RefusedError, UsageError, VanishedError
from binlogtool.findings import ENCRYPTED, Severity
from binlogtool.formats.detecting import Hints
from binlogtool.limits import Limits
from binlogtool.log.body_json import finding_json
from binlogtool.log.how import How
from binlogtool.log.open import Log
from binlogtool.log.records import Block
from binlogtool.log.select import Selection
from binlogtool.log.source import HEAD_BYTES, is_url
from binlogtool.pipeline.account import Account, OnStep, Step
from binlogtool.pipeline.commits import Added, Commit, Store, Taken, checks_of, opened
from binlogtool.pipeline.growing import Files, Growing, Planned, Told
from binlogtool.pipeline.hashes import Hashes, hashed
from binlogtool.pipeline.inputs import demand_columns
from binlogtool.pipeline.manifest import Check, Input, Manifest, Output
from binlogtool.pipeline.request import Request
from binlogtool.pipeline.stream_offset import Budget, Reached, mark_of
from binlogtool.pipeline.tasks import can_split
from binlogtool.pipeline.writers.run_file import Adding, Key, Lines, Table
from binlogtool.pipeline.writers.table_form import COMPRESSIONS, Shape

TARGETS = ("jsonl", *COMPRESSIONS)
_NEVER_SPLIT = 1 << 62
_NO_OPTION = ("on_damage", "live", "whole", "once")
"""Fields of a selection that do not change which rows are read."""

Last = dict[str, tuple[int, int, int]]
"""Per file: generation, record and index within the record of its last row."""


class AppendJob(msgspec.Struct, frozen=True):
    """One run of `--append`.

    final: the log is complete; also take what comes after the last whole transaction.
    """

    shape: Shape
    limits: Limits
    backend: str
    selection: Selection
    hints: Hints | None = None
    lines: Callable[[Block], bytes] | None = None
    on_step: OnStep | None = None
    final: bool = False

    def run(self, paths: list[str], format: str, output: str | os.PathLike[str]) -> Manifest:
        """Append what is new in the log to `output`.

        Raises:
            UsageError: an option cannot be used with --append, or no file can have records.
            RefusedError: another process is writing, the output was not made by --append, was made with other
                options,
                or an input was replaced meanwhile.
            UnknownFormatError, InputOutputError, LimitError.
        """
        self._demand_sense(paths, output := Path(output))
        growing = Growing([os.path.abspath(path) for path in paths], format, self._request(), self.hints,
                          final=self.final, strict=True)  # fmt: skip
        _demand_records(paths, growing)
        with opened(output) as store:
            last = store.last()
            _refuse_other(last.options, self._options(format), output)
            left = store.clear(last)
            done = self._appended(growing, store, last, self._options(format))
        details = {**done.details, **({"leftovers": left} if left else {})}
        return replace(done, to=self.shape.to, output=str(output), details=details)

    def _demand_sense(self, paths: list[str], output: Path) -> None:
        s = self.selection
        if s.start or s.stop or s.whole or s.tail is not None:
            raise UsageError("--append goes on where it stopped: positions and --tail are not for it")
        if not can_split(s):
            raise UsageError("--append: a condition that counts records, or asks for GTIDs, is not for it")
        if is_url(str(output)) or any(map(is_url, paths)):
            raise UsageError("--append reads and writes files of this machine, no URLs")
        if not output.parent.is_dir():
            raise InputOutputError(f"{output.parent}: no such directory")
        for path in paths:
            if not os.path.exists(path):
                raise VanishedError(f"{path}: no such file or directory")

    def _request(self) -> Request:
        return Request((), 1, self.backend, self.limits, self.selection, _NEVER_SPLIT)

    def _options(self, format: str) -> dict[str, Any]:
        """Return the options that determine the rows; all runs of an output must have the same."""
        hints, known = self.hints or Hints(), asdict(Selection())
        chosen = {n: v for n, v in asdict(self.selection).items() if v != known[n] and n not in _NO_OPTION}
        schema = None if hints.schema is None else hashlib.sha256(hints.schema.encode()).hexdigest()
        made = {"to": self.shape.to, "compression": self.shape.compression, "format": format, "level": hints.level,
                "schema": schema, **chosen}  # fmt: skip
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(made))
        return {name: value for name, value in plain.items() if value is not None}

    # -- one run -------------------------------------------------------------------------------------------------------

    def _appended(self, growing: Growing, store: Store, last: Commit, options: Mapping[str, Any]) -> Manifest:
        known = {one.name: one for one in last.inputs}
        before = {one.name: one.reached for one in last.inputs}
        after = dict(before)
        growing.advance(after, Budget())
        _forget_removed(before, after, {name for name, _ in growing.names()})
        _refuse_moved(growing, known, after)
        gone = {name for name in before if name not in after}
        pieces = [one for one in growing.pieces(before, after) if not _is_known(one, known)]
        unread = [{"file": one.file, **finding_json(one.finding)} for one in self._unreadable(growing, after)]
        if not pieces and after == {name: one for name, one in before.items() if name not in gone}:
            return self._manifest(last, (), (), (), Account(), unread)
        number = last.number + 1
        place = store.part(number, _ending(self.shape))
        pending = store.pending(place)
        adding: Adding = Table(pending, self.shape) if self.lines is None else Lines(pending, self.lines)
        try:
            hashes = self._read(growing, pieces, adding, known)
            adding.close()
            if not (last.number or adding.rows or adding.account.counts):
                files = [one.member.path for one in pieces if isinstance(one, Planned)]
                demand_columns(files, self.selection.where, How("auto", self.limits, self.backend, self.hints))
        except BaseException:
            with contextlib.suppress(Exception):
                adding.close()
            pending.unlink(missing_ok=True)
            raise
        proof = adding.proven()
        if adding.account.errors and self.selection.on_damage == "stop":
            pending.unlink()
            return self._stopped(adding)
        ends, counts = _unique(adding.keys(), _ends(last))
        added = _moved(store, pending, place, adding.rows, number)
        new = Commit(
            number=number,
            options=options,
            inputs=tuple(_inputs(known, before, after, gone, hashes, ends)),
            outputs=(*last.outputs, *added),
            rows=last.rows + adding.rows,
            new=adding.rows,
            findings=tuple(adding.account.listed),
        )
        if new.rows != sum(one.rows for one in new.outputs):
            raise InputOutputError(f"{store.output}: {new.rows:,} rows are not those of its files")
        store.commit(last, new)
        checks = checks_of(proof, last, new, counts.total())
        read = [_input(one, counts) for one in new.inputs if one.name in hashes]
        lost = [one for one in pieces if isinstance(one, Told)]
        return self._manifest(new, tuple(read), added, checks, adding.account, unread, len(lost))

    def _unreadable(self, growing: Growing, after: Files) -> Iterator[Told]:
        """Yield a finding for each file of which nothing can be read; files that have only just been started are
        skipped.
        """
        for name, format_ in growing.names():
            if name in after and after[name].place.offset:
                continue
            with _still_there(growing, name, format_) as log:
                if log is None:
                    continue
                file = log.files[0]
                if file.size is None:
                    raise UsageError(f"{name}: a packed file does not grow; convert it without --append")
                for found in file.layout.findings:
                    if found.id == ENCRYPTED or (found.severity is Severity.ERROR and file.size > HEAD_BYTES):
                        yield Told(name, file.format.name, found)

    def _read(
        self, growing: Growing, pieces: list[Planned | Told], adding: Adding, known: Mapping[str, Taken]
    ) -> dict[str, Hashes]:
        """Write the new rows, and return the hashes of each file's bytes up to the position reached.

        Raises:
            RefusedError: what was read of a file before is no longer there.
        """
        hashes, done = dict[str, Hashes](), 0
        total = sum(one.member.size for one in pieces if isinstance(one, Planned))
        for one in pieces:
            if isinstance(one, Told):
                adding.tell(one.file, one.format, one.finding, 0)
                continue
            if self.on_step is not None:
                self.on_step(Step("converting", done, total, adding.rows))
            with growing.open(one.member.path, one.member.format, one.earlier) as log:
                _demand_same(log, one)
                adding.add(log, self.selection, one.part, one.reached.born, one.reached.done)
                last = known.get(one.member.path)
                last = last if last is not None and last.generation == one.reached.born else None
                rewritten = log.files[0].format.files.rewritten
                hashes[one.member.path] = hashed(one.member.path, one.reached.place.offset, rewritten, last)
                _demand_same(log, one)
            done += one.member.size
        return hashes

    # -- results --------------------------------------------------------------------------------------------------

    def _stopped(self, adding: Adding) -> Manifest:
        return Manifest(
            to="", output="", complete=False, on_damage=self.selection.on_damage, inputs=(), outputs=(), rows=0,
            damage=0, findings=tuple(adding.account.listed), finding_counts=dict(adding.account.counts),
        )  # fmt: skip

    def _manifest(
        self, now: Commit, inputs: tuple[Input, ...], added: tuple[Added, ...], checks: tuple[Check, ...],
        account: Account, unread: list[dict[str, Any]], lost: int = 0,
    ) -> Manifest:  # fmt: skip
        """Build the manifest of a run.

        Args:
            unread: findings about files of which nothing can be read.
            lost: number of files that lost records.
        """
        return Manifest(
            to="",
            output="",
            complete=True,
            on_damage=self.selection.on_damage,
            inputs=inputs,
            outputs=tuple(Output(one.path, one.rows, one.size, one.sha256) for one in added),
            rows=sum(one.rows for one in added),
            damage=account.damage_rows,
            findings=(*account.listed, *unread),
            finding_counts=dict(account.counts + Counter(one["id"] for one in unread)),
            checks=checks,
            details={"append": {"commit": now.number, "rows": now.rows, "lost": lost + len(unread)}},
        )


def _demand_records(paths: list[str], growing: Growing) -> None:
    """Raise UsageError if every named file is an index or state file beside a log, so that nothing would ever be
    new.
    """
    if any(map(os.path.isdir, paths)):
        return
    name = kind = ""
    for name, format_ in growing.names():
        try:
            with growing.open(name, format_) as log:
                layout = log.files[0].layout
        except BinlogtoolError:
            return
        if layout.records:
            return
        kind = layout.variant
    if kind:
        raise UsageError(f"{name} ({kind}) has no records of its own: name the files of the log, or their directory")


def _ending(shape: Shape) -> str:
    """Return the suffix of the output's files, with the dot."""
    if shape.to not in COMPRESSIONS:
        return f".{shape.to}"
    from binlogtool.pipeline.typed.table_files import suffix

    return suffix(shape)


def _refuse_other(before: Mapping[str, Any], now: Mapping[str, Any], output: Path) -> None:
    """Raise RefusedError if the options differ from those of earlier runs."""
    if not before:
        return
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            was, text = (msgspec.json.encode(one.get(name)).decode() for one in (before, now))
            raise RefusedError(f"{output}: was made with other options: {name} was {was}, now {text}")


def _is_known(piece: Planned | Told, known: Mapping[str, Taken]) -> bool:
    """Return True if an earlier run already reported that this file was removed."""
    return isinstance(piece, Told) and piece.file in known and known[piece.file].gone


@contextlib.contextmanager
def _still_there(growing: Growing, name: str, format: str) -> Iterator[Log | None]:
    """Open a listed file; yield None if the server has removed or renamed it since."""
    try:
        log = growing.open(name, format)
    except VanishedError:
        yield None
        return
    with log:
        yield log


def _forget_removed(before: Files, after: Files, there: set[str]) -> None:
    """Remove purged files from `after`: not on disk, while their directory still has other files.

    A directory without any files may only be unavailable. The last files of a log that was reset count as removed,
    too.
    Files that were not named in this run are left unchanged.
    """
    folders = set(map(os.path.dirname, there))
    for name, reached in before.items():
        if os.path.lexists(name):
            after.setdefault(name, reached)
        elif os.path.dirname(name) in folders:
            after.pop(name, None)


def _refuse_moved(growing: Growing, known: Mapping[str, Taken], after: Files) -> None:
    """Raise RefusedError if a new file was read before under another path: its records would be appended twice."""
    same = dict[str, list[Taken]]()
    for one in known.values():
        if one.last is not None:
            same.setdefault(os.path.basename(one.name), []).append(one)
    for name, reached in after.items():
        others = same.get(os.path.basename(name), []) if name not in known else []
        if not others:
            continue
        with growing.open(name, reached.format) as log:
            for one in others:
                if one.end <= (log.files[0].size or 0) and mark_of(log, one.end) == one.mark:
                    told = f"{name}: is the file that was read as {one.name}, its records would be there twice"
                    raise RefusedError(
                        f"{told}: give it its path again (a symbolic link will do), or begin a new output"
                    )


def _demand_same(log: Log, piece: Planned) -> None:
    """Raise RefusedError if the file was replaced or truncated since it was planned."""
    reached = piece.reached
    if reached.mark and mark_of(log, reached.place.offset) != reached.mark:
        raise RefusedError(f"{piece.member.path} was replaced while it was read: run it again")


def _ends(last: Commit) -> Last:
    return {one.name: (one.generation, *one.last) for one in last.inputs if one.last is not None}


def _unique(keys: Iterator[Key], ends: Last) -> tuple[Last, Counter[str]]:
    """Return the last row key of each file and the number of new rows per file.

    Keys must increase within each file, so no row is there twice.

    Raises:
        InputOutputError: a key is not greater than the one before.
    """
    counts = Counter[str]()
    for generation, file, record, row in keys:
        key = (generation, record, row)
        if file in ends and key <= ends[file]:
            raise InputOutputError(f"{file}: record {record:,} would be there twice: the output is left as it was")
        ends[file] = key
        counts[file] += 1
    return ends, counts


def _moved(store: Store, pending: Path, place: Path, rows: int, number: int) -> tuple[Added, ...]:
    """Move the finished file into place; delete it if it has no rows."""
    from binlogtool.pipeline.inputs import sha256

    if not rows:
        pending.unlink()
        return ()
    made = Added(place.name, rows, pending.stat().st_size, sha256(str(pending)), number)
    store.move(pending, place)
    return (made,)


def _inputs(
    known: Mapping[str, Taken], before: Files, after: Files, gone: set[str], hashes: Mapping[str, Hashes], ends: Last
) -> Iterator[Taken]:
    """Yield the state of each input after this run; removed files stay listed, as the name may be used again."""
    for name in {**before, **after}:
        old = known.get(name)
        if name in gone and old is not None:
            yield replace(old, gone=True, begin=old.end)
        elif old is not None and before[name] == after[name]:
            yield replace(old, gone=False, begin=old.end)
        else:
            yield _taken(name, after[name], old, hashes.get(name), ends.get(name))


def _taken(
    name: str, now: Reached, old: Taken | None, digest: Hashes | None, end: tuple[int, int, int] | None
) -> Taken:
    same = old is not None and old.generation == now.born
    place = {key: value for key, value in now.as_dict().items() if key in ("offset", "record", "frame", "carried")}
    return Taken(
        name=name,
        format=now.format,
        generation=now.born,
        mark=now.mark,
        begin=old.end if old is not None and same else 0,
        end=now.place.offset,
        sha256=digest.all if digest else old.sha256 if old is not None and same else "",
        steady=digest.steady if digest else old.steady if old is not None and same else "",
        done=now.done,
        gone=False,
        place=place,
        last=None if end is None or end[0] != now.born else end[1:],
    )


def _input(one: Taken, counts: Counter[str]) -> Input:
    return Input(one.name, one.format, one.end, one.sha256, counts[one.name])
