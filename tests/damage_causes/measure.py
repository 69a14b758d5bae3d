"""How often the cause of a damage is named rightly, wrongly, or not at all."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from binlogtool.errors import BinlogtoolError
from binlogtool.findings import Severity
from binlogtool.verification.verify_logs import LogVerifyOptions
from binlogtool.verification.verify_report import FileReport
from tests.damage_causes.damage import KINDS, Done
from tests.verify_bytes import verify_bytes

FORMATS = ("tarantool", "drizzle", "manticore", "eblob", "mysql-binlog", "mariadb-innodb-binlog")
WORDS = ("right", "wrong", "none", "unseen")
TORN = ("torn-tail", "garbage-tail")
LEAST, MOST = 2048, 1 << 15


class Sample(NamedTuple):
    """A sound log."""

    format: str
    name: str
    data: bytes


def samples(folder: Path, format: str, count: int, most: int = MOST) -> list[Sample]:
    """Up to `count` sound logs of a format, spread over what a folder holds; each content once."""
    found: dict[bytes, Sample] = {}
    paths = [p for p in folder.rglob("*") if p.is_file() and LEAST <= p.stat().st_size <= most]
    random.Random(1).shuffle(paths := sorted(paths))
    for path in paths:
        data = path.read_bytes()
        report = verified(format, path.name, data)
        bad = report is None or any(f.severity > Severity.NOTE or f.id in TORN for f in report.findings)
        if report and report.records > 3 and not bad:
            found.setdefault(data, Sample(format, path.name, data))
        if len(found) == count:
            break
    return list(found.values())


def verified(format: str, name: str, data: bytes) -> FileReport | None:
    """What is said of a file; None if it is not of this format, or an index or list."""
    try:
        report = verify_bytes(
            name, data, format="auto" if format == "any" else format, options=LogVerifyOptions(causes=True)
        )
    except BinlogtoolError:
        return None
    return report if report.format == format else None


def verdict(report: FileReport | None, done: Done) -> str:
    """right, wrong, none (damage, no cause), or unseen (nothing is said at all: no checksum covers it)."""
    named = [f for f in report.findings if "cause" in f.facts] if report else []
    if not named:
        return "none" if report is None or any(f.severity > Severity.NOTE for f in report.findings) else "unseen"
    right = all(f.facts["cause"] in done.right for f in named)
    if right and done.bit is not None:
        right = any((f.facts["cause_offset"], f.facts.get("cause_bit")) == done.bit for f in named)
    return "right" if right else "wrong"


def measured(kind: str, sound: Sequence[Sample], others: Sequence[bytes], count: int, seed: int) -> Counter[str]:
    """Verdicts over `count` damages of one kind to the logs of one format."""
    rng, seen, tries = random.Random(f"{kind} {seed}"), Counter[str](), 0
    while sum(seen[word] for word in WORDS) < count and tries < 20 * count:
        tries += 1
        sample = rng.choice(sound)
        done = KINDS[kind](rng, sample.data, rng.choice(others))
        if done is not None:
            report = verified(sample.format, sample.name, done.data)
            said = verdict(report, done)
            seen[said] += 1
            if said == "wrong" and report is not None:
                seen.update(f"! {sample.name} {f.id}: {f.message}" for f in report.findings if "cause" in f.facts)
    return seen
