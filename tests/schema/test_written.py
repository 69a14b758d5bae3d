"""Writers of records as lines of JSON, by record type (`python -m tests.package_figures --written`)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import binlogtool
from binlogtool.schema.backends import get_native_backend
from tests.package_figures.__main__ import main
from tests.package_figures.written import table, written

CORPUS = Path(__file__).parents[1] / "corpus"
CHAIN = CORPUS / "tarantool" / "chain"
needs_native = pytest.mark.skipif(get_native_backend() is None, reason="no native code for this machine")


def test_each_record_is_counted_once() -> None:
    expected: Counter[tuple[str, str]] = Counter()
    for path in (one for one in CHAIN.rglob("*") if one.suffix in (".xlog", ".snap")):
        with binlogtool.open(path, backend="python") as log:
            expected.update(("tarantool", record.type) for record in log.records())
    found = written(CHAIN)
    assert found.compiled + found.general == expected
    assert len(expected) > 1


@needs_native
def test_rows_of_tarantool_are_written_by_compiled_code_and_indexes_of_runs_are_not() -> None:
    found = written(CORPUS / "tarantool" / "vinyl")
    assert found.general["tarantool", "PAGEINFO"] and not found.compiled["tarantool", "PAGEINFO"]
    found = written(CHAIN)
    assert found.compiled["tarantool", "INSERT"] > found.general["tarantool", "INSERT"]


def test_the_table_has_a_row_for_each_type_below_its_format(capsys: pytest.CaptureFixture[str]) -> None:
    found = written(CHAIN)
    main(["--written", str(CHAIN)])
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == "| format | type | compiled | general | share compiled |"
    assert rows[2].startswith("| tarantool | all: ")
    assert len(rows) == 3 + len(set(found.compiled) | set(found.general)) == len(list(table(found)))
