"""`parley topics`: what a node offers to me, for people, for JSON Schema and for a shell."""
