"""`blake2b` from its own extension module: `hashlib` would load all of OpenSSL for it."""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:  # interpreters without that module
    from hashlib import blake2b

__all__ = ["blake2b"]
