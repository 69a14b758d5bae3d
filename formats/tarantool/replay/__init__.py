"""Replay prediction: the behaviour of a server that starts on a data directory."""
