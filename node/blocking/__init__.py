"""Peers and links for programs that await nothing: scripts, notebooks, threads."""
