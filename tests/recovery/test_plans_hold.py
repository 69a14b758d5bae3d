"""A plan that is not refused can be carried out: what the result would be is judged before, the whole log included."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import binlogtool
from binlogtool.errors import RefusedError, UnknownFormatError
from binlogtool.findings import Severity
from binlogtool.recovery.plan import Asked

pytestmark = [pytest.mark.corpus, pytest.mark.slow]

CHOICES = (
    Asked(),
    Asked(allow_discard_valid=True),
    Asked(allow_discard_valid=True, fix_meta=True, write_close_marker=True),
)
LEAST = {"tarantool": 70, "drizzle": 25, "manticore": 54, "sphinx": 30, "eblob": 20, "mysql-binlog": 50,
         "mariadb-innodb-binlog": 20}  # fmt: skip
"""Damaged cases of each corpus."""


def content(folder: Path) -> dict[str, bytes]:
    """All files below."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def cases(corpus: Path, format: str) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Each damaged log: name, files of its directory."""
    root = corpus / format / "generated"
    if format == "tarantool":
        yield from _changed(root)
        return
    for folder in sorted(path for path in root.rglob("damaged") if path.is_dir()):
        below = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix not in (".json", ".md")]
        for parent in sorted({path.parent for path in below}):
            own = [path for path in below if path.parent == parent]
            name = str(parent.relative_to(root))
            single = format in ("drizzle", "eblob") or (format == "mysql-binlog" and not parent.name.startswith("set"))
            if single:
                yield from ((f"{name}/{path.name}", {path.name: path.read_bytes()}) for path in own)
            else:
                yield name, dict(map(_unpacked, own))


def _unpacked(path: Path) -> tuple[str, bytes]:
    data = path.read_bytes()
    return (path.stem, gzip.decompress(data)) if path.suffix == ".gz" else (path.name, data)


def _changed(root: Path) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Cases that say what differs from an intact directory."""
    for kind in ("damaged", "damaged_vinyl"):
        for one in json.loads((root / kind / "manifest.json").read_text())["cases"]:
            files = content(root / one["base"])
            for change in one["changes"]:
                name = change["name"]
                if change["op"] == "delete":
                    del files[name]
                else:
                    files[name] = (root / kind / one["case"] / name).read_bytes()
            yield f"{kind}/{one['case']}", files


@pytest.mark.parametrize("format", LEAST)
def test_a_plan_that_is_not_refused_is_carried_out_and_the_log_is_clean(
    corpus: Path, tmp_path: Path, format: str
) -> None:
    outcomes: Counter[str] = Counter()
    number = 0
    for number, (name, files) in enumerate(cases(corpus, format), 1):
        folder = tmp_path / str(number)
        for path, data in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        log = folder / next(iter(files)) if len(files) == 1 else folder
        for asked in CHOICES:
            outcomes[_outcome(log, asked, name)] += 1
            assert content(folder) == files, name
    print(f"\nplans {format}: {number} damaged logs: {dict(outcomes)}")
    assert number >= LEAST[format]
    assert outcomes["repaired"] >= 8


def _outcome(log: Path, asked: Asked, name: str) -> str:
    try:
        plan = binlogtool.plan_truncate(log, asked=asked)
    except (UnknownFormatError, RefusedError):
        return "not a log"
    if plan.refused:
        assert plan.reasons, name
        return "refused"
    if plan.changes:
        done = binlogtool.apply_plan(plan)  # never a RestoredError
        assert done.undo is not None
    report = binlogtool.verify([log])
    assert report.count(Severity.ERROR) == 0, (name, asked, [str(f) for f in report.findings])
    again = binlogtool.plan_truncate(log, asked=asked)
    assert (again.refused, again.changes) == (False, ()), (name, asked, again)
    if not plan.changes:
        return "nothing to do"
    binlogtool.undo(str(done.undo))
    Path(str(done.undo)).unlink()
    return "repaired"
