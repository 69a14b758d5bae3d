"""HTML page: the frame around the content, and the only way text of a log gets into it.

The content security policy of the page allows only its own style and script, by their hashes, and no requests. Data for
the script is in JSON blocks that browsers do not run.
"""

from __future__ import annotations

import base64
import hashlib
import html
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from binlogtool.render.escape import escape


def escape_html(value: object) -> str:
    """Escape any text for HTML content or an attribute value; invisible characters become visible."""
    return html.escape(escape(str(value)))


def render_data(value: Any, css_class: str = "") -> str:
    """Return a JSON block for the script of the page; its strings must already be escaped for the screen."""
    json_text = msgspec.json.encode(value).decode("utf-8").replace("<", "\\u003c").replace(">", "\\u003e")
    return f'<script type="application/json"{f" class={css_class}" if css_class else ""}>{json_text}</script>'


def html_head(title: str, *assets: str) -> str:
    """Return the page up to its body. assets: names of its styles (`.css`) and scripts (`.js`)."""
    styles = [read_asset(name) for name in assets if name.endswith(".css")]
    scripts = [read_asset(name) for name in assets if name.endswith(".js")]
    policy = (
        f"default-src 'none'; style-src {_hash_sources(styles)}; script-src {_hash_sources(scripts)};"
        " base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="referrer" content="no-referrer">\n<title>{escape_html(title)}</title>\n'
        + "".join(f"<style>{style}</style>\n" for style in styles)
        + "</head>\n<body>\n"
    )


def render_end(*assets: str) -> str:
    """Return the scripts, and the end of the page."""
    return "".join(f"<script>{read_asset(name)}</script>\n" for name in assets) + "</body>\n</html>\n"


@cache
def read_asset(name: str) -> str:
    """Return the text of a style or script of this package."""
    return files("binlogtool.render").joinpath("assets", name).read_text("utf-8")


def _hash_sources(contents: list[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()) for content in contents)
    return " ".join(f"'sha256-{digest.decode('ascii')}'" for digest in digests) or "'none'"
