"""The site: `sphinx-build -W docs DIR` (extra `docs`); pages of `docs.made` are made first."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import binlogtool  # noqa: E402

project = "binlogtool"
version = release = binlogtool.__version__
copyright = "the authors of binlogtool, Apache-2.0"
language = "en"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
exclude_patterns = ["site", "README.md"]
html_theme = "furo"
html_title = f"binlogtool {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # pages that are parts of others begin lower
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
highlight_language = "text"
smartquotes = False  # `--diff` in a title stays two dashes


def setup(app: Sphinx) -> None:
    """Pages that are made of what the program knows."""
    from docs import made

    made.write(HERE / "made")
