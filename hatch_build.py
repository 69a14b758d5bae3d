"""Builds native code into wheels (`binlogtool.native_build.build`), and its C text into the source distribution.

Without a C compiler `ziglang` is asked for, which brings one from the package index; where neither works the wheel is
pure Python, and everything runs as Python. `BINLOGTOOL_TARGET` names another machine than this one
(`.ci/build-wheels`): then ziglang compiles for it; `none` stands for a wheel of pure Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TARGETS = {
    "x86_64-linux-gnu.2.17": "manylinux_2_17_x86_64",
    "aarch64-linux-gnu.2.17": "manylinux_2_17_aarch64",
    "aarch64-macos.11.0": "macosx_11_0_arm64",
}
"""What ziglang calls a machine, and what a wheel's name says of it."""

TEXT = "binlogtool/schema/_native.c"
LIBRARY = "binlogtool/schema/_native.so"
NONE = "none"
ZIG = "ziglang>=0.13; platform_machine in 'x86_64 aarch64 arm64'"
"""Other machines have no such package, and are not held up for it."""


class NativeHook(BuildHookInterface):  # type: ignore[type-arg,misc]
    """One library for each wheel."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What the build needs beside hatchling: the package's own to write the C text, a compiler to read it."""
        own = [] if Path(self.root, TEXT).exists() else list(self.metadata.core.dependencies)
        compiles = self.target_name == "wheel"
        without = not (os.environ.get("CC") or shutil.which("cc")) or bool(self._target())
        return [] if self._target() == NONE else [*own, *([ZIG] if compiles and without else [])]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles, beside the sources for an editable installation."""
        self._folder = tempfile.TemporaryDirectory()
        made = Path(self._folder.name)
        if self._target() == NONE:
            return
        if self.target_name == "sdist":
            if not Path(self.root, TEXT).exists() and self._run("--c", str(made / "_native.c")):
                build_data["force_include"][str(made / "_native.c")] = TEXT
            return
        target = Path(self.root, LIBRARY) if version == "editable" else made / "_native.so"
        given = ["--from", str(Path(self.root, TEXT))] if Path(self.root, TEXT).exists() else []
        if not self._run(*given, *(["--target", self._target()] if self._target() else []), str(target)):
            if self._target():
                raise RuntimeError(f"no library for {self._target()}")
            return
        if version != "editable":
            build_data["force_include"][str(target)] = LIBRARY
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{self._platform()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Nothing of the work stays."""
        self._folder.cleanup()

    @staticmethod
    def _target() -> str:
        return os.environ.get("BINLOGTOOL_TARGET", "")

    def _platform(self) -> str:
        here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        return TARGETS[self._target()] if self._target() else here

    def _run(self, *arguments: str) -> bool:
        """Runs the build; False, and its words as a warning, where it could not be done."""
        program = str(Path(self.root, "binlogtool/native_build/build.py"))
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, program, *arguments], capture_output=True, text=True, check=False, env=environment
        )
        if done.returncode:
            self.app.display_warning(f"no native code: {done.stderr.strip()[-2000:]}")
        return done.returncode == 0
