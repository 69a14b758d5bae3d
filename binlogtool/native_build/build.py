"""Build the native library `binlogtool/schema/_native.so`: `python -m binlogtool.native_build.build [OPTIONS] [FILE]`.

    --c FILE         write the C text, and compile it only if a library is named
    --from FILE      compile this C text
    --target NAME    compile for another machine (a target of ziglang)

Building a wheel or an editable installation does this automatically. A C compiler is needed: the one in `CC`, `cc`, or
the package `ziglang`. The file is replaced in one step, so running programs keep the old one.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

FILE_NAME = "_native.so"
FLAGS = ("-O2", "-fwrapv", "-fno-strict-aliasing", "-fPIC", "-shared", "-fvisibility=hidden", "-w", "-s")


class NoCompilerError(Exception):
    """Raised when there is no C compiler, or when it failed."""


def main(arguments: Sequence[str]) -> int:
    """Run the command line of this module."""
    parser = argparse.ArgumentParser(prog="python -m binlogtool.native_build.build")
    parser.add_argument("--c", type=Path)
    parser.add_argument("--from", type=Path, dest="given")
    parser.add_argument("--target")
    parser.add_argument("file", type=Path, nargs="?")
    options = parser.parse_args(arguments)
    text = _generate_source() if options.given is None else options.given.read_text(encoding="utf-8")
    if options.c is not None:
        options.c.write_text(text, encoding="utf-8")
        if options.file is None:
            return 0
    file = options.file or Path(__file__).parent.parent / "schema" / FILE_NAME
    try:
        compile_library(text, file, find_compiler(options.target))
    except NoCompilerError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{file}: {file.stat().st_size:,} bytes")
    return 0


def _generate_source() -> str:
    from binlogtool.native_build.collect_kernels import collect_library_source

    return collect_library_source().write_text()


# -- the compiler ------------------------------------------------------------------------------------------------------


def find_compiler(target: str | None = None) -> list[str]:
    """Return the command line of the C compiler.

    Args:
        target: the machine to compile for, as ziglang names it; None = this machine.

    Raises:
        NoCompilerError: there is no C compiler.
    """
    zig = [sys.executable, "-m", "ziglang", "cc"] if find_spec("ziglang") is not None else []
    if target is not None:
        if not zig:
            raise NoCompilerError("compiling for another machine needs the package ziglang")
        return [*zig, "-target", target]
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    if shutil.which("cc"):
        return ["cc"]
    if zig:
        return zig
    raise NoCompilerError("no C compiler: neither cc nor the package ziglang was found")


def compile_library(
    text: str, target: Path, command: Sequence[str] | None = None, zig_cache: Path | None = None
) -> None:
    """Compile C text to a shared library.

    Args:
        text: the C source.
        target: the library.
        command: the compiler; None = that of `find_compiler`.
        zig_cache: where ziglang keeps its own runtime library, which takes seconds to build, for the next call;
            None = it is kept nowhere.

    Raises:
        NoCompilerError: the compiler failed.
    """
    command = find_compiler() if command is None else command
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".native-") as folder:
        source, built = Path(folder, "native.c"), Path(folder, "native.so")
        source.write_text(text, encoding="utf-8")
        caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(zig_cache or folder))
        result = subprocess.run(
            [*command, *FLAGS, "-o", str(built), str(source)], capture_output=True, text=True, check=False,
            env={**os.environ, **caches},
        )  # fmt: skip
        if result.returncode:
            raise NoCompilerError(f"{shlex.join(command)}: {result.stderr.strip()[-2000:]}")
        built.replace(target)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))  # if run by its path, import the package that contains this file
    sys.exit(main(sys.argv[1:]))
