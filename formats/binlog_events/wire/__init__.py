"""Binary encoding of event headers and bodies."""
