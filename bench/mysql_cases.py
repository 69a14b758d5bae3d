"""The binary log of MySQL and MariaDB: against MariaDB's own tool, on logs that its server has written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import binlogtool
from bench import mysql_log
from bench.cases import MIB, TOOL, Case, Figure, Result, Setting, Skipped, crc_from_file, verified
from bench.measure import Series, cpu_of, cpu_of_child, rounds, run_child
from bench.mysql_log import Made
from binlogtool.report.dump_output_formats import CompiledLineEncoder, EncodedLines

PEER = ("mariadb-binlog", "mysqlbinlog")
SHAPES: dict[str, Callable[[Path, int], Made]] = {"small events": mysql_log.small, "8 KiB events": mysql_log.wide}
CHECKED = ["-s", "--verify-binlog-checksum"]
PRINTED = ["-vv"]


def mysql(setting: Setting) -> Result:
    """Binary logs: verify, and dump with decoded rows, against the server's own tool."""
    for shape, make_log in SHAPES.items():
        folder = setting.directory / shape.replace(" ", "-")
        folder.mkdir()
        made = make_log(folder, setting.size(320))
        title = f"mysql {shape}" if made.real else f"mysql {shape} (synthetic)"
        size = made.size / made.events
        yield Figure(f"{title}: mean size of an event, of {made.size / MIB:.0f} MiB", Series((size,)), "bytes")
        yield from checks(title, made, setting, small=shape == "small events")
        yield from dumps(title, made, setting)
        made.path.unlink()


def checks(title: str, made: Made, setting: Setting, small: bool) -> Result:
    """verify at both depths, with and without compiled code."""
    tool = [*TOOL, "verify"]
    candidates = {
        "checksum": cpu_of(verified(made.path, "native", "checksum", made.events)),
        "set": cpu_of(verified(made.path, "native", "set", made.events)),
        "plain": cpu_of(verified(made.path, "python", "checksum", made.events)),
        "crc": cpu_of(crc_from_file(made.path)),
        "whole checksum": cpu_of_child([*tool, "--depth", "checksum", str(made.path)]),
        "whole set": cpu_of_child([*tool, str(made.path)]),
    }
    seen, peer = with_peer(setting.rounds, CHECKED, made, candidates)
    rate = made.size / MIB
    for name in ("checksum", "set", "plain", "crc"):
        yield Figure(f"{title}: {SAID[name]}, in the process", seen[name].inverse(rate), "MiB/s")
    yield Figure(f"{title}: speed over that of ISA-L CRC of the file", seen["crc"].over(seen["checksum"]), "x")
    if peer is None:
        yield Skipped(f"{title}: verify against the server's tool", f"{PEER[0]} is not installed")
        return
    yield Figure(f"{title}: {peer} {' '.join(CHECKED)}", seen["peer"].inverse(rate), "MiB/s")
    for name, target in IN_PROCESS[small].items():
        yield Figure(f"{title}: {SAID[name]} over {peer}", seen["peer"].over(seen[name]), "x", target)
    for name, target in WHOLE[small].items():
        yield Figure(
            f"{title}: {SAID[name]} over {peer}, start-up included", seen["peer"].over(seen[name]), "x", target
        )
    if not small:
        yield Figure(f"{title}: verify, whole process", seen["whole set"], "s CPU", 0.25, at_least=False)
    peak = run_child([*tool, str(made.path)]).peak
    yield Figure(f"{title}: verify, peak", Series((peak / MIB,)), "MiB", 48, at_least=False)


IN_PROCESS: dict[bool, dict[str, float | None]] = {
    True: {"checksum": 8.0, "set": 5.0, "plain": 1.0},
    False: {"checksum": 0.6, "set": 0.5, "plain": 0.6},
}
"""Of small events, and of large ones: what is promised over the server's tool, without the start. With large events
reading the file and one CRC over it are only 1.4 times as fast as that tool (docs/scale.md)."""

WHOLE: dict[bool, dict[str, float | None]] = {
    True: {"whole checksum": 5.0, "whole set": 4.0},
    False: {"whole checksum": None, "whole set": None},
}
"""Of small events, and of large ones: what is promised over the server's tool, start-up included."""

SAID = {
    "checksum": "verify --depth checksum, fast",
    "set": "verify, fast",
    "plain": "verify --depth checksum, plain",
    "crc": "ISA-L CRC of the file",
    "whole checksum": "verify --depth checksum",
    "whole set": "verify",
}


def dumps(title: str, made: Made, setting: Setting) -> Result:
    """dump -O jsonl with decoded rows."""
    candidates = {
        "whole": cpu_of_child([*TOOL, "dump", "-O", "jsonl", str(made.path)]),
        "rows": cpu_of(lambda: lines_of(made)),
    }
    seen, peer = with_peer(setting.rounds, PRINTED, made, candidates)
    events = made.events / 1e3
    yield Figure(f"{title}: dump -O jsonl", seen["whole"].inverse(events), "k events/s")
    if peer is None:
        yield Skipped(f"{title}: dump against the server's tool", f"{PEER[0]} is not installed")
    else:
        yield Figure(f"{title}: {peer} {' '.join(PRINTED)}", seen["peer"].inverse(events), "k events/s")
        yield Figure(f"{title}: dump over {peer}", seen["peer"].over(seen["whole"]), "x", 1.0)
    target = 700.0 if made.rows > made.events else None
    yield Figure(f"{title}: rows to JSON, in the process", seen["rows"].inverse(made.rows / 1e3), "k rows/s", target)


def lines_of(made: Made) -> None:
    """Writes all lines with compiled code, and throws them away."""
    with binlogtool.open(made.path, backend="native") as log:
        parts = CompiledLineEncoder().encode_ranges(log.record_ranges())
        written = sum(len(part.record) for part in parts if isinstance(part, EncodedLines))
    assert written > 0.99 * made.events, (written, made.events)


def with_peer(
    count: int, options: list[str], made: Made, candidates: dict[str, Callable[[], float]]
) -> tuple[dict[str, Series], str | None]:
    """Measures side by side with the server's tool, if it is there; its name."""
    peer = next(filter(shutil.which, PEER), None)
    if peer is not None:
        candidates = candidates | {"peer": cpu_of_child([peer, *options, str(made.path)])}
    return rounds(count, **candidates), peer


CASES: dict[str, Case] = {"mysql": mysql}
