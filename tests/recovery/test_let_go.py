"""Of a file that was judged nothing stays but what is told of it: directories have very many."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from binlogtool.recovery.verify import verify_bytes

CORPUS = Path(__file__).resolve().parent.parent / "corpus"
LOGS = {
    "mysql-binlog": "mysql_binlog/sets/mariadb/rot-bin.000007",
    "tarantool": "tarantool/damaged/flip_plain_block/00000000000000000227.xlog",
}
FEW = 20
"""Objects: a parse by a schema leaves a few. A judge in a cycle took dozens along, and the bytes of the file."""


@pytest.mark.parametrize("format", LOGS)
def test_the_judge_of_a_file_is_gone_without_the_collector(format: str) -> None:
    path = CORPUS / LOGS[format]
    verify_bytes(path.name, path.read_bytes(), format=format)  # what is made once
    gc.collect()
    gc.disable()
    try:
        report = verify_bytes(path.name, path.read_bytes(), format=format)
        left = gc.collect()
    finally:
        gc.enable()
    assert report.records
    assert left <= FEW
