"""The native library with AddressSanitizer and UndefinedBehaviourSanitizer, and a Python that can load it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from binlogtool.native_build.build import FLAGS
from binlogtool.schema.native_library import LIBRARY_VARIABLE

COMPILER = "gcc"
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1")
EXIT_STATUS = 86
_LOADED = "BINLOGTOOL_SANITIZED"
_REPORTS = "BINLOGTOOL_SANITIZER_REPORTS"
_FAULT = re.compile(r"(?:ERROR: AddressSanitizer:|runtime error:) ([^\n]*)")
_PLACE = re.compile(r"^ *#\d+ 0x\w+ in (\w+) .*native\.c", re.M)


class UnavailableError(Exception):
    """There is no compiler with sanitizers, or Python does not run under them."""


def loaded() -> bool:
    """Does this process use the checked library?"""
    return bool(os.environ.get(_LOADED))


def runtime() -> str:
    """The library of AddressSanitizer that is to be loaded before all others.

    Raises:
        UnavailableError: there is none.
    """
    if shutil.which(COMPILER) is None:
        raise UnavailableError(f"there is no {COMPILER}")
    paths = [
        subprocess.run(
            [COMPILER, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    if not all(os.path.isabs(path) for path in paths):
        raise UnavailableError(f"{COMPILER} has no sanitizers")
    return paths[0]


def generated() -> str:
    """The C text of the native library."""
    from binlogtool.native_build.collect_kernels import collect_library_source

    return collect_library_source().write_text()


def checked_library(text: str, optimize: str = "-O0") -> Path:
    """The library of this C text, built once and kept in the cache of the user. Optimizing takes twice as long.

    Raises:
        UnavailableError: it cannot be built.
    """
    runtime()
    name = hashlib.sha256("\n".join((text, *SANITIZE, optimize)).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "binlogtool" / "sanitized"
    library = cache / f"{name}.so"
    if not library.exists():
        cache.mkdir(parents=True, exist_ok=True)
        flags = [path for path in FLAGS if path not in ("-O2", "-s")]
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            source, built = Path(folder, "native.c"), Path(folder, "native.so")
            source.write_text(text, encoding="utf-8")
            command = [COMPILER, optimize, *flags, *SANITIZE, "-o", str(built), str(source)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise UnavailableError(f"{COMPILER}: {done.stderr.strip()[-1000:]}")
            built.replace(library)
    return library


def environment(library: Path, reports: Path) -> dict[str, str]:
    """Of a Python whose native library this is. reports: the folder for what the sanitizers find.

    Python's own objects are allocated one by one, so that what is read beside one of them is seen.
    """
    return {
        **os.environ, "LD_PRELOAD": runtime(), LIBRARY_VARIABLE: str(library), _LOADED: "1", _REPORTS: str(reports),
        "PYTHONMALLOC": "malloc", "ARROW_DEFAULT_MEMORY_POOL": "system",
        "ASAN_OPTIONS": f"detect_leaks=0:exitcode={EXIT_STATUS}:log_path={reports}/report:allocator_may_return_null=1"
        ":handle_segv=1:hard_rss_limit_mb=4096:quarantine_size_mb=16",
        "UBSAN_OPTIONS": f"halt_on_error=1:print_stacktrace=1:exitcode={EXIT_STATUS}:log_path={reports}/report",
    }  # fmt: skip


def restart(command: Sequence[str]) -> NoReturn:
    """Run this command in place of this process, with the checked library.

    Raises:
        UnavailableError: there is no compiler with sanitizers.
    """
    library = checked_library(generated())
    reports = Path(tempfile.mkdtemp(prefix="binlogtool-sanitizer-"))
    sys.stdout.flush()
    os.execve(command[0], list(command), environment(library, reports))


def report_kind(process: int) -> str:
    """What the sanitizers said of a process that ended, without numbers; empty = nothing. The report stays."""
    folder = os.environ.get(_REPORTS)
    path = Path(folder or "/nonexistent", f"report.{process}")
    if not path.exists():
        return ""
    return kind_of_report(path.read_text(errors="replace")) + f" ({path})"


def kind_of_report(text: str) -> str:
    """A report in one line: the fault, and the function of the native library."""
    paths, place = _FAULT.search(text), _PLACE.search(text)
    words = re.sub(r"0x[0-9a-f]+|\b\d+\b", "N", paths[1])[:80] if paths else "?"
    return f"sanitizer: {words} in {place[1] if place else 'no function of the native library'}"
