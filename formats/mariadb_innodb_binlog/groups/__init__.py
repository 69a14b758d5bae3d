"""Event groups: what COMMIT records hold."""
