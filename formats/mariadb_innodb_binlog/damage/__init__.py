"""Classification of damage, and repair of the header page."""
