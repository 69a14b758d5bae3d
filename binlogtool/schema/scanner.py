"""The contract of generated scanners and of the backends that run them."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple, Protocol

from binlogtool.formats.layouts import Column, ColumnTable, Kernel


class StopReason(enum.IntEnum):
    """Why a scan stopped. Everything but END and FULL is about the frame at `at`."""

    END = 0
    """The end of the buffer was reached at a frame border."""
    FULL = 1
    """The columns have no room left; call again from `Stop.at`."""
    SHORT = 2
    """The frame at `at` needs bytes beyond `end` (at least up to `Stop.need`, if that is known)."""
    CONSTANT = 3
    """A constant of the schema (magic) is not there."""
    BOUNDS = 4
    """A declared size or a `Check` of the schema cannot be true."""
    CHECKSUM = 5
    """The checksum disagrees; `Stop.need` is the frame's end as its length says."""
    MALFORMED = 6
    """A field's bytes are no value of its type."""
    EMPTY = 7
    """The schema matched zero bytes: no progress."""
    CUT = 8
    """Only with `more`: what begins at `at`, never at `start`, is near the end and was not looked into: call again with
    what follows."""


class ScanStop(NamedTuple):
    """Where and why a scan stopped.

    Attributes:
        at: Start of the frame (row) in the buffer.
        field: Path of the failing field.
        need: See the reasons; -1 = unknown.
        span: Index of the span (only `scan_spans`), else -1.
    """

    reason: StopReason
    at: int
    field: str | None = None
    need: int = -1
    span: int = -1


class Scanner(Protocol):
    """Walks the frames of one schema.

    `scan` walks the chain in `buf[start:end]` and stops at the first frame that is not good (checksum included).
    Nothing at or after `end` is ever read. The returned table is valid until the next call of this scanner, which
    reuses the column buffers. Columns: `offset`, `end`, `checksum` (0 = the schema has none, 1 right, 2 absent), then
    the wanted ones. Positions (offsets, ends, `Tell` fields) count from the start of `buf`.

    `scan_spans` walks one chain per span `[starts[i], ends[i])`, i in [first, count); the chain must fill the span
    exactly.
    Extra column: `span`. It stops at a bad span, whose rows are not in the table. FULL: the stop's `span` is the first
    span that is not in the table.
    """

    columns: tuple[str, ...]

    def scan(self, buf: Any, start: int, end: int, more: bool = False) -> tuple[ColumnTable, ScanStop]:
        """Walk frames from `start`.

        Args:
            more: Bytes follow after `end`, so the last frame may be CUT.
        """

    def probe(self, buf: Any, start: int, end: int) -> ColumnTable:
        """Return the table of one frame at `start`, or of none; good frames in an odd encoding count as none."""

    def scan_spans(
        self, buf: Any, starts: Column, ends: Column, first: int, count: int
    ) -> tuple[ColumnTable, ScanStop]:
        """Walk the rows of the spans `first`..`count`-1."""


class Backend(Protocol):
    """Runs lowered schemas and kernels."""

    name: str

    def make_scanner(self, schema: Any, columns: tuple[str, ...], capacity: int = 65536) -> Scanner:
        """Return a scanner for a schema; its code is generated once and cached.

        Raises:
            UnlowerableError: a field of the schema cannot be lowered (its path is in the message).
        """

    def compile_kernel(self, function: Kernel) -> Kernel:
        """Return the fastest form of a kernel function."""
