"""`binlogtool hexdump-annotate`: bytes with the field that each belongs to."""

from __future__ import annotations

from typing import Any

import click

from binlogtool.cli.command import Command
from binlogtool.cli.options import PATH, SIZE
from binlogtool.cli.run import Run
from binlogtool.errors import UsageError
from binlogtool.findings import Severity


def _hexdump(run: Run, paths: tuple[str, ...], **o: Any) -> int:
    import binlogtool

    form = run.settings.choose(("text", "json"))
    if len(paths) != 1:
        raise click.UsageError("hexdump-annotate takes one PATH.")
    if o["record"] is not None and o["at"] is not None:
        raise UsageError("--record and --at exclude each other")
    s = run.settings
    annotation = binlogtool.annotate(
        paths[0],
        format=s.format,
        limits=s.limits,
        backend=s.backend,
        record=o["record"],
        at=o["at"],
        field=o["field"],
        damage_only=o["damage_only"],
        context=o["context"],
    )
    run.status = 1 if any(f.severity is Severity.ERROR for f in annotation.findings) else 0
    with run.output(text=form == "text", inputs=paths) as out:
        if form == "json":
            from binlogtool.report.annotate import annotate_json
            from binlogtool.report.json import document

            out.write(document(annotate_json(annotation)))
            return run.status
        from binlogtool.render.hexdump import HexdumpOptions, hexdump
        from binlogtool.report.text import finding_lines

        options = HexdumpOptions(
            width=o["width"],
            group=int(o["group"]),
            base=o["base"],
            depth=o["depth"],
            squeeze=not o["no_squeeze"],
            border=o["border"] or ("ascii" if s.ascii else "unicode"),
            color=run.colour(out),
        )
        for line in hexdump(annotation.rows, annotation.spaces, options):
            out.line(line)
        for line in finding_lines(annotation.findings):
            out.line(line)
    return run.status


o = click.Option
command = Command(
    "hexdump-annotate",
    callback=_hexdump,
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH"),
        o(["--record"], type=click.IntRange(0), metavar="N", help="Only record N, counted from 0."),
        o(["--at"], metavar="POS", help="Only what holds this position."),
        o(["--field"], metavar="PATH", help="Only this field and what is inside it, e.g. block[0].header."),
        o(["--width"], type=click.IntRange(1, 256), default=16, metavar="N", help="Bytes in a line (default: 16)."),
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
    ],
    help="""Show bytes beside the field that each belongs to: offset, hex, text, path = value (meaning).

    Damage is marked by ! in the first column. Bytes that belong to no field are drawn as `unmapped`. Packed payloads
    are shown unpacked in a section of their own.
    """,
    examples=(
        ("the first record", "binlogtool hexdump-annotate --record 0 00000000000000000042.xlog"),
        ("what stands at a place", "binlogtool hexdump-annotate --at 0x4f8 transaction.log"),
        ("every damaged place", "binlogtool hexdump-annotate --damage-only 00000000000000000042.xlog"),
    ),
)
