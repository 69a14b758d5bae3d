"""`binlogtool hexdump-annotate`: print bytes with the field that each belongs to, or two logs side by side."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec.structs import replace

from binlogtool import limits
from binlogtool.cli.click_command_tree import Command, CommandRun
from binlogtool.cli.options import (
    PATH,
    SIZE,
    HintOptions,
    SelectionOptions,
    hint_options,
    level_option,
    option,
    print_record_types,
    selection_options,
    without_options,
)
from binlogtool.findings import UNCHECKED_IDS, CappedFindings, Severity

if TYPE_CHECKING:
    from binlogtool import LogComparison
    from binlogtool.cli.output_destination import OutputDestination
    from binlogtool.schema.annotation_types import AnnotatedPiece
    from binlogtool.terminal.hexdump import HexdumpOptions


class HexdumpCommandOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the command."""

    paths: tuple[str, ...]
    record: int | None
    at: str | None
    length: int | None
    field: str | None
    width: int | None
    depth: int | None
    no_squeeze: bool
    damage_only: bool
    context: int
    diff: bool
    all: bool
    selection: SelectionOptions
    hints: HintOptions


# --- Hexdump options from the command line and the width of the terminal ---


def hexdump_options(
    run: CommandRun, options: HexdumpCommandOptions, out: OutputDestination, used_columns: int = 0
) -> HexdumpOptions:
    """Return the options for drawing lines. used_columns: columns of a line that are already used."""
    from binlogtool.terminal.hexdump import HexdumpOptions, choose_bytes_per_line

    columns = None if out.columns is None else out.columns - used_columns
    return HexdumpOptions(
        width=options.width or choose_bytes_per_line(columns),
        columns=columns,
        depth=options.depth,
        squeeze=not options.no_squeeze,
        border="ascii" if out.ascii else "unicode",
        color=run.is_colour_used(out),
    )


# --- `hexdump-annotate --diff OTHER` ---

_NOT_WITH_DIFF = ("record", "at", "length", "field", "damage_only", "depth")


def run_diff(run: CommandRun, paths: tuple[str, str], options: HexdumpCommandOptions) -> int:
    """Print the differences; return 0 if there are none, otherwise 1."""
    import binlogtool

    form = run.settings.choose_output_format(("text", "json", "html", "svg"))
    _refuse_options_unusable_with_diff(options)
    if form == "svg" and options.all:
        raise click.UsageError("--all cannot be used with -O svg, which shows the first differences only.")
    settings, read_options = run.settings, run.settings.make_read_options(options.hints.read_hint_files())
    limits.relax_gc()
    with (
        binlogtool.open(paths[0], **read_options) as first_log,
        binlogtool.open(paths[1], **read_options) as second_log,
    ):
        comparison = binlogtool.compare(first_log, second_log, limits=settings.limits, backend=settings.backend)
        with run.open_output(text=form == "text", inputs=paths) as out:
            differences = _write_differences(run, comparison, options, out, form)
    run.status = int(differences > 0)
    return run.status


def _write_differences(
    run: CommandRun, comparison: LogComparison, options: HexdumpCommandOptions, out: OutputDestination, form: str
) -> int:
    """Write the differences in the form; return their number."""
    from binlogtool.report.render_annotated_bytes import DiffJsonWriter, DiffPage, DiffSvg, DiffText
    from binlogtool.terminal.escape_and_fold_text import escape

    parts = _with_diff_progress(run, comparison)
    if form == "text":
        lines = DiffText(hexdump_options(run, options, out, 2), options.all)
        for name, file in (("A", comparison.a), ("B", comparison.b)):
            out.write_line(f"{name} {escape(file.path)}  {file.format.name}, {file.size or 0:,} bytes")
        out.write_lines(lines.render(parts))
        return lines.difference_count
    writer: DiffJsonWriter | DiffPage | DiffSvg = DiffSvg(comparison)
    if form != "svg":
        writer = (DiffJsonWriter if form == "json" else DiffPage)(comparison, shows_all=options.all)
    for data in writer.encode(parts):
        out.write(data)
    return writer.difference_count


def _refuse_options_unusable_with_diff(options: HexdumpCommandOptions) -> None:
    name_given = next((name for name in _NOT_WITH_DIFF if getattr(options, name) not in (None, False)), None)
    if name_given is not None:
        raise click.UsageError(
            f"--{name_given.replace('_', '-')} cannot be used with --diff, which compares whole files."
        )
    from binlogtool.core.record_and_selection_types import Selection

    if options.selection.build(on_damage="skip") != Selection():
        raise click.UsageError("--diff compares whole files; options that select records cannot be used with it.")


def _with_diff_progress(run: CommandRun, comparison: LogComparison) -> Iterator[Any]:
    """Yield the parts of the comparison, and report progress."""
    for part in comparison.parts:
        yield part
        if part.end is not None:
            run.progress.update_stage("hexdump-annotate", part.end, total=comparison.a.size)


