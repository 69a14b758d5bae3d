"""Run schemas: program, interpreter, generated Python, generated C, native library."""
