"""Reading of encrypted logs."""
