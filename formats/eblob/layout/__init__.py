"""Detection of the format and its dialect, and the file layout."""
