"""Spaces, indexes and the vinyl metadata log."""
