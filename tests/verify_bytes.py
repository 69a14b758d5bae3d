"""Verify the bytes of one file in memory."""

from __future__ import annotations

from binlogtool.core.open_file import BytesSource, find_format, open_file
from binlogtool.verification.verify_logs import LogVerifyOptions, verify_file
from binlogtool.verification.verify_report import FileReport


def verify_bytes(
    name: str, data: bytes, *, format: str = "auto", options: LogVerifyOptions | None = None
) -> FileReport:
    """Verify bytes as a file of that name. Raises UnknownFormatError: no format matches."""
    options = options or LogVerifyOptions()
    format_ = None if format == "auto" else find_format(format)
    file = open_file(name, name, format_, options.limits, BytesSource(name, data), hints=options.hints)
    return verify_file(file, options).report
