"""Replay prediction: what a starting server does with the files and rows of a data directory."""
