"""Servers and clients of other dialects, with a node's handlers and topics."""
