"""The dry run against a real server: the same directories, started; the rows that the server then holds."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest

import binlogtool
from binlogtool.format_api.replay_rules import encode_canonical
from binlogtool.prediction.predict_replay import ReplayResult
from binlogtool.prediction.row_store import MODULUS, hash_row
from tests.cli.invoke import invoke
from tests.formats.tarantool.make import END, block, dml, row
from tests.formats.tarantool.server import Started, program, start
from tests.sampling import take_sample

pytestmark = pytest.mark.server

ZSTD_MAGIC = b"\xd5\xba\x0b\xba"
POLICIES = {"server": False, "force": True}


@pytest.fixture(scope="module", autouse=True)
def _server() -> None:
    if program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no tarantool is installed; BINLOGTOOL_SERVER=1 demands one")
    assert program() is not None


def copied(corpus: Path, name: str, folder: Path) -> Path:
    shutil.copytree(corpus / "tarantool" / "generated" / name, folder, copy_function=shutil.copyfile)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def replayed(folder: Path, policy: str = "server") -> ReplayResult:
    (result,) = binlogtool.replay([folder], policy=policy)
    return result


def number(name: str, row: list[Any], key: int = 1) -> int:
    return hash_row(name, encode_canonical(row[:key]), encode_canonical(row))


def digest(name: str, rows: tuple[bytes, ...], key: int = 1) -> str:
    """The digest of the rows that the server holds; the first `key` fields are the primary key."""
    decoded = [msgpack.unpackb(row, strict_map_key=False) for row in rows]
    return f"{sum(number(name, row, key) for row in decoded) % MODULUS:064x}"


def bare(reason: str) -> str:
    """Without the folder of a quoted path: "snapshot `0.snap' has no EOF marker"."""
    return re.sub(r"`[^`']*/", "`", reason)


def compare(ours: ReplayResult, theirs: Started, keys: dict[str, int]) -> None:
    """Started or not and why, vclock, and every row of the spaces (name -> fields in their primary key)."""
    assert ours.starts == theirs.started, (ours.stop, theirs.reason)
    if not theirs.started:
        assert ours.stop is not None
        assert bare(theirs.reason).endswith(bare(ours.stop.why)), theirs.reason
        return
    assert ours.position["vclock"] == {str(replica): lsn for replica, lsn in theirs.vclock.items() if lsn}
    states = {one.name: one for one in ours.objects if one.keys}
    for name, fields in keys.items():
        rows = theirs.rows.get(name, ())
        mine = states.get(name)
        assert (mine.keys if mine else 0) == len(rows), name
        assert (mine.digest if mine else f"{0:064x}") == digest(name, rows, fields), name


# -- intact sets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("chain", {"a": 1, "b": 1}),
        ("killed", {"a": 1, "b": 1}),
        ("repl/a", {"shared": 2, "mine": 1, "go": 1, "sync": 1}),
        ("repl/b", {"shared": 2, "mine": 1, "go": 1, "sync": 1}),
        ("single", {"big": 1, "autoinc": 1, "sync": 1, "nop": 1, "loc": 1, "renamed": 1, "multi": 2}),
    ],
)
def test_the_state_of_a_whole_set_is_that_of_the_server(
    corpus: Path, tmp_path: Path, name: str, keys: dict[str, int]
) -> None:
    folder = copied(corpus, name, tmp_path / "data")
    if name == "single":
        keys = {space: fields for space, fields in keys.items() if space != "big"}  # text that is not UTF-8
    compare(replayed(folder), start(folder), keys)


# -- the queue of synchronous transactions -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cut", "reasons"),
    [((1471, None), {"unconfirmed": 1}), ((1471, 1514), {"unconfirmed": 2}), ((1371, 1414), {"confirmed": 5})],
    ids=["the log ends in front of a CONFIRM", "a CONFIRM is missing", "a later CONFIRM confirms the earlier one too"],
)
def test_synchronous_rows_without_their_confirm_are_there(
    corpus: Path, tmp_path: Path, cut: tuple[int, int | None], reasons: dict[str, int]
) -> None:
    folder = copied(corpus, "repl/a", tmp_path / "data")
    log = folder / f"{512:020d}.xlog"
    data = log.read_bytes()
    log.write_bytes(data[: cut[0]] + (data[cut[1] :] if cut[1] else b""))
    (folder / f"{538:020d}.xlog").unlink()
    ours = replayed(folder)
    compare(ours, start(folder), {"shared": 2, "mine": 1, "go": 1, "sync": 1})
    assert reasons.items() <= ours.reasons.items()


# -- what no record of the corpus tells --------------------------------------------------------------------------------


def no_snapshot(folder: Path) -> None:
    (folder / f"{0:020d}.snap").unlink()


def broken_snapshot(folder: Path) -> None:
    snapshot = folder / f"{0:020d}.snap"
    snapshot.write_bytes(snapshot.read_bytes().replace(b"SNAP", b"SNAQ", 1))


def no_colon(folder: Path) -> None:
    log = folder / f"{227:020d}.xlog"
    log.write_bytes(log.read_bytes().replace(b"0.13\n", b"0.13\nnonsense\n", 1))


def other_key_for_the_instance(folder: Path) -> None:
    log = folder / f"{334:020d}.xlog"
    log.write_bytes(log.read_bytes().replace(b"Instance: ", b"Instanze: ", 1))


def damaged_zstd_with_a_right_crc(folder: Path) -> None:
    log = folder / f"{227:020d}.xlog"
    data = log.read_bytes()
    payload = bytearray(data[3618 + 19 : 3702])
    payload[20:24] = b"\xff\xff\xff\xff"
    log.write_bytes(data[:3618] + ZSTD_MAGIC + block(bytes(payload))[4:] + data[3702:])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "damage", [no_snapshot, broken_snapshot, no_colon, other_key_for_the_instance, damaged_zstd_with_a_right_crc]
)
def test_more_faults_have_the_result_of_the_server(
    corpus: Path, tmp_path: Path, damage: Callable[[Path], None], policy: str
) -> None:
    folder = copied(corpus, "chain", tmp_path / "data")
    damage(folder)
    compare(replayed(folder, policy), start(folder, force_recovery=POLICIES[policy]), {"a": 1, "b": 1})


# -- heads with one flipped bit: read as they were, refused all the same -----------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("byte", "bit"), take_sample([(1, 0), (4, 1), (6, 3), (9, 0), (8, 0), (79, 2), (123, 1), (124, 4)], 2)
)
@pytest.mark.parametrize("kind", ["xlog", "snap"])
def test_a_flipped_bit_in_a_header_has_the_result_of_the_server(
    corpus: Path, tmp_path: Path, kind: str, byte: int, bit: int, policy: str
) -> None:
    folder = copied(corpus, "chain", tmp_path / "data")
    log = folder / (f"{227:020d}.xlog" if kind == "xlog" else f"{0:020d}.snap")
    data = bytearray(log.read_bytes())
    if kind == "snap":
        byte = byte if byte < 80 else 97 - (125 - byte)  # counted from the end of the header
    data[byte] ^= 1 << bit
    log.write_bytes(data)
    compare(replayed(folder, policy), start(folder, force_recovery=POLICIES[policy]), {"a": 1, "b": 1})


def test_a_copy_with_the_bit_of_the_header_put_right_starts(corpus: Path, tmp_path: Path) -> None:
    folder = copied(corpus, "chain", tmp_path / "data")
    whole = start(folder)
    log = folder / f"{227:020d}.xlog"
    data = bytearray(log.read_bytes())
    data[2] ^= 4
    log.write_bytes(data)
    assert not start(folder).started
    done = invoke(
        "-f", "tarantool", "truncate-to-durable", "--keep-after-damage", "--to-file", str(tmp_path / "new"), str(log)
    )
    assert done.code == 0, done.text + done.err
    log.write_bytes((tmp_path / "new").read_bytes())
    again = start(folder)
    assert again.started and again.rows == whole.rows and again.vclock == whole.vclock


# -- chance ------------------------------------------------------------------------------------------------------------


def spoil(rng: random.Random, folder: Path) -> str:
    """One fault at random in one of the logs."""
    path = rng.choice([p for p in sorted(folder.glob("*.xlog")) if p.stat().st_size > 1000])
    data = bytearray(path.read_bytes())
    at, size = rng.randrange(140, len(data)), rng.choice([1, 4, 19, 64, 500])
    kind = rng.choice(["flip", "flip", "magic", "cut", "zeros", "remove", "repeat", "insert", "noise", "header"])
    if kind == "flip":
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "magic":
        at = data.find(b"\xd5\xba\x0b", at - 100)
        data[at + rng.randrange(4, 19)] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del data[at:]
    elif kind == "zeros":
        data[at : at + size] = bytes(len(data[at : at + size]))
    elif kind == "remove":
        del data[at : at + size]
    elif kind == "repeat":
        data[at:at] = data[at : at + size]
    elif kind == "insert":
        data[at:at] = b"\xd5\xba\x0b\xab" + rng.choice([b"\xce\x00\x01\x00\x00", b"\x20", b""]) + rng.randbytes(size)
    elif kind == "noise":
        data[at : at + size] = rng.randbytes(len(data[at : at + size]))
    else:
        data[rng.randrange(0, 130)] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return f"{kind} at {at} of {path.name}"


@pytest.mark.parametrize("seed", take_sample(range(int(os.environ.get("BINLOGTOOL_SPOILED", "25"))), 3))
def test_spoiled_logs_have_the_result_of_the_server(corpus: Path, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    folder = copied(corpus, "chain", tmp_path / "data")
    print([spoil(rng, folder) for _ in range(rng.choice([1, 1, 2]))])
    for policy, force in POLICIES.items():
        compare(replayed(folder, policy), start(folder, force_recovery=force), {"a": 1, "b": 1})


# -- update operations -------------------------------------------------------------------------------------------------

UPDATES = """
local s = box.schema.space.create('u', {format = {{'id', 'unsigned'}, {'n', 'any'}, {'t', 'string'}, {'arr', 'array'},
    {'m', 'map'}}})
