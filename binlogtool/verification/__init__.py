"""Verify files and log sets: what was read, what is wrong, what was left out."""
