"""Protocol Buffers messages."""
