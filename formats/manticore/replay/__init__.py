"""Replay prediction: what a starting server does with the files and transactions of a log."""
