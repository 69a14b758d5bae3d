"""`blake2b` of the standard library, from where it is written: `hashlib` loads all of OpenSSL for it."""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:  # an interpreter that has it elsewhere
    from hashlib import blake2b

__all__ = ["blake2b"]
