"""`binlogtool truncate-to-durable`: plan the truncation to the durable end, and apply it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from binlogtool.cli.command_classes import Command
from binlogtool.cli.options import PATH, SIZE, hint_options, network_option, o, redo_option
from binlogtool.cli.run import Run
from binlogtool.cli.selector import hints
from binlogtool.errors import BinlogtoolError, RefusedError
from binlogtool.report.policy import most_severe

if TYPE_CHECKING:
    from binlogtool.cli.destination import Output
    from binlogtool.recovery.plan import Applied, Asked, Plan

_UNCHANGED = "nothing was changed"
_ONE_PATH = ("plan", "apply_plan", "to_file")


def _truncate(run: Run, paths: tuple[str, ...], **options: Any) -> int:
    _check(paths, options, run.settings.format)
    as_json = run.settings.choose(("text", "json")) == "json"
    writes = _writes(options)
    if options["apply"] or options["apply_plan"]:
        _ready_to_ask(options)
    work = _Work(run, options, as_json, several=len(paths) > 1)
    with run.output(text=not as_json, inputs=paths, page=not writes, patient=True) as out:
        if options["apply_plan"]:
            work.saved(out, paths)
        for path in () if options["apply_plan"] else paths:
            work.path(out, path)
        run.status = most_severe(work.codes)
    return run.status


def _writes(options: dict[str, Any]) -> bool:
    return bool(options["apply"] or options["apply_plan"] or options["to_file"])


def _check(paths: tuple[str, ...], options: dict[str, Any], format_: str) -> None:
    if not paths and not options["apply_plan"]:
        raise click.UsageError("Missing argument 'PATH...'.")
    for name in _ONE_PATH:
        if options[name] is not None and len(paths) > 1:
            raise click.UsageError(f"--{name.replace('_', '-')} takes one PATH: a plan is about one log.")
    ways = [name for name in ("plan", "apply", "apply_plan", "to_file") if options[name]]
    if len(ways) > 1:
        first, second = (f"--{name.replace('_', '-')}" for name in ways[:2])
        raise click.UsageError(f"{first} and {second} exclude each other.")
    if options["apply_plan"] and any(asked_of(options).as_value()):
        raise click.UsageError("--apply-plan carries out what was planned; options that change the plan do not fit.")
    if options["allow_empty_result"] and (format_ == "auto" or any(map(os.path.isdir, paths))):
        raise click.UsageError(
            "--allow-empty-result needs --format and a FILE: say that it is a log, and of what kind."
        )
    if options["keep_after_damage"] and not options["to_file"]:
        raise click.UsageError("--keep-after-damage needs --to-file: the damaged log itself stays as it is.")


def asked_of(options: dict[str, Any]) -> Asked:
    """Build the repair policy that the options allow."""
    from binlogtool.recovery.plan import Asked

    names = (
        "max_loss", "max_loss_records", "allow_discard_valid", "allow_empty_result", "fix_meta", "write_close_marker",
        "transactions",
    )  # fmt: skip
    copy = options["to_file"] is not None
    return Asked(**{name: options[name] for name in names}, salvage=options["keep_after_damage"], copy=copy)


def has_terminal() -> bool:
    """Return True if a confirmation can be asked on a terminal."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _ready_to_ask(options: dict[str, Any]) -> None:
    """Raise RefusedError if a confirmation is needed and there is no terminal."""
    if not options["yes"] and not has_terminal():
        raise RefusedError("there is no terminal to ask on; --yes agrees beforehand; nothing was changed")


def tell_unread(run: Run, done: Applied) -> None:
    """Report on standard error what was changed, if the normal output could not be written."""
    for file in done.files:
        run.say(f"{file.path}: written, {file.size_before:,} to {file.size_after:,} bytes")
    if done.undo is not None:
        run.say(f"binlogtool undo --apply {done.undo} takes it back")


