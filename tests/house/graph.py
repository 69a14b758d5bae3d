"""The graph of the rooms: who imports from whom, and how often; as DOT and as Mermaid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.house.figures import lines_of
from tests.house.modules import Code

VOCABULARY = ("findings", "limits", "errors", "memory")
LIBRARY = ("__main__", "calls", "repairs", "results")


class Graph(NamedTuple):
    """Rooms with their files and lines; arrows with the number of imports that go their way."""

    rooms: Mapping[str, tuple[int, int]]
    arrows: Mapping[tuple[str, str], int]


def room_of(module: str, inside: str | None, packages: frozenset[str]) -> str | None:
    """The room that a module lies in: a floor or a format; of a part of the house that is looked into, its own rooms.

    packages: modules that are folders. None: not of that part.
    """
    parts = module.split(".")[1:]
    if inside is not None:
        wanted = [part for part in inside.split("/") if part != "binlogtool"]
        if parts[: len(wanted)] != wanted or len(parts) == len(wanted):
            return None
        return parts[len(wanted)]
    if not parts or parts[0] in LIBRARY:
        return "library"
    if parts[0] in VOCABULARY:
        return "vocabulary"
    if parts[0] == "formats":
        own = ".".join(module.split(".")[:3])
        return f"formats/{parts[1]}" if len(parts) > 1 and own in packages else "formats"
    return parts[0]


def graph(code: Code, inside: str | None = None) -> Graph:
    """The rooms of the house, or of a part of it (`formats/tarantool`, `log`), and the arrows between them."""
    packages = frozenset(code.name_of(path) for path in code.modules if path.stem == "__init__")
    rooms: dict[str, tuple[int, int]] = {}
    for path in code.modules:
        if room := room_of(code.name_of(path), inside, packages):
            files, lines = rooms.get(room, (0, 0))
            rooms[room] = files + 1, lines + lines_of(path)
    arrows: Counter[tuple[str, str]] = Counter()
    for name, needed in code.edges.items():
        here = room_of(name, inside, packages)
        there = [room_of(other, inside, packages) for other in needed]
        arrows.update((here, one) for one in there if here and one and one != here)
    return Graph(rooms, arrows)


def dot(drawn: Graph) -> Iterator[str]:
    """For Graphviz."""
    yield "digraph house {"
    yield "  node [shape=box fontname=sans-serif]; edge [fontname=sans-serif fontsize=9];"
    for room, (files, lines) in drawn.rooms.items():
        yield f'  "{room}" [label="{room}\\n{files} files, {lines:,} lines"];'
    for (here, there), count in sorted(drawn.arrows.items()):
        yield f'  "{here}" -> "{there}" [label={count}];'
    yield "}"


def mermaid(drawn: Graph) -> Iterator[str]:
    """For pages that draw it themselves."""
    names = {room: f"r{number}" for number, room in enumerate(drawn.rooms)}
    yield "graph TD"
    for room, (files, lines) in drawn.rooms.items():
        yield f'  {names[room]}["{room}<br/>{files} files, {lines:,} lines"]'
    for (here, there), count in sorted(drawn.arrows.items()):
        yield f"  {names[here]} -->|{count}| {names[there]}"
