"""The values of row images: what they are, as Python values and as JSON."""
