"""The text header: lines of `key: value` up to an empty line (`docs/spec/tarantool-xlog.md#11-text-header`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from construct import Construct, Container

from binlogtool.formats.fields import MalformedError, Part
from binlogtool.formats.tarantool.msgpack.messages import remaining
from binlogtool.limits import Limits

SURE_BYTES = 1024 + 834
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


class Line(NamedTuple):
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
    def is_odd(self) -> bool:
        """True if the line has no known key."""
        return self.key not in KNOWN_KEYS


class HeaderText(NamedTuple):
    """The lines of a header; `end` is the offset after the empty line, None if there is no empty line."""

    lines: list[Line]
    end: int | None

    def value(self, name: str) -> str | None:
        """Return the last value of a known key, or None."""
        return next((line.value for line in reversed(self.lines) if line.name == name), None)

    def line(self, name: str) -> Line | None:
        """Return the last line of a known key, or None."""
        return next((line for line in reversed(self.lines) if line.name == name), None)


def read_lines(data: bytes) -> HeaderText:
    """Split the header at the start of `data` into lines; never fails."""
    found = data.find(b"\n\n", 0, SURE_BYTES)
    end = found + 2 if found >= 0 else None
    text = data[: found + 1] if end else data[:SURE_BYTES]
    lines: list[Line] = []
    start = 0
    while start < len(text):
        feed = text.find(b"\n", start)
        stop = len(text) if feed < 0 else feed + 1
        lines.append(_line(text[start : stop - (feed >= 0)], start, stop, len(lines)))
        start = stop
    return HeaderText(lines, end)


def _line(raw: bytes, start: int, end: int, number: int) -> Line:
    words = raw.decode("utf-8", "backslashreplace")
    if number < 2:
        return Line(start, end, None, words, ("type", "format")[number])
    key, colon, value = words.partition(":")
    if not colon:
        return Line(start, end, None, words, f"line[{number}]")
    return Line(start, end, key, value.lstrip(" \t"), KNOWN_KEYS.get(key, f"unknown[{number}]"))


def parse_vclock(words: str) -> dict[int, int]:
    """Parse the text of a vclock to a dict of replica id -> LSN.

    Raises:
        ValueError: wrong syntax, an id over 31, a number over 2^63-1, or an id that occurs twice.
    """
    if not _VCLOCK.fullmatch(words):
        raise ValueError(f"{words!r} is no vclock such as {{1: 5, 2: 7}}")
    result: dict[int, int] = {}
    for id_text, lsn_text in re.findall(r"(\d+)[ \t]*:[ \t]*(\d+)", words):
        replica, lsn = int(id_text), int(lsn_text)
        if replica > MAX_COMPONENT or lsn > MAX_LSN:
            raise ValueError(f"component {replica}: {lsn} of a vclock is out of range")
        if result.get(replica, 0) > 0:
            raise ValueError(f"component {replica} stands twice in a vclock")
        result[replica] = lsn
    return result


def is_uuid(words: str) -> bool:
    """Check that the text is exactly the 36 characters of a uuid."""
    return _UUID.fullmatch(words) is not None


def write_vclock(vclock: dict[int, int]) -> str:
    """Format a vclock as the server writes it: rising ids, absent ones left out."""
    return "{" + ", ".join(f"{replica}: {lsn}" for replica, lsn in sorted(vclock.items())) + "}"


class TextHeader(Construct):  # type: ignore[misc]
    """Construct type of the whole header, the empty line included; the parsed value keeps the raw bytes."""

    def _parse(self, stream: Any, context: Any, path: str) -> Container:
        data, start, end, base = remaining(stream)
        raw = bytes(data[start : min(end, start + SURE_BYTES)])
        text = read_lines(raw)
        if text.end is None:
            raise MalformedError("no empty line ends the header", path, "bad-header")
        stream.seek(base + start + text.end)
        result = Container({line.name: line.value for line in text.lines})
        result["raw"] = raw[: text.end]
        return result

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        stream.write(obj["raw"])
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[Part]:
        """Yield one part per line, and one for the empty line."""
        text = read_lines(data[start:end])
        for line in text.lines:
            meaning = "unknown key" if line.name.startswith("unknown") else ""
            yield Part(f".{line.name}", 1, start + line.start, start + line.end, line.value, line.key or meaning)
        if text.end is None:
            raise MalformedError("no empty line ends the header", finding_id="bad-header")
        yield Part(".end", 1, start + text.end - 1, start + text.end, "", "the empty line")
