"""Chat rooms."""
