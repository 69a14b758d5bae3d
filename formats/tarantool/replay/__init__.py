"""What a starting server does with a data directory."""
