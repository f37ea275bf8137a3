"""Faults in the handshake: one catalogue, tried on the core in memory and on a node over TCP."""
