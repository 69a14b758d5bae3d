"""Bodies that compiled code has read are those of the general way, value by value and type by type."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

import binlogtool
from binlogtool.core.decode_batches import CompiledBodyDecoder
from binlogtool.core.record_and_selection_types import Record, RecordBlock
from binlogtool.core.record_filter import RecordRange
from binlogtool.schema.backends import get_native_backend

CORPUS = Path(__file__).parents[1] / "corpus"
PACKED = sorted((CORPUS / "mysql_binlog" / "workloads").glob("*/*.000001.gz"))
SAMPLES = [
    *PACKED,
    *sorted((CORPUS / "mariadb-innodb-binlog").rglob("*.ibb")),
    *sorted((CORPUS / "tarantool").rglob("*.xlog")),
    *sorted((CORPUS / "tarantool").rglob("*.snap")),
    *sorted((CORPUS / "guides").rglob("*bin.0*")),
    *sorted((CORPUS / "drizzle").rglob("*.log")),
]


def named(path: Path) -> str:
    return str(path.relative_to(CORPUS))


def unpacked(path: Path, folder: Path) -> Path:
    if path.suffix != ".gz":
        return path
    plain = folder / path.stem
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    return plain


def bodied(path: Path) -> Iterator[Record]:
    maker = CompiledBodyDecoder(min_records=0)
    with binlogtool.open(path, backend="native") as log:
        for part in log.record_ranges():
            if isinstance(part, RecordRange):
                for block in maker.decode_range(part):
                    yield from block
            elif isinstance(part, RecordBlock):
                yield from part


@pytest.mark.skipif(get_native_backend() is None, reason="no native code for this machine")
@pytest.mark.parametrize("path", SAMPLES, ids=named)
def test_bodies_of_compiled_code_are_those_of_the_general_way(path: Path, tmp_path: Path) -> None:
    path = unpacked(path, tmp_path)
    with binlogtool.open(path, backend="python") as log:
        general = list(log.records())
    assert [repr(one) for one in bodied(path)] == [repr(one) for one in general]


@pytest.mark.skipif(get_native_backend() is None, reason="no native code for this machine")
def test_most_bodies_are_read_by_compiled_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would compare the general way with itself."""
    path = unpacked(next(one for one in PACKED if one.name.startswith("ddl-mariadb.row")), tmp_path)
    made, block = [], CompiledBodyDecoder._make_block

    def counted(self: CompiledBodyDecoder, run: object) -> RecordBlock:
        made.append(block(self, run))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(CompiledBodyDecoder, "_make_block", counted)
    total = len(list(bodied(path)))
    assert sum(map(len, made)) > total // 2
