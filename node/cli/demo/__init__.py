"""`parley demo`: a demonstration with real nodes in several processes."""
