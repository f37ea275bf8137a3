"""HTTP: the operator's console, metrics, and the server of both."""
