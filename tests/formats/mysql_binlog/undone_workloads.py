"""The rows of workloads (tests/workloads/*.sql) taken back in the server that logged them: its tables are empty then.

    python -m tests.formats.mysql_binlog.undone_workloads [--record] [-v] [SERVER[:WORKLOAD[/MODE],...] ...]

Every workload makes its tables itself, so that what they had before is nothing. The control is `--flashback` of
MariaDB's own tool; MySQL has none. Definitions are left as they are (`--skip-ddl`); a table that was defined anew
behind its first rows has columns that its oldest rows do not fit: it is counted as `redefined`.
"""

from __future__ import annotations

import argparse
import glob
import json
import re
import subprocess
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from binlogtool import convert
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import BinlogtoolError
from tests.formats.mysql_binlog.server_state import State, state_of
from tests.formats.mysql_binlog.workloads import FOLDER, Pair, Workload, cases, pair

RECORD = FOLDER.parent / "corpus" / "mysql_binlog" / "workloads" / "undone.json"
SERVERS = ("mariadb", "mariadb-11.8", "mysql-9")
WAYS = {
    "row": ("control", "exact"),
    "full": ("exact", "statements"),
    "compressed": ("exact",),
    "partial-json-full": ("exact", "statements"),
}
"""The modes of logging whose rows are whole, and what is tried with each of them."""


@dataclass(frozen=True)
class Undone:
    """One undo. tables: with rows before it; left: those with rows behind it; redefined: those that the log defines
    more than once; errors: what the client said; refused: why there is no script."""

    way: str
    tables: int
    left: tuple[str, ...] = ()
    redefined: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    refused: str = ""


def filled(state: State) -> list[str]:
    """The names of the tables ("database.table") that have rows; no views, no sequences."""
    held = {name: lines for name, lines in state.items() if any(line.startswith("row\t") for line in lines)}
    made = ((name, line) for name, lines in held.items() for line in lines if "\tCREATE TABLE " in line)
    return [name[6:] for name, line in made if " SEQUENCE=1" not in line]


def undo(servers: Pair, load: Workload, mode: str, way: str) -> Undone:
    """Runs a workload and takes its rows back."""
    folder = Path(tempfile.mkdtemp(dir=servers.home))
    log, state = servers.logged(load, mode, folder)
    tables = filled(state)
    if way == "control":
        done = subprocess.run([servers.programs.binlog, "--no-defaults", "--flashback", str(log)], capture_output=True)
        return _taken_back(servers, way, tables, done.stdout, Counter())
    out = folder / "undo.sql"
    chosen = Selection(objects=tuple(map(glob.escape, tables)), on_damage="stop")
    try:
        made = convert([log], "flashback", out, selection=chosen, rows=way, skip_ddl=True)
    except BinlogtoolError as error:
        return Undone(way, len(tables), refused=str(error))
    if not made.complete:
        errors = [str(one["message"]) for one in made.findings if one["severity"] == "error"]
        return Undone(way, len(tables), refused=errors[0])
    told = [re.search(r": ([A-Z ]+) \((.*)\) is not reversed", str(one["message"])) for one in made.findings]
    defined = Counter[str]()
    for one in told:
        for name in [] if one is None else one[2].split(", "):
            defined[name] += 1 if one is not None and one[1] == "CREATE TABLE" else 2
    return _taken_back(servers, way, tables, out.read_bytes(), defined)


def _taken_back(servers: Pair, way: str, tables: list[str], script: bytes, defined: Counter[str]) -> Undone:
    said = servers.logging.talk(script, "--force").stderr.decode("utf-8", "replace").splitlines()
    left = tuple(sorted(set(filled(state_of(servers.logging))) & set(tables)))
    return Undone(way, len(tables), left, tuple(name for name in tables if defined[name] > 1), tuple(said))


BY_ITSELF = ("xa", "xa-branches", "gtids-mariadb", "gtids-mysql", "transactions", "partial-json-keyless")
"""Workloads with XA, with rollbacks of tables that cannot roll back, or with changes inside of JSON in rows that no key
finds: their undo is refused, and says why."""

CASCADES = ("keys", "triggers")
"""Foreign keys change rows that no log of these servers has: an undo that comes to them does not find them."""


def faults(load: str, found: list[Undone]) -> list[str]:
    """What is wrong."""
    control = next((one for one in found if one.way == "control"), None)
    out = []
    for one in found:
        if one.way == "control" or load in BY_ITSELF:
            continue
        if one.refused or not {*one.left} <= {*one.redefined}:
            out.append(f"{one.way}: {one.refused} {one.left}")
        elif one.errors and not one.redefined and load not in CASCADES:
            out.append(f"{one.way}: {one.errors[:8]}")
        elif control is not None and not control.errors and (one.errors or not {*one.left} <= {*control.left}):
            out.append(f"{one.way}: {one.left} {one.errors[:8]}; control: {control.left}")
    return out


def undone(servers: Pair, load: Workload, mode: str) -> list[Undone]:
    """Each way of one workload."""
    ways = (way for way in WAYS[mode] if way != "control" or not servers.programs.mysql)
    return [undo(servers, load, mode, way) for way in ways]


def chosen_cases(server: str) -> list[tuple[Workload, str]]:
    """The workloads in the modes that an undo takes."""
    return [(load, mode) for load, mode in cases(server) if mode in WAYS]


def main() -> None:
    """Runs what is asked for, and prints a table."""
    parser = argparse.ArgumentParser(description="The rows of workloads taken back.")
    parser.add_argument("wanted", nargs="*", default=[*SERVERS])
    parser.add_argument("--record", action="store_true")
    parser.add_argument("-v", action="store_true")
    given = parser.parse_args()
    for one in given.wanted:
        name, _, wanted = one.partition(":")
        with tempfile.TemporaryDirectory(prefix="bt-") as folder, ExitStack() as stack:
            servers = pair(name, Path(folder), stack)
            assert servers is not None, f"{name} is not here"
            found: dict[str, list[dict[str, Any]]] = {}
            for load, mode in chosen_cases(name):
                case = f"{load.name}/{mode}"
                if not wanted or {load.name, case} & set(wanted.split(",")):
                    found[case] = [_shown(case, one, verbose=given.v) for one in undone(servers, load, mode)]
            if given.record:
                known = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
                found = {**known.get(name, {"cases": {}})["cases"], **found}
                order = [f"{load.name}/{mode}" for load, mode in chosen_cases(name)]
                cases_ = {case: found[case] for case in order if case in found}
                known[name] = {"version": servers.logging.version(), "cases": cases_}
                RECORD.write_text(json.dumps(known, indent=1) + "\n", "utf-8")


def _shown(case: str, one: Undone, *, verbose: bool) -> dict[str, Any]:
    counts = f"tables {one.tables:3} left {len(one.left):3} redefined {len(one.redefined):3} errors {len(one.errors):3}"
    print(f"{case:28} {one.way:12} {counts} {one.refused[:120]}", flush=True)
    for text in (*one.left, *one.errors[:8]) if verbose else ():
        print("      ", text[:300], flush=True)
    return {**asdict(one), "errors": len(one.errors)}


if __name__ == "__main__":
    main()
