"""Convert records to files: rows, typed tables, change messages, scripts; manifest and append."""
