"""Events in file order: what each means, beside those before it."""
