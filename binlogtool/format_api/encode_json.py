"""Convert values to JSON and write them as text, by msgspec within the memory limit.

Bytes become `{"$bytes": "…"}`, invalid text becomes bytes, and nothing changes silently. If msgspec's own buffer cannot
grow, the process crashes; a bytearray raises `MemoryError` instead. msgspec writes values in C, but writes bytes as
base64 without a marker; so the types of all nested values are collected first, and values with anything but plain JSON
take the slower path through `JsonStyle`.
"""

from __future__ import annotations

import base64
import gc
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from binlogtool.findings import Finding, finding_to_value

if TYPE_CHECKING:
    from json.encoder import JSONEncoder

_UNSAFE = re.compile(
    rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8b-\x8f\xa8-\xae]|\xe2\x81[\xa0-\xa9]|\xef(?:\xbb\xbf|\xbf[\xb9-\xbb])"
)
"""Matches U+007F to U+009F, U+061C, U+200B to U+200F, U+2028 to U+202E, U+2060 to U+2069, U+FEFF, U+FFF9 to U+FFFB."""


def _escape_bytes(data: bytes) -> str:
    return "".join(chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02x}" for b in data)


BYTES_FORMS: Mapping[str, Callable[[bytes], str]] = {
    "hex": bytes.hex,
    "base64": lambda data: base64.b64encode(data).decode("ascii"),
    "escape": _escape_bytes,
}
"""Value of `--bytes` -> function that encodes bytes."""


def pick_members(value: Any, *names: str) -> dict[str, Any]:
    """Return the attributes of these names as a JSON object."""
    return {name: getattr(value, name) for name in names}


class JsonStyle(msgspec.Struct, frozen=True):
    """Style of values in JSON. bytes_form: a key of `BYTES_FORMS`."""

    bytes_form: str = "hex"

    def to_json_value(self, value: Any) -> Any:
        """Convert a value to JSON types; a value of any other kind becomes text."""
        match value:
            case None | bool():
                return value
            case str():
                return self.text_value(value)
            case int():
                return int(value)
            case float():
                return value if math.isfinite(value) else {"$float": str(value)}
            case bytes() | bytearray() | memoryview():
                return self.mark_bytes(bytes(value))
            case Mapping():
                return {self.member_name(k): self.to_json_value(v) for k, v in value.items()}
            case list() | tuple() | set() | frozenset():
                return [self.to_json_value(v) for v in value]
            case _:
                return str(value)

    def text_value(self, value: str) -> Any:
        """Return the text, or marked bytes if it is not valid text (a file name that is not UTF-8)."""
        return str(value) if is_valid_text(value) else self.mark_bytes(encode_text(value))

    def member_name(self, value: Any) -> str:
        """Return the JSON member name for any key."""
        if isinstance(value, bytes):
            return f"$bytes:{self.encode_bytes(value)}"
        if isinstance(value, bool) or value is None:
            return {None: "null", True: "true", False: "false"}[value]
        return (
            value if isinstance(value, str) and is_valid_text(value) else str(value).encode("ascii", "replace").decode()
        )

    def mark_bytes(self, data: bytes) -> dict[str, str]:
        """Return bytes as the marked JSON value `{"$bytes": "…"}`."""
        return {"$bytes": self.encode_bytes(data)}

    def encode_bytes(self, data: bytes) -> str:
        """Return bytes as text, in the selected form."""
        return BYTES_FORMS[self.bytes_form](data)


DEFAULT_STYLE = JsonStyle()


