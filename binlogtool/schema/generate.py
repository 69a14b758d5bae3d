"""Generated modules: written once to a private cache directory, imported from there.

numba keeps compiled code only for functions that live in files. A file is named by the hash of its text and of all that
its meaning depends on, so it never changes. Code is imported and numba unpickles what lies beside it: the directory
must belong to this user and nobody else may write to it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import ModuleType

_NAME = "binlogtool"


def load(text: str, depends_on: str) -> ModuleType:
    """The module with this source text. depends_on: versions and texts that the compiled form depends on."""
    key = hashlib.sha256(f"{sys.version}\0{depends_on}\0{text}".encode()).hexdigest()[:32]
    name = f"_binlogtool_scan_{key}"
    if name in sys.modules:
        return sys.modules[name]
    path = cache_directory() / f"scan_{key}.py"
    _write(path, text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return module


def forget(module: ModuleType) -> None:
    """Removes what numba has kept of a module: it could not be read."""
    path = Path(module.__file__ or "")
    for kept in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        kept.unlink(missing_ok=True)
    sys.modules.pop(module.__name__, None)


@lru_cache
def cache_directory() -> Path:
    """The first usable private directory; a fresh temporary one (not kept for later runs) if there is none."""
    for candidate in _candidates():
        try:
            candidate.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if is_private(candidate) and os.access(candidate, os.W_OK | os.X_OK):
            return candidate
    return Path(tempfile.mkdtemp(prefix=f"{_NAME}-"))


def _candidates() -> Iterator[Path]:
    home = os.environ.get("XDG_CACHE_HOME")
    if home and Path(home).is_absolute():
        yield Path(home) / _NAME
    else:
        user = Path("~").expanduser()
        if user.is_absolute():
            yield user / ".cache" / _NAME
    yield Path(tempfile.gettempdir()) / f"{_NAME}-{os.geteuid()}"


def is_private(directory: Path) -> bool:
    """Is it a real directory of this user that nobody else can write to?"""
    state = directory.lstat()
    owned = state.st_uid == os.geteuid()
    return stat.S_ISDIR(state.st_mode) and owned and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _write(path: Path, text: str) -> None:
    """Makes the file, unless it is there with this very text (numba's kept code is bound to its time stamp)."""
    data = text.encode()
    try:
        if path.read_bytes() == data:
            return
    except OSError:
        pass
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
