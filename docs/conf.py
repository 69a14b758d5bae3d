"""The site: `sphinx-build -W docs DIR` (extra `docs`); the pages of `docs.reference_pages` are written first."""

import sys
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

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
autodoc_mock_imports = ["pyarrow", "numpy", "pyspark", "fastavro", "pandas", "polars"]  # not in the extra `docs`
highlight_language = "text"
smartquotes = False  # `--diff` in a title stays two dashes


class LinkCommands(SphinxPostTransform):
    """Link commands and options that are written as code to the page that describes them."""

    default_priority = 200

    def run(self, **_options: object) -> None:
        """Link the commands and options of one page."""
        from docs import reference_pages

        page = self.env.docname
        for literal in list(self.document.findall(nodes.literal)):
            place = reference_pages.find_command_page(literal.astext())
            if place is None or isinstance(literal.parent, nodes.title | nodes.reference):
                continue
            is_option_of_other_tool = page in ("coming-from", "comparison") and literal.astext().startswith("-")
            if is_option_of_other_tool or page.startswith("reference/commands/") or page == place[0]:
                continue
            target, anchor = place
            literal.replace_self(make_refnode(self.app.builder, page, target, anchor, literal.deepcopy()))


def setup(app: Sphinx) -> None:
    """Write the generated pages, and link commands and options to them."""
    from docs import reference_pages

    reference_pages.write_pages(HERE / "reference")
    app.add_post_transform(LinkCommands)
