"""Records assembled from pages."""
