"""Events that are made are those that a server makes; events that are moved keep all but their place."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events import write_mariadb_binlog
from binlogtool.formats.binlog_events.wire_format import EventType, parse_format_description
from tests.export import classic_binlog as classic

FOLDER = "mysql-binlog/generated"
LOGS = ("mariadb-10.11/rotated-set", "mariadb-11.8/rotated-set", "mariadb-10.11/domains", "mariadb-11.8/domains")


def logs(corpus: Path, name: str) -> list[Path]:
    return sorted(p for p in (corpus / FOLDER / name).iterdir() if len(p.suffix) == 7 and p.suffix[1:].isdigit())


@pytest.mark.parametrize("name", LOGS)
def test_every_event_of_a_server_is_framed_as_the_server_does_it(corpus: Path, name: str) -> None:
    framed = 0
    for path in logs(corpus, name):
        data = path.read_bytes()
        for event in classic.events(path, exact=False):
            whole = data[event.at : event.at + event.size]
            if event.end == event.at + event.size and not event.flags & 1:  # in use: the checksum is without that flag
                assert (
                    write_mariadb_binlog.add_position_and_checksum(whole[:9] + bytes(8) + whole[17:-4], event.at)
                    == whole
                )
                framed += 1
    assert framed > 30


@pytest.mark.parametrize("name", LOGS)
def test_the_events_of_a_file_are_those_of_a_server(corpus: Path, name: str) -> None:
    seen = set()
    for path in logs(corpus, name):
        for event in classic.events(path, exact=False):
            body = rebuilt(event, path)
            if body is not None:
                seen.add(event.code)
                assert body == event.body
    assert {classic.DESCRIPTION, classic.GTID_LIST, classic.CHECKPOINT} <= seen


def rebuilt(event: classic.Event, path: Path) -> bytes | None:
    """The same body, made from what it says."""
    if event.code == classic.DESCRIPTION:
        said = parse_format_description(path.read_bytes()[4 : 4 + event.size])
        return write_mariadb_binlog.encode_description_body(
            write_mariadb_binlog.make_description_for_new_file(said, said.create_timestamp)
        )
    if event.code == classic.GTID_LIST:
        entries = [text.split("-") for text in classic.listed(event)]
        return write_mariadb_binlog.encode_gtid_list_body((int(d), int(s), int(n)) for d, s, n in entries)
    if event.code == classic.CHECKPOINT:
        return write_mariadb_binlog.encode_checkpoint_body(event.body[4:].decode())
    if event.code == classic.ROTATE:
        return write_mariadb_binlog.encode_rotate_body(event.body[8:].decode())
    return None


@pytest.mark.parametrize("version", ["mariadb-10.11", "mariadb-11.8"])
def test_the_default_description_knows_what_servers_know(corpus: Path, version: str) -> None:
    path = logs(corpus, f"{version}/domains")[0]
    said = parse_format_description(path.read_bytes()[4:256]).post_header_len
    ours = write_mariadb_binlog.DEFAULT_DESCRIPTION.post_header_len
    own = EventType.FORMAT_DESCRIPTION - 1
    assert (len(said), len(ours)) == (171, 172)
    assert [i + 1 for i in range(171) if said[i] != ours[i]] == [EventType.FORMAT_DESCRIPTION]
    assert (said[own], ours[own]) == (57 + 171, 57 + 172)


def test_a_list_without_gtids_has_the_length_that_servers_demand() -> None:
    assert write_mariadb_binlog.encode_gtid_list_body([]) == bytes(6)


def test_positions_behind_four_gigabytes_keep_their_low_bits() -> None:
    event = write_mariadb_binlog.encode_event(EventType.STOP, 1, 2, b"")
    moved = write_mariadb_binlog.add_position_and_checksum(event, (1 << 32) + 100)
    assert int.from_bytes(moved[13:17], "little") == 100 + 23


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_events_are_split_where_they_were_joined(bodies: list[bytes]) -> None:
    events = [write_mariadb_binlog.encode_event(EventType.QUERY, 7, 1, body) for body in bodies]
    assert write_mariadb_binlog.split_events(b"".join(events)) == events


@pytest.mark.parametrize("cut", [b"\0" * 18, b"\0" * 19, b"\0" * 9 + b"\x14\0\0\0" + b"\0" * 6])
def test_what_is_no_event_is_told(cut: bytes) -> None:
    event = write_mariadb_binlog.encode_event(EventType.QUERY, 7, 1, b"x")
    with pytest.raises(MalformedError, match="bytes after event 1 of the group are not an event"):
        write_mariadb_binlog.split_events(event + cut)
