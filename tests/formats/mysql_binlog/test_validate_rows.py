"""`verify` looks at the rows of every row event, also where the checksum of the event is right.

Which rows fit is known from how the logs are made; the servers refuse the others (`Rows_log_event::do_apply_event`).
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.cli.invoke import invoke
from tests.harness.mysql_writer import MARIADB, MYSQL, Made, begun, binlog, rows, table_map, transaction

NUMBER = struct.pack("<I", 1)


def log_of(folder: Path, server: str, *images: bytes, maps: dict[int, Made] | None = None) -> Path:
    """A transaction for each of these: a TABLE_MAP, and a row event with the images. maps: others than usual."""
    around = transaction if server == MARIADB else begun
    events = [
        made
        for number, image in enumerate(images, 1)
        for made in around((maps or {}).get(number, table_map(b"\3\3")), rows(image, 2), number=number)
    ]
    path = folder / "bin.000001"
    path.write_bytes(binlog(events, server))
    return path


SOUND = b"\0" + NUMBER * 2
BROKEN = {
    "cut inside a value": SOUND[:-1],
    "bytes behind the last row": SOUND + b"\0",
    "cut inside the second row": SOUND + SOUND[:-2],
}


@pytest.mark.parametrize("server", [MARIADB, MYSQL])
@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("number", [1, 2, 50])
def test_a_row_that_does_not_fit_its_table_is_found_in_any_statement(
    server: str, what: str, number: int, tmp_path: Path
) -> None:
    images = [SOUND] * 60
    images[number - 1] = BROKEN[what]
    done = invoke("verify", str(log_of(tmp_path, server, *images)))
    assert done.code == 1 and done.text.count("payload-undecodable") == 1, done.text


@pytest.mark.parametrize("server", [MARIADB, MYSQL])
def test_sound_rows_have_no_finding(server: str, tmp_path: Path) -> None:
    done = invoke("verify", str(log_of(tmp_path, server, *[SOUND, SOUND * 30, b"\3", b"\1" + NUMBER] * 20)))
    assert done.code == 0, done.text


def test_rows_are_held_against_the_map_in_front_of_them(tmp_path: Path) -> None:
    """The third statement has the same table id and number of columns, and another type: its rows are of that."""
    other = {3: table_map(b"\3\1")}
    fits = invoke("verify", str(log_of(tmp_path, MARIADB, SOUND, SOUND, b"\0" + NUMBER + b"\1", SOUND, maps=other)))
    assert fits.code == 0, fits.text
    not_fit = invoke("verify", str(log_of(tmp_path, MARIADB, SOUND, SOUND, SOUND, SOUND, maps=other)))
    assert not_fit.code == 1 and not_fit.text.count("payload-undecodable") == 1
