"""Protocol Buffers: the wire format, messages, JSON lines."""
