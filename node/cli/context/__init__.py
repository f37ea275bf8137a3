"""`parley context`: names for the nodes that one speaks with, and how one does."""
