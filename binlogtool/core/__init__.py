"""Read logs: bytes, detection, log sets, scanning, resynchronization, records, selection."""
