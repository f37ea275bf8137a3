"""Of `node/web/console`."""
