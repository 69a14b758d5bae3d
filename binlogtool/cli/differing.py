"""`hexdump-annotate --diff OTHER`: compare two logs, or a log and its repaired copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from binlogtool import memory
from binlogtool.cli.destination import Output
from binlogtool.cli.drawing import drawing
from binlogtool.cli.run import Run
from binlogtool.cli.selector import hints, selection

if TYPE_CHECKING:
    from binlogtool import Compared

_WITHOUT = ("record", "at", "length", "field", "damage_only", "depth")


def differing(run: Run, paths: tuple[str, str], chosen: dict[str, Any], o: dict[str, Any]) -> int:
    """Print the differences; return 0 if there are none, otherwise 1."""
    import binlogtool

    form = run.settings.choose(("text", "json", "html", "svg"))
    _refuse_choice(chosen, o)
    if form == "svg" and o["all"]:
        raise click.UsageError("--all does not go with -O svg: a picture shows the first places that differ.")
    s, known = run.settings, hints(o)
    how: dict[str, Any] = {"format": s.format, "limits": s.limits, "backend": s.backend, "hints": known}
    memory.collect_rarely()
    with binlogtool.open(paths[0], **how) as one, binlogtool.open(paths[1], **how) as other:
        found = binlogtool.compared(one, other, limits=s.limits, backend=s.backend)
        with run.output(text=form == "text", inputs=paths) as out:
            differs = {"text": _text, "json": _json, "html": _html, "svg": _svg}[form](run, found, o, out)
    run.status = int(differs)
    return run.status


def _refuse_choice(chosen: dict[str, Any], o: dict[str, Any]) -> None:
    given = next((name for name in _WITHOUT if o[name] not in (None, False)), None)
    if given is not None:
        raise click.UsageError(
            f"--{given.replace('_', '-')} does not go with --diff, which looks at both files as a whole."
        )
    from binlogtool.log.select import Selection

    if selection(chosen, on_damage="skip") != Selection():
        raise click.UsageError("--diff looks at both files as a whole; options that choose records do not go with it.")


def _met(run: Run, found: Compared) -> Iterator[Any]:
    """Yield the parts, and report progress."""
    for part in found.parts:
        yield part
        if part.end is not None:
            run.progress.update("hexdump-annotate", part.end, total=found.a.size)


def _text(run: Run, found: Compared, o: dict[str, Any], out: Output) -> bool:
    from binlogtool.render.differing import Differences
    from binlogtool.render.escape import escape

    told = Differences(drawing(run, o, out, 2), o["all"])
    for name, file in (("A", found.a), ("B", found.b)):
        out.line(f"{name} {escape(file.path)}  {file.format.name}, {file.size or 0:,} bytes")
    out.lines(told.lines(_met(run, found)))
    return told.found > 0


def _json(run: Run, found: Compared, o: dict[str, Any], out: Output) -> bool:
    from binlogtool.report.differences import DifferencesWriter

    writer = DifferencesWriter(found, whole=o["all"])
    for data in writer.parts(_met(run, found)):
        out.write(data)
    return writer.found > 0


def _html(run: Run, found: Compared, o: dict[str, Any], out: Output) -> bool:
    from binlogtool.render.differing_page import DifferencesPage

    page = DifferencesPage(found, whole=o["all"])
    out.write(page.begin().encode("utf-8"))
    for section in page.parts(_met(run, found)):
        out.write(section.encode("utf-8"))
    out.write(page.end().encode("utf-8"))
    return page.found > 0


def _svg(run: Run, found: Compared, _o: dict[str, Any], out: Output) -> bool:
    from binlogtool.render.differing_slide import DifferencesSlide

    slide = DifferencesSlide(found)
    out.write(slide.picture(_met(run, found)))
    return slide.found > 0
