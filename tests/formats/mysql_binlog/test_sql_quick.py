"""Scripts by kernels: the same bytes and findings as by the general writer, for the logs of all workloads, for those of
the corpus, and for any values."""

from __future__ import annotations

import gzip
import random
import zlib
from pathlib import Path
from typing import Any

import pytest

from binlogtool.core import decode_batches
from binlogtool.format_api.row_output_interfaces import ScriptOptions
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.compressed_rows import payload
from tests.formats.mysql_binlog.row_building import image, rows_body
from tests.formats.mysql_binlog.sql_made import COLUMNS, WORKLOADS, a_log, columns_map, script
from tests.sampling import EXHAUSTIVE, take_sample


def logs() -> list[Any]:
    """All logs of the workloads, in both wordings; those of the third server, and in rarer modes, take too long for
    every day."""
    made = []
    for path in sorted(WORKLOADS.glob("*/*.gz")):
        server, mode = path.parent.name, path.name.split(".")[1]
        for rows in ("exact", "statements"):
            daily = server != "mariadb-11.8" and (mode == "full" or (mode, rows) == ("row", "statements"))
            marks = () if daily else pytest.mark.nightly
            made.append(pytest.param(path, rows, id=f"{rows}-{server}/{path.name[:-3]}", marks=marks))
    return made


@pytest.mark.full
@pytest.mark.parametrize(("path", "rows"), logs())
def test_scripts_of_workloads_are_the_same(path: Path, rows: str, kernels: Any, tmp_path: Path) -> None:
    file = tmp_path / "log.000001"
    file.write_bytes(gzip.decompress(path.read_bytes()))
    wording = ScriptOptions(gtids=True, rows=rows)
    expected, none = script(file, wording)
    kernels()
    made, _ = script(file, wording)
    assert made == expected
    assert none == 0


MOST_BYTES = 64 << 10
"""Larger logs of the corpus take too long in plain Python."""


@pytest.mark.full
@pytest.mark.parametrize("rows", ["exact", "statements"])
def test_scripts_of_the_corpus_are_the_same_by_native_code(
    rows: str, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_batches, "MIN_COMPILED_RUN", 0)
    wording, count, quick = ScriptOptions(gtids=True, rows=rows), 0, 0
    files = [path for path in sorted(corpus.rglob("*")) if path.is_file() and path.stat().st_size <= MOST_BYTES]
    for path in take_sample([path for path in files if path.read_bytes()[:4] == b"\xfebin"], 5):
        expected, _ = script(path, wording)
        made, by_kernels = script(path, wording, "native")
        assert made == expected, path
        count, quick = count + 1, quick + by_kernels
    share = 1 if EXHAUSTIVE else 6
    assert count > 100 // share and quick > 1000 // share


# -- any values --------------------------------------------------------------------------------------------------------


def a_compressed_log(source: random.Random, checksum: bool) -> bytes:
    """Transactions of MySQL with rows of all kinds, each one in a payload; some rows do not fit their map."""
    events = []
    for number in range(1, 13):
        inner = [make.event(make.QUERY, make.query(b"BEGIN"), False)]
        for _ in range(source.randrange(1, 5)):
            columns = source.sample(COLUMNS, k=source.randrange(1, 5))
            table = make.event(make.TABLE_MAP, columns_map(columns, source), False)
            for code in source.choices((30, 31, 32), k=source.randrange(1, 4)):
                images = image([c[3](source) for c in columns]) * (2 if code == 31 else 1)
                bad = b"\x7f" * (source.random() < 0.05)
                body = rows_body(len(columns), images + bad, [[True] * len(columns)] * (2 if code == 31 else 1), b"")
                rows = make.event(code, body, False, time=source.choice((0, 5, 6)), position=source.randrange(99))
                inner += [table, rows]
        inner.append(make.event(make.XID, bytes(8), False))
        packed = payload(b"".join(inner), None, compression=255)
        events += [make.event(make.GTID_LOG, make.mysql_gtid(number), checksum), make.event(40, packed, checksum)]
    return make.log(events, make.MYSQL, checksum)


def a_disordered_log(source: random.Random) -> bytes:
    """Transactions of MySQL, most of them in payloads: of few tables whose numbers change hands, with events that are
    missing, there twice, in another place, or outside of the payload that they belong to."""
    columns = [source.sample(COLUMNS, k=2) for _ in range(3)]
    tables = [columns_map(one, source) for one in columns]
    events = []
    for number in range(1, 31):
        inner = [make.event(make.QUERY, make.query(b"BEGIN"), False)]
        for _ in range(source.randrange(1, 4)):
            k, table_id = source.randrange(3), bytes([source.choice((1, 1, 2)), 0, 0, 0, 0, 0])
            rows = rows_body(2, image([c[3](source) for c in columns[k]]), [[True] * 2], b"")
            inner.append(make.event(make.TABLE_MAP, table_id + tables[k][6:], False))
            inner += [make.event(30, table_id + rows[6:], False)] * source.choice((1, 1, 2))
        inner.append(make.event(make.XID, bytes(8), False))
        if source.random() < 0.4:
            at = source.randrange(len(inner))
            inner[at : at + 1] = source.choice(([], [inner[at]] * 2, [inner[source.randrange(len(inner))]]))
        outside = [] if source.random() < 0.8 else [inner.pop(source.randrange(len(inner)))]
        events.append(make.event(make.GTID_LOG, make.mysql_gtid(number)))
        sealed = [make.event(one[4], one[19:], True) for one in (inner if source.random() < 0.2 else outside)]
        packed = make.event(40, payload(b"".join(inner), None, compression=255))
        events += sealed if len(sealed) == len(inner) else source.choice(([packed, *sealed], [*sealed, packed]))
    return make.log(events, make.MYSQL)


