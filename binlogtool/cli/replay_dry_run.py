"""`binlogtool replay-dry-run`: predict what the server would do with a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from binlogtool.cli.command_classes import Command
from binlogtool.cli.on_spark import master_of, spark_options
from binlogtool.cli.options import PATH, hint_options, o, redo_option, server_version_option
from binlogtool.cli.run import Run
from binlogtool.cli.selector import hints
from binlogtool.errors import LimitError, UsageError
from binlogtool.report.policy import most_severe

if TYPE_CHECKING:
    from binlogtool.cli.destination import Output
    from binlogtool.recovery.replay_result import Decision, Replayed
    from binlogtool.report.following import Given

_FORMS = ("text", "json", "jsonl")


def _replay(
    run: Run, paths: tuple[str, ...], *, compare: str | None, explain: str | None, digest: bool, **options: Any
) -> int:
    if not paths:
        raise click.UsageError("Missing argument 'PATH...'.")
    form = run.settings.choose(_FORMS)
    if compare is not None and (explain is not None or form == "jsonl" or not digest):
        raise click.UsageError("--compare needs the digests, and prints no single decisions.")
    options["master"] = master_of(options)
    if options["master"] is not None and (explain is not None or form == "jsonl"):
        raise click.UsageError("--master prints no single decisions: not with --explain or -O jsonl.")
    from binlogtool.report.following import reading

    given = reading(options, run.settings.format)
    work = _Work(run, {**options, "digest": digest}, given)
    inputs = (*paths, *(() if compare is None else (compare,)))
    with run.output(text=form == "text", inputs=inputs) as out:
        if explain is not None:
            return _explain(work, out, form, paths, explain)
        found = work.replays(paths, _line_writer(out) if form == "jsonl" else None)
        run.status = _status(run, found)
        if compare is not None and run.status != 6:
            _compare(work, out, form, found, paths, compare)
        elif form == "json":
            _print_json(out, found)
        elif form == "text":
            _print_text(out, found, given)
    return run.status


def _status(run: Run, found: list[Replayed]) -> int:
    """Report incomplete results, and return the exit status: clean, not clean, or ended by a limit."""
    run.no_time_limit()
    for one in found:
        if one.incomplete is not None:
            run.say(f"{one.path}: {one.incomplete}; the result is partial", level=-1)
    unknown = [one.encrypted or one.incomplete is not None for one in found]
    return most_severe([6 if lost else int(not one.clean) for one, lost in zip(found, unknown, strict=True)])


class _Work:
    """Calls the library's replay with the options of the command line."""

    def __init__(self, run: Run, options: dict[str, Any], given: Given) -> None:
        settings = run.settings
        self.run, self.given = run, given
        self._how = {
            "format": settings.format,
            "limits": settings.limits,
            "backend": settings.backend,
            "hints": hints(options),
            **{name: options[name] for name in ("policy", "against", "until", "digest", "master", "server_version")},
            "on_step": lambda step: run.progress.update(*step[:2], total=step[2]),
        }

    def replays(self, paths: tuple[str, ...], on_decision: Any = None, **other: Any) -> list[Replayed]:
        """Replay every log that the paths name."""
        import binlogtool

        found = binlogtool.replay(paths, **{**self._how, **other}, on_decision=on_decision)
        self.run.say_left(as_server=True)
        self.run.say_noted()
        return found


def _line_writer(out: Output) -> Any:
    from binlogtool.report.json import line
    from binlogtool.report.replay import decision_json

    return lambda decision: out.write(line(decision_json(decision)))


def _print_json(out: Output, found: list[Replayed]) -> None:
    from binlogtool.report.json import document, line
    from binlogtool.report.replay import replay_json

    for one in found:
        out.write(document(replay_json(one)) if len(found) == 1 else line(replay_json(one)))


def _print_text(out: Output, found: list[Replayed], given: Given) -> None:
    from binlogtool.report.replay import replay_text

    for one in found:
        for text in replay_text(one, given):
            out.line(text)


