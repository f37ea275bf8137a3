"""What peers ask of a node: who may, and which handler runs."""
