"""Replay prediction: the behaviour of an applier that reads the log."""