def _compare(work: _Work, out: Output, form: str, found: list[Replayed], paths: tuple[str, ...], compare: str) -> None:
    """Print the comparison with another log; a difference makes the exit status 1."""
    from binlogtool.report.json import document
    from binlogtool.report.replay import difference_text, differences, replay_json

    other = work.replays((compare,))
    if late := next((one for one in other if one.incomplete is not None), None):
        raise LimitError(f"{late.path}: {late.incomplete}; nothing can be compared")
    differing = differences(found, other)
    work.run.status = max(work.run.status, int(bool(differing)))
    if form == "json":
        value = {"replays": [replay_json(one) for one in found], "others": [replay_json(one) for one in other]}
        out.write(document({"schema": "binlogtool/compare/1", "equal": not differing, "differs": differing, **value}))
        return
    _print_text(out, [*found, *other], work.given)
    for text in difference_text(differing, " ".join(paths), compare):
        out.line(text)


def _explain(work: _Work, out: Output, form: str, paths: tuple[str, ...], wanted: str) -> int:
    """Print the decision on one record."""
    from binlogtool.report.json import line
    from binlogtool.report.replay import decision_json, explained_text

    file, number = _record(wanted)
    asked: list[Decision] = []

    def notice(one: Decision) -> None:
        if one.record == number and (file is None or one.file == file or one.file.endswith(f"/{file}")):
            asked.append(one)

    rules = {reason: rule for one in work.replays(paths, notice, digest=False) for reason, rule in one.rules.items()}
    if not asked:
        raise UsageError(f"--explain {wanted}: the replay does not read such a record")
    for one in asked:
        if form != "text":
            out.write(line({**decision_json(one), "rule": rules[one.reason]}))
        for text in explained_text(one, rules) if form == "text" else ():
            out.line(text)
    return 0


def _record(text: str) -> tuple[str | None, int]:
    """Parse `N`, `record:N` or `FILE:N` into (file, number)."""
    file, _, number = text.rpartition(":")
    try:
        return (None if file in ("", "record") else file.removesuffix(":record")), int(number, 0)
    except ValueError:
        raise UsageError(f"--explain {text}: write N or FILE:N, N the number of a record") from None


command = Command(
    "replay-dry-run",
    callback=_replay,
    outputs=_FORMS,
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        o(
            ["--policy"],
            type=click.Choice(["server", "strict", "force"]),
            default="server",
            help="The engine's rules (default); stop at any error; or the engine's own way to go on over damage.",
        ),
        o(
            ["--against"],
            type=PATH,
            metavar="STATE",
            help="What the server has applied already: JSON (`position` of an earlier run), or a file of the server.",
        ),
        o(
            ["--until"],
            metavar="POS",
            help="Position to stop before; gtid:0-1-42 is the last transaction. Of several files an offset counts in "
            "the last one.",
        ),
        o(["--compare"], type=PATH, metavar="OTHER", help="Another log: does it leave the same state?"),
        o(["--explain"], metavar="RECORD", help="Why this record is applied or not: N, or FILE:N in a directory."),
        o(["--digest/--no-digest"], default=True, help="Compute the state that the log leaves (default)."),
        server_version_option(),
        *spark_options(),
        *hint_options(),
        redo_option(),
    ],
    help="""Say what the server would do with a log, without the server.

    Every record is applied, skipped or rejected, with the rule behind it; the report says whether and where the server
    would stop, which losses it would not tell, the final position, and a digest of the state that the log leaves.
    Nothing is written, no server is needed. Status 1: something is rejected or lost, or the server stops.
    """,
    examples=(
        ("what a start would do", "binlogtool replay-dry-run /var/lib/tarantool/one"),
        ("would force_recovery help?", "binlogtool replay-dry-run --policy force /var/lib/tarantool/one"),
        ("why is this record skipped?", "binlogtool replay-dry-run --explain 00000000000000000042.xlog:7 one"),
        ("is nothing lost by the repair?", "binlogtool replay-dry-run --compare repaired.xlog damaged.xlog"),
    ),
)
