"""Goal R5: a single flipped bit is noticed, or lies where the reviewed coverage map says that nothing can notice it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.harness.flips import LIMIT, MAPS, WHY, part_of_the_bits, try_flips
from tests.harness.samples import FORMATS, FULL, pieces
from tests.sampling import EXHAUSTIVE

pytestmark = pytest.mark.full

BITS_PER_FILE = (
    {"tarantool": 60, "drizzle": 60, "mysql-binlog": 30, "mariadb-innodb-binlog": 50}
    if EXHAUSTIVE
    else {"tarantool": 5, "drizzle": 14, "mysql-binlog": 3, "mariadb-innodb-binlog": 8}
)


@pytest.mark.parametrize("format", FORMATS)
def test_every_flipped_bit_is_noticed_outside_the_parts_that_the_map_names(corpus: Path, format: str) -> None:
    uncovered = json.loads((MAPS / f"{format}.json").read_text())["uncovered"]
    tried: Counter[str] = Counter()
    hidden: Counter[str] = Counter()
    graded: Counter[str] = Counter()
    outside = []
    files = 0
    for sample in pieces(corpus, format, LIMIT):
        files += 1
        bits = range(8 * len(sample.data)) if FULL else part_of_the_bits(sample, BITS_PER_FILE[format])
        one = try_flips(sample, bits)
        tried, hidden, graded = tried + one.tried, hidden + one.hidden, graded + one.graded
        outside += [(sample.name, *place) for place in one.places if place[0] not in uncovered]
    amount = (
        "every bit" if FULL else f"part: {BITS_PER_FILE[format]} bits of each file; BINLOGTOOL_FULL=1 flips every bit"
    )
    print(f"\nR5 {format}: {files} files, {sum(tried.values()):,} flips ({amount})")
    print(f"  noticed as {dict(graded)}; hidden {sum(hidden.values()):,}, of them {len(outside)} outside the map")
    for part, count in sorted(hidden.items()):
        print(
            f"  hidden in {part}: {count:,} of {tried[part]:,}: {uncovered.get(part, {}).get('why', 'NOT IN THE MAP')}"
        )
    assert not outside, outside[:10]
    assert not graded["exception"]
    assert sum(graded.values())


@pytest.mark.parametrize("format", FORMATS)
def test_the_map_is_the_reviewed_one_and_small(format: str) -> None:
    """The generated file may name only parts that a person has explained."""
    generated = json.loads((MAPS / f"{format}.json").read_text())
    assert {part: entry["why"] for part, entry in generated["uncovered"].items()}.items() <= WHY[format].items()
    assert generated["flips"] > 20_000
    assert "exception" not in generated["detected_as"]
    assert generated["hidden"] == sum(entry["hidden"] for entry in generated["uncovered"].values())
