"""Kernels that write SQL scripts."""
