"""`parley doctor`: find problems and weaknesses of this machine and of a connection."""
