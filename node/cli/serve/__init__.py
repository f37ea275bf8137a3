"""`parley serve`: a node that listens, and everything it offers."""