def encode_text(text: str) -> bytes:
    """Return the bytes that a text represents, even if it contains lone surrogates."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def is_valid_text(value: str) -> bool:
    """Return False for text with lone surrogates: bytes that were never text."""
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


def escape_invisible_characters(document: bytes) -> bytes:
    """Return the same JSON with Unicode escapes for DEL, C1, bidirectional and invisible characters.

    JSON itself escapes only the C0 controls; the other characters would reach a terminal unchanged.
    """
    if document.isascii() and b"\x7f" not in document:
        return document
    return _UNSAFE.sub(lambda m: b"\\u%04x" % ord(m[0].decode("utf-8")), document)


class TimeFormatter:
    """Formatter of times as RFC 3339 with microseconds, UTC; it caches the text up to the second."""

    def __init__(self) -> None:
        self._second: int | None = None
        self._prefix: str | None = None

    def __call__(self, microseconds: int | None) -> str | None:
        """Format microseconds since 1970-01-01 UTC; return None if the calendar has no such time."""
        return self.format_column((microseconds,))[0]

    def format_column(self, times: Iterable[int | None]) -> list[str | None]:
        """Format a column of times."""
        second, prefix = self._second, self._prefix
        out: list[str | None] = []
        for microseconds in times:
            if microseconds is None:
                out.append(None)
                continue
            now, fraction = divmod(microseconds, 1_000_000)
            if now != second:
                second, prefix = now, _format_second(now)
            out.append(None if prefix is None else f"{prefix}{fraction:06d}Z")
        self._second, self._prefix = second, prefix
        return out


def _format_second(second: int) -> str | None:
    try:
        moment = datetime.fromtimestamp(second, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.".rjust(20, "0")


STYLE = JsonStyle()


# --- JSON encoding in C by msgspec, into a bytearray ---

_encode_into = msgspec.json.Encoder().encode_into


def encode_json(value: Any) -> bytes:
    """Encode one value as JSON.

    Raises:
        MemoryError: there is not enough memory.
        UnicodeEncodeError, TypeError, OverflowError: msgspec has no JSON for the value.
    """
    out = bytearray()
    _encode_into(value, out)
    return bytes(out)


def encode_json_lines(values: Iterable[Any]) -> bytes:
    """Encode each value as JSON with a line feed after it. Raises as `encode_json`."""
    out = bytearray()
    for value in values:
        _encode_into(value, out, -1)
        out += b"\n"
    return bytes(out)


# --- Bodies and findings as JSON text, identical in all outputs ---

_NESTED_TYPES = {dict, list, tuple}
_PLAIN_TYPES = {str, int, bool, type(None), float, msgspec.UnsetType, *_NESTED_TYPES}
_EXPONENT = re.compile(r"\de[+-]\d")
"""Float with an exponent in Python's form (1e+16); msgspec writes it differently, and outputs must not differ."""


def collect_types(values: Sequence[Any]) -> set[type]:
    """Return the types of all nested values; `complex` represents floats that JSON cannot express (infinities, NaN).

    Needs one call into C per level of nesting, whatever the number of values.
    """
    types_found: set[type] = set(map(type, values))
    level: list[Any] = list(values)
    while level:
        inside = gc.get_referents(*level)
        types = set(map(type, inside))
        if float in types and not math.isfinite(sum([v for v in inside if type(v) is float])):
            types_found.add(complex)
        types_found |= types
        if not types <= _PLAIN_TYPES:
            break
        level = [v for v in inside if type(v) in _NESTED_TYPES] if types & _NESTED_TYPES else []
    return types_found


class BodyEncoder:
    """Turn bodies into JSON-ready values: unchanged where msgspec writes them correctly, else `msgspec.Raw`."""

    def __init__(self, style: JsonStyle) -> None:
        self._style = style

    @cached_property
    def _json(self) -> JSONEncoder:
        """The slower encoder; most runs do not need it, so it is imported and created on first use."""
        from json.encoder import JSONEncoder

        return JSONEncoder(default=self._encode_other, allow_nan=False, ensure_ascii=False, separators=(",", ":"))

    def _encode_other(self, value: Any) -> Any:
        return self._style.mark_bytes(value) if type(value) is bytes else self._style.to_json_value(value)

    def encode_each_body(self, bodies: Sequence[Any]) -> Sequence[Any]:
        """Return one JSON-ready value per body."""
        if collect_types(bodies) <= _PLAIN_TYPES:
            return bodies
        return [self.encode_any_body(body) for body in bodies]

    def encode_any_body(self, body: Any) -> Any:
        """Return one body as a JSON-ready value, whatever it contains."""
        if body is msgspec.UNSET:
            return body
        if isinstance(body, Finding):
            return msgspec.Raw(b"null")
        try:
            text = self._json.encode(body)
            if not _EXPONENT.search(text):
                return msgspec.Raw(text.encode("utf-8"))
        except (TypeError, ValueError, RecursionError):
            pass
        return msgspec.Raw(encode_json(self._style.to_json_value(body)))

    def encode_body_texts(self, bodies: Sequence[Any]) -> list[bytes | None]:
        """Return the JSON text of each body; None for a record without a body, or with an undecodable one."""
        values = self.encode_each_body(bodies)
        try:
            lines = escape_invisible_characters(encode_json_lines(values))
        except (UnicodeEncodeError, TypeError, OverflowError):
            lines = escape_invisible_characters(encode_json_lines([self.encode_any_body(value) for value in bodies]))
        return [None if line == b"null" else line for line in lines.split(b"\n")[: len(bodies)]]


