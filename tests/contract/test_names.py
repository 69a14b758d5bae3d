"""Names of modules tell themselves apart, outside the rooms of formats, which have the same names on purpose."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.contract.sources import ROOT

SUBJECTS = {
    "annotate": "hexdump-annotate: its bytes, and its JSON",
    "diagnosis": "the work, and how it is told",
    "differing": "hexdump-annotate --diff: what differs, its lines, its options",
    "dump": "how records are told, and the command",
    "follow": "logs that are followed, and the option",
    "job": "typed tables and messages are made in the same rooms",
    "left": "files that take no part, and how they are told",
    "longvalues": "what a format has of them, and their way to an output",
    "records": "records as values, and as JSON",
    "repair": "the work, and how it is told",
    "replay": "the work, and how it is told",
    "stats": "how figures are told, and the command",
    "target": "see job",
    "undo": "the work, and the command",
    "verify": "the work, and the command",
    "wishes": "see job",
}
"""Names that several floors have, since each has its part of one subject."""

ENDINGS = ("ing", "ed", "er", "e", "s")


def modules() -> list[Path]:
    """The modules of the package and those that all formats use, from the root of the project."""
    paths = [p.relative_to(ROOT) for p in (ROOT / "binlogtool").rglob("*.py")]
    paths += [p.relative_to(ROOT) for p in (ROOT / "formats").glob("*.py")]
    return [p for p in paths if p.stem not in ("__init__", "__main__")]


def repeated(names: Iterable[str]) -> set[str]:
    return {name for name, times in Counter(names).items() if times > 1}


def stem(name: str) -> str:
    """A word without its ending: `replays`, `replayed` and `replay` are one."""
    for ending in ENDINGS:
        if name.endswith(ending) and len(name) > len(ending) + 2:
            return stem(name.removesuffix(ending))
    return name


def alike(names: Iterable[str]) -> list[list[str]]:
    """Different names that differ in nothing but an ending."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for name in names:
        kinds[stem(name)].add(name)
    return sorted(sorted(kind) for kind in kinds.values() if len(kind) > 1)


def test_a_name_is_used_twice_for_one_subject_only() -> None:
    assert len(modules()) > 300
    assert repeated(p.stem for p in modules()) == set(SUBJECTS)


def test_no_two_modules_of_a_folder_differ_by_an_ending() -> None:
    folders: dict[Path, set[str]] = defaultdict(set)
    for path in modules():
        folders[path.parent].add(path.stem)
    assert {str(folder): found for folder, names in folders.items() if (found := alike(names))} == {}


@pytest.mark.parametrize("names", [("replay", "replayed"), ("stream", "streaming"), ("cut", "cuts"), ("part", "parts")])
def test_names_that_differ_by_an_ending_are_seen(names: tuple[str, ...]) -> None:
    assert alike([*names, "other"]) == [sorted(names)]
