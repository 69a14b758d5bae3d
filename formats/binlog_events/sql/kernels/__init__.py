"""Compiled code for the frequent events of scripts."""
