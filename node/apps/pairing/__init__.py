"""Short codes, by which two nodes that have never met get to know each other (protocol.md 21)."""
