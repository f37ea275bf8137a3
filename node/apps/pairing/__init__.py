"""Short codes, which let two nodes authenticate each other for the first time (protocol.md 21)."""
