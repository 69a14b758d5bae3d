"""The calls of a golden record: each command in each output form over each sample, help, manual pages and schemas."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

NOT_LOGS = frozenset(
    (
        *(".c", ".conf", ".cnf", ".golden", ".ini", ".java", ".json", ".jsonl", ".lock", ".lua", ".md", ".out", ".py"),
        *(".sh", ".sql", ".toml", ".tsv", ".txt", ".xml", ".yaml"),
    )
)
"""Suffixes of files that lie beside samples."""

NOT_SAMPLES = ("oracle", "make", "reader", "__pycache__")
"""Folders of the corpora with what servers printed and with recipes; also as a prefix (`oracle-third-party`)."""

MAX_BYTES = 300_000
"""Larger samples are left to the other tests: a golden call takes some 50 ms."""

FILE_CALLS = (
    "verify",
    "verify -O json",
    "verify -O json --depth checksum",
    "verify --depth frame --report sarif=out/sarif.json --report junit=out/junit.xml",
    "verify --expect-closed --fail-on warning --report gitlab=out/gitlab.json --report github",
    "verify -q --report markdown=out/report.md --report html=out/report.html",
    "verify --backend python -O json",
    "dump",
    "dump -O jsonl",
    "dump -O jsonl --on-damage skip",
    "dump -O jsonl --on-damage salvage --backend python",
    "dump -O csv --on-damage skip",
    "dump -O json --decode header --on-damage skip",
    "dump -O table -n 20",
    "dump -O sql --on-damage skip",
    "dump --fields type,seq,object,time --on-damage skip",
    "dump --hex -n 5 --skip 2",
    "dump -O jsonl --tail 3",
    "hexdump-annotate -n 12",
    "hexdump-annotate -n 12 -O json",
    "hexdump-annotate --at 0 -O svg",
    "hexdump-annotate -n 4 -O html",
    "hexdump-annotate --damage-only",
    "truncate-to-durable",
    "truncate-to-durable -O json",
    "replay-dry-run",
    "replay-dry-run -O json --digest",
    "replay-dry-run -O jsonl --policy force --backend python",
    "stats",
    "stats -O csv --on-damage skip",
    "stats -O json --on-damage skip",
    "diagnose -O json",
    "diagnose -O markdown",
    "convert --to jsonl -o out/rows.jsonl --on-damage skip",
    "convert --to sql --rows statements -o out/script.sql --on-damage skip",
    "flashback -o out/flashback.sql",
    "flashback --rows statements",
    "rows",
    "rows -O jsonl",
    "convert --to csv --per-table -o out/tables --on-damage skip",
    "convert --to jsonl --envelope debezium -o out/messages.jsonl --on-damage skip",
)
"""Options of each call over one file; what is written lands in `out`."""

FOLDER_CALLS = (
    "verify",
    "verify -O json",
    "diagnose",
    "diagnose -O json",
    "replay-dry-run",
    "replay-dry-run -O json --digest",
    "truncate-to-durable -O json",
    "dump -O jsonl --on-damage skip",
    "stats --on-damage skip",
    "convert --to csv --per-table -o out/tables --on-damage skip",
)
"""The same for the files of one log, a directory."""


NEAR_MISSES = {words[0]: words for words in (("verfiy",), ("dunp", "x"), ("flash",))}
"""Calls of commands that do not exist, by their first word."""


class Call(msgspec.Struct, frozen=True):
    """One command line: its words, without the program's name; paths are relative to the folder that it runs in."""

    words: tuple[str, ...]

    @property
    def key(self) -> str:
        """Name of the call in a record."""
        return " ".join(self.words)

    @property
    def over_samples(self) -> bool:
        """Whether the call reads a sample; the others print help, manual pages and schemas."""
        asks_for_help = {"--help", "-h", "--version", "-V"}.intersection(self.words)
        return self.words[0] not in ("schema", "man", "help", *NEAR_MISSES) and not asks_for_help

    @property
    def rank(self) -> bytes:
        """Order of calls in samples: the same for each record, and without a pattern."""
        return hashlib.sha256(self.key.encode("utf-8", "surrogateescape")).digest()


def all_calls(folders: dict[str, Path]) -> list[Call]:
    """Build the calls for the corpora in `folders` (name in the scratch folder -> real folder)."""
    found = list(_program_calls())
    for name, folder in folders.items():
        for path in _sample_files(folder):
            sample = str(Path(name) / path.relative_to(folder))
            found += [Call((*text.split(), sample)) for text in FILE_CALLS]
        for path in _sample_folders(folder):
            sample = str(Path(name) / path.relative_to(folder))
            found += [Call((*text.split(), sample)) for text in FOLDER_CALLS]
    return found


def _program_calls() -> Iterator[Call]:
    from binlogtool.cli.command_table import COMMANDS

    for words in (
        ("--help",),
        ("-h",),
        ("help",),
        ("man",),
        ("--version",),
        ("--version", "-v"),
        *NEAR_MISSES.values(),
    ):
        yield Call(words)
    for command in COMMANDS:
        yield from (Call((command, word)) for word in ("--help", "-h", "--version"))
        yield from (Call((word, command)) for word in ("man", "help"))
    for name in _schema_names():
        yield Call(("schema", name))


def _schema_names() -> list[str]:
    from tests.golden.runner import run_here

    return [line.split()[0] for line in run_here(["schema"]).decode().splitlines() if line.strip()]


def _sample_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        apart = any(part.startswith(NOT_SAMPLES) for part in path.relative_to(folder).parts[:-1])
        if not apart and path.suffix not in NOT_LOGS and path.is_file() and os.path.getsize(path) <= MAX_BYTES:
            yield path


def _sample_folders(folder: Path) -> list[Path]:
    return sorted({path.parent for path in _sample_files(folder)})
