"""A chat room of a node."""
