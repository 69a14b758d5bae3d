"""Check that optional dependencies are installed."""

from __future__ import annotations

import importlib.util

from binlogtool import memory
from binlogtool.errors import MissingExtraError


def require_extra(purpose: str, *modules: str, extra: str = "spark") -> None:
    """Check that modules are installed, without importing them, and lift this process's memory limit.

    The limit is lifted because these modules, and Java, which is started after this, have memory limits of their own.

    Args:
        purpose: the work that needs the modules, for the message.
        modules: names of the modules.
        extra: the optional dependency group that contains them.

    Raises:
        MissingExtraError: a module is missing; the message names the command that installs it.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        raise MissingExtraError(f"{purpose} needs {names}: install it with `pip install 'binlogtool[{extra}]'`")
    memory.lift_ceiling()
