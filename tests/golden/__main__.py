"""Record what the program prints, and compare it later.

    python -m tests.golden record tests/golden/record.xz
    python -m tests.golden compare tests/golden/record.xz [--sample 2000]

A record holds, for each call, the exit status and hashes of standard output, standard error and the files written;
paths and times of the run are normalised. `compare` prints which calls differ, grouped by command, and shows the first
ten as diffs against the commit that the record was made at (a git worktree of it is made for that).
"""

from __future__ import annotations

import argparse
import difflib
import lzma
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec

from tests.golden.api import api_text
from tests.golden.calls import Call, all_calls
from tests.golden.runner import Outcome, Scratch, _hash, prepare_process, run_all

ROOT = Path(__file__).resolve().parents[2]
FULL_CORPUS = Path(os.environ.get("BINLOGTOOL_CORPUS", ROOT.parent / "shared" / "corpus"))
API = "(public API)"
CALLS = 24_000
SHOWN = 10
DIFF_LINES = 12


class Record(msgspec.Struct, frozen=True):
    """A golden record: the commit it was made at, and the outcome of each call by its key."""

    commit: str
    outcomes: dict[str, Outcome]


def main(words: list[str]) -> int:
    """Run one subcommand; exit status 1 where calls differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden")
    parser.add_argument("action", choices=("record", "compare", "show"))
    parser.add_argument("file", type=Path)
    parser.add_argument(
        "--sample", type=int, default=CALLS, help=f"how many calls (default: {CALLS:,}), the same each time"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--match", default="", help="only calls that contain this text")
    options = parser.parse_args(words)
    folders = {"shipped": ROOT / "tests" / "corpus"}
    if FULL_CORPUS.is_dir():
        folders["corpus"] = FULL_CORPUS
    if options.action == "show":
        return _show(Call(tuple(options.match.split())), folders)
    calls = [call for call in all_calls(folders) if options.match in call.key]
    if options.action == "record":
        chosen = _sample(calls, options.sample)
        return _record(options.file, chosen, folders, options.jobs, keeps_others=bool(options.match))
    return _compare(options.file, calls, options.sample, folders, options.jobs)


def _sample(calls: list[Call], count: int) -> list[Call]:
    """Choose all of help, pages and schemas, and others without a pattern; a small sample is part of a large one."""
    return sorted(calls, key=lambda call: (call.over_samples, call.rank))[:count]


def _run(calls: list[Call], folders: dict[str, Path], jobs: int) -> dict[str, Outcome]:
    begun = time.monotonic()
    outcomes = dict(run_all(calls, folders, jobs))
    outcomes[API] = Outcome(0, _hash(api_text().encode()), "", "")
    print(f"{len(calls):,} calls in {time.monotonic() - begun:.0f} s")
    return outcomes


def _record(file: Path, calls: list[Call], folders: dict[str, Path], jobs: int, *, keeps_others: bool) -> int:
    """Write the record. keeps_others: of these calls only; other calls stay in it as they were, with their commit."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    record = Record(commit.stdout.strip(), {})
    if keeps_others:
        record = msgspec.json.decode(lzma.decompress(file.read_bytes()), type=Record)
        calls = [call for call in calls if call.key in record.outcomes]
    outcomes = {**record.outcomes, **_run(calls, folders, jobs)}
    file.write_bytes(lzma.compress(msgspec.json.encode(Record(record.commit, dict(sorted(outcomes.items()))))))
    print(f"{file}: {file.stat().st_size:,} bytes")
    return 0


def _compare(file: Path, calls: list[Call], sample: int, folders: dict[str, Path], jobs: int) -> int:
    record = msgspec.json.decode(lzma.decompress(file.read_bytes()), type=Record)
    known = [call for call in calls if call.key in record.outcomes]
    chosen = _sample(known, sample)
    outcomes = _run(chosen, folders, jobs)
    changed = [call for call in chosen if outcomes[call.key] != record.outcomes[call.key]]
    print(f"{len(changed)} of {len(chosen):,} calls differ; {len(calls) - len(known)} calls are not in the record")
    api_changed = outcomes[API] != record.outcomes.get(API)
    if api_changed:
        print("the public API differs: python -m tests.golden.api")
    for command, count in Counter(" ".join(call.words[:-1]) for call in changed).most_common():
        print(f"{count:6}  {command}")
    _show_differences(record.commit, changed[:SHOWN], folders)
    return 1 if changed or api_changed else 0


def _show(call: Call, folders: dict[str, Path]) -> int:
    """Print what one call prints now: how `compare` asks the program of another commit."""
    prepare_process()
    scratch = Scratch(folders)
    try:
        output = scratch.run(call)
    finally:
        scratch.remove()
    print(f"exit {output.status}")
    for name, data in {"stdout": output.out, "stderr": output.err, **output.files}.items():
        print(f"--- {name}\n{data.decode('utf-8', 'backslashreplace')}")
    return 0


def _show_differences(commit: str, calls: list[Call], folders: dict[str, Path]) -> None:
    if not calls:
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # a worktree is removed first
    with tempfile.TemporaryDirectory(prefix="golden-before-") as folder:
        before = Path(folder) / "checkout"
        made = subprocess.run(
            ["git", "worktree", "add", "--detach", str(before), commit], cwd=ROOT, capture_output=True, check=False
        )
        if made.returncode:
            print(f"no diffs: commit {commit[:12]} of the record is not in this repository")
            return
        library = before / "binlogtool" / "schema" / "_native.so"
        try:
            subprocess.run(
                [sys.executable, "-m", "binlogtool.native_build.build", str(library)],
                cwd=before,
                capture_output=True,
                check=False,
            )
            for call in calls:
                _show_difference(before, call)
        finally:
            subprocess.run(
                ["git", "worktree", "remove", "--force", str(before)], cwd=ROOT, capture_output=True, check=False
            )


def _show_difference(before: Path, call: Call) -> None:
    texts = [_text_at(root, call) for root in (before, ROOT)]
    print(f"\n=== {call.key}")
    lines = difflib.unified_diff(texts[0], texts[1], "before", "now", lineterm="", n=1)
    for number, line in enumerate(lines):
        if number == DIFF_LINES:
            print("  …")
            break
        print(line[:200])


def _text_at(root: Path, call: Call) -> list[str]:
    """What a call prints with the program of another checkout, run by this one's runner."""
    environment = {**os.environ, "PYTHONPATH": f"{root}:{ROOT}", "BINLOGTOOL_CORPUS": str(FULL_CORPUS)}
    program = f"import sys; sys.path[:0] = [{str(root)!r}, {str(ROOT)!r}]\n"
    program += "from tests.golden.__main__ import main\n"
    program += f"main(['show', '-', '--match', {call.key!r}])\n"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], env=environment, capture_output=True, cwd="/", check=False
    )
    return (done.stdout + done.stderr).decode("utf-8", "backslashreplace").splitlines()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
