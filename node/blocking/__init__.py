"""Synchronous peers and links, for scripts, notebooks and threads."""
