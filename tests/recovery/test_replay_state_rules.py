"""Test single rules of replays: where `--until` cuts, and when the keys of a log are too many for the memory."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from binlogtool.errors import LimitError
from binlogtool.prediction import row_store
from binlogtool.prediction.predict_replay import _LogReplay


@pytest.mark.parametrize(
    ("file", "first", "skips"),
    [("a", 6, False), ("a", 7, True), ("a", 5, False), ("b", 0, False), ("b", 1, True)],
)
def test_a_block_after_a_gap_in_the_selected_records_is_past_until(file: str, first: int, skips: bool) -> None:
    """Record 5 of file a was the last one; a file begins with record 0."""
    replay = SimpleNamespace(_last_record=("a", 5), _options=SimpleNamespace(until="seq:100"))
    block = SimpleNamespace(file=file, record=[first, first + 3])
    assert _LogReplay._is_past_until_sequence(replay, block) is skips  # type: ignore[arg-type]
    assert replay._last_record == (file, first + 3)
    replay._options.until = None
    assert _LogReplay._is_past_until_sequence(replay, block) is False  # type: ignore[arg-type]


def write_entries(*entries: tuple[str, bytes, bytes]) -> io.BytesIO:
    """Write entries of (object, key, row) as a replay writes them to a temporary file."""
    file = io.BytesIO()
    for name, key, row in entries:
        data = msgspec.msgpack.encode(((name, key), (0, 0, row, ())))
        file.write(len(data).to_bytes(4, "big") + data)
    return file


def test_entries_that_are_written_to_files_leave_the_memory() -> None:
    files = [io.BytesIO() for _ in range(row_store._BUCKETS)]
    entries = {("t", b"key"): (0, 0, b"row", ()), ("t", b"yek"): (1, 2, b"", (b"operation",))}
    state = SimpleNamespace(_spill_files=files, _row_store=None, _entries=dict(entries), _entry_bytes=99, spilled=3)
    row_store.ReplayState._spill(state)  # type: ignore[arg-type]
    assert (state._entries, state._entry_bytes, state.spilled) == ({}, 0, 5)
    assert dict(entry for file in files for entry in row_store._read_entries(file)) == entries


def test_keys_that_just_fit_into_memory_are_merged_and_one_byte_less_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two keys of 3 bytes with rows of 5 and 7 bytes, the second one written twice: first with 20 bytes."""
    monkeypatch.setattr(row_store, "merge_entries", lambda before, after, patch: after)
    fits = 2 * row_store.ENTRY_BYTES + 3 + 5 + 3 + 20

    def fold(max_memory: int) -> Any:
        file = write_entries(("t", b"key", b"12345"), ("t", b"yek", b"x" * 20), ("t", b"yek", b"1234567"))
        state = SimpleNamespace(patch=None, max_memory=max_memory)
        return row_store.ReplayState._merge_spilled_file(state, file)  # type: ignore[arg-type]

    assert {key: entry[2] for key, entry in fold(fits).items()} == {
        ("t", b"key"): b"12345",
        ("t", b"yek"): b"1234567",
    }
    with pytest.raises(LimitError, match="the log has too many keys for --max-memory"):
        fold(fits - 1)
