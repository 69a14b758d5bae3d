"""Records from pages."""
