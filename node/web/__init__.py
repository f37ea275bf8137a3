"""Pages and numbers of a node for browsers and for Prometheus: HTTP, on one address of its own."""
