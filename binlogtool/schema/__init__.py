"""Run schemas of records: programs, interpreter, generated Python and C, native library."""
