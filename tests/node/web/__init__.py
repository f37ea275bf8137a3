"""Of `node/web`."""
