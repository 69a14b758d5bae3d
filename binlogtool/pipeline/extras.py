"""Optional parts of the installation: is what a piece of work needs there?"""

from __future__ import annotations

import importlib.util

from binlogtool import memory
from binlogtool.errors import MissingExtraError


def require(what: str, *modules: str, extra: str = "spark") -> None:
    """Looks for modules without importing them; they have ceilings of memory of their own, and Java starts from here
    on: the one of this process is taken back. what: the work that needs them. extra: has them all.

    Raises:
        MissingExtraError: one is missing; the message names the command that installs it.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        raise MissingExtraError(f"{what} needs {names}: install it with `pip install 'binlogtool[{extra}]'`")
    memory.lift()
