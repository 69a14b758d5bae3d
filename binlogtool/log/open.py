"""A log opened for reading: one file, or the files of a set in order."""
