"""HTTP: the operator's console, the metrics, and the server for both."""
