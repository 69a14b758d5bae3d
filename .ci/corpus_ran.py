"""A pytest plug-in for CI: the tests that need the full corpus must run, not be skipped.

Loaded with `-p corpus_ran`. The session fails when the corpus is not there, when any such test was skipped, or when
none ran. Tests count by the marker `full_corpus`, or by their use of the fixture `corpus`.
"""

from __future__ import annotations

import pytest

NEEDS = ("needs", "corpus")

ran: set[str] = set()
skipped: dict[str, str] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Notes which tests need the corpus where the report will tell it, also out of another process."""
    for item in items:
        if item.get_closest_marker("full_corpus") or "corpus" in getattr(item, "fixturenames", ()):
            item.user_properties.append(NEEDS)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes what became of each of them."""
    if NEEDS in map(tuple, report.user_properties):
        if report.skipped:
            skipped[report.nodeid] = str(report.longrepr)
        elif report.when == "call":
            ran.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Turns a green run without the corpus into a red one (the workers of a parallel run see a part only)."""
    if not hasattr(session.config, "workerinput") and exitstatus == 0 and (skipped or not ran):
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how many ran."""
    terminalreporter.write_line(f"corpus tests: {len(ran)} ran, {len(skipped)} skipped")
    for nodeid, reason in sorted(skipped.items())[:10]:
        terminalreporter.write_line(f"  skipped: {nodeid}: {reason}")
    if not ran:
        terminalreporter.write_line("  no corpus test ran: is the corpus beside the checkout, or in BINLOGTOOL_CORPUS?")
