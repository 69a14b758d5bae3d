"""Benchmarks: ratios measured in one run, against the peers and the physical limit. `python -m bench --help`."""
