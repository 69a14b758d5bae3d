"""The kinds of files of a log, and their names."""
