"""Groups as scripts that a server runs."""
