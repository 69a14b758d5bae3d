"""The calls of the public library: reading, checking and converting logs. Those that change files: `repairs`.

Each imports what it needs when it is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Unpack

from msgspec.structs import replace

from binlogtool import limits
from binlogtool.errors import UsageError
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.detecting import Hints
    from binlogtool.formats.scripting import Wording
    from binlogtool.log.annotate import Annotated
    from binlogtool.log.compare import Compared
    from binlogtool.log.follow import Follower
    from binlogtool.log.how import Means
    from binlogtool.log.open import Log
    from binlogtool.log.select import Selection
    from binlogtool.log.watch import Watcher
    from binlogtool.pipeline.account import OnStep
    from binlogtool.pipeline.manifest import Manifest
    from binlogtool.pipeline.master import Master
    from binlogtool.pipeline.opened import Log as OpenedLog
    from binlogtool.pipeline.session import Session
    from binlogtool.recovery.diagnosis_result import Diagnoses
    from binlogtool.recovery.replay_result import OnDecision, Replayed
    from binlogtool.recovery.report import Report
    from binlogtool.recovery.wish import Wished
    from binlogtool.schema.annotation import Annotation

Path = str | PathLike[str]


def _each(paths: Path | Iterable[Path]) -> list[str]:
    """The paths of a call; a single one may stand by itself."""
    return [fspath(paths)] if isinstance(paths, str | PathLike) else [fspath(path) for path in paths]


def backend(name: str = "auto") -> str:
    """What would run the kernels: native or python. name: auto, native or python; BINLOGTOOL_BACKEND goes before it.

    Kernels of plug-in formats run as Python in both cases: native code is made when this package is built.

    Raises:
        UsageError: no such name.
        InputOutputError: native code is asked for, and there is none for this machine.
    """
    from binlogtool.schema import backends

    return backends.choose(name).name


def read_hints(
    *,
    schema: Path | None = None,
    keyfile: Path | None = None,
    keyfile_secret: Path | None = None,
    level: str | None = None,
    redo: Path | None = None,
) -> Hints:
    """What a log does not say, from files: CREATE TABLE statements, the keys of encrypted logs, the keys' own secret.

    level: what is to be a record, where the format has several levels. redo: the redo log, which is read when needed.

    Raises:
        InputOutputError: a file cannot be read. UsageError: it is larger than such a file can be.
    """
    from binlogtool.log.hints import read_hints as read

    return read(schema=schema, keyfile=keyfile, keyfile_secret=keyfile_secret, level=level, redo=redo)


def open(path: Path | Iterable[Path], **how: Unpack[Means]) -> OpenedLog:
    """Opens a file, a directory (a log set), several files of one log, or `-` (standard input), read-only.

    how, here and in the other calls: format = a name or "auto"; limits; backend = "auto", "native" or "python"; hints
    = what the log does not say (see `read_hints`).

    Raises:
        UnknownFormatError, InputOutputError, UsageError.
    """
    from binlogtool.log.how import How
    from binlogtool.log.open import open_log
    from binlogtool.pipeline.opened import Log

    return open_log(path, How(**how), Log)


def follow(
    paths: Path | Iterable[Path],
    selection: Selection | None = None,
    *,
    decode: str = "full",
    raw: bool = False,
    **how: Unpack[Means],
) -> Follower:
    """Files and directories that grow: each `look()` gives what is new in them (`log.follow`); a context manager.

    selection, decode, raw: as for `Log.blocks`; nothing is counted (`limit`, `skip`, `tail`). `limits.timeout` has no
    meaning here. how: as for `open`.
    """
    from binlogtool.log.follow import Follower
    from binlogtool.log.how import How
    from binlogtool.log.select import Selection

    return Follower(_each(paths), selection or Selection(), How(**how), decode=decode, raw=raw)


def watched(watcher: Watcher) -> AbstractContextManager[None]:
    """Tells how far the reading of the calls inside of it is (see `log.watch.Watcher`)."""
    from binlogtool.log.watch import watched as watched_by

    return watched_by(watcher)


def verify(
    paths: Path | Iterable[Path],
    *,
    depth: str = "set",
    live: bool = False,
    expect_closed: bool = False,
    **how: Unpack[Means],
) -> Report:
    """Checks files and sets. depth: frame, checksum, payload or set (each includes the ones before). how: see `open`.

    A path that cannot be read or recognised becomes a `Failure` in the report; nothing is raised for it.
    """
    from binlogtool.log.how import How
    from binlogtool.recovery.verify import Options
    from binlogtool.recovery.verify_paths import verify_paths

    known = How(**how)
    return verify_paths(_each(paths), known.format, Options.of(known, depth, live, expect_closed))


def verify_fleet(
    paths: Path | Iterable[Path], *, master: str | Master = "local[*]", on_step: OnStep | None = None, **options: Any
) -> list[Report | None]:
    """The same on Spark: one report for each path. None: `limits.timeout`, which holds for all of it, came before.

    master: Spark's master URL; its executors must see the files under the same paths. on_step: told how far it is.
    options: those of `verify`; session: a running Spark.

    Raises:
        UsageError, MissingExtraError. InputOutputError: Spark cannot start, or failed.
    """
    from binlogtool.formats.detecting import Hints
    from binlogtool.pipeline.fleet import Fleet
    from binlogtool.pipeline.fleet import verify_fleet as verify_all
    from binlogtool.pipeline.master import work_of
    from binlogtool.recovery.verify import Options

    named, format = _each(paths), options.pop("format", "auto")
    fleet = Fleet(master, options.pop("session", None), on_step, work=work_of("verify", named))
    hints = options.pop("hints", None) or Hints()
    return verify_all(named, format, Options(**options, hints=hints, causes=True), fleet)


def replay(
    paths: Path | Iterable[Path],
    *,
    on_decision: OnDecision | None = None,
    master: str | Master | None = None,
    session: Session | None = None,
    on_step: OnStep | None = None,
    **wish: Unpack[Wished],
) -> list[Replayed]:
    """What the server of each log would do with it when it starts or replays it; one result per log.

    policy: server (the engine's own rules), strict (stop at the first error), force (the engine's own way to go on).
    against: the last applied position, as the `position` of an earlier result, or a file that holds one. until: a
    position (cli.md 6.2) where the replay ends. server_version: the server that starts, such as "3.9"; None = the one
    that wrote the files. digest: False = do not compute the state. on_decision: called for each
    record that was read, as soon as it is decided. master, session: do it on this Spark (then without on_decision);
    on_step: told how far that is. The rest of `wish`: as for `open`.

    Raises:
        UnknownFormatError, InputOutputError, UsageError. LimitError: undecided records or keys do not fit into memory.
    """
    from binlogtool.formats.detecting import Hints
    from binlogtool.recovery.replay import replay_paths
    from binlogtool.recovery.wish import Wish

    told: dict[str, Any] = {**wish, "hints": wish.get("hints") or Hints()}
    format, against = told.pop("format", "auto"), told.get("against")
    known = Wish(**(told | {"against": fspath(against) if isinstance(against, PathLike) else against}))
    if master is None and session is None:
        return replay_paths(_each(paths), format, known, on_decision)
    if on_decision is not None:
        raise UsageError("single decisions are made known in the process, not on Spark")
    from binlogtool.pipeline.fleet import Fleet
    from binlogtool.pipeline.master import work_of
    from binlogtool.pipeline.replay_jobs import replay_fleet

    named = _each(paths)
    fleet = Fleet(master or "", session, on_step, known.limits.timeout, work=work_of("replay-dry-run", named))
    return replay_fleet(named, format, known, fleet)


def diagnose(paths: Path | Iterable[Path], *, server_version: str | None = None, **how: Unpack[Means]) -> Diagnoses:
    """Every log in and below the paths: does its server start, what would it lose, what can be kept. Reads only.

    server_version: the server that starts, such as "3.9"; None = the one that wrote the files. how: as for `open`.

    Raises:
        UnknownFormatError: there is no log in or below a path. InputOutputError, UsageError.
    """
    from binlogtool.formats.detecting import Hints
    from binlogtool.log.how import How
    from binlogtool.recovery.diagnosis import diagnose_paths
    from binlogtool.recovery.wish import Wish

    known = How(**how)
    hints = known.hints or Hints()
    wish = Wish(limits=known.limits, backend=known.backend, hints=hints, digest=False, server_version=server_version)
    return diagnose_paths(_each(paths), known.format, wish)


def annotate(path: Path, **options: Any) -> Annotation:
    """Every byte of a part of one file with the field that it belongs to; options as in `log.annotate.annotate_path`.

    Raises:
        UsageError, UnknownFormatError, InputOutputError, LimitError.
    """
    from binlogtool.log.annotate import annotate_path

    return annotate_path(path, **options)


def annotated(log: Log, **options: Any) -> Annotated:
    """The same of an open log, piece by piece with bounded memory; options as in `log.annotate.annotated_log`.

    Raises:
        UsageError.
    """
    from binlogtool.log.annotate import annotated_log

    return annotated_log(log, **options)


def compared(one: Log, other: Log, *, limits: Limits = Limits(), backend: str = "auto") -> Compared:
    """Two open logs of one file each, side by side: what is the same, what differs, what one of them lacks.

    Raises:
        UsageError: they cannot be compared.
    """
    from binlogtool.log.compare import compared as compare

    return compare(one, other, limits=limits, backend=backend)


def script_of(selection: Selection, **options: Any) -> tuple[Selection, Wording]:
    """What `Log.statements` needs for a script of the selected records; options as `pipeline.writers.scripts.Request`.

    Raises:
        UsageError: the options make no sense, or not with this selection.
    """
    from binlogtool.pipeline.writers import scripts

    return scripts.reach(selection), scripts.wording("sql", selection, scripts.Request(**options))


def convert(
    paths: Path | Iterable[Path], to: str, output: Path, *, selection: Selection | None = None, **options: Any
) -> Manifest:
    """Writes records as a table, as lines, as a script or as another log, with a manifest that accounts for all.

    to: as in `pipeline.jobs.convert`. options: members of `pipeline.wanted.Wanted`, and those of a script or a table.
    jsonl has the lines of `dump`, unless `lines` makes others of a block.
    append, final: True = as in `pipeline.jobs.append`: only what is new since the last run.

    Raises:
        UsageError, UnknownFormatError, InputOutputError, RefusedError, MissingExtraError.
    """
    from binlogtool.pipeline import conversions
    from binlogtool.pipeline.wanted import STOP_AT_DAMAGE

    append, final = options.pop("append", False), options.pop("final", False)
    if to == "jsonl" and options.get("lines") is None:
        from binlogtool.report.records import RecordLines

        options["lines"] = RecordLines().lines
        if not append:
            options["limits"] = replace(options.get("limits", Limits()), max_whole=limits.LONG)
    options["selection"] = selection or STOP_AT_DAMAGE
    if append:
        return conversions.append(_each(paths), to, output, final=final, **options)
    if final:
        raise UsageError("--final is for --append")
    return conversions.convert(_each(paths), to, output, **options)
