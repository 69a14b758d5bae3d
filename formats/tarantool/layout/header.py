"""The text header: lines of `key: value` up to an empty line (`docs/spec/tarantool.md#text-header`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from construct import Construct, Container

from binlogtool.formats.fields import MalformedError, TracePart
from binlogtool.formats.tarantool.msgpack.messages import get_remaining
from binlogtool.limits import Limits

HEADER_SEARCH_SIZE = 1024 + 834
"""The server is sure to read this much before it looks for the end of the header."""

KNOWN_KEYS = {
    "Version": "version",
    "Instance": "instance",
    "Server": "instance",
    "VClock": "vclock",
    "PrevVClock": "prev_vclock",
}
MAX_COMPONENT = 31
MAX_LSN = 2**63 - 1

_PAIR = r"[ \t]*(\d{1,10})[ \t]*:[ \t]*(\d{1,20})[ \t]*"
_VCLOCK = re.compile(rf"[ \t]*\{{[ \t]*(?:{_PAIR}(?:,{_PAIR})*)?\}}")
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")


class HeaderLine(NamedTuple):
    """One line of a header.

    Attributes:
        start, end: its bytes, line feed included.
        key: as written; None for the first two lines, and for a line without a colon.
        value: the text after the colon, or the whole line where there is no key.
        name: the field name of a known key, else `unknown[n]` or `line[n]`.
    """

    start: int
    end: int
    key: str | None
    value: str
    name: str

    @property
    def has_unknown_key(self) -> bool:
        """True if the line has no known key."""
        return self.key not in KNOWN_KEYS


class HeaderText(NamedTuple):
    """The lines of a header; `end` is the offset after the empty line, None if there is no empty line."""

    lines: list[HeaderLine]
    end: int | None

    def get_value(self, name: str) -> str | None:
        """Return the last value of a known key, or None."""
        return next((line.value for line in reversed(self.lines) if line.name == name), None)

    def get_line(self, name: str) -> HeaderLine | None:
        """Return the last line of a known key, or None."""
        return next((line for line in reversed(self.lines) if line.name == name), None)


def parse_header_lines(data: bytes) -> HeaderText:
    """Split the header at the start of `data` into lines; never fails."""
    blank_line = data.find(b"\n\n", 0, HEADER_SEARCH_SIZE)
    end = blank_line + 2 if blank_line >= 0 else None
    text = data[: blank_line + 1] if end else data[:HEADER_SEARCH_SIZE]
    lines: list[HeaderLine] = []
    start = 0
    while start < len(text):
        feed = text.find(b"\n", start)
        stop = len(text) if feed < 0 else feed + 1
        lines.append(_parse_line(text[start : stop - (feed >= 0)], start, stop, len(lines)))
        start = stop
    return HeaderText(lines, end)


def _parse_line(raw: bytes, start: int, end: int, number: int) -> HeaderLine:
    line_text = raw.decode("utf-8", "backslashreplace")
    if number < 2:
        return HeaderLine(start, end, None, line_text, ("type", "format")[number])
    key, colon, value = line_text.partition(":")
    if not colon:
        return HeaderLine(start, end, None, line_text, f"line[{number}]")
    return HeaderLine(start, end, key, value.lstrip(" \t"), KNOWN_KEYS.get(key, f"unknown[{number}]"))


def parse_vclock(text: str) -> dict[int, int]:
    """Parse the text of a vclock to a dict of replica id -> LSN.

    Raises:
        ValueError: wrong syntax, an id over 31, a number over 2^63-1, or an id that occurs twice.
    """
    if not _VCLOCK.fullmatch(text):
        raise ValueError(f"{text!r} is no vclock such as {{1: 5, 2: 7}}")
    result: dict[int, int] = {}
    for id_text, lsn_text in re.findall(r"(\d+)[ \t]*:[ \t]*(\d+)", text):
        replica, lsn = int(id_text), int(lsn_text)
        if replica > MAX_COMPONENT or lsn > MAX_LSN:
            raise ValueError(f"component {replica}: {lsn} of a vclock is out of range")
        if result.get(replica, 0) > 0:
            raise ValueError(f"component {replica} stands twice in a vclock")
        result[replica] = lsn
    return result


def is_uuid(text: str) -> bool:
    """Check that the text is exactly the 36 characters of a uuid."""
    return _UUID.fullmatch(text) is not None


def format_vclock(vclock: dict[int, int]) -> str:
    """Format a vclock as the server writes it: rising ids, absent ones left out."""
    return "{" + ", ".join(f"{replica}: {lsn}" for replica, lsn in sorted(vclock.items())) + "}"


class TextHeader(Construct):  # type: ignore[misc]
    """Construct type of the whole header, the empty line included; the parsed value keeps the raw bytes."""

    def _parse(self, stream: Any, context: Any, path: str) -> Container:
        data, start, end, base = get_remaining(stream)
        raw = bytes(data[start : min(end, start + HEADER_SEARCH_SIZE)])
        text = parse_header_lines(raw)
        if text.end is None:
            raise MalformedError("no empty line ends the header", path, "bad-header")
        stream.seek(base + start + text.end)
        result = Container({line.name: line.value for line in text.lines})
        result["raw"] = raw[: text.end]
        return result

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        stream.write(obj["raw"])
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Yield one part per line, and one for the empty line."""
        text = parse_header_lines(data[start:end])
        for line in text.lines:
            meaning = "unknown key" if line.name.startswith("unknown") else ""
            yield TracePart(f".{line.name}", 1, start + line.start, start + line.end, line.value, line.key or meaning)
        if text.end is None:
            raise MalformedError("no empty line ends the header", finding_id="bad-header")
        yield TracePart(".end", 1, start + text.end - 1, start + text.end, "", "the empty line")
