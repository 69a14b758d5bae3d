"""The ceiling of memory that the system keeps: where it is set and taken back."""

from __future__ import annotations

import subprocess
import sys

MIB = 1 << 20


def said(code: str) -> str:
    """What a process of its own prints."""
    words = [sys.executable, "-c", f"import resource\nfrom binlogtool import limits\n{code}"]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


SOFT = "print(resource.getrlimit(resource.RLIMIT_DATA)[0])"


def test_a_ceiling_is_kept_and_taken_back() -> None:
    before = int(said(SOFT))
    assert int(said(f"limits.set_memory_ceiling({64 * MIB})\n{SOFT}")) == 112 * MIB
    code = f"limits.set_memory_ceiling({64 * MIB})\nlimits.set_memory_ceiling({32 * MIB})\nlimits.lift_memory_ceiling()"
    assert int(said(f"{code}\n{SOFT}")) == before
    assert int(said(f"limits.lift_memory_ceiling()\n{SOFT}")) == before


def test_what_was_allowed_before_is_never_raised() -> None:
    low = f"resource.setrlimit(resource.RLIMIT_DATA, ({90 * MIB}, {2000 * MIB}))\n"
    for code in (
        f"limits.set_memory_ceiling({256 * MIB})",
        f"limits.set_memory_ceiling({256 * MIB})\nlimits.lift_memory_ceiling()",
        "limits.lift_memory_ceiling()",
    ):
        assert int(said(f"{low}{code}\n{SOFT}")) == 90 * MIB


def test_what_goes_beyond_it_is_refused() -> None:
    code = f"try: bytes({200 * MIB})\nexcept MemoryError: print('refused')"
    assert said(f"limits.set_memory_ceiling({64 * MIB})\n{code}") == "refused"


def test_a_process_that_is_started_may_take_the_ceiling_back_too() -> None:
    code = (
        f"limits.set_memory_ceiling({64 * MIB})\nold = "
        "list(limits._soft_limits_before)\nlimits._soft_limits_before.clear()\n"
        "limits._inherit_memory_ceiling(old)\nlimits.lift_memory_ceiling()"
    )
    assert said(f"{code}\n{SOFT}") == said(SOFT)


def test_the_work_ends_at_the_ceiling_while_the_system_still_gives_memory() -> None:
    """Small objects, as JSON makes them: what the system refuses first may be asked for by C that does not check."""
    code = f"""limits.set_memory_ceiling({64 * MIB})
kept = []
try:
    for i in range(10 ** 9): kept.append(str([i]))
except MemoryError:
    used = int(open('/proc/self/statm').read().split()[5]) * resource.getpagesize()
    piece = bytes({2 * MIB})
    print({100 * MIB} < used < {112 * MIB})"""
    assert said(code) == "True"


def test_json_whose_values_do_not_fit_is_refused_before_it_is_decoded() -> None:
    for text, answer in (("b'[' + b'{},' * 3_000_000 + b'1]'", "refused"), ("b'[1,2,3]'", "None")):
        code = f"try: print(limits.require_json_memory({text}))\nexcept MemoryError: print('refused')"
        assert said(f"limits.set_memory_ceiling({64 * MIB})\n{code}") == answer


def test_a_process_ends_as_it_would_without_a_ceiling() -> None:
    code = "import threading, time\nfor i in range(3_000_000): pass\nprint(1)"
    assert said(f"limits.set_memory_ceiling({64 * MIB})\n{code}") == "1"
