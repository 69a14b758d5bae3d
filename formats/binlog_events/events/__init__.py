"""Single events: frames, bodies, decoding, writing."""
