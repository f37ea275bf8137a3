"""Wycheproof: published vectors of what went wrong elsewhere, through our own wrappers."""
