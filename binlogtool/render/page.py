"""HTML page: the frame around the content, and the only way text of a log gets into it.

The content security policy of the page allows only its own style and script, by their hashes, and no requests. Data
for
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


def text(value: object) -> str:
    """Escape any text for HTML content or an attribute value; invisible characters become visible."""
    return html.escape(escape(str(value)))


def data(value: Any, kind: str = "") -> str:
    """Return a JSON block for the script of the page; its strings must already be escaped for the screen."""
    shown = msgspec.json.encode(value).decode("utf-8").replace("<", "\\u003c").replace(">", "\\u003e")
    return f'<script type="application/json"{f" class={kind}" if kind else ""}>{shown}</script>'


def head(title: str, *assets: str) -> str:
    """Return the page up to its body. assets: names of its styles (`.css`) and scripts (`.js`)."""
    styles = [asset(name) for name in assets if name.endswith(".css")]
    scripts = [asset(name) for name in assets if name.endswith(".js")]
    policy = (
        f"default-src 'none'; style-src {_sources(styles)}; script-src {_sources(scripts)};"
        " base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="referrer" content="no-referrer">\n<title>{text(title)}</title>\n'
        + "".join(f"<style>{style}</style>\n" for style in styles)
        + "</head>\n<body>\n"
    )


def end(*assets: str) -> str:
    """Return the scripts, and the end of the page."""
    return "".join(f"<script>{asset(name)}</script>\n" for name in assets) + "</body>\n</html>\n"


@cache
def asset(name: str) -> str:
    """Return the text of a style or script of this package."""
    return files("binlogtool.render").joinpath("assets", name).read_text("utf-8")


def _sources(contents: list[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()) for content in contents)
    return " ".join(f"'sha256-{digest.decode('ascii')}'" for digest in digests) or "'none'"
