"""The figures and pictures of the house (`python -m tests.house`): what they count, on a house of a few lines."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.house.__main__ import main
from tests.house.figures import SECTIONS, longest
from tests.house.graph import Graph, dot, graph, mermaid
from tests.house.modules import Code
from tests.house.picture import layers, svg

BODY = "def long(" + ", ".join("abcdefghijk") + "):\n" + "    int.from_bytes(b'')\n" * 81
FILES = {
    "binlogtool/__init__.py": "",
    "binlogtool/errors.py": "A = 1\n",
    "binlogtool/log/__init__.py": "",
    "binlogtool/log/scan.py": "from binlogtool import errors\nimport binlogtool.formats.one.judge\n",
    "formats/__init__.py": "",
    "formats/one/__init__.py": "",
    "formats/one/judge.py": "def f():\n    import binlogtool.formats.one.layout\n",
    "formats/one/layout.py": f"import binlogtool.formats.one.judge\n{BODY}",
}


@pytest.fixture
def house(tmp_path: Path) -> Code:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "binlogtool/formats").symlink_to("../formats")
    return Code(tmp_path)


def test_lines_rooms_circles_and_what_is_long_are_counted(house: Code) -> None:
    found = {what: figure for measured in SECTIONS.values() for what, figure in measured(house)}
    assert found["formats/one"] == "85 in 3"
    assert found["binlogtool/log"] == "2 in 2"
    assert found["formats and binlogtool together"] == "88 in 8"
    assert found["one"] == "2 (0 folders)"
    assert found["circles when modules are loaded"] == "0"
    assert found["circles with imports inside functions"] == "1"
    assert found["modules that close one"] == "1"
    assert found["functions of more than 80 lines"] == "1 (the longest: 82)"
    assert found["functions of more than 10 arguments"] == "1 (the longest: 11)"
    assert found["no reason is said"] == "1"


def test_what_is_long_has_a_name(house: Code) -> None:
    lines = list(longest(house, 1))
    assert "function 11 arguments  binlogtool.formats.one.layout.long" in lines
    assert "closes a circle by a later import: binlogtool.formats.one.judge" in lines


def test_arrows_lead_from_who_imports_to_what_is_imported(house: Code) -> None:
    drawn = graph(house)
    assert drawn.arrows == {("log", "vocabulary"): 1, ("log", "formats/one"): 1}
    assert drawn.rooms["formats/one"] == (3, 85)
    inside = graph(house, "formats/one")
    assert inside.arrows == {("layout", "judge"): 1, ("judge", "layout"): 1}
    assert '  "log" -> "vocabulary" [label=1];' in list(dot(drawn))
    assert any(re.fullmatch(r"  r\d -->\|1\| r\d", line) for line in mermaid(drawn))


def test_what_is_needed_stands_below_and_the_lightest_arrow_of_a_circle_goes_up() -> None:
    rooms = dict.fromkeys("abc", (1, 1))
    rows, against = layers(Graph(rooms, {("a", "b"): 5, ("b", "a"): 2, ("b", "c"): 1}))
    assert rows == [["a"], ["b"], ["c"]]
    assert against == {("b", "a")}


def test_the_picture_is_svg_with_a_box_for_each_room(house: Code) -> None:
    root = ElementTree.fromstring("\n".join(svg(graph(house), "a & b")))
    texts = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"one", "log", "vocabulary"} <= set(texts)


@pytest.mark.full
def test_the_command_draws_this_checkout(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--draw", "dot", "--of", "formats/binlog_events"])
    drawn = capsys.readouterr().out
    assert drawn.startswith("digraph house {") and '"sql" -> "events"' in drawn
    with pytest.raises(SystemExit, match="no such folder"):
        main(["--draw", "svg", "--of", "formats/nothing"])
