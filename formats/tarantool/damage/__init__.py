"""Damage: diagnosis, flipped bits in headers, and repair of blocks."""
