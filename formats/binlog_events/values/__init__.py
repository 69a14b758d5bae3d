"""Column values of row images."""
