"""Format detection by content, with reasons; ambiguity is an error that names the candidates."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from binlogtool import formats
from binlogtool.errors import UnknownFormatError, UsageError
from binlogtool.formats.base import Format
from binlogtool.formats.detecting import FileHead
from binlogtool.log.source import base_name

CERTAIN_SCORE = 100


def find_format(name: str) -> Format:
    """Return the format that the user named; `NAME:VARIANT` fixes the variant, which `layout` would otherwise detect.

    Raises:
        UsageError: there is no format or variant of that name.
    """
    base, colon, variant = name.partition(":")
    try:
        format_ = formats.load_format(base)
    except KeyError:
        known_names = ", ".join(formats.list_names())
        raise UsageError(f"unknown format {name!r}; known formats: {known_names}") from None
    if not colon:
        return format_
    if variant not in format_.reading.variants:
        known_names = ", ".join(format_.reading.variants) or "none"
        raise UsageError(f"format {base} has no variant {variant!r}; known variants: {known_names}")
    reading = replace(format_.reading, layout=partial(format_.reading.layout, variant=variant))
    return replace(format_, variant=variant, reading=reading)


def detect_format(head: FileHead) -> Format:
    """Return the format that fits best.

    Raises:
        UnknownFormatError: none fits, or two fit equally well.
    """
    scored = []
    for format_ in _iter_likely_first(base_name(head.name)):
        match = format_.reading.detect(head)
        if match.score >= CERTAIN_SCORE:
            return format_
        scored.append((match, format_))
    best = max(match.score for match, _ in scored)
    fitting = [(match, format_) for match, format_ in scored if match.score == best]
    if best <= 0:
        first_bytes = head.data[:16].hex(" ") or "an empty file"
        raise UnknownFormatError(
            f"{head.name}: no known log format (starts with {first_bytes}); known: {_list_known_formats()}"
        )
    if len(fitting) > 1:
        reasons = "; ".join(f"{format_.name}: {match.reason}" for match, format_ in fitting)
        raise UnknownFormatError(f"{head.name}: could be more than one format ({reasons}); say which with --format")
    return fitting[0][1]


def _iter_likely_first(name: str) -> Iterator[Format]:
    """Yield all formats, those that match the file name first, so that usually no other one is imported."""
    likely = set()
    for format_name in formats.find_by_file_name(name):
        likely.add(format_name)
        yield formats.load_format(format_name)
    yield from (other for other in formats.iter_formats() if other.name not in likely)


def _list_known_formats() -> str:
    broken_plugins = (f"; {name} cannot be loaded: {why}" for name, why in formats.find_broken_plugins().items())
    return ", ".join(formats.list_names()) + "".join(broken_plugins)