# --- `binlogtool hexdump-annotate` ---

_FORMS = ("text", "json", "html", "svg")


def _run_hexdump(run: CommandRun, options: HexdumpCommandOptions) -> int:
    import binlogtool

    form, paths = run.settings.choose_output_format(_FORMS), options.paths
    if options.selection.type == ("list",):
        return print_record_types(run, paths)
    if options.diff:
        if len(paths) != 2:
            raise click.UsageError("--diff needs two files: hexdump-annotate --diff OLD NEW.")
        return run_diff(run, (paths[0], paths[1]), options)
    if len(paths) != 1:
        raise click.UsageError("hexdump-annotate takes one PATH; --diff takes two.")
    if options.all:
        raise click.UsageError("--all needs --diff.")
    settings, annotate_options = run.settings, _make_annotate_options(options)
    limits.relax_gc()
    with binlogtool.open(paths[0], **settings.make_read_options(options.hints.read_hint_files())) as log:
        extra_options = {"live": options.selection.live, "folds": form == "text"}
        annotated_log = binlogtool.annotate_log(
            log, limits=settings.limits, backend=settings.backend, **extra_options, **annotate_options
        )
        size, pieces = annotated_log.size, annotated_log.pieces
        if form == "html" and size is not None and _is_whole_file(annotate_options):
            from binlogtool.report.render_annotated_bytes import check_page_size

            check_page_size(annotated_log.file, size)
        if form == "json" and size is None:  # the SVG needs its size before the fields
            annotation = annotated_log.collect_annotation(settings.limits)
            size, pieces = annotation.size, iter(annotation.as_pieces())
        if form == "svg":
            return _write_svg(run, paths, size, pieces, options.depth)
        pieces = chain(
            [piece for piece in [next(pieces, None)] if piece], pieces
        )  # errors appear before anything is written
        with run.open_output(text=form == "text", inputs=paths) as out:
            if form == "json":
                _write_json(run, annotated_log.file, size, pieces, out)
            elif form == "html":
                _write_html(run, (annotated_log.file, annotated_log.log_file.format.name, size), pieces, out)
            else:
                _write_text(run, options, size, pieces, out)
    return run.status


def _make_annotate_options(options: HexdumpCommandOptions) -> dict[str, Any]:
    """Return the options for the library, without a selection if it would select everything."""
    from binlogtool.core.record_and_selection_types import Selection

    record_selection = options.selection.build(on_damage="skip")
    is_restricted = replace(record_selection, live=False) != Selection()
    names = ("record", "at", "length", "field", "damage_only", "context")
    return {
        "selection": record_selection if is_restricted else None,
        **{name: getattr(options, name) for name in names},
    }


def _with_progress(
    run: CommandRun, pieces: Iterator[AnnotatedPiece], findings: CappedFindings, size: int | None
) -> Iterator[AnnotatedPiece]:
    """Yield the pieces that have rows; collect findings, set the exit status, and report progress."""
    for piece in pieces:
        findings.add_findings(piece.findings)
        if any(found.severity is Severity.ERROR for found in piece.findings):
            run.status = max(run.status, 1)
        if any(found.id in UNCHECKED_IDS for found in piece.findings):
            run.status = 6
        if piece.rows:
            yield piece
            run.progress.update_stage("hexdump-annotate", piece.end, total=size)


def _write_json(
    run: CommandRun, name: str, size: int | None, pieces: Iterator[AnnotatedPiece], out: OutputDestination
) -> None:
    from binlogtool.report.render_annotated_bytes import encode_annotation

    findings = CappedFindings(run.settings.limits.max_findings_per_id)
    rows = (row for piece in _with_progress(run, pieces, findings, size) for row in piece.rows)
    for text in encode_annotation(name, size or 0, rows, findings.as_tuple):
        out.write(text)


def _is_whole_file(options: dict[str, Any]) -> bool:
    """Return True if the options select the whole file."""
    return not any(options[name] for name in ("selection", "damage_only")) and all(
        options[name] is None for name in ("record", "at", "length", "field")
    )


def _write_html(
    run: CommandRun, page_facts: tuple[str, str, int | None], pieces: Iterator[AnnotatedPiece], out: OutputDestination
) -> None:
    from binlogtool.report.render_annotated_bytes import AnnotationPage

    page = AnnotationPage(*page_facts, joins=True)
    findings = CappedFindings(run.settings.limits.max_findings_per_id)
    out.write(page.render_start().encode("utf-8"))
    for piece in _with_progress(run, pieces, findings, page_facts[2]):
        for section in page.render_piece(piece):
            out.write(section.encode("utf-8"))
    out.write(page.render_end(findings.as_tuple()).encode("utf-8"))


