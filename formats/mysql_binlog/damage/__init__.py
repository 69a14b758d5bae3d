"""Damage to a log, explained."""
