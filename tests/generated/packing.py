"""The part of the corpus that the project made itself, one archive for each format.

    python -m tests.generated.packing ../shared/corpus

makes them anew. A member `NAME.gz` of the corpus is packed as its contents, which are shorter together, and is a `.gz`
again when it is unpacked. What servers printed of the logs of other projects stays out, as those do.
"""

from __future__ import annotations

import fcntl
import gzip
import io
import lzma
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 64 << 20}]
OF_OTHERS = "oracle-third-party"


def members(home: Path) -> Iterator[Path]:
    """Files of one format, alike ones beside each other."""
    found = [path for path in home.rglob("*") if path.is_file() and OF_OTHERS not in path.parts]
    return iter(sorted(found, key=lambda path: (path.suffix, path.name, path)))


def pack(corpus: Path, home: Path, archive: Path) -> None:
    """One archive of the folder `generated` of a format; the same bytes for the same files."""
    with (
        lzma.open(archive, "wb", filters=FILTERS) as out,
        tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for path in members(home):
            data = path.read_bytes()
            data = gzip.decompress(data) if path.suffix == ".gz" else data
            one = tarfile.TarInfo(str(path.relative_to(corpus)))
            one.size = len(data)
            tar.addfile(one, io.BytesIO(data))


def unpack(packed: Path, target: Path) -> None:
    """Files as they were in the corpus."""
    with tarfile.open(packed) as archive:
        for one in archive:
            content = archive.extractfile(one)
            assert content is not None
            path = target / one.name
            path.parent.mkdir(parents=True, exist_ok=True)
            data = content.read()
            path.write_bytes(gzip.compress(data, 1, mtime=0) if path.suffix == ".gz" else data)


def unpacked(target: Path) -> Path:
    """The whole of it, made by whichever of several processes comes first."""
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            growing = target.with_suffix(".growing")
            for packed in sorted(HERE.glob("*.tar.xz")):
                unpack(packed, growing)
            growing.rename(target)
    return target


if __name__ == "__main__":
    for generated in sorted(Path(sys.argv[1]).glob("*/generated")):
        pack(Path(sys.argv[1]), generated, HERE / f"{generated.parent.name}.tar.xz")
