"""The digest of a replayed state, against a plain dictionary that holds everything."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from binlogtool.errors import LimitError
from binlogtool.format_api.replay_rules import ADD, DELETE, DROP, PATCH, PUT, REMOVE, RENAME, StateChange
from binlogtool.prediction.row_store import ReplayState


def appended(image: bytes, operation: bytes) -> bytes | None:
    """A patch that makes a row of nothing, too, unless the operation starts with `-`."""
    return None if not image and operation[:1] == b"-" else image + operation


def some_changes(seed: int, count: int, patches: bool) -> list[StateChange]:
    source = random.Random(seed)
    kinds = [PUT] * 6 + [DELETE] * 2 + [PATCH] * (4 if patches else 0)
    changes = [StateChange(name, DROP, b"", b"") for name in "ab"]
    for _ in range(count):
        if source.random() < 0.002:
            changes.append(StateChange(source.choice("ab"), DROP, b"", b""))
            continue
        key = b"%d" % source.randrange(60)
        operation = source.choice([b"-", b"+"]) + b"%d" % source.randrange(9)
        changes.append(StateChange(source.choice("ab"), source.choice(kinds), key, operation))
    return changes


def model(changes: list[StateChange]) -> dict[str, dict[bytes, bytes]]:
    rows: dict[str, dict[bytes, bytes]] = {"a": {}, "b": {}}
    for name, kind, key, image in changes:
        if kind == DROP:
            rows[name].clear()
        elif kind == PUT:
            rows[name][key] = image
        elif kind == DELETE:
            rows[name].pop(key, None)
        else:
            changed = appended(rows[name].get(key, b""), image)
            if changed is not None:
                rows[name][key] = changed
    return rows


def digests(changes: list[StateChange], max_memory: int = 1 << 30, patches: bool = True) -> dict[str, tuple[int, str]]:
    state = ReplayState(max_memory, appended if patches else None)
    try:
        for change in changes:
            state.apply_changes([change])
        return {name: (one.keys, one.digest) for name, one in state.sum_object_states().items()}
    finally:
        state.close()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("memory", [1 << 30, 30_000, 9_000])
def test_the_state_is_that_of_a_dictionary(seed: int, memory: int) -> None:
    changes = some_changes(seed, 4000, patches=True)
    expected = model(changes)
    puts = [StateChange(name, PUT, key, image) for name, rows in expected.items() for key, image in rows.items()]
    plain = {name: one for name, one in digests(puts).items() if one[0]}
    assert {name: one for name, one in digests(changes, memory).items() if one[0]} == plain
    assert {name: len(rows) for name, rows in expected.items() if rows} == {name: one[0] for name, one in plain.items()}


def renaming(seed: int, count: int) -> tuple[list[StateChange], dict[str, dict[bytes, bytes]]]:
    """Changes of keyed and of whole rows among renames to free names, and what is there at the end by a dictionary."""
    source, names = random.Random(seed), "abcd"
    rows: dict[str, dict[bytes, bytes]] = {name: {} for name in names}
    changes = [StateChange(name, DROP, b"", b"") for name in names]
    for _ in range(count):
        name, other, key, image = *source.sample(names, 2), b"%d" % source.randrange(30), b"%d" % source.randrange(9)
        if source.random() < 0.02:
            changes.append(StateChange(name, RENAME, b"", other.encode()))
            rows[other], rows[name] = rows[name], {}
        elif source.random() < 0.02:
            changes.append(StateChange(name, DROP, b"", b""))
            rows[name] = {}
        elif source.random() < 0.2 and key in rows[name]:
            changes.append(StateChange(name, DELETE, key, b""))
            del rows[name][key]
        else:
            known = key in rows[name] and source.random() < 0.5
            changes.append(StateChange(name, PATCH if known else PUT, key, b"+" + image))
            rows[name][key] = (rows[name][key] if known else b"") + b"+" + image
    return changes, rows


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("memory", [1 << 30, 6_000])
def test_rows_go_along_with_the_name_of_their_object(seed: int, memory: int) -> None:
    changes, rows = renaming(seed, 3000)
    puts = [StateChange(name, PUT, key, image) for name, own in rows.items() for key, image in own.items()]
    wanted = digests(puts)
    assert {name: one for name, one in digests(changes, memory).items() if one[0]} == wanted and len(wanted) > 1


def test_rows_without_a_key_are_renamed_too_and_names_can_be_swapped() -> None:
    rows = [StateChange("a", ADD, b"", b"x"), StateChange("a", ADD, b"", b"x"), StateChange("b", ADD, b"", b"y")]
    swap = [StateChange(one, RENAME, b"", other) for one, other in (("a", b"c"), ("b", b"a"), ("c", b"b"))]
    there = [one._replace(object={"a": "b", "b": "a"}[one.object]) for one in rows]
    found = {name: one for name, one in digests([*rows, *swap]).items() if one[0]}
    assert found == digests(there) != digests(rows)
    assert digests([*rows, StateChange("a", RENAME, b"", b"a")]) == digests(rows)
    both = digests([StateChange("a", ADD, b"", b"y"), StateChange("b", ADD, b"", b"y")])
    assert both["a"][1] != both["b"][1]


def test_every_change_of_a_row_changes_the_digest() -> None:
    one = digests([StateChange("a", PUT, b"k", b"image"), StateChange("a", PUT, b"l", b"other")])
    seen = {
        digests([StateChange("a", PUT, key, image), StateChange("a", PUT, b"l", b"other")])["a"][1]
        for key, image in ((b"k", b"imagf"), (b"j", b"image"), (b"ki", b"mage"), (b"", b"kimage"))
    }
    assert len(seen) == 4 and one["a"][1] not in seen


def test_the_order_of_keys_does_not_matter_but_that_of_writes_does() -> None:
    first, second, third = (
        StateChange("a", PUT, key, image) for key, image in ((b"k", b"1"), (b"l", b"2"), (b"k", b"3"))
    )
    assert digests([first, second]) == digests([second, first])
    assert digests([first, third]) != digests([third, first])


def test_rows_without_a_key_are_a_multiset() -> None:
    source = random.Random(4)
    rows = Counter(source.choice([b"x", b"y", b"z"]) for _ in range(50))
    changes = [StateChange("a", ADD, b"", image) for image in rows.elements()]
    taken = [StateChange("a", ADD, b"", b"w"), *changes, StateChange("a", REMOVE, b"", b"w")]
    source.shuffle(changes)
    assert digests(taken) == digests(changes) and digests(changes)["a"][0] == 50
    assert digests(changes[:-1]) != digests(changes)


def test_changes_of_rows_that_were_never_seen_whole_count_in_their_order() -> None:
    one, two = StateChange("a", PATCH, b"k", b"+1"), StateChange("a", PATCH, b"k", b"+2")
    assert digests([one, two]) != digests([two, one])
    filler = [StateChange("b", PUT, b"%d" % i, b"") for i in range(40)]
    assert digests([one, *filler, two])["a"] == digests([one, *filler, two], max_memory=4_000)["a"]
    assert digests([one, two])["a"][0] == 1


def test_too_many_keys_for_the_memory_end_with_one_clear_line() -> None:
    changes = [StateChange("a", PUT, b"%d" % i, b"") for i in range(3000)]
    with pytest.raises(LimitError, match="too many keys"):
        digests(changes, max_memory=2_000)


def test_objects_beyond_the_limit_are_summed_up_and_the_sum_stays_the_same() -> None:
    changes = [StateChange(f"o{i}", PUT, b"k", b"%d" % i) for i in range(30)]
    state = ReplayState(1 << 20)
    state.apply_changes(changes)
    few, all_ = state.sum_object_states(7), state.sum_object_states()
    assert len(few) == 8 and few["(other objects)"].keys == 23
    assert sum(one.total for one in few.values()) % (1 << 256) == sum(one.total for one in all_.values()) % (1 << 256)
