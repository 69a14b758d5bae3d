"""Reading logs: sources, detection, scanning, resynchronization, selection, records and following."""
