"""The figures of the package (`python -m tests.package_figures`): what they count, on a package of a few lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.package_figures.figures import SECTIONS, longest
from tests.package_figures.modules import Code

BODY = "def long(" + ", ".join("abcdefghijk") + "):\n" + "    int.from_bytes(b'')\n" * 81
FILES = {
    "binlogtool/__init__.py": "",
    "binlogtool/errors.py": "A = 1\n",
    "binlogtool/core/__init__.py": "",
    "binlogtool/core/scan_file.py": "from binlogtool import errors\nimport binlogtool.formats.one.validate\n",
    "formats/__init__.py": "",
    "formats/one/__init__.py": "",
    "formats/one/validate.py": "def f():\n    import binlogtool.formats.one.layout\n",
    "formats/one/layout.py": f"import binlogtool.formats.one.validate\n{BODY}",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Code:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "binlogtool/formats").symlink_to("../formats")
    return Code(tmp_path)


def test_lines_modules_circles_and_what_is_long_are_counted(checkout: Code) -> None:
    found = {what: figure for measured in SECTIONS.values() for what, figure in measured(checkout)}
    assert found["formats/one"] == "85 in 3"
    assert found["binlogtool/core"] == "2 in 2"
    assert found["formats and binlogtool together"] == "88 in 8"
    assert found["one"] == "2 (0 folders)"
    assert found["circles when modules are loaded"] == "0"
    assert found["circles with imports inside functions"] == "1"
    assert found["modules that close one"] == "1"
    assert found["functions of more than 80 lines"] == "1 (the longest: 82)"
    assert found["functions of more than 10 arguments"] == "1 (the longest: 11)"
    assert found["no reason is said"] == "1"


def test_what_is_long_has_a_name(checkout: Code) -> None:
    lines = list(longest(checkout, 1))
    assert "function 11 arguments  binlogtool.formats.one.layout.long" in lines
    assert "closes a circle by a later import: binlogtool.formats.one.validate" in lines
