"""Row changes for change messages, and rows as typed tables."""
