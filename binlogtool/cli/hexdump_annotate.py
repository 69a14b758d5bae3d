"""`binlogtool hexdump-annotate`: show bytes with the field that each belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from binlogtool import memory
from binlogtool.cli.command_classes import Command
from binlogtool.cli.destination import Output
from binlogtool.cli.drawing import drawing
from binlogtool.cli.options import PATH, SIZE, hint_options, level_option, o, selection_options
from binlogtool.cli.run import Run
from binlogtool.cli.selector import hints, list_types, selection, split
from binlogtool.findings import ENCRYPTED, Findings, Severity

if TYPE_CHECKING:
    from binlogtool.schema.annotation import Piece

_FORMS = ("text", "json", "html", "svg")


def _hexdump(run: Run, paths: tuple[str, ...], **options: Any) -> int:
    import binlogtool

    form = run.settings.choose(_FORMS)
    chosen, o = split({"tail": None, **options})
    if chosen["type"] == ("list",):
        return list_types(run, paths)
    if len(paths) != 1:
        raise click.UsageError("hexdump-annotate takes one PATH.")
    if o["diff"] is not None:
        from binlogtool.cli.differing import differing

        return differing(run, (paths[0], o["diff"]), chosen, o)
    if o["all"]:
        raise click.UsageError("--all goes with --diff.")
    s, asked = run.settings, _asked(chosen, o)
    memory.collect_rarely()
    with binlogtool.open(paths[0], format=s.format, limits=s.limits, backend=s.backend, hints=hints(o)) as log:
        more = {"live": chosen["live"], "folds": form == "text"}
        shown = binlogtool.annotated(log, limits=s.limits, backend=s.backend, **more, **asked)
        size, pieces = shown.size, shown.pieces
        if form == "html" and size is not None and _whole(asked):
            from binlogtool.render.annotated import refuse_large

            refuse_large(shown.file, size)
        if form == "json" and size is None:  # the size precedes the fields
            whole = shown.whole(s.limits)
            size, pieces = whole.size, iter(whole.as_pieces())
        if form == "svg":
            return _svg(run, paths, size, pieces, o["depth"])
        pieces = chain(
            [piece for piece in [next(pieces, None)] if piece], pieces
        )  # errors appear before anything is written
        with run.output(text=form == "text", inputs=paths) as out:
            if form == "json":
                _json(run, shown.file, size, pieces, out)
            elif form == "html":
                _html(run, (shown.file, shown.log_file.format.name, size), pieces, out)
            else:
                _text(run, o, size, pieces, out)
    return run.status


def _asked(chosen: dict[str, Any], o: dict[str, Any]) -> dict[str, Any]:
    """Return the options for the library; no selection if it would select everything."""
    from binlogtool.log.select import Selection

    wanted = selection(chosen, on_damage="skip")
    some = replace(wanted, live=False) != Selection()
    names = ("record", "at", "length", "field", "damage_only", "context")
    return {"selection": wanted if some else None, **{name: o[name] for name in names}}


def _met(run: Run, pieces: Iterator[Piece], findings: Findings, size: int | None) -> Iterator[Piece]:
    """Yield the pieces that have rows; collect findings, set the exit status, and report progress."""
    for piece in pieces:
        findings.add(piece.findings)
        if any(found.severity is Severity.ERROR for found in piece.findings):
            run.status = max(run.status, 1)
        if any(found.id == ENCRYPTED for found in piece.findings):
            run.status = 6
        if piece.rows:
            yield piece
            run.progress.update("hexdump-annotate", piece.end, total=size)


def _json(run: Run, name: str, size: int | None, pieces: Iterator[Piece], out: Output) -> None:
    from binlogtool.report.annotate import AnnotateWriter

    writer, findings = AnnotateWriter(name, size or 0), Findings(run.settings.limits.max_findings_per_id)
    for piece in _met(run, pieces, findings, size):
        for text in writer.rows(piece.rows):
            out.write(text)
    out.write(writer.end(findings.all()))


def _whole(asked: dict[str, Any]) -> bool:
    """Return True if the options select the whole file."""
    return not any(asked[name] for name in ("selection", "damage_only")) and all(
        asked[name] is None for name in ("record", "at", "length", "field")
    )


def _html(run: Run, about: tuple[str, str, int | None], pieces: Iterator[Piece], out: Output) -> None:
    from binlogtool.render.annotated import AnnotatedPage

    page = AnnotatedPage(*about)
    findings = Findings(run.settings.limits.max_findings_per_id)
    out.write(page.begin().encode("utf-8"))
    for piece in _met(run, pieces, findings, about[2]):
        for section in page.piece(piece):
            out.write(section.encode("utf-8"))
    out.write(page.end(findings.all()).encode("utf-8"))


def _svg(run: Run, paths: tuple[str, ...], size: int | None, pieces: Iterator[Piece], depth: int | None) -> int:
    from os.path import basename

    from binlogtool.render.slide import slide

    findings = Findings(run.settings.limits.max_findings_per_id)
    picture = slide(_met(run, pieces, findings, size), basename(paths[0]), depth)
    with run.output(text=False, inputs=paths) as out:
        out.write(picture)
    return run.status


def _text(run: Run, o: dict[str, Any], size: int | None, pieces: Iterator[Piece], out: Output) -> None:
    from binlogtool.render.drawn import compiler, drawn, gathered
    from binlogtool.report.text import finding_lines

    options, compile_ = drawing(run, o, out), compiler(run.settings.backend)
    findings = Findings(run.settings.limits.max_findings_per_id)
    heading = True
    for rows, spaces in gathered(_met(run, pieces, findings, size)):
        for text in drawn(rows, spaces, options, heading, compile_):
            out.write(text)
        heading = False
    for line in finding_lines(findings.all()):
        out.line(line)


command = Command(
    "hexdump-annotate",
    callback=_hexdump,
    outputs=_FORMS,
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH"),
        o(["--record"], type=click.IntRange(0), metavar="N", help="Only record N, counted from 0."),
        o(["--at"], metavar="POS", help="Only what holds this position."),
        o(["--length"], type=SIZE, metavar="SIZE", help="With --at OFFSET: all that holds any of so many bytes."),
        o(["--field"], metavar="PATH", help="Only this field and what is inside it, e.g. block[0].header."),
        o(
            ["--width"],
            type=click.IntRange(1, 256),
            metavar="N",
            help="Bytes in a line (default: 16, or 8 or 4 as a narrow terminal has room).",
        ),
        o(
            ["--group"],
            type=click.Choice(["1", "2", "4", "8"]),
            default="1",
            help="Bytes written together (default: 1).",
        ),
        o(["--base"], type=click.Choice(["hex", "dec", "oct", "bin"]), default="hex", help="Base of the offsets."),
        o(["--depth"], type=click.IntRange(0, 1000), metavar="N", help="Show nested fields down to this level."),
        o(["--no-squeeze"], is_flag=True, help="Write equal lines out instead of one `*`."),
        o(["--border"], type=click.Choice(["unicode", "ascii", "none"]), help="What stands between the columns."),
        o(["--damage-only"], is_flag=True, help="Only damaged places."),
        o(["--context"], type=SIZE, default="64", metavar="SIZE", help="Bytes around a damaged place (default: 64)."),
        o(
            ["--diff"],
            type=PATH,
            metavar="OTHER",
            help="Show what differs in another log, or in a repaired copy; status 1 if anything does.",
        ),
        o(["--all"], is_flag=True, help="With --diff: also what is the same."),
        *hint_options(),
        level_option(),
        *(param for param in selection_options() if param.name != "tail"),
    ],
    help="""Show bytes beside the field that each belongs to: offset, hex, text, path = value (meaning).

    Damage is marked by ! in the first column. Bytes that belong to no field are drawn as `unmapped`. Packed payloads
    are shown unpacked in a section of their own.

    Without a choice everything is shown, from the header on. The options that choose records are those of `dump`: they
    leave the frames that hold chosen records, and of packed payloads the rows of these records. A choice by position
    alone also shows what lies between the records.

    --diff OTHER shows what differs between two logs (A and B), such as a damaged one and its repaired copy: `=` is the
    same, `~` differs, `-` is only in A, `+` only in B. Bytes are compared first; records that one side lacks do not
    disturb what follows. Below a record that differs stand its fields that do, with ^ under the bytes. Status 0: they
    are the same; 1: they differ; all others as elsewhere. -O json and -O html tell the same, -O svg
    draws the first places that differ, and says how many more there are.

    -O html makes one page for a browser, with bytes and fields side by side: it needs nothing else, and no network.
    A page shows at most 4 MiB; of a larger log, choose a part with --at and --length. -O svg draws a few fields as a
    picture for a slide, as deep as --depth says.
    """,
    examples=(
        ("the first record", "binlogtool hexdump-annotate --record 0 00000000000000000042.xlog"),
        ("what stands at a place", "binlogtool hexdump-annotate --at 0x4f8 transaction.log"),
        ("changes of one table", "binlogtool hexdump-annotate --type UPDATE --object 512 00000000000000000042.xlog"),
        ("a page for a browser", "binlogtool hexdump-annotate -O html -o log.html 00000000000000000042.xlog"),
        ("a part of a large log", "binlogtool hexdump-annotate -O html -o log.html --at 64MiB --length 1MiB big.log"),
        ("a picture for a slide", "binlogtool hexdump-annotate -O svg --record 0 -o record.svg transaction.log"),
        ("what a repair changed", "binlogtool hexdump-annotate --diff repaired.xlog 00000000000000000042.xlog"),
        ("every damaged place", "binlogtool hexdump-annotate --damage-only 00000000000000000042.xlog"),
    ),
)
