"""Spaces: definitions, field types, catalog, and the state of the vinyl metadata log."""
