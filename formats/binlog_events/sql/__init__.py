"""Events as scripts that a server runs."""
