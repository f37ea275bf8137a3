"""`parley bus`: events of a durable bus, from a shell."""
