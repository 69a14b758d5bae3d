"""`hexdump-annotate --diff OTHER`: compare two logs, or a log and its repaired copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from binlogtool import memory
from binlogtool.cli.destination import OutputDestination
from binlogtool.cli.drawing import hexdump_options
from binlogtool.cli.run import CommandRun
from binlogtool.cli.selector import build_selection, pop_hints

if TYPE_CHECKING:
    from binlogtool import LogComparison

_NOT_WITH_DIFF = ("record", "at", "length", "field", "damage_only", "depth")


def run_diff(
    run: CommandRun, paths: tuple[str, str], selection_values: dict[str, Any], command_options: dict[str, Any]
) -> int:
    """Print the differences; return 0 if there are none, otherwise 1."""
    import binlogtool

    form = run.settings.choose_output_format(("text", "json", "html", "svg"))
    _refuse_selection(selection_values, command_options)
    if form == "svg" and command_options["all"]:
        raise click.UsageError("--all does not go with -O svg: a picture shows the first places that differ.")
    settings, log_hints = run.settings, pop_hints(command_options)
    read_options: dict[str, Any] = {
        "format": settings.format,
        "limits": settings.limits,
        "backend": settings.backend,
        "hints": log_hints,
    }
    memory.relax_gc()
    with (
        binlogtool.open(paths[0], **read_options) as first_log,
        binlogtool.open(paths[1], **read_options) as second_log,
    ):
        comparison = binlogtool.compare(first_log, second_log, limits=settings.limits, backend=settings.backend)
        with run.open_output(text=form == "text", inputs=paths) as out:
            differs = {
                "text": _write_diff_text,
                "json": _write_diff_json,
                "html": _write_diff_html,
                "svg": _write_diff_svg,
            }[form](run, comparison, command_options, out)
    run.status = int(differs)
    return run.status


def _refuse_selection(selection_values: dict[str, Any], command_options: dict[str, Any]) -> None:
    name_given = next((name for name in _NOT_WITH_DIFF if command_options[name] not in (None, False)), None)
    if name_given is not None:
        raise click.UsageError(
            f"--{name_given.replace('_', '-')} does not go with --diff, which looks at both files as a whole."
        )
    from binlogtool.log.select import Selection

    if build_selection(selection_values, on_damage="skip") != Selection():
        raise click.UsageError("--diff looks at both files as a whole; options that choose records do not go with it.")


def _with_diff_progress(run: CommandRun, comparison: LogComparison) -> Iterator[Any]:
    """Yield the parts, and report progress."""
    for part in comparison.parts:
        yield part
        if part.end is not None:
            run.progress.update_stage("hexdump-annotate", part.end, total=comparison.a.size)


def _write_diff_text(
    run: CommandRun, comparison: LogComparison, command_options: dict[str, Any], out: OutputDestination
) -> bool:
    from binlogtool.render.differing import DiffText
    from binlogtool.render.escape import escape

    formatter = DiffText(hexdump_options(run, command_options, out, 2), command_options["all"])
    for name, file in (("A", comparison.a), ("B", comparison.b)):
        out.write_line(f"{name} {escape(file.path)}  {file.format.name}, {file.size or 0:,} bytes")
    out.write_lines(formatter.render(_with_diff_progress(run, comparison)))
    return formatter.difference_count > 0


def _write_diff_json(
    run: CommandRun, comparison: LogComparison, command_options: dict[str, Any], out: OutputDestination
) -> bool:
    from binlogtool.report.differences import DiffJsonWriter

    writer = DiffJsonWriter(comparison, whole=command_options["all"])
    for data in writer.encode_parts(_with_diff_progress(run, comparison)):
        out.write(data)
    return writer.difference_count > 0


def _write_diff_html(
    run: CommandRun, comparison: LogComparison, command_options: dict[str, Any], out: OutputDestination
) -> bool:
    from binlogtool.render.differing_page import DiffPage

    page = DiffPage(comparison, shows_all=command_options["all"])
    out.write(page.render_start().encode("utf-8"))
    for section in page.render_parts(_with_diff_progress(run, comparison)):
        out.write(section.encode("utf-8"))
    out.write(page.render_end().encode("utf-8"))
    return page.difference_count > 0


def _write_diff_svg(run: CommandRun, comparison: LogComparison, _o: dict[str, Any], out: OutputDestination) -> bool:
    from binlogtool.render.differing_slide import DiffPicture

    slide = DiffPicture(comparison)
    out.write(slide.render(_with_diff_progress(run, comparison)))
    return slide.difference_count > 0
