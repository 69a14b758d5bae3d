"""Format numbers, names, commands and skipped files for readers."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from binlogtool.core.notify_progress_listener import (
    COMPRESSED,
    FILE,
    UNFINISHED_COPY,
    UNREAD_LOGS,
    UNREADABLE,
    SkippedFile,
)
from binlogtool.format_api.encode_json import encode_text
from binlogtool.terminal.escape_and_fold_text import escape

if TYPE_CHECKING:
    from binlogtool.findings import Finding
    from binlogtool.verification.verify_report import SkippedFiles

T = TypeVar("T")

# --- Numbers, offsets, findings and commands as text ---

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
_OFFSET_SUFFIXES = ("offset", "next", "at", "start", "end")


def format_count(number: int) -> str:
    """Format a number with thousands separators: 1,234,567."""
    return f"{number:,}"


def format_quantity(number: int, noun: str) -> str:
    """Format a number with its noun: 1 record, 2 records."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_size(number: int) -> str:
    """Format a number of bytes: 41 B, 64.0 MiB."""
    if number < 1024:
        return f"{number} B"
    value = float(number)
    for unit in _UNITS:
        value /= 1024
        if value < 1024 or unit == _UNITS[-1]:
            return f"{value:,.1f} {unit}"
    raise AssertionError  # no larger unit


def format_offset(offset: int | None) -> str:
    """Format an offset: 0x0000001f; - for None."""
    return "-" if offset is None else f"0x{offset:08x}"


def quote_for_shell(text: str) -> str:
    """Quote text as one word for a POSIX shell, in printable characters only."""
    if escape(text) == text and text.isprintable():
        import shlex

        return shlex.quote(text)
    data = encode_text(text)
    return "$'" + "".join(chr(b) if 32 <= b < 127 and b not in b"'\\" else f"\\x{b:02x}" for b in data) + "'"


def format_command(*words: str) -> str:
    """Return a `binlogtool` command line that can be pasted, even if the program is one file (`binlogtool.pyz`)."""
    program = sys.argv[0] if sys.argv else ""
    own_words = ("python3", os.path.abspath(program)) if program.endswith(".pyz") else ("binlogtool",)
    return " ".join(map(quote_for_shell, (*own_words, *words)))


_FACT_TEXTS = {
    ("situation", "apply"): "when the log is replayed",
    ("situation", "start"): "when the server starts",
    ("situation", "restart"): "when the server starts again",
    ("situation", "crash-recovery"): "when the server recovers from a crash",
    ("server", "refuse"): "the server refuses to start",
    ("server", "replay"): "the server continues",
    ("server", "overwrite"): "the server overwrites it",
    ("next_start", "refuse"): "the next start is refused",
}
"""Facts whose values are words of the program."""


def format_fact(name: str, value: Any) -> str:
    """Format one fact of a finding: `stored 5b1c22e0`; of a fact that is true only the name."""
    if value is True:
        return escape(name).replace("_", " ")
    if isinstance(value, str) and (name, value) in _FACT_TEXTS:
        return _FACT_TEXTS[name, value]
    if isinstance(value, bool) or not isinstance(value, int):
        shown = escape(str(value))
    else:
        shown = format_offset(value) if name.rpartition("_")[2] in _OFFSET_SUFFIXES else format_count(value)
    return f"{escape(name).replace('_', ' ')} {shown}"


def format_facts_missing_from_message(values: Mapping[str, Any], message: str) -> list[str]:
    """Format the simple facts whose value is not in the message, and which are neither empty nor false."""
    simple = {
        name: v
        for name, v in values.items()
        if isinstance(v, (str, int, float))
        and v is not False
        and 0 < len(str(v)) <= 80
        and not _is_internal_fact(name, v)
    }
    texts = (
        format_fact(name, v)
        for name, v in simple.items()
        if not any(_contains_word(message, form) for form in _list_spellings_of_value(v))
    )
    return [text for text in texts if text not in message]


_INTERNAL_FACTS = ("between", "irregular", "missing", "not_in_index", "packed_size")
"""Facts for programs; the message has the same information."""


