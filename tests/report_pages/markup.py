"""What must never become markup, and a log to be shown."""

from __future__ import annotations

from tests.cli.invoke import ROOT

XLOG = ROOT / "tests/corpus/tarantool/damaged/flip_plain_block/00000000000000000227.xlog"
MARKUP = "</script><script>window.hurt=1</script><img src=x onerror=hurt><!--\"'&amp;"
