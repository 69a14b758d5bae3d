"""Test that the sanitizers see compiled code in the real tool: a planted read past a buffer ends it with a report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from binlogtool import formats
from binlogtool.native_build.collect_kernels import add_walk_of_schema, iter_compiled_layouts, iter_walk_schemas
from binlogtool.schema.c_codegen import CLibrarySource
from tests.fuzz import sanitizers
from tests.fuzz.sanitizers import EXIT_STATUS, UnavailableError

END = "r[2] = t.v[2]; }"
PLANTED = "r[2] = t.v[2]; for (int k = 3; k < 64; k++) r[2] += *(volatile int64_t *)(r + k) & 0; }"
"""More numbers than there is room for are read."""


def walks_of(format: str) -> str:
    """The C text of the walks of a format: what else the tool looks for, it runs as Python."""
    unit = CLibrarySource()
    for layout, owner in iter_compiled_layouts():
        if owner is formats.load_format(format):
            for schema, columns in iter_walk_schemas(layout):
                add_walk_of_schema(unit, schema, columns)
    return unit.write_text()


@pytest.mark.parametrize("planted", [False, True])
def test_a_read_behind_a_buffer_is_reported(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = walks_of("drizzle")
    assert END in text
    try:
        library = sanitizers.checked_library(text.replace(END, PLANTED) if planted else text)
    except UnavailableError as error:
        pytest.skip(str(error))
    log = str(samples / "drizzle" / "basic-checksum.log")
    # the shadow memory of the sanitizers counts, too
    words = [sys.executable, "-m", "binlogtool", "--backend", "native", "--max-memory", "900TiB", "verify", log]
    environment = sanitizers.environment(library, tmp_path)
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
    reports = [path.read_text() for path in tmp_path.glob("report.*")]
    if planted:
        assert done.returncode == EXIT_STATUS, done.stderr
        assert [sanitizers.kind_of_report(one).split(" on ")[0] for one in reports] == [
            "sanitizer: heap-buffer-overflow"
        ]
        assert "in walk_" in reports[0]
    else:
        assert (done.returncode, reports) == (0, []), done.stderr