s:create_index('pk')
local r = math.random
math.randomseed(%d)
for i = 1, 30 do s:insert{i, i, 'text ' .. i, {1, 2, {3, 4}}, {a = 1, b = {c = 'deep'}}} end
local function value() return ({r(100), -r(100), r(100) / 8, 'str' .. r(9), {r(9), {r(9)}}})[r(5)] end
local fields = {2, 3, 4, 5, 6, 7, -1, -2, 'n', 't', 'm.a', 'm.b.c', 'm.new', 'arr[1]', 'arr[3][2]', '[4][2]', 'arr[4]'}
local function operation()
    local name, field = ({'=', '+', '-', '!', '#', '&', '|', '^', ':'})[r(9)], fields[r(#fields)]
    if tostring(field):sub(1, 2) == 'm.' then name = '=' end -- 2.6.0 dies of others
    if (name == '!' or name == '#') and #tostring(field) < 3 then field = r(6, 7) end
    if name == '#' then return {name, field, r(2)} end
    if name == ':' then return {name, field, r(-5, 5), r(-3, 3), 'spliced'} end
    if name == '&' or name == '|' or name == '^' then return {name, field, r(0, 255)} end
    if name == '+' or name == '-' then return {name, field, ({r(50), -r(50), r(50) / 4})[r(3)]} end
    return {name, field, value()}
end
local done = 0
for i = 1, 1500 do
    local operations = {}
    operations[1] = operation()
    if type(operations[1][2]) == 'number' then
        local more = operation()
        if type(more[2]) == 'number' then operations[2] = more end
    end
    local key = r(33)
    if r(4) == 1 then
        if pcall(s.upsert, s, {key, key, 'made', {1}, {a = 0}}, operations) then done = done + 1 end
    elseif pcall(s.update, s, key, operations) then done = done + 1 end
    if r(60) == 1 then s:delete{key} end
    if r(300) == 1 then
        s:truncate()
        for k = 1, 20 do s:insert{k, k, 'again', {1, 2, {3, 4}}, {a = 1, b = {c = ''}}} end
    end
end
assert(done > 300, done)
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_updates_at_random_leave_the_rows_of_the_server(corpus: Path, tmp_path: Path, seed: int) -> None:
    folder = copied(corpus, "chain", tmp_path / "data")
    theirs = start(folder, write=UPDATES % seed, in_place=True)
    assert theirs.started, theirs.reason
    compare(replayed(folder), theirs, {"a": 1, "b": 1, "u": 1})


# -- names -------------------------------------------------------------------------------------------------------------

RENAMES = """
box.cfg{work_dir=arg[1], log_level=1}
local function made(name, rows, id)
    local space = box.schema.space.create(name, {id=id})
    space:create_index('primary')
    for _, row in ipairs(rows) do space:insert(row) end
    return space
end
local one, two = made('one', {{1, 'a'}, {2, 'b'}}), made('two', {{7, 'x'}})
local gone = made('gone', {{1, 'never'}, {2, 'seen'}, {3, 'again'}}, 777)
box.snapshot()
one:rename('moved') one:replace({2, 'B'}) one:insert({3, 'c'})
made('one', {{9, 'another'}})
two:rename('aside') one:rename('two') two:rename('moved')
two:update(7, {{'=', 2, 'y'}})
gone:drop()
made('reused', {{4, 'mine'}}, 777)
local emptied = made('gone', {{5, 'e'}}) emptied:truncate() emptied:insert({6, 'f'})
os.exit(0)
"""


@pytest.mark.parametrize("snapshots", [1, 2])
def test_rows_go_along_with_the_names_of_their_spaces(tmp_path: Path, snapshots: int) -> None:
    folder, script = tmp_path / "data", tmp_path / "write.lua"
    folder.mkdir()
    script.write_text(RENAMES)
    subprocess.run([str(program()), str(script), str(folder)], check=True, timeout=60, capture_output=True)
    if snapshots == 1:
        max(folder.glob("*.snap")).unlink()
    ours, theirs = replayed(folder), start(folder)
    spaces = dict.fromkeys(("one", "two", "moved", "reused", "gone"), 1)
    compare(ours, theirs, spaces)
    assert {name: len(theirs.rows[name]) for name in spaces} == {"one": 1, "two": 3, "moved": 1, "reused": 1, "gone": 1}
    assert not {one.name for one in ours.objects if one.keys and one.name[:1] != "_"} - set(spaces)


@pytest.mark.parametrize("zstd", [False, True])
@pytest.mark.parametrize("bad", ["key", "type", "header"])
def test_rows_around_one_that_cannot_be_decoded_are_those_that_the_server_keeps(
    corpus: Path, tmp_path: Path, bad: str, zstd: bool
) -> None:
    folder = copied(corpus, "chain", tmp_path / "data")
    last = sorted(folder.glob("*.xlog"))[-1]
    with binlogtool.open(last) as log:
        lsn = max((record.seq or 0 for record in log.records()), default=0)
    lsn = max(lsn, int(last.stem))
    header = {0: 3, 2: 1, 4: 1.0}
    spoiled = {"key": row(header | {3: lsn + 2}, {"x": 1}), "type": row(header | {3: lsn + 2}, {0x10: 512, 0x21: 5}),
               "header": row({"x": 1}, {})}  # fmt: skip
    good = [dml(lsn + i, tuple=[9000 + i, "x"], time=1.0) for i in (1, 3)]
    last.write_bytes(last.read_bytes().removesuffix(END) + block(good[0] + spoiled[bad] + good[1], zstd=zstd) + END)
    theirs = start(folder, force_recovery=True)
    assert theirs.started
    compare(replayed(folder, "force"), theirs, {"a": 1, "b": 1})
    assert "rows_not_counted" not in replayed(folder, "force").details
