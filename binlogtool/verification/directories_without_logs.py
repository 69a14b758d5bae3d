"""Report directories without any log next to directories of other servers: probably an incomplete copy."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from binlogtool.findings import Severity, make_finding
from binlogtool.verification.verify_report import SetReport

_NO_SERVER_NAMES = re.compile(r"[.#@$].*|lost\+found|te?mp|vinyl|mysql-(files|keyring)")
"""Names of directories that are empty on sound servers, beside directories of logs."""
_COMPANION_SUFFIXES = (".index", ".idx", ".state")
"""Name suffixes of files that exist beside logs and hold no records."""


def report_directories_without_log(top: str, log_directories: Mapping[str, str]) -> Iterator[SetReport]:
    """Yield a report about each directory without a log that is beside directories with logs, one for each server.

    log_directories: the directories with logs, relative to `top` -> format.
    """
    holders = {"" if name == os.curdir else name: format_name for name, format_name in log_directories.items()}
    servers_by_parent: dict[str, dict[str, str]] = {}
    for name, format_name in holders.items():
        while name and (parent := os.path.dirname(name)) not in holders:
            servers_by_parent.setdefault(parent, {})[os.path.basename(name)] = format_name
            name = parent
    for parent, servers in sorted(servers_by_parent.items()):
        for name in _list_subdirectories(os.path.join(top, parent)):
            path = os.path.join(top, parent, name)
            if name not in servers and not _NO_SERVER_NAMES.fullmatch(name) and _has_no_log(path):
                text = (
                    f"this directory has no log, but {min(servers)} beside it has: copy the logs of this server again"
                )
                finding = make_finding("missing-member", None, 0, text, severity=Severity.WARNING)
                yield SetReport(path, servers[min(servers)], (), (finding,))


def _list_subdirectories(parent: str) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(parent) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _has_no_log(directory: str) -> bool:
    """Return True if a directory and those below it hold no file, or only files that exist beside logs."""
    failures: list[OSError] = []
    files = [name for _, _, names in os.walk(directory, onerror=failures.append) for name in names]
    return not failures and all(name.endswith(_COMPANION_SUFFIXES) for name in files)