class _Work:
    """Plans and repairs one or several logs."""

    def __init__(self, run: Run, options: dict[str, Any], as_json: bool, several: bool) -> None:
        settings = run.settings
        self.codes: list[int] = []
        self._changed = self._finished = False
        self._run, self._options, self._json, self._several = run, options, as_json, several
        from binlogtool.report.following import reading

        self._given = reading(options, settings.format)
        self._reading: dict[str, Any] = {
            "format": settings.format,
            "limits": settings.limits,
            "backend": settings.backend,
            "hints": hints(options),
        }

    def path(self, out: Output, path: str) -> None:
        """Plan one log, and do with the plan what the options ask for."""
        try:
            self._path(out, path)
        except BinlogtoolError as error:
            if self._changed and error.args and _UNCHANGED in str(error):
                raise type(error)(str(error).replace(_UNCHANGED, "nothing else was changed")) from error
            raise

    def _path(self, out: Output, path: str) -> None:
        import binlogtool
        from binlogtool.report.json import document, plan_json

        self._finished = False
        if self._options["apply"]:
            self._finish(path)
        plan = binlogtool.plan_truncate(path, asked=asked_of(self._options), **self._reading)
        if self._options["plan"] is not None:
            self._run.save(self._options["plan"], document(plan_json(plan)), inputs=[path])
        self._with(out, plan)

    def saved(self, out: Output, paths: tuple[str, ...]) -> None:
        """Apply a saved plan."""
        import binlogtool

        self._with(out, binlogtool.saved_plan(self._options["apply_plan"], paths, **self._reading))

    def _finish(self, path: str) -> None:
        """Finish an interrupted repair in the directory of `path`, after the user confirmed what it writes."""
        import binlogtool
        from binlogtool.report.words import shell_quoted

        plan = None if path == "-" else binlogtool.plan_finish(path)
        if plan is None:
            return
        for name, action in plan.files:
            self._run.say(f"interrupted {plan.direction}: {name}: {action}", level=-1)
        if plan.files and not self._options["yes"]:
            folder = os.path.dirname(plan.intent)
            if not click.confirm(f"Finish the interrupted {plan.direction} in {folder} as listed?", err=True):
                raise RefusedError(f"{path}: not agreed; nothing was changed")
        done = binlogtool.finish_repair(path)
        if done is None:
            self._run.say(f"{plan.intent}: removed; the interrupted {plan.direction} had changed nothing")
        elif plan.direction == "undo":
            self._run.say(f"{path}: finished the interrupted undo of {done.undo}")
        else:
            self._run.say(
                f"{path}: finished the interrupted repair; binlogtool undo {shell_quoted(str(done.undo))} undoes it"
            )
        self._changed = self._finished = True

    def _with(self, out: Output, plan: Plan) -> None:
        writes = _writes(self._options)
        if not self._json:
            self._lines(out, plan, writes=writes)
        if plan.refused and writes:
            self._print(out, plan, None)
            raise RefusedError(f"{plan.reasons[0]}; nothing was changed")
        done = self._carry_out(out, plan) if writes else None
        self._changed = self._changed or (done is not None and bool(done.files))
        self._print(out, plan, done)
        self.codes.append(6 if plan.unread else 1 if plan.refused else 0)  # applying it would be refused

    def _carry_out(self, out: Output, plan: Plan) -> Applied:
        import binlogtool

        options = self._options
        if options["to_file"] is not None:
            self._run.no_time_limit()
            return binlogtool.write_repaired(plan, options["to_file"], **self._reading)
        if plan.changes and not options["yes"]:
            out.flush()
            if not click.confirm(f"Change {len(plan.changes)} file(s) of {plan.target} as planned?", err=True):
                raise RefusedError(f"{plan.target}: not agreed; nothing was changed")
        self._run.no_time_limit()
        how = {"undo_dir": options["undo_dir"], "backup": options["backup"] or "tail"}
        return binlogtool.apply_plan(plan, **how, network=options["allow_network_file_system"], **self._reading)

    def _lines(self, out: Output, plan: Plan, *, writes: bool) -> None:
        from binlogtool.report.repair import plan_text

        verbose = self._run.settings.verbosity > 0
        for text in plan_text(plan, writes=writes, names=verbose, given=self._given, saved=self._options["plan"]):
            out.line(text.replace(_UNCHANGED, "nothing else was changed") if self._finished else text)

    def _print(self, out: Output, plan: Plan, done: Applied | None) -> None:
        from binlogtool.report.json import document, line, plan_json
        from binlogtool.report.repair import applied_text

        if self._json:
            value = plan_json(plan, done)
            out.write(line(value) if self._several else document(value))
        for text in () if self._json or done is None else applied_text(done):
            out.line(text)
        out.flush()
        if done is not None and out.lost is not None:
            tell_unread(self._run, done)


