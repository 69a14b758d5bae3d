"""`binlogtool replay-dry-run`: predict what the server would do with a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from binlogtool.cli.click_command_tree import Command, CommandRun
from binlogtool.cli.options import (
    PATH,
    HintOptions,
    build_master,
    hint_options,
    option,
    redo_option,
    require_paths,
    server_version_option,
    spark_options,
)
from binlogtool.errors import LimitError, UsageError
from binlogtool.report.finding_policy import select_most_severe_exit_code

if TYPE_CHECKING:
    from binlogtool.cli.output_destination import OutputDestination
    from binlogtool.prediction.predict_replay import ReplayDecision, ReplayResult
    from binlogtool.report.verify_and_plan_text import GivenReadOptions


_FORMS = ("text", "json", "jsonl")


class ReplayDryRunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the command."""

    paths: tuple[str, ...]
    policy: str
    against: str | None
    until: str | None
    compare: str | None
    explain: str | None
    digest: bool
    server_version: str | None
    master: str | None
    conf: tuple[str, ...]
    hints: HintOptions


def _run_replay(run: CommandRun, options: ReplayDryRunOptions) -> int:
    paths, compare, explain = options.paths, options.compare, options.explain
    require_paths(paths)
    form = run.settings.choose_output_format(_FORMS)
    if compare is not None and (explain is not None or form == "jsonl" or not options.digest):
        raise click.UsageError(
            "--compare needs the digests; it cannot be combined with --explain, -O jsonl or --no-digest."
        )
    if options.master is not None and (explain is not None or form == "jsonl"):
        raise click.UsageError("--master cannot be combined with --explain or -O jsonl.")
    next_command_options = options.hints.to_read_options(run.settings.format)
    caller = _ReplayCaller(run, options, next_command_options)
    inputs = (*paths, *(() if compare is None else (compare,)))
    with run.open_output(text=form == "text", inputs=inputs) as out:
        if explain is not None:
            return _print_record_decision(caller, out, form, paths, explain)
        results = caller.replay_paths(paths, _decision_writer(out) if form == "jsonl" else None)
        run.status = _compute_status(run, results)
        _report_separate_snapshots(run, results)
        if compare is not None and run.status != 6:
            _print_comparison(caller, out, form, results, paths, compare)
        elif form == "json":
            _print_json(out, results)
        elif form == "text":
            _print_text(out, results, next_command_options)
    return run.status


def _compute_status(run: CommandRun, results: list[ReplayResult]) -> int:
    """Report incomplete results, and return the exit status: clean, not clean, or ended by a limit."""
    run.cancel_time_limit()
    for result in results:
        if result.incomplete_reason is not None:
            run.print_diagnostic(f"{result.path}: {result.incomplete_reason}; the result is partial", level=-1)
    is_unknown = [one.is_encrypted or one.incomplete_reason is not None for one in results]
    return select_most_severe_exit_code(
        [6 if lost else int(not one.is_clean) for one, lost in zip(results, is_unknown, strict=True)]
    )


def _report_separate_snapshots(run: CommandRun, results: list[ReplayResult]) -> None:
    """Say what to do if the snapshots and the logs of one server are in two directories that were replayed alone."""
    logs = [one for one in results if "snapshot" in one.details and one.details["snapshot"] is None]
    snapshots = [one for one in results if one.details.get("snapshot") is not None]
    if logs and snapshots:
        text = f"{logs[0].path} has no snapshot, and {snapshots[0].path} has one; each was replayed alone"
        run.print_diagnostic(
            f"{text}: if they are wal_dir and memtx_dir of one server, copy the files of both into one directory and "
            "name that directory",
            level=-1,
        )


class _ReplayCaller:
    """Caller of the library's replay with the options of the command line."""

    def __init__(self, run: CommandRun, options: ReplayDryRunOptions, next_command_options: GivenReadOptions) -> None:
        self.run, self.next_command_options = run, next_command_options
        self._replay_options: dict[str, Any] = {
            **run.settings.make_read_options(options.hints.read_hint_files()),
            "master": build_master(options.master, options.conf),
            **{name: getattr(options, name) for name in ("policy", "against", "until", "digest", "server_version")},
            "on_step": lambda step: run.progress.update_stage(*step[:2], total=step[2]),
        }

    def replay_paths(self, paths: tuple[str, ...], on_decision: Any = None, **other: Any) -> list[ReplayResult]:
        """Replay every log that the paths name."""
        import binlogtool

        results = binlogtool.replay(paths, **{**self._replay_options, **other}, on_decision=on_decision)
        self.run.report_skipped_files(as_server=True)
        self.run.print_cluster_messages_once()
        return results


def _decision_writer(out: OutputDestination) -> Any:
    from binlogtool.format_api.encode_json import encode_line
    from binlogtool.report.diagnosis_and_replay import decision_to_json

    return lambda decision: out.write(encode_line(decision_to_json(decision)))


def _print_json(out: OutputDestination, results: list[ReplayResult]) -> None:
    import binlogtool
    from binlogtool.format_api.encode_json import encode_line
    from binlogtool.report.diagnosis_and_replay import replay_to_json

    for result in results:
        out.write(binlogtool.replay_as_json(result) if len(results) == 1 else encode_line(replay_to_json(result)))


