"""Other dialects joined to a node: servers and clients that share its handlers and topics."""
