"""Writers for what Spark cannot write by itself."""
