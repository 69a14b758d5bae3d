"""Directories of real logs, and what is said about them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import binlogtool
from binlogtool.findings import Finding, Severity
from binlogtool.verification.verify_report import Report

NAMES = {"mysql": [f"rot-bin.{n:06d}" for n in range(3, 8)], "mariadb": [f"rot-bin.{n:06d}" for n in range(3, 9)]}
SERVERS = ("mysql", "mariadb")
IN_USE_AT = 4 + 17
"""Where the low byte of the flags of FORMAT_DESCRIPTION stands."""


class Said(NamedTuple):
    """One finding and the name of the file that it is about; "" = the set."""

    file: str
    finding: Finding

    @property
    def id(self) -> str:
        """The finding's id."""
        return self.finding.id

    @property
    def level(self) -> str:
        """The severity's name."""
        return self.finding.severity.name

    @property
    def text(self) -> str:
        """The message."""
        return self.finding.message


class Directory(NamedTuple):
    """A directory that tests change."""

    path: Path

    def put(self, name: str, data: bytes | str) -> Path:
        """Writes a file."""
        target = self.path / name
        target.write_bytes(data.encode() if isinstance(data, str) else data)
        return target

    def data(self, name: str) -> bytes:
        """Reads a file."""
        return (self.path / name).read_bytes()

    def remove(self, *names: str) -> None:
        """Removes files."""
        for name in names:
            (self.path / name).unlink()

    def exchange(self, one: str, other: str) -> None:
        """Gives two files each other's name."""
        first, second = self.data(one), self.data(other)
        self.put(one, second)
        self.put(other, first)

    def index(self, *lines: str, end: str = "\n", name: str = "rot-bin.index") -> None:
        """Writes the index."""
        self.put(name, "".join(line + end for line in lines))

    def set_in_use(self, name: str) -> None:
        """Sets the in-use flag (the checksum leaves it out)."""
        data = bytearray(self.data(name))
        data[IN_USE_AT] |= 1
        self.put(name, bytes(data))

    def said(self) -> list[Said]:
        """All findings of `verify`, without notes about single files."""
        return said(binlogtool.verify([self.path]))

    def problems(self) -> list[Said]:
        """Warnings and errors."""
        return [one for one in self.said() if one.finding.severity > Severity.NOTE]


def said(report: Report) -> list[Said]:
    """The findings of a report with the names of their files."""
    assert not report.failures, report.failures
    of_files = [Said(Path(file.path).name, found) for file in report.files for found in file.findings]
    return of_files + [Said("", found) for one in report.sets for found in one.findings]


def copy(samples: Path, server: str, target: Path) -> Directory:
    """A fresh copy of a real set."""
    shutil.copytree(samples / "mysql_binlog" / "sets" / server, target, dirs_exist_ok=True)
    (target / "README.md").unlink(missing_ok=True)
    return Directory(target)
