"""Damage: diagnosis, and flipped bits in headers."""
