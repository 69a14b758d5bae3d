"""Row changes and typed tables."""
