"""Protocol Buffers: the wire format and its messages."""
