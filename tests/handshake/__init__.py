"""Handshake faults: one catalogue, tested on the core in memory and on a node over TCP."""
