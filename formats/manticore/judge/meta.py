"""Validator of a meta file."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import msgspec

from binlogtool.findings import Finding
from binlogtool.formats.judging import FileTail, ValidationResult
from binlogtool.formats.layouts import Batch
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.layout import MetaContext


class ManticoreMetaValidator(msgspec.Struct, frozen=True):
    """Validator of a meta file, which has no records."""

    context: MetaContext

    def feed(self, batch: Batch) -> Sequence[Finding]:
        """Return no findings: there are no records."""
        return ()

    def skip_damage(self, start: int, end: int) -> None:
        """Ignore bytes after those that were read."""

    def finish(self, tail: FileTail) -> ValidationResult:
        """Return what the file lists."""
        context = self.context
        has_digits = (context.version or schema.NEW_FRAME_VERSION) >= schema.NEW_FRAME_VERSION
        details = {
            "version": context.version, "count": context.count, "files": list(context.numbers),
            "digits" if has_digits else "id64": context.setting,
        }  # fmt: skip
        return ValidationResult(0, {}, details=MappingProxyType(details))
