"""Replay prediction: startup, crash recovery, apply."""
