"""Detection, text header, and blocks of a file."""
