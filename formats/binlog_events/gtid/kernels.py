"""GTIDs as text, as kernels."""

from __future__ import annotations

from binlogtool.formats.bodies import put_uuid as put_uuid