def _write_svg(
    run: CommandRun, paths: tuple[str, ...], size: int | None, pieces: Iterator[AnnotatedPiece], depth: int | None
) -> int:
    from os.path import basename

    from binlogtool.terminal.hexdump import render_picture

    findings = CappedFindings(run.settings.limits.max_findings_per_id)
    picture = render_picture(_with_progress(run, pieces, findings, size), basename(paths[0]), depth)
    with run.open_output(text=False, inputs=paths) as out:
        out.write(picture)
    return run.status


def _write_text(
    run: CommandRun,
    options: HexdumpCommandOptions,
    size: int | None,
    pieces: Iterator[AnnotatedPiece],
    out: OutputDestination,
) -> None:
    from binlogtool.report.verify_and_plan_text import render_findings
    from binlogtool.terminal.hexdump import draw_hexdump_in_chunks, join_small_pieces, kernel_compiler

    drawing, compile_ = hexdump_options(run, options, out), kernel_compiler(run.settings.backend)
    findings = CappedFindings(run.settings.limits.max_findings_per_id)
    heading = True
    for rows, spaces in join_small_pieces(_with_progress(run, pieces, findings, size)):
        for text in draw_hexdump_in_chunks(rows, spaces, drawing, heading, compile_):
            out.write(text)
        heading = False
    for line in render_findings(findings.as_tuple()):
        out.write_line(line)


command = Command(
    "hexdump-annotate",
    callback=_run_hexdump,
    options_type=HexdumpCommandOptions,
    outputs=_FORMS,
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        option("--record N", "Only record N, counted from 0.", click.IntRange(0), is_common=True),
        option("--at POS", "Only the frame or field at this position.", is_common=True),
        option("--length SIZE", "With --at OFFSET: everything that overlaps this many bytes.", SIZE, is_common=True),
        option("--field PATH", "Only this field and its members, such as block[0].header.", is_common=True),
        option("--width N",
            "Bytes per line (default: 16, or 8 or 4 on a narrow terminal).", click.IntRange(1, 256), is_common=True),
        option("--depth N", "Show nested fields down to this level.", click.IntRange(0, 1000)),
        option("--no-squeeze", "Print repeated lines instead of one `*`."),
        option("--damage-only", "Only damaged places.", group="Damage", is_common=True),
        option("--context SIZE", "Bytes around a damaged place (default: 64).", SIZE, group="Damage", default="64"),
        option("--diff", "Show what differs between two logs, OLD and NEW; status 1 if anything does.", is_common=True),
        option("--all", "With --diff: also show equal parts."),
        *hint_options(),
        level_option(),
        *without_options(selection_options(), "tail"),
    ],
    help="""Show bytes beside the field that each belongs to: offset, hex, text, path = value (meaning).

    Damage is marked by ! in the first column. Bytes that belong to no field are shown as `unmapped`. Compressed
    payloads are shown decompressed in a separate section.
    """,
    notes="""Without a selection everything is shown, from the header on. The options that select records are those of
    `dump`: they keep the frames with selected records, and of compressed payloads the rows of these records. A
    selection by position
    alone also shows what is between the records.

    --diff OLD NEW shows what differs between two logs (A and B), such as a damaged one and its repaired copy: `=` is
    the same, `~` differs, `-` is only in A, `+` only in B. Bytes are compared first; records missing on one side do not
    affect what follows. Below a record that differs are the differing fields, with ^ under the bytes. Status 0: they
    are equal; 1: they differ; others as usual. -O json and -O html contain the same, -O svg
    shows the first differences and the number of others.

    -O html writes one self-contained page for a browser, with bytes and fields side by side.
    A page shows at most 4 MiB; for a larger log, select a part with --at and --length. -O svg draws a few fields as a
    picture for a slide, as deep as --depth says.
    """,
    examples=(
        ("the first record", "binlogtool hexdump-annotate --record 0 00000000000000000042.xlog"),
        ("what is at an offset", "binlogtool hexdump-annotate --at 0x4f8 transaction.log"),
        ("changes of one table", "binlogtool hexdump-annotate --type UPDATE --object 512 00000000000000000042.xlog"),
        ("a page for a browser", "binlogtool hexdump-annotate -O html -o log.html 00000000000000000042.xlog"),
        ("a part of a large log", "binlogtool hexdump-annotate -O html -o log.html --at 64MiB --length 1MiB big.log"),
        ("a picture for a slide", "binlogtool hexdump-annotate -O svg --record 0 -o record.svg transaction.log"),
        ("what a repair changed", "binlogtool hexdump-annotate --diff 00000000000000000042.xlog repaired.xlog"),
        ("all damage", "binlogtool hexdump-annotate --damage-only 00000000000000000042.xlog"),
    ),
)  # fmt: skip
