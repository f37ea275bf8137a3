"""The bus of another node as a store, and the service that offers a bus to peers."""
