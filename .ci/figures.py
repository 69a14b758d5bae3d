"""A pytest plug-in for CI: what the exhaustive tests print stands at the end of the run, also when they pass.

Loaded with `-p figures`.
"""

from __future__ import annotations

import pytest

PRINTS = ("prints", "figures")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Notes which tests these are where the report will tell it, also out of another process."""
    for item in items:
        if item.get_closest_marker("full"):
            item.user_properties.append(PRINTS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what they printed."""
    terminalreporter.section("exhaustive figures")
    for report in terminalreporter.getreports("passed"):
        if report.when == "call" and PRINTS in map(tuple, report.user_properties) and report.capstdout.strip():
            terminalreporter.write_line(f"{report.nodeid}: {report.capstdout.strip()}")
