"""Validator of a meta file."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import msgspec

from binlogtool.findings import Finding
from binlogtool.formats.judging import Tail, Verdict
from binlogtool.formats.layouts import Batch
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.layout import MetaContext


class MetaJudge(msgspec.Struct, frozen=True):
    """Validator of a meta file, which has no records."""

    context: MetaContext

    def feed(self, batch: Batch) -> Sequence[Finding]:
        """Return no findings: there are no records."""
        return ()

    def damage(self, start: int, end: int) -> None:
        """Ignore bytes after those that were read."""

    def finish(self, tail: Tail) -> Verdict:
        """Return what the file lists."""
        c = self.context
        details = {
            "version": c.version, "count": c.count, "files": list(c.numbers),
            "digits" if (c.version or schema.NEW_FRAME) >= schema.NEW_FRAME else "id64": c.setting,
        }  # fmt: skip
        return Verdict(0, {}, details=MappingProxyType(details))
