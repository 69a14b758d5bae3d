"""Small files that ask for much: the ceiling is kept, a refused allocation is told, nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.ceilings import FOUND, MIB, SLACK, STATEMENT, run, unpacked
from tests.harness.mysql_writer import MARIADB, binlog, query, transaction
from tests.harness.oracle import MARK as END_MARK
from tests.harness.slowness import slowness
from tests.sampling import take_sample

STATUSES = {0, 1, 2, 3, 5, 6}
"""2: an output that a format does not have."""

BACK_TO_BACK = ("00000000000000002563.xlog", "tiny.000001", "binlog.0000")
"""Block magics, 19-byte headers and TXN magics, nothing behind any of them."""
COMMANDS = (
    *(("dump", "-O", form) for form in ("text", "json", "jsonl", "csv", "table", "sql", "raw")),
    ("verify", "-O", "json"), ("stats",), ("diagnose",), ("truncate-to-durable",), ("replay-dry-run",),
    ("hexdump-annotate", "--record", "4"), ("convert", "--to", "jsonl", "-o", "{}/out"),
)  # fmt: skip
WHOLE = ("dump -O jsonl", "dump -O sql", "stats", "truncate-to-durable", "replay-dry-run", "diagnose")

pytestmark = [pytest.mark.full_corpus, pytest.mark.usefixtures("corpus")]


@pytest.mark.full
@pytest.mark.parametrize(
    "words",
    [pytest.param(("--max-memory", "64MiB"), id="64MiB"), pytest.param((), id="default", marks=pytest.mark.nightly)],
)
def test_a_statement_of_200_mib_is_refused_and_the_ceiling_is_named(tmp_path: Path, words: tuple[str, ...]) -> None:
    """By the outputs that need it whole."""
    status, peak, _, said = run(tmp_path, *words, "dump", "-O", "sql", str(unpacked(STATEMENT, tmp_path)))
    assert status == 6
    assert said.count("\n") == 1 and "--max-memory" in said
    assert peak <= (64 * MIB if words else 256 * MIB) + SLACK


@pytest.mark.full
@pytest.mark.parametrize("form", ["jsonl", pytest.param("text", marks=pytest.mark.nightly)])
def test_a_statement_of_200_mib_is_written_in_pieces(tmp_path: Path, form: str) -> None:
    """It is 200 MiB of zeros, each of which takes six bytes in JSON."""
    out = tmp_path / "out"
    words = ("dump", "-v", "-O", form, "-o", str(out), str(unpacked(STATEMENT, tmp_path)))
    status, peak, _, said = run(tmp_path, "--max-memory", "64MiB", *words)
    assert (status, said) == (0, "")
    assert peak <= 64 * MIB + SLACK
    count, left = 0, b""
    with out.open("rb") as file:
        while piece := left + file.read(6 * MIB):
            count += piece.count(b"\\u0000")
            if len(piece) == len(left):
                break
            left = piece[-5:]
    assert count == 200 * MIB


def test_verify_unpacks_a_statement_of_200_mib_piece_by_piece(tmp_path: Path) -> None:
    status, peak, _, said = run(tmp_path, "--max-memory", "64MiB", "verify", str(unpacked(STATEMENT, tmp_path)))
    assert (status, said) == (0, "")
    assert peak <= 64 * MIB + SLACK


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "size"),
    [
        ("verify", 56),
        ("dump -O jsonl", 32),
        pytest.param("truncate-to-durable", 56, marks=pytest.mark.nightly),
        pytest.param("dump -O csv", 32, marks=pytest.mark.nightly),
    ],
)
def test_an_event_that_is_not_compressed_is_held_once_and_copied_once(tmp_path: Path, words: str, size: int) -> None:
    """It was read into three buffers at a time, since its checksum stands behind it."""
    log = plain_log(tmp_path, size * MIB)
    status, peak, _, said = run(tmp_path, "--max-memory", "64MiB", *words.split(), str(log), backend="auto")
    assert (status, said) == (0, "")
    assert peak <= 64 * MIB + SLACK


@pytest.mark.full
@pytest.mark.parametrize("words", ["verify", *take_sample(WHOLE, 2)])
def test_an_event_beyond_the_ceiling_is_refused_in_one_line(tmp_path: Path, words: str) -> None:
    log = plain_log(tmp_path, 112 * MIB)
    status, peak, _, said = run(tmp_path, "--max-memory", "64MiB", *words.split(), str(log), backend="auto")
    assert status == 6
    assert said.count("\n") == 1 and "try --max-memory 256MiB" in said
    assert peak <= 64 * MIB + SLACK


def plain_log(folder: Path, size: int) -> Path:
    """A log with a statement of this size."""
    statements = [b"INSERT INTO t VALUES ('" + bytes(size).replace(b"\0", b"x") + b"')", b"INSERT INTO t VALUES (2)"]
    events = [made for at, sql in enumerate(statements, 1) for made in transaction(query(sql), number=at)]
    log = folder / "plain.000001"
    log.write_bytes(binlog(events, MARIADB))
    return log


@pytest.mark.full
@pytest.mark.parametrize("name", BACK_TO_BACK)
def test_headers_back_to_back_need_little_memory(tmp_path: Path, name: str) -> None:
    status, peak, _, said = run(
        tmp_path, "--max-memory", "64MiB", "verify", str(unpacked(name, tmp_path)), backend="auto"
    )
    assert (status, said) == (1, "")
    assert peak <= 64 * MIB + SLACK


@pytest.mark.full
@pytest.mark.parametrize("name", BACK_TO_BACK)
def test_headers_back_to_back_are_passed_over_quickly(tmp_path: Path, name: str) -> None:
    """Three times what R2 allows, as the machine may be busy; it was 15 to 40 times of it."""
    log = unpacked(name, tmp_path)
    seconds = run(tmp_path, "verify", str(log))[2]
    assert seconds <= 3 * slowness() * (1 + 20 * log.stat().st_size / (100 * MIB))


@pytest.mark.nightly
def test_blocks_over_and_over_are_judged_in_time(tmp_path: Path) -> None:
    """Each row comes again, which is looked at row by row. The rule is that of an idle machine."""
    whole = (FOUND.parent / "tarantool/generated/rotated/00000000000000000209.xlog").read_bytes()
    head = whole.index(b"\n\n") + 2
    blocks = whole[head:].removesuffix(END_MARK)
    log = tmp_path / "00000000000000000209.xlog"
    log.write_bytes(whole[:head] + blocks * (40_000_000 // len(blocks)) + END_MARK)
    status, peak, seconds, said = run(tmp_path, "verify", str(log), backend="auto")
    assert (status, said) == (1, "")
    assert peak <= 256 * MIB + SLACK
    assert seconds <= slowness() * (1 + 20 * log.stat().st_size / (100 * MIB))


@pytest.mark.full
@pytest.mark.parametrize("space", [150, 300])
def test_an_address_space_that_is_too_small_ends_in_a_line(tmp_path: Path, space: int) -> None:
    never_dies(tmp_path, STATEMENT, ("dump", "-O", "jsonl"), space)


@pytest.mark.nightly
@pytest.mark.parametrize("space", [100, 300, 500, 700, 900, 1200])
@pytest.mark.parametrize("name", [STATEMENT, *BACK_TO_BACK])
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: "-".join(words[:3]))
def test_no_command_dies_of_a_small_address_space(
    tmp_path: Path, words: tuple[str, ...], name: str, space: int
) -> None:
    never_dies(tmp_path, name, words, space)


def never_dies(folder: Path, name: str, words: tuple[str, ...], space: int) -> None:
    """The command ends with a status of its own, in a line, and leaves nothing behind."""
    log = unpacked(name, folder)
    asked = [word.format(folder) for word in words]
    status, _, _, said = run(folder, "--max-memory", "4GiB", *asked, str(log), address_space=space * MIB)
    assert status in STATUSES, said
    assert "Traceback" not in said and "internal error" not in said
    assert {path.name for path in folder.iterdir()} <= {name, *(["out"] if status in (0, 1) else [])}
