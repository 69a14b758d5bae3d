"""Predictions of starts held against what servers did: counts right, wrong and open.

`python -m tests.formats.tarantool.predictions [WORD ...]` prints each wrong and open one; a word selects cases by name.
The verdicts are recorded in the full corpus: Tarantool 3.9 (`tarantool-3.9`) and 2.6 (`found-3`).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import binlogtool
from binlogtool.errors import BinlogtoolError
from binlogtool.prediction.predict_replay import ReplayResult

POLICIES = {"server": "start", "force": "start_force"}
SYSTEM = ("_space", "_index", "_cluster")
NEW_INSTANCE = ("snap_missing", "snap_renamed_corrupted", "snap_renamed_inprogress")
"""Cases that end with a new instance under force_recovery: the rows counted are those that the server made."""


@dataclass(frozen=True, slots=True)
class Case:
    """One directory with what a server did. changes: the files that differ from `base`; None = the file is deleted.

    verdicts: policy -> {"started", "error", "counts", "vclock"} of the server.
    """

    name: str
    base: Path
    changes: Mapping[str, Path | None]
    verdicts: Mapping[str, Mapping[str, Any]]

    def build(self, folder: Path) -> Path:
        """Write the directory."""
        shutil.copytree(self.base, folder, copy_function=shutil.copyfile)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        for name, path in self.changes.items():
            target = folder / name
            target.unlink(missing_ok=True)
            if path is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
                (shutil.copytree if path.is_dir() else shutil.copyfile)(path, target)
        return folder


@dataclass(frozen=True, slots=True)
class Answer:
    """A prediction beside the verdict. result: right, wrong or open; why: how they differ, or why it is open."""

    case: str
    policy: str
    result: str
    why: str = ""


def cases(corpus: Path) -> Iterator[Case]:
    """All cases with a recorded verdict."""
    generated = corpus / "tarantool-3.9" / "generated"
    sets = json.loads((generated / "manifest.json").read_text())["sets"]
    for name, told in sets.items():
        yield Case(f"3.9/{name}", generated / name, {}, {p: told[key] for p, key in POLICIES.items() if key in told})
    for kind in ("damaged", "damaged_vinyl"):
        for told in json.loads((generated / kind / "manifest.json").read_text())["cases"]:
            changes = {
                change["name"]: generated / kind / told["case"] / change["name"] if change["op"] == "write" else None
                for change in told["changes"]
            }
            verdicts = {policy: told[key] for policy, key in POLICIES.items() if key in told}
            yield Case(f"3.9/{kind}/{told['case']}", generated / told["base"], changes, verdicts)
    found = corpus / "found-3"
    base = found / "tarantool-vylog-refs" / "base"
    refused = {"started": False, "error": "Duplicate key exists in unique index"}
    yield Case("2.6/issue-5874", found / "tarantool-issue-5874", {}, {"server": refused})
    for kind in ("tarantool-vylog-refs", "tarantool-replay-constraints"):
        for line in (found / kind / "expected.tsv").read_text().splitlines():
            name, server, *rest = line.split("\t")
            folder = found / kind / ("variants" if kind.endswith("refs") else "") / name
            files = [folder] if folder.is_file() else list(folder.rglob("*.*log"))
            verdict: dict[str, Any] = {"started": server == "server yes", "error": " ".join(rest).strip()}
            if verdict["started"]:
                counts = dict(word.split("=") for word in verdict["error"].split() if "=" in word)
                verdict["counts"] = {"orders": int(counts["orders"]), "vin": int(counts["vin"])}
            yield Case(f"2.6/{kind}/{name}", base, {path.name: path for path in files}, {"server": verdict})


def answer(case: Case, policy: str, folder: Path) -> Answer:
    """Predict one start."""
    verdict = case.verdicts[policy]
    try:
        (result,) = binlogtool.replay([folder], policy=policy)
    except BinlogtoolError as error:
        return Answer(case.name, policy, "wrong", f"{type(error).__name__}: {error}")
    differences = list(compare(result, verdict, case.name.startswith("3.9/")))
    if result.starts is None:
        return Answer(case.name, policy, "open", str(result.stop))
    return Answer(case.name, policy, "wrong" if differences else "right", "; ".join(differences))


def compare(result: ReplayResult, verdict: Mapping[str, Any], system: bool = True) -> Iterator[str]:
    """How a prediction differs from what the server did."""
    if result.starts != verdict["started"]:
        said = str(verdict.get("error"))[-150:] if not verdict["started"] else "starts"
        yield f"starts: tool={result.starts} ({result.stop.why if result.stop else ''}) server={said}"
        return
    if not verdict["started"]:
        return
    mine = {one.name: one.keys or 0 for one in result.objects}
    uncertain = {*result.details.get("not_comparable", {}), *result.unknown}
    for name, count in sorted(verdict.get("counts", {}).items()):
        if (name[:1] == "_" and not (system and name in SYSTEM)) or name in uncertain:
            continue
        if mine.get(name, 0) != count:
            yield f"rows of {name}: tool={mine.get(name, 0)} server={count}"
    vclock = {str(k): v for k, v in result.position.get("vclock", {}).items()}
    theirs = verdict.get("vclock")
    if theirs is not None and vclock != {k: v for k, v in theirs.items() if v}:
        yield f"vclock: tool={vclock} server={theirs}"


def answers(corpus: Path, words: tuple[str, ...] = ()) -> Iterator[Answer]:
    """The predictions of all cases, or of those whose name has one of the words."""
    for case in cases(corpus):
        if words and not any(word in case.name for word in words):
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = case.build(Path(name, "data"))
            for policy in case.verdicts:
                if not (policy == "force" and case.name.rpartition("/")[2] in NEW_INSTANCE):
                    yield answer(case, policy, folder)


def main(words: list[str]) -> None:
    """Print what is not right, and the counts of each group of cases."""
    shared = Path(__file__).parents[4] / "shared" / "corpus"
    corpus = Path(os.environ.get("BINLOGTOOL_CORPUS", shared))
    counts: dict[str, Counter[str]] = {}
    for one in answers(corpus, tuple(words)):
        counts.setdefault(one.case.rpartition("/")[0] + " " + one.policy, Counter())[one.result] += 1
        if one.result != "right":
            print(f"{one.result:5} {one.case} [{one.policy}] {one.why}")
    for group, of in counts.items():
        print(f"{group}: {of['right']} right, {of['wrong']} wrong, {of['open']} open")


if __name__ == "__main__":
    main(sys.argv[1:])
