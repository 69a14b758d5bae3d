"""Of a file that was judged nothing stays but what is told of it: directories have very many."""

from __future__ import annotations

import gc
import gzip
from pathlib import Path

import pytest

from tests.verify_bytes import verify_bytes

CORPUS = Path(__file__).resolve().parent.parent / "corpus"
LOGS = {
    "mysql-binlog": "mysql_binlog/sets/mariadb/rot-bin.000007",
    "tarantool": "tarantool/damaged/flip_plain_block/00000000000000000227.xlog",
    "drizzle": "drizzle/basic-checksum.log",
    "manticore": "manticore/damaged/flip-payload/binlog.0000",
    "eblob": "eblob/api-sync.binlog",
    "mariadb-innodb-binlog": "mariadb-innodb-binlog/page4k/binlog-000001.ibb.gz",
}
OF_SCHEMAS = {"ChecksumResult"}
"""What a parse by a schema leaves: the value of a checksum, in a container of construct's that names itself."""


@pytest.mark.full
@pytest.mark.parametrize("format", LOGS)
def test_the_judge_of_a_file_is_gone_without_the_collector(format: str) -> None:
    path = CORPUS / LOGS[format]
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    name = path.name.removesuffix(".gz")
    verify_bytes(name, data, format=format)  # what is made once
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        report = verify_bytes(name, data, format=format)
        gc.collect()
        left = {type(one).__name__ for one in gc.garbage if type(one).__module__.startswith("binlogtool")}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert report.records
    assert left <= OF_SCHEMAS
