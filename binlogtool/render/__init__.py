"""Terminal and picture output: escaping, hexdumps, tables, HTML pages, SVG."""
