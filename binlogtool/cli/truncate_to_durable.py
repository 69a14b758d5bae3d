"""`binlogtool truncate-to-durable`: plan the truncation to the durable end, and apply it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click
import msgspec

from binlogtool.cli.click_command_tree import Command, CommandRun
from binlogtool.cli.options import (
    PATH,
    SIZE,
    HintOptions,
    hint_options,
    network_option,
    option,
    redo_option,
    require_paths,
)
from binlogtool.errors import BinlogtoolError, RefusedError
from binlogtool.report.finding_policy import select_most_severe_exit_code

if TYPE_CHECKING:
    from binlogtool.cli.output_destination import OutputDestination
    from binlogtool.repair.plan_types import RepairPlan, RepairPolicy, RepairResult


_UNCHANGED = "nothing was changed"
_SINGLE_PATH_OPTIONS = ("plan", "apply_plan", "to_file")


def _run_truncate(run: CommandRun, options: TruncateOptions) -> int:
    _refuse_invalid_option_combinations(options, run.settings.format)
    paths = options.paths
    as_json = run.settings.choose_output_format(("text", "json")) == "json"
    if options.apply or options.apply_plan:
        _check_can_confirm(options)
    repairer = _TruncateRunner(run, options, as_json, has_several_paths=len(paths) > 1)
    with run.open_output(text=not as_json, inputs=paths, page=not options.is_writing, defers_errors=True) as out:
        if options.apply_plan:
            repairer.print_and_apply_saved_plan(out, options.apply_plan)
        for path in () if options.apply_plan else paths:
            repairer.process_path(out, path)
        run.status = select_most_severe_exit_code(repairer.codes)
    return run.status


def _refuse_invalid_option_combinations(options: TruncateOptions, format_: str) -> None:
    paths = options.paths
    if not options.apply_plan:
        require_paths(paths)
    for name in _SINGLE_PATH_OPTIONS:
        if getattr(options, name) is not None and len(paths) > 1:
            raise click.UsageError(f"--{name.replace('_', '-')} takes one PATH, because a plan is for one log.")
    modes = [name for name in ("plan", "apply", "apply_plan", "to_file") if getattr(options, name)]
    if len(modes) > 1:
        first, second = (f"--{name.replace('_', '-')}" for name in modes[:2])
        raise click.UsageError(f"{first} and {second} cannot be combined.")
    if options.apply_plan and any(options.policy.get_non_default_settings()):
        raise click.UsageError("--apply-plan cannot be combined with options that change the plan.")
    if options.allow_empty_result and (format_ == "auto" or any(map(os.path.isdir, paths))):
        raise click.UsageError("--allow-empty-result needs --format and a FILE, not a directory.")
    if options.keep_after_damage and not options.to_file:
        raise click.UsageError("--keep-after-damage needs --to-file.")
    if options.correct_bits and not options.keep_after_damage:
        raise click.UsageError("--correct-bits needs --keep-after-damage.")


def has_terminal() -> bool:
    """Return True if there is a terminal for the confirmation prompt."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _check_can_confirm(options: TruncateOptions) -> None:
    """Raise RefusedError if a confirmation is needed and there is no terminal."""
    if not options.yes and not has_terminal():
        raise RefusedError("no terminal for the confirmation prompt; use --yes (nothing was changed)")


def report_unprinted_changes(run: CommandRun, applied: RepairResult) -> None:
    """Report the changes on standard error, if the normal output could not be written."""
    for file in applied.files:
        run.print_diagnostic(f"{file.path}: written, {file.size_before:,} to {file.size_after:,} bytes")
    if applied.undo is not None:
        run.print_diagnostic(f"binlogtool undo --apply {applied.undo} undoes it")


class TruncateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the command."""

    paths: tuple[str, ...]
    plan: str | None
    apply: bool
    apply_plan: str | None
    to_file: str | None
    keep_after_damage: bool
    correct_bits: bool
    undo_dir: str | None
    backup: str | None
    max_loss: int | None
    max_loss_records: int | None
    allow_discard_valid: bool
    allow_empty_result: bool
    transactions: bool
    fix_meta: bool
    write_close_marker: bool
    allow_network_file_system: bool
    yes: bool
    hints: HintOptions

    @property
    def is_writing(self) -> bool:
        """True if a file is changed or written."""
        return bool(self.apply or self.apply_plan or self.to_file)

    @property
    def policy(self) -> RepairPolicy:
        """The repair policy that the options allow."""
        from binlogtool.repair.plan_types import RepairPolicy

        return RepairPolicy(
            max_loss=self.max_loss,
            max_loss_records=self.max_loss_records,
            allow_discard_valid=self.allow_discard_valid,
            allow_empty_result=self.allow_empty_result,
            fix_meta=self.fix_meta,
            write_close_marker=self.write_close_marker,
            transactions=self.transactions,
            salvage=self.keep_after_damage,
            correct_bits=self.correct_bits,
            copy=self.to_file is not None,
        )


class _TruncateRunner:
    """Planner and repairer of one or several logs."""

    def __init__(self, run: CommandRun, options: TruncateOptions, as_json: bool, has_several_paths: bool) -> None:
        settings = run.settings
        self.codes: list[int] = []
        self._has_changed = self._has_finished_repair = False
        self._run, self._options, self._json, self._several = run, options, as_json, has_several_paths
        self._next_command_options = options.hints.to_read_options(settings.format)
        self._read_options = settings.make_read_options(options.hints.read_hint_files())

    def process_path(self, out: OutputDestination, path: str) -> None:
        """Plan the repair of one log, and print, save or apply the plan as the options request."""
        try:
            self._plan_print_and_apply(out, path)
        except BinlogtoolError as error:
            if self._has_changed and error.args and _UNCHANGED in str(error):
                raise type(error)(str(error).replace(_UNCHANGED, "nothing else was changed")) from error
            raise

    def _plan_print_and_apply(self, out: OutputDestination, path: str) -> None:
        import binlogtool

        self._has_finished_repair = False
        if self._options.apply:
            self._finish_interrupted_repair(path)
        plan = binlogtool.plan_truncate(path, policy=self._options.policy, **self._read_options)
        if self._options.plan is not None:
            self._run.save_file(self._options.plan, binlogtool.plan_as_json(plan), inputs=[path])
        self._print_and_apply_plan(out, plan)

    def print_and_apply_saved_plan(self, out: OutputDestination, plan_file: str) -> None:
        """Apply a saved plan."""
        import binlogtool

        self._print_and_apply_plan(out, binlogtool.load_plan(plan_file, self._options.paths, **self._read_options))

    def _finish_interrupted_repair(self, path: str) -> None:
        """Finish an interrupted repair in the directory of `path`, after the user confirmed the changes."""
        import binlogtool
        from binlogtool.report.format_numbers_and_names import quote_for_shell

        plan = None if path == "-" else binlogtool.plan_finish(path)
        if plan is None:
            return
        for name, action in plan.files:
            self._run.print_diagnostic(f"interrupted {plan.direction}: {name}: {action}", level=-1)
        if plan.files and not self._options.yes:
            folder = os.path.dirname(plan.intent)
            if not self._run.confirm(f"Finish the interrupted {plan.direction} in {folder} as listed?"):
                raise RefusedError(f"{path}: not confirmed; nothing was changed")
        applied = binlogtool.finish_repair(path)
        if applied is None:
            self._run.print_diagnostic(f"{plan.intent}: removed; the interrupted {plan.direction} had changed nothing")
        elif plan.direction == "undo":
            self._run.print_diagnostic(f"{path}: finished the interrupted undo of {applied.undo}")
        else:
            self._run.print_diagnostic(
                f"{path}: finished the interrupted repair; binlogtool undo "
                f"{quote_for_shell(str(applied.undo))} undoes it"
            )
        self._has_changed = self._has_finished_repair = True

    def _print_and_apply_plan(self, out: OutputDestination, plan: RepairPlan) -> None:
        """Print a plan, apply it if the options say so, print the result, and record the exit status."""
        is_writing = self._options.is_writing
        if not self._json:
            self._print_plan(out, plan, is_writing=is_writing)
        if plan.refused and is_writing:
            self._print_result(out, plan, None)
            raise RefusedError(f"{plan.reasons[0]}; nothing was changed")
        applied = self._apply_plan(out, plan) if is_writing else None
        self._has_changed = self._has_changed or (applied is not None and bool(applied.files))
        self._print_result(out, plan, applied)
        self.codes.append(6 if plan.has_encrypted_file else 1 if plan.refused else 0)  # applying it would be refused

    def _apply_plan(self, out: OutputDestination, plan: RepairPlan) -> RepairResult:
        import binlogtool
        from binlogtool.report.format_numbers_and_names import format_quantity

        options = self._options
        if options.to_file is not None:
            self._run.cancel_time_limit()
            return binlogtool.write_repaired_copy(plan, options.to_file, **self._read_options)
        if plan.changes and not options.yes:
            out.flush()
            changes = format_quantity(len(plan.changes), "file")
            if not self._run.confirm(f"Change {changes} of {plan.target} as planned?"):
                raise RefusedError(f"{plan.target}: not confirmed; nothing was changed")
        self._run.cancel_time_limit()
        return binlogtool.apply_plan(
            plan,
            undo_dir=options.undo_dir,
            backup=options.backup or "tail",
            network=options.allow_network_file_system,
            **self._read_options,
        )

    def _print_plan(self, out: OutputDestination, plan: RepairPlan, *, is_writing: bool) -> None:
        from binlogtool.report.verify_and_plan_text import render_plan_text

        verbose = self._run.settings.verbosity > 0
        for text in render_plan_text(
            plan,
            will_apply=is_writing,
            list_names=verbose,
            read_options=self._next_command_options,
            plan_path=self._options.plan,
        ):
            out.write_line(text.replace(_UNCHANGED, "nothing else was changed") if self._has_finished_repair else text)

    def _print_result(self, out: OutputDestination, plan: RepairPlan, applied: RepairResult | None) -> None:
        import binlogtool
        from binlogtool.format_api.encode_json import encode_line
        from binlogtool.report.verify_and_plan_text import plan_to_json, render_repair_result_text

        if self._json:
            out.write(
                encode_line(plan_to_json(plan, applied)) if self._several else binlogtool.plan_as_json(plan, applied)
            )
        for text in () if self._json or applied is None else render_repair_result_text(applied):
            out.write_line(text)
        out.flush()
        if applied is not None and out.write_error is not None:
            report_unprinted_changes(self._run, applied)


command = Command(
    "truncate-to-durable",
    callback=_run_truncate,
    options_type=TruncateOptions,
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        option("--plan FILE", "Save the plan.", PATH, is_common=True),
        option("--apply", "Apply the plan.", allow_from_autoenv=False, is_common=True),
        option("--apply-plan FILE", "Apply a saved plan; refuse if anything has changed.", PATH, is_common=True),
        option("--to-file NEW", "Write a repaired copy; the log itself is not changed.", PATH, is_common=True),
        option("--keep-after-damage",
            "With --to-file: remove only damaged ranges, and keep provable records after them.", group="Damage",
            is_common=True, allow_from_autoenv=False),
        option("--correct-bits",
            "With --keep-after-damage: correct a flipped bit instead of removing its record, where the stored checksum "
            "is then right.", group="Damage", is_common=True, allow_from_autoenv=False),
        option("--undo-dir DIR", "Where the undo file goes (default: beside the log).", PATH, is_common=True),
        option("--backup tail|full", "Content of the undo file: the removed bytes (default), or the whole file."),
        option("--max-loss SIZE",
            "Refuse a plan that removes more bytes than this (default: no limit for torn bytes).", SIZE),
        option("--max-loss-records N",
            "Refuse a plan that removes more complete records, also of an unfinished transaction, than this.",
            click.IntRange(0)),
        option("--allow-discard-valid",
            "Also remove complete records after the damage (docs/damage.md).", group="Damage", is_common=True,
            allow_from_autoenv=False),
        option("--allow-empty-result",
            "Truncate even if no record is kept; needs a single FILE and --format.", group="Damage",
            allow_from_autoenv=False),
        option("--transactions",
            "Truncate after the last complete transaction, removing complete records of an unfinished one (drizzle).",
            group="Damage", allow_from_autoenv=False),
        option("--fix-meta", "Also correct the log's own counters and its file list.", is_common=True),
        option("--write-close-marker", "Write the format's end mark, if it has one."),
        network_option(),
        option("-y --yes", "Do not ask.", allow_from_autoenv=False, is_common=True),
        *hint_options(),
        redo_option(),
    ],
    help="""Plan the truncation of a log to its durable end, and apply it.

    Prints the durable end, the proof for it, and what would be removed. Nothing is changed without --apply,
    --apply-plan or --to-file. Removed bytes are kept in an undo file beside the log (see binlogtool undo). Logs in
    use are refused.
    """,
    notes="""A crash leaves the old file or the new one. Files with several hard links, symbolic links and devices are
    refused.
    """,
    examples=(
        ("what a truncation would remove", "binlogtool truncate-to-durable 00000000000000000042.xlog"),
        (
            "save the plan, review it, apply it",
            "binlogtool truncate-to-durable --plan cut.json 00000000000000000042.xlog\n"
            "binlogtool truncate-to-durable --apply-plan cut.json --yes",
        ),
        ("truncate after a confirmation", "binlogtool truncate-to-durable --apply 00000000000000000042.xlog"),
        (
            "a repaired copy with every provable record",
            "binlogtool truncate-to-durable --to-file new.xlog --keep-after-damage 00000000000000000042.xlog",
        ),
    ),
)  # fmt: skip