def _is_internal_fact(name: str, value: Any) -> bool:
    """Return True for a fact that is for programs: a code of a diagnosis, a count or length of nothing."""
    if name in ("diagnosis", "cause"):
        return re.fullmatch(r"[a-z0-9]+([-_][a-z0-9]+)+", str(value)) is not None
    return name in _INTERNAL_FACTS or (value == 0 and name in ("zeros", "cause_length", "torn_bytes"))


def _list_spellings_of_value(value: Any) -> list[str]:
    """Return the ways in which a message may spell a value."""
    if isinstance(value, str) and re.fullmatch(r"([0-9a-f]{2})+", value):
        return [value, " ".join(re.findall("..", value))]
    if isinstance(value, int) and not isinstance(value, bool):
        return [str(value), format_count(value), f"0x{value:x}", format_offset(value)]
    return [str(value)]


def _contains_word(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w,.]){re.escape(word)}(?![\w]|,\d)", text) is not None


def format_finding(finding: Finding) -> str:
    """Return record, message and facts of a finding in one line."""
    message = escape(finding.message)
    record = [f"record {finding.record:,}"] if finding.record is not None else []
    return "  ".join([*record, message, *format_facts_missing_from_message(finding.facts, message)])


# --- Files of a directory that are not logs ---

_DEFAULT_ADVICE = "not followed; name the file itself to read it"
_ADVICE = {
    FILE: "",
    COMPRESSED: "",
    UNREADABLE: "no permission?",
    UNFINISHED_COPY: "copy it again",
    **dict.fromkeys(UNREAD_LOGS, ""),
    "socket": "",
}


def render_skipped_files(skipped: Sequence[SkippedFiles], *, list_names: bool = False) -> Iterator[str]:
    """Yield the lines about skipped files.

    Args:
        list_names: Add a line for each file.
    """
    files = [(one.path, file) for one in skipped for file in one.files]
    if files:
        yield f"not logs: {_count_kinds([file for _, file in files])}{_list_first_names(files, list_names)}"
    for path, file in files if list_names else ():
        kind = "" if file.kind == FILE else f"  ({file.kind})"
        yield f"  {escape(os.path.join(path, file.name))}{kind}"


_MAX_LISTED_NAMES = 3


def _list_first_names(files: Sequence[tuple[str, SkippedFile]], list_names: bool) -> str:
    """Return the names of the first files that a line about skipped files is about; "" if all have lines."""
    names = [escape(file.name) for _, file in files[:_MAX_LISTED_NAMES]]
    more = f" and {len(files) - len(names):,} more (-v)" if len(files) > len(names) else ""
    return "" if list_names else f": {', '.join(names)}{more}"


def _count_kinds(files: Sequence[SkippedFile]) -> str:
    counts = sorted(Counter(file.kind for file in files).items(), key=lambda item: (item[0] != FILE, item[0]))
    return ", ".join(f"{format_quantity(number, kind)}{_format_advice(kind)}" for kind, number in counts)


def _format_advice(kind: str) -> str:
    advice = _ADVICE.get(kind, _DEFAULT_ADVICE)
    return f" ({advice})" if advice else ""


def skipped_files_to_json(skipped: SkippedFiles) -> dict[str, Any]:
    """Return one member of `not_logs`: the files of a directory that are not logs."""
    return {"path": skipped.path, "files": [{"name": one.name, "kind": one.kind} for one in skipped.files]}


def group_and_count_by_key(items: Iterable[T], key: Callable[[T], Hashable]) -> list[tuple[T, int]]:
    """Return the first item of each key, in order, with the number of items that have the key."""
    firsts, counts = dict[Hashable, T](), Counter[Hashable]()
    for item in items:
        item_key = key(item)
        firsts.setdefault(item_key, item)
        counts[item_key] += 1
    return [(first, counts[item_key]) for item_key, first in firsts.items()]


def format_repeats(count: int) -> str:
    """Format how often a finding is repeated, as the end of its message; "" for once."""
    return "" if count == 1 else f" ({format_count(count)} times; this is the first)"


def format_duration(seconds: float) -> str:
    """Format a duration in its two largest units: 3 d 4 h, 5 min 7 s."""
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    rest, parts = int(seconds), list[str]()
    for name, length in units:
        count, rest = divmod(rest, length)
        if count or parts:
            parts.append(f"{count} {name}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 ")) or "0 s"
