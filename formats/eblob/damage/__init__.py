"""Classification of damage."""
