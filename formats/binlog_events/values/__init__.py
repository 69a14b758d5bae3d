"""Column types, and decoding of values in row images."""
