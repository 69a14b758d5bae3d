"""Every damaged log of the corpora, as the files of its directory."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

LEAST = {"tarantool": 70, "drizzle": 25, "manticore": 54, "sphinx": 30, "eblob": 20, "mysql-binlog": 50,
         "mariadb-innodb-binlog": 20}  # fmt: skip
"""Damaged cases of each corpus."""


def content(folder: Path) -> dict[str, bytes]:
    """All files below."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def cases(corpus: Path, format: str) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Each damaged log: name, files of its directory."""
    root = corpus / format / "generated"
    if format == "tarantool":
        yield from _changed(root)
        return
    for folder in sorted(path for path in root.rglob("damaged") if path.is_dir()):
        below = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix not in (".json", ".md")]
        for parent in sorted({path.parent for path in below}):
            own = [path for path in below if path.parent == parent]
            name = str(parent.relative_to(root))
            single = format in ("drizzle", "eblob") or (format == "mysql-binlog" and not parent.name.startswith("set"))
            if single:
                yield from ((f"{name}/{path.name}", {path.name: path.read_bytes()}) for path in own)
            else:
                yield name, dict(map(_unpacked, own))


def _unpacked(path: Path) -> tuple[str, bytes]:
    data = path.read_bytes()
    return (path.stem, gzip.decompress(data)) if path.suffix == ".gz" else (path.name, data)


def _changed(root: Path) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Cases that say what differs from an intact directory."""
    for kind in ("damaged", "damaged_vinyl"):
        for one in json.loads((root / kind / "manifest.json").read_text())["cases"]:
            files = content(root / one["base"])
            for change in one["changes"]:
                name = change["name"]
                if change["op"] == "delete":
                    del files[name]
                else:
                    files[name] = (root / kind / one["case"] / name).read_bytes()
            yield f"{kind}/{one['case']}", files


def written(files: Mapping[str, bytes], folder: Path) -> Path:
    """The files in a directory of their own."""
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder
