"""File kinds of a log, and their names."""
