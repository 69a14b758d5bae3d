"""Simulation of a server that applies events."""
