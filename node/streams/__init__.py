"""The streams of a connection, as applications use them: bytes and typed events."""
