"""`dump -O sql`, whole processes, against the tool of the server that wrote the log (mysqlbinlog, mariadb-binlog)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from bench import sql_logs
from bench.cases import MIB, TOOL, Case, Figure, Result, Setting, Skipped
from bench.measure import Series, cpu_of_child, rounds
from bench.sql_logs import Kind
from tests.formats.mysql_binlog.server import Programs

SIZE, LARGE = 160, 1024
"""MiB of a log."""


def sql(setting: Setting) -> Result:
    """Scripts with the log's own row events: 3 x the server's tool with -vv; of a large log 0.8 x the tool without."""
    yield from of_all(setting, sql_logs.KINDS, SIZE, "exact", {"-vv": 3.0, "": None})
    yield from of_all(setting, sql_logs.LARGE, LARGE, "exact", {"": 0.8})


def sql_statements(setting: Setting) -> Result:
    """Scripts with INSERT, UPDATE and DELETE: as fast as the server's tool with -vv."""
    yield from of_all(setting, sql_logs.KINDS, SIZE, "statements", {"-vv": 1.0})


def of_all(
    setting: Setting, kinds: tuple[Kind, ...], mib: int, rows: str, against: dict[str, float | None]
) -> Iterator[Figure | Skipped]:
    """All kinds of logs of all servers. against: the options of the server's tool, and what is promised over it."""
    for server, programs in sql_logs.servers().items():
        if programs is None:
            yield Skipped(f"sql {rows}, {server}", sql_logs.ABSENT[server])
            continue
        folder = setting.directory / f"{rows}-{mib}-{server}"
        folder.mkdir()
        with sql_logs.kept(folder, server, programs, setting.logs or folder) as log:
            for kind in kinds:
                path = log(kind, setting.size(mib * kind.share))
                yield from figures(f"sql {rows}, {server}, {kind.name}", path, programs, setting, rows, against)
                if setting.logs is None:
                    path.unlink()


def figures(
    title: str, path: Path, programs: Programs, setting: Setting, rows: str, against: dict[str, float | None]
) -> Iterator[Figure]:
    """One log: our speed, and the ratio to the server's tool with each of these options."""
    command = [*TOOL, "dump", "-O", "sql", "--rows", rows, str(path)]
    candidates: dict[str, Callable[[], float]] = {"ours": cpu_of_child(command, allowed=(0, 1))}
    for options in against:
        candidates[f"peer {options}"] = cpu_of_child([programs.binlog, *options.split(), str(path)])
    seen: dict[str, Series] = rounds(setting.rounds, **candidates)
    size = path.stat().st_size / MIB
    yield Figure(f"{title}, {size:.0f} MiB", seen["ours"].inverse(size), "MiB/s")
    for options, target in against.items():
        said = f"over the server's tool {options}".rstrip()
        yield Figure(f"{title}, {said}", seen[f"peer {options}"].over(seen["ours"]), "x", target)


CASES: dict[str, Case] = {"sql": sql, "sql statements": sql_statements}