def block(data: bytes, more: int = 0) -> bytes:
    """Compressed as MariaDB does it. more: what it says too much of its size."""
    return b"\x84" + (len(data) + more).to_bytes(4, "big") + zlib.compress(data)


def a_log_of_compressed_rows(source: random.Random, checksum: bool) -> bytes:
    """Transactions of MariaDB in which some row events are compressed, some of them wrongly."""
    events = []
    for number in range(1, 25):
        columns = source.sample(COLUMNS, k=source.randrange(1, 5))
        events.append(make.event(make.GTID, make.mariadb_gtid(number), checksum))
        table = make.event(make.TABLE_MAP, columns_map(columns, source), checksum)
        for _ in range(source.randrange(1, 4)):
            code = source.choice((23, 24, 25, 30, 31, 32))
            pairs = 2 if code in (24, 31) else 1
            images = image([c[3](source) for c in columns]) * pairs
            extra = source.choice((b"", b"\x01\x05ab")) if code >= 30 else None
            head = rows_body(len(columns), b"", [[True] * len(columns)] * pairs, extra)
            kind = source.choice(("plain", "packed", "packed", "packed"))
            lie = source.choice((0, 0, 0, 0, 0, 0, 0, -1, 1, 1 << 30))
            body = head + (images if kind == "plain" else block(images, lie if images else 0))
            body += b"\0" * (source.random() < 0.05)
            code += 0 if kind == "plain" else 143 if code < 30 else 139
            events += [table, make.event(code, body, checksum, position=number)]
        events.append(make.event(make.XID, bytes(8), checksum))
    return make.log(events, checksum=checksum)


@pytest.mark.parametrize("rows", ["exact", "statements"])
@pytest.mark.parametrize("seed", range(8))
def test_compressed_rows_of_any_values_are_the_same(seed: int, rows: str, kernels: Any, tmp_path: Path) -> None:
    file = tmp_path / "log.000001"
    file.write_bytes(a_log_of_compressed_rows(random.Random(seed), checksum=seed % 4 != 0))
    wording = ScriptOptions(gtids=True, rows=rows)
    expected, _ = script(file, wording)
    native, _ = script(file, wording, "native")
    assert native == expected
    kernels()
    made, quick = script(file, wording)
    assert made == expected
    assert quick > 40, "kernels wrote row events"


@pytest.mark.full
@pytest.mark.parametrize("rows", ["exact", "statements"])
@pytest.mark.parametrize("seed", range(8))
def test_compressed_transactions_of_any_values_are_the_same(seed: int, rows: str, kernels: Any, tmp_path: Path) -> None:
    file = tmp_path / "log.000001"
    file.write_bytes(a_compressed_log(random.Random(seed), checksum=seed % 4 != 0))
    wording = ScriptOptions(gtids=True, rows=rows)
    expected, _ = script(file, wording)
    native, _ = script(file, wording, "native")
    assert native == expected
    kernels()
    made, quick = script(file, wording)
    assert made == expected
    assert quick > 40, "kernels wrote row events"


@pytest.mark.full
@pytest.mark.parametrize("rows", ["exact", "statements"])
@pytest.mark.parametrize(
    "seed",
    [
        *range(3),
        *(pytest.param(i, marks=pytest.mark.full if i < 5 else pytest.mark.nightly) for i in range(3, 60)),
    ],
)
def test_disordered_compressed_transactions_are_the_same(seed: int, rows: str, kernels: Any, tmp_path: Path) -> None:
    file = tmp_path / "log.000001"
    file.write_bytes(a_disordered_log(random.Random(seed)))
    wording = ScriptOptions(gtids=True, rows=rows)
    expected, _ = script(file, wording)
    native, _ = script(file, wording, "native")
    assert native == expected
    kernels()
    made, quick = script(file, wording)
    assert made == expected
    assert quick > 20


@pytest.mark.parametrize("seed", range(12))
def test_rows_of_any_values_are_the_same_statements(seed: int, kernels: Any, tmp_path: Path) -> None:
    file = tmp_path / "log.000001"
    file.write_bytes(a_log(random.Random(seed)))
    wording = ScriptOptions(gtids=True, rows="statements")
    expected, _ = script(file, wording)
    kernels()
    made, quick = script(file, wording)
    assert made == expected
    assert quick > 24 * 3 + 20, "kernels wrote row events"


def test_a_begin_with_an_unknown_status_variable_is_told_each_time(kernels: Any, tmp_path: Path) -> None:
    events = []
    for number in range(1, 4):
        begin = make.event(make.QUERY, make.query(b"BEGIN", b"\x63\1"))
        events += [make.event(make.GTID_LOG, make.mysql_gtid(number)), begin, make.event(make.XID, bytes(8))]
    file = tmp_path / "log.000001"
    file.write_bytes(make.log(events, version=make.MYSQL))
    kernels()
    made, quick = script(file, ScriptOptions(gtids=True))
    assert [what.count("type 99") for id_, _, what in made.said if id_ == "statement-inexact"] == [1, 1, 1]
    assert quick > 0, "kernels wrote what stands around"
