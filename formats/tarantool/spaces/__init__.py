"""The spaces that rows belong to."""
