"""The remote side of a connection as handlers see it, and the connection itself."""
