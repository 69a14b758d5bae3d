"""Replay prediction: the behaviour of a starting server."""
