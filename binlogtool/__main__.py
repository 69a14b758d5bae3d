"""Entry point of `python -m binlogtool`, which is the command `binlogtool`."""

from __future__ import annotations

import sys

from binlogtool.cli import main

if __name__ == "__main__":
    sys.exit(main())