def _print_text(out: OutputDestination, results: list[ReplayResult], next_command_options: GivenReadOptions) -> None:
    from binlogtool.report.diagnosis_and_replay import render_replay_text

    for result in results:
        for text in render_replay_text(result, next_command_options):
            out.write_line(text)


def _print_comparison(
    caller: _ReplayCaller,
    out: OutputDestination,
    form: str,
    results: list[ReplayResult],
    paths: tuple[str, ...],
    other_path: str,
) -> None:
    """Print the comparison with another log; a difference makes the exit status 1."""
    from binlogtool.format_api.encode_json import encode_document
    from binlogtool.report.diagnosis_and_replay import (
        compare_replay_states,
        render_state_differences,
        replay_to_json,
        suggest_after_comparison,
    )

    other_results = caller.replay_paths((other_path,))
    if incomplete_result := next((one for one in other_results if one.incomplete_reason is not None), None):
        raise LimitError(
            f"{incomplete_result.path}: {incomplete_result.incomplete_reason}; the logs cannot be compared"
        )
    formats_a, formats_b = ({one.format for one in side} for side in (results, other_results))
    if formats_a != formats_b:
        texts = [", ".join(sorted(one)) or "no log" for one in (formats_a, formats_b)]
        raise UsageError(
            f"--compare: different formats: A = {' '.join(paths)} has {texts[0]}, B = {other_path} {texts[1]}"
        )
    differing = compare_replay_states(results, other_results)
    caller.run.status = max(caller.run.status, int(bool(differing)))
    if form == "json":
        value = {
            "replays": [replay_to_json(one) for one in results],
            "others": [replay_to_json(one) for one in other_results],
        }
        out.write(
            encode_document({"schema": "binlogtool/compare/1", "equal": not differing, "differs": differing, **value})
        )
        return
    if caller.run.settings.verbosity >= 0:
        _print_text(out, [*results, *other_results], caller.next_command_options)
    for text in render_state_differences(differing, " ".join(paths), other_path):
        out.write_line(text)
    sides = ((results, paths), (other_results, (other_path,)))
    for text in suggest_after_comparison(differing, sides, caller.next_command_options):
        out.write_line(f"next      {text}")


def _print_record_decision(
    caller: _ReplayCaller, out: OutputDestination, form: str, paths: tuple[str, ...], record_text: str
) -> int:
    """Print the decision on one record."""
    from binlogtool.format_api.encode_json import encode_line
    from binlogtool.report.diagnosis_and_replay import decision_to_json, render_decision

    file, number = _parse_record(record_text)
    decisions: list[ReplayDecision] = []

    def collect_decision(decision: ReplayDecision) -> None:
        if decision.record == number and (file is None or decision.file == file or decision.file.endswith(f"/{file}")):
            decisions.append(decision)

    rules = {
        reason: rule
        for one in caller.replay_paths(paths, collect_decision, digest=False)
        for reason, rule in one.rules.items()
    }
    if not decisions:
        raise UsageError(f"--explain {record_text}: the replay reads no record with this number")
    for decision in decisions:
        if form != "text":
            out.write(encode_line({**decision_to_json(decision), "rule": rules[decision.reason]}))
        for text in render_decision(decision, rules) if form == "text" else ():
            out.write_line(text)
    return 0


def _parse_record(text: str) -> tuple[str | None, int]:
    """Parse `N`, `record:N` or `FILE:N` into (file or None, record number)."""
    file, _, number = text.rpartition(":")
    try:
        return (None if file in ("", "record") else file.removesuffix(":record")), int(number, 0)
    except ValueError:
        raise UsageError(f"--explain {text}: use N or FILE:N with the number of a record") from None


command = Command(
    "replay-dry-run",
    callback=_run_replay,
    options_type=ReplayDryRunOptions,
    outputs=_FORMS,
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        option("--policy server|strict|force",
            "Rules of the replay: server (the engine's own, default), strict (stop at any error), or force (continue "
            "as the engine's recovery mode does).", is_common=True, default="server"),
        option("--against STATE",
            "What the server has already applied: `position` of an earlier run (JSON), or a state file of the server.",
            PATH, is_common=True),
        option("--until POS",
            "Stop before this position; gtid:0-1-42: stop after this transaction. With several files an offset refers "
            "to the last one.", is_common=True),
        option("--compare OTHER",
            "Compare the resulting state with that of another log; with -q print only the comparison.", PATH,
            is_common=True),
        option("--explain RECORD",
            "Explain why a record is applied or not: N, or FILE:N in a directory.", is_common=True),
        option("--digest/--no-digest", "Compute a digest of the resulting state (default).", default=True),
        server_version_option(),
        *spark_options(),
        *hint_options(),
        redo_option(),
    ],
    help="""Predict what the server would do with a log, without a server.

    Every record is applied, skipped or rejected, by the rules of the server; the report says whether and where the
    server would stop, which losses it would not report, the final position, and a digest of the resulting state.
    Nothing is changed.
    """,
    examples=(
        ("what a start would do", "binlogtool replay-dry-run /var/lib/tarantool/one"),
        ("would force_recovery help?", "binlogtool replay-dry-run --policy force /var/lib/tarantool/one"),
        ("why is this record skipped?", "binlogtool replay-dry-run --explain 00000000000000000042.xlog:7 one"),
        ("check that a repair loses nothing", "binlogtool replay-dry-run --compare repaired.xlog damaged.xlog"),
    ),
)  # fmt: skip
