"""The bus between nodes: category 6 of the protocol."""
