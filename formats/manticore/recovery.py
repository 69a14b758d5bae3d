"""Is one log file whole? Table ids, TIDs, payloads and the closing ADD_CACHE, in file order (sections 6 and 12.1)."""

from __future__ import annotations