command = Command(
    "truncate-to-durable",
    callback=_truncate,
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        o(["--plan"], type=PATH, metavar="FILE", help="Save the plan."),
        o(["--apply"], is_flag=True, allow_from_autoenv=False, help="Carry the plan out."),
        o(["--apply-plan"], type=PATH, metavar="FILE", help="Carry a saved plan out; any difference is refused."),
        o(["--to-file"], type=PATH, metavar="NEW", help="Leave the log alone and write a repaired copy."),
        o(
            ["--keep-after-damage"],
            is_flag=True,
            allow_from_autoenv=False,
            help="With --to-file: leave out only what is damaged, and keep what is provable behind it.",
        ),
        o(["--undo-dir"], type=PATH, metavar="DIR", help="Where the undo file goes (default: beside the log)."),
        o(
            ["--backup"],
            type=click.Choice(["tail", "full"]),
            help="What the undo file keeps: the bytes that go (default), or the whole file.",
        ),
        o(["--max-loss"], type=SIZE, metavar="SIZE", help="Refuse to cut more (default: no bound on torn bytes)."),
        o(
            ["--max-loss-records"],
            type=click.IntRange(0),
            metavar="N",
            help="Refuse to cut more complete records, those of an unfinished transaction included.",
        ),
        o(
            ["--allow-discard-valid"],
            is_flag=True,
            allow_from_autoenv=False,
            help="Cut complete records that lie behind the damage, too.",
        ),
        o(
            ["--allow-empty-result"],
            is_flag=True,
            allow_from_autoenv=False,
            help="Cut even where no record is kept: only of a FILE by itself, and with --format.",
        ),
        o(
            ["--transactions"],
            is_flag=True,
            allow_from_autoenv=False,
            help="Cut behind the last whole transaction where whole records of an unfinished one follow (drizzle).",
        ),
        o(["--fix-meta"], is_flag=True, help="Bring the log's own marks and its list of files in line, too."),
        o(["--write-close-marker"], is_flag=True, help="Close the file with the mark of its format, if it has one."),
        network_option(),
        o(["-y", "--yes"], is_flag=True, allow_from_autoenv=False, help="Do not ask."),
        *hint_options(),
        redo_option(),
    ],
    help="""Plan the cut of a log to its durable end, and carry it out.

    Prints the durable end, the proof for it, and what the cut would remove. Nothing is changed without --apply,
    --apply-plan or --to-file. What is cut is kept in an undo file beside the log (see binlogtool undo); a crash leaves
    the old file or the new one. A log in use, a file with several names, links and devices are refused.
    """,
    examples=(
        ("what a cut would remove", "binlogtool truncate-to-durable 00000000000000000042.xlog"),
        ("save the plan, read it, carry it out",
         "binlogtool truncate-to-durable --plan cut.json 00000000000000000042.xlog\n"
         "binlogtool truncate-to-durable --apply-plan cut.json --yes"),
        ("cut now, and ask before", "binlogtool truncate-to-durable --apply 00000000000000000042.xlog"),
        ("a repaired copy with every provable record",
         "binlogtool truncate-to-durable --to-file new.xlog --keep-after-damage 00000000000000000042.xlog"),
    ),
)  # fmt: skip
