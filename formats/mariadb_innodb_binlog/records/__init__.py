"""Records that are assembled from pages."""
