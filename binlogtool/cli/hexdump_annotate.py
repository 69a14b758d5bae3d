"""`binlogtool hexdump-annotate`: show bytes with the field that each belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from binlogtool import memory
from binlogtool.cli.command_classes import Command
from binlogtool.cli.destination import OutputDestination
from binlogtool.cli.drawing import hexdump_options
from binlogtool.cli.options import PATH, SIZE, hint_options, level_option, option, selection_options
from binlogtool.cli.run import CommandRun
from binlogtool.cli.selector import build_selection, pop_hints, print_record_types, split_selection
from binlogtool.findings import ENCRYPTED, FindingCollector, Severity

if TYPE_CHECKING:
    from binlogtool.schema.annotation import AnnotatedPiece

_FORMS = ("text", "json", "html", "svg")


def _run_hexdump(run: CommandRun, paths: tuple[str, ...], **options: Any) -> int:
    import binlogtool

    form = run.settings.choose_output_format(_FORMS)
    selection_values, command_options = split_selection({"tail": None, **options})
    if selection_values["type"] == ("list",):
        return print_record_types(run, paths)
    if len(paths) != 1:
        raise click.UsageError("hexdump-annotate takes one PATH.")
    if command_options["diff"] is not None:
        from binlogtool.cli.differing import run_diff

        return run_diff(run, (paths[0], command_options["diff"]), selection_values, command_options)
    if command_options["all"]:
        raise click.UsageError("--all goes with --diff.")
    settings, annotate_options = run.settings, _annotate_options(selection_values, command_options)
    memory.relax_gc()
    with binlogtool.open(
        paths[0],
        format=settings.format,
        limits=settings.limits,
        backend=settings.backend,
        hints=pop_hints(command_options),
    ) as log:
        extra_options = {"live": selection_values["live"], "folds": form == "text"}
        annotated_log = binlogtool.annotate_log(
            log, limits=settings.limits, backend=settings.backend, **extra_options, **annotate_options
        )
        size, pieces = annotated_log.size, annotated_log.pieces
        if form == "html" and size is not None and _is_whole_file(annotate_options):
            from binlogtool.render.annotated import check_page_size

            check_page_size(annotated_log.file, size)
        if form == "json" and size is None:  # the size precedes the fields
            annotation = annotated_log.to_annotation(settings.limits)
            size, pieces = annotation.size, iter(annotation.as_pieces())
        if form == "svg":
            return _write_svg(run, paths, size, pieces, command_options["depth"])
        pieces = chain(
            [piece for piece in [next(pieces, None)] if piece], pieces
        )  # errors appear before anything is written
        with run.open_output(text=form == "text", inputs=paths) as out:
            if form == "json":
                _write_json(run, annotated_log.file, size, pieces, out)
            elif form == "html":
                _write_html(run, (annotated_log.file, annotated_log.log_file.format.name, size), pieces, out)
            else:
                _write_text(run, command_options, size, pieces, out)
    return run.status


def _annotate_options(selection_values: dict[str, Any], command_options: dict[str, Any]) -> dict[str, Any]:
    """Return the options for the library; no selection if it would select everything."""
    from binlogtool.log.select import Selection

    record_selection = build_selection(selection_values, on_damage="skip")
    is_restricted = replace(record_selection, live=False) != Selection()
    names = ("record", "at", "length", "field", "damage_only", "context")
    return {"selection": record_selection if is_restricted else None, **{name: command_options[name] for name in names}}


def _with_progress(
    run: CommandRun, pieces: Iterator[AnnotatedPiece], findings: FindingCollector, size: int | None
) -> Iterator[AnnotatedPiece]:
    """Yield the pieces that have rows; collect findings, set the exit status, and report progress."""
    for piece in pieces:
        findings.add(piece.findings)
        if any(found.severity is Severity.ERROR for found in piece.findings):
            run.status = max(run.status, 1)
        if any(found.id == ENCRYPTED for found in piece.findings):
            run.status = 6
        if piece.rows:
            yield piece
            run.progress.update_stage("hexdump-annotate", piece.end, total=size)


def _write_json(
    run: CommandRun, name: str, size: int | None, pieces: Iterator[AnnotatedPiece], out: OutputDestination
) -> None:
    from binlogtool.report.annotate import AnnotationJsonWriter

    writer, findings = AnnotationJsonWriter(name, size or 0), FindingCollector(run.settings.limits.max_findings_per_id)
    for piece in _with_progress(run, pieces, findings, size):
        for text in writer.encode_rows(piece.rows):
            out.write(text)
    out.write(writer.finish(findings.as_tuple()))


def _is_whole_file(options: dict[str, Any]) -> bool:
    """Return True if the options select the whole file."""
    return not any(options[name] for name in ("selection", "damage_only")) and all(
        options[name] is None for name in ("record", "at", "length", "field")
    )


def _write_html(
    run: CommandRun, page_facts: tuple[str, str, int | None], pieces: Iterator[AnnotatedPiece], out: OutputDestination
) -> None:
    from binlogtool.render.annotated import AnnotationPage

    page = AnnotationPage(*page_facts)
    findings = FindingCollector(run.settings.limits.max_findings_per_id)
    out.write(page.render_start().encode("utf-8"))
    for piece in _with_progress(run, pieces, findings, page_facts[2]):
        for section in page.render_piece(piece):
            out.write(section.encode("utf-8"))
    out.write(page.render_end(findings.as_tuple()).encode("utf-8"))


def _write_svg(
    run: CommandRun, paths: tuple[str, ...], size: int | None, pieces: Iterator[AnnotatedPiece], depth: int | None
) -> int:
    from os.path import basename

    from binlogtool.render.slide import render_picture

    findings = FindingCollector(run.settings.limits.max_findings_per_id)
    picture = render_picture(_with_progress(run, pieces, findings, size), basename(paths[0]), depth)
    with run.open_output(text=False, inputs=paths) as out:
        out.write(picture)
    return run.status


def _write_text(
    run: CommandRun,
    command_options: dict[str, Any],
    size: int | None,
    pieces: Iterator[AnnotatedPiece],
    out: OutputDestination,
) -> None:
    from binlogtool.render.drawn import draw_hexdump, join_small_pieces, kernel_compiler
    from binlogtool.report.text import render_findings

    options, compile_ = hexdump_options(run, command_options, out), kernel_compiler(run.settings.backend)
    findings = FindingCollector(run.settings.limits.max_findings_per_id)
    heading = True
    for rows, spaces in join_small_pieces(_with_progress(run, pieces, findings, size)):
        for text in draw_hexdump(rows, spaces, options, heading, compile_):
            out.write(text)
        heading = False
    for line in render_findings(findings.as_tuple()):
        out.write_line(line)


command = Command(
    "hexdump-annotate",
    callback=_run_hexdump,
    outputs=_FORMS,
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH"),
        option(["--record"], type=click.IntRange(0), metavar="N", help="Only record N, counted from 0."),
        option(["--at"], metavar="POS", help="Only what holds this position."),
        option(["--length"], type=SIZE, metavar="SIZE", help="With --at OFFSET: all that holds any of so many bytes."),
        option(["--field"], metavar="PATH", help="Only this field and what is inside it, e.g. block[0].header."),
        option(
            ["--width"],
            type=click.IntRange(1, 256),
            metavar="N",
            help="Bytes in a line (default: 16, or 8 or 4 as a narrow terminal has room).",
        ),
        option(
            ["--group"],
            type=click.Choice(["1", "2", "4", "8"]),
            default="1",
            help="Bytes written together (default: 1).",
        ),
        option(["--base"], type=click.Choice(["hex", "dec", "oct", "bin"]), default="hex", help="Base of the offsets."),
        option(["--depth"], type=click.IntRange(0, 1000), metavar="N", help="Show nested fields down to this level."),
        option(["--no-squeeze"], is_flag=True, help="Write equal lines out instead of one `*`."),
        option(["--border"], type=click.Choice(["unicode", "ascii", "none"]), help="What stands between the columns."),
        option(["--damage-only"], is_flag=True, help="Only damaged places."),
        option(
            ["--context"], type=SIZE, default="64", metavar="SIZE", help="Bytes around a damaged place (default: 64)."
        ),
        option(
            ["--diff"],
            type=PATH,
            metavar="OTHER",
            help="Show what differs in another log, or in a repaired copy; status 1 if anything does.",
        ),
        option(["--all"], is_flag=True, help="With --diff: also what is the same."),
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
