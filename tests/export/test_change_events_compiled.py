"""Debezium's messages from rows that compiled code decoded: those of changes one by one, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import BinlogtoolError
from binlogtool.formats.binlog_events.changes.row_changes import RowChangeReader

SKIP = Selection(on_damage="skip")
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"decimals": "string", "times": "connect", "unsigned_bigint": "precise", "tombstones": False},
    {"decimals": "double", "source_name": "100% shop", "schema_messages": True},
)


def written(paths: list[Path], output: Path, backend: str, **options: Any) -> tuple[Any, ...]:
    """The lines and what the manifest says; the error if there is one."""
    output.unlink(missing_ok=True)
    envelope = {"envelope": "debezium", **options}
    try:
        done = binlogtool.convert(paths, "jsonl", output, envelope=envelope, selection=SKIP, backend=backend)
    except BinlogtoolError as error:
        return (str(error),)
    return output.read_bytes(), done.rows, done.finding_counts, [one.records for one in done.inputs]


def compare(folders: list[Path], tmp_path: Path, **options: Any) -> int:
    """Compare both ways for each folder; return the number of messages."""
    messages = 0
    for folder in folders:
        compiled, one_by_one = (
            written([folder], tmp_path / backend, backend, **options) for backend in ("native", "python")
        )
        assert compiled == one_by_one, folder
        messages += compiled[1] if len(compiled) > 1 else 0
    return messages


@pytest.mark.parametrize("options", OPTIONS)
def test_messages_are_those_of_changes_one_by_one(options: dict[str, Any], samples: Path, tmp_path: Path) -> None:
    folders = [samples / "mysql_binlog" / "changes" / name for name in ("mysql-9", "mariadb")]
    assert compare(folders, tmp_path, **options) > 60


@pytest.mark.full
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("server", ["mysql-9.7", "mariadb-10.11", "mariadb-11.8"])
def test_messages_of_all_types_and_images_are_those_of_changes_one_by_one(
    server: str, options: dict[str, Any], corpus: Path, tmp_path: Path
) -> None:
    folders = [one for one in (corpus / "mysql-binlog" / "generated" / server).iterdir() if one.is_dir()]
    assert compare(sorted(folders), tmp_path, **options) > 1000


def test_no_row_is_decoded_alone_where_compiled_code_knows_all_of_it(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = samples / "mysql_binlog" / "changes" / "mysql-9" / "bin.000001"
    expected = written([log], tmp_path / "expected", "python")
    decoded = list[object]()
    process_rows = RowChangeReader._read_row_changes

    def count(self: RowChangeReader, scene: Any) -> Any:
        decoded.append(scene)
        return process_rows(self, scene)

    monkeypatch.setattr(RowChangeReader, "_read_row_changes", count)
    assert written([log], tmp_path / "found", "native") == expected
    assert len(decoded) < expected[1] / 4
