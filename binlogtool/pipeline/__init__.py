"""Export: logs in; rows, JSON lines, scripts or logs out, with a manifest; in this process or on Spark."""
