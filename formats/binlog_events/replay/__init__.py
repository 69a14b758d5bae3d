"""Simulation of a server's applier of events."""
