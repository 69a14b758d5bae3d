"""What the applier of a server does with events."""
