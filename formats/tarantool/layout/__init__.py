"""Detection, text headers and blocks of files."""
