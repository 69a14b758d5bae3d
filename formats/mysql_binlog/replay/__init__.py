"""Replay prediction: server startup, crash recovery, and applying the log."""
