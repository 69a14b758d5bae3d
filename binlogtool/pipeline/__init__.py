"""Data out: rows and JSON lines with a manifest, on Spark or in the process."""
