"""HTTP for browsers and Prometheus: the console, metrics and health of a node."""
