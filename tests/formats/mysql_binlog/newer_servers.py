"""A manual run: another server than the installed one starts on repaired logs; what it shows is recorded as JSON.

    python -m tests.formats.mysql_binlog.newer_servers --server PROGRAM --client PROGRAM --binlog PROGRAM \
        --data DIRECTORY --corpus DIRECTORY [--mysql] RECORD.json

PROGRAM: the server, its client, and its tool that prints a log (or scripts that call them with all arguments).
DIRECTORY of --data: a fresh data directory made by that server (`mysqld --initialize-insecure --user=root`, or
`mariadb-install-db --auth-root-authentication-method=normal`). The record keeps what other versions showed.
For each log: what the server shows of the repaired one, which is in use as its crash left it, whether its tool prints
it without a complaint, and what the server makes of the damaged one alone. MariaDB takes MariaDB's logs, MySQL MySQL's.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import binlogtool
from tests.formats.mysql_binlog.repaired import Case, Shown, look, plan_of, put, refused_alone, repairable
from tests.formats.mysql_binlog.server import Programs


def cases(corpus: Path, *, mysql: bool) -> list[Case]:
    """The logs for such a server."""
    return [one for one in [*repairable(corpus), *refused_alone(corpus)] if one.mysql == mysql]


def entry(case: Case, programs: Programs, data: Path) -> tuple[str, dict[str, Any]]:
    """The server's version, and what is recorded about one log."""
    with tempfile.TemporaryDirectory(prefix="bt-") as folder:
        home = Path(folder)
        for server in ("a", "b"):
            shutil.copytree(data, home / server / "data")
        alone = look(put(case, home / "alone"), home / "a", programs)
        path = put(case, home / "log")
        plan = plan_of(path)
        if plan.changes:
            binlogtool.apply_plan(plan)
        printed = _printed(path, programs)
        shown = look(path, home / "b", programs)
    value = {"case": case.name, "repaired": shown.as_value(), "tool": printed, "damaged": _alone(alone)}
    return shown.version, value


def _alone(shown: Shown) -> dict[str, Any]:
    """Of the damaged log."""
    return {"started": shown.started, "size": shown.size, "events": len(shown.events), "errors": len(shown.complaints)}


def _printed(path: Path, programs: Programs) -> dict[str, Any]:
    """Does the tool print the log to its end? complaints: of its standard error."""
    command = [programs.binlog, "--no-defaults", "--verify-binlog-checksum", str(path)]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    complaints = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line]
    return {"exit": done.returncode, "complaints": complaints}


def main() -> None:
    """Runs all cases of one server and puts them into the record."""
    parser = argparse.ArgumentParser(description="Starts a server on repaired logs and records what it shows.")
    for name in ("server", "client", "binlog", "data", "corpus"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--mysql", action="store_true")
    parser.add_argument("record", type=Path)
    given = parser.parse_args()
    programs = Programs(given.server, given.client, given.binlog, given.mysql)
    found: list[dict[str, Any]] = []
    version = ""
    for case in cases(Path(given.corpus), mysql=given.mysql):
        told, value = entry(case, programs, Path(given.data))
        version = told or version
        found.append(value)
        print(case.name, value["repaired"], value["damaged"], value["tool"], flush=True)
    record = json.loads(given.record.read_text("utf-8")) if given.record.exists() else {}
    record[f"{'MySQL' if given.mysql else 'MariaDB'} {version}"] = found
    given.record.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
