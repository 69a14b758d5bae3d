"""What statements say of tables."""