def to_json_bytes(value: object) -> bytes:
    """Return any JSON value as bytes of a JSON line."""
    return escape_invisible_characters(encode_json(value))


_DEFAULT_ENCODER = BodyEncoder(DEFAULT_STYLE)


def to_json_text(value: Any) -> str:
    """Return any value as JSON text."""
    return escape_invisible_characters(bytes(_DEFAULT_ENCODER.encode_any_body(value))).decode()


def encode_bodies(bodies: Sequence[Any]) -> list[bytes | None]:
    """Return the JSON of each body; None for a record without a body, or with an undecodable body (see its finding)."""
    return _DEFAULT_ENCODER.encode_body_texts(bodies)


def findings_to_json(findings: Sequence[Finding]) -> str | None:
    """Return the JSON of findings, as in `verify -O json`; None when there are none."""
    return to_json_text([finding_to_value(found) for found in findings]) if findings else None


def encode_document(value: Any, *, indent: int = 2) -> bytes:
    """Encode a value as one JSON document with a line end."""
    text = encode_json(STYLE.to_json_value(value))
    return escape_invisible_characters(msgspec.json.format(text, indent=indent)) + b"\n"


def encode_document_member(value: Any) -> bytes:
    """Encode a member of an array of a document, indented as `encode_document` does."""
    return encode_document(value).rstrip(b"\n").replace(b"\n", b"\n    ")


def encode_document_in_pieces(
    make_document: Callable[[], Mapping[str, Any]], array_name: str, members: Iterable[Any]
) -> Iterator[bytes]:
    """Yield a document piece by piece, because all members of its array `array_name` at once would take too much
    memory.

    make_document: returns the document with an empty array; called before the first member, and after the last one.
    """
    empty, is_empty = f'\n  "{array_name}": []'.encode(), True
    for member in members:
        start = encode_document(make_document()).partition(empty)[0] + empty[:-1] if is_empty else b","
        yield start + b"\n    " + encode_document_member(member)
        is_empty = False
    whole = encode_document(make_document())
    yield whole if is_empty else b"\n  ]" + whole.partition(empty)[2]


def encode_line(value: Any) -> bytes:
    """Encode a value as one line of JSON."""
    return escape_invisible_characters(encode_json(STYLE.to_json_value(value))) + b"\n"


# --- Describe partial updates of JSON columns as the functions of MySQL that made them ---

PARTIAL_UPDATE = "$diff"
"""Member of a value that holds the changes of a JSON column whose new value the log does not have."""
_MARKS = frozenset({"$decimal", "$date", "$time", "$datetime", "$timestamp"})
_CHANGES = frozenset({"REPLACE", "INSERT", "REMOVE"})


def format_partial_json_update(column: str, value: Any) -> str | None:
    """Return a partial update as the functions of MySQL that made it; None for any other value.

    Two changes of `j` are JSON_REMOVE(JSON_REPLACE(j, '$.a', 99), '$.b[1]'), no change is j, as `mysqlbinlog -v` prints
    them.
    """
    changes = value.get(PARTIAL_UPDATE) if type(value) is dict and len(value) == 1 else None
    if not isinstance(changes, list):
        return None
    text = column
    for change in changes:
        if not isinstance(change, dict) or change.get("op") not in _CHANGES:
            return None
        new = "" if change["op"] == "REMOVE" else f", {_format_json_literal(change.get('value'))}"
        text = f"JSON_{change['op']}({text}, {_quote_sql(str(change.get('path')))}{new})"
    return text


def _format_json_literal(value: Any) -> str:
    import json

    is_mark = isinstance(value, dict) and len(value) == 1 and not _MARKS.isdisjoint(value)
    if isinstance(value, dict | list) and not is_mark:
        return f"CAST({_quote_sql(_format_json(value))} AS JSON)"
    text = _format_json(value)
    return _quote_sql(json.loads(text)) if text.startswith('"') else text


def _format_json(value: Any) -> str:
    """Return a value as JSON, with MySQL's own types as plain numbers and texts."""
    import json

    if isinstance(value, list):
        return f"[{', '.join(map(_format_json, value))}]"
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    if len(value) == 1 and not _MARKS.isdisjoint(value):
        (mark, text), *_ = value.items()
        return str(text) if mark == "$decimal" else json.dumps(text, ensure_ascii=False, default=str)
    members = (f"{json.dumps(name, ensure_ascii=False)}: {_format_json(one)}" for name, one in value.items())
    return f"{{{', '.join(members)}}}"


def _quote_sql(text: str) -> str:
    return f"""'{text.replace("'", "''")}'"""
