"""Applications built on a node, each with commands of the same name."""
