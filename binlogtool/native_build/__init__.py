"""Build the native library of walks and kernels."""
