"""Rows of journal files: scan kernels, names, JSON lines, hexdump parts."""
