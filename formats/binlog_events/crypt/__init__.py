"""Encrypted logs: keys, headers, events."""
