"""How the fields of event bodies lie in their bytes."""
