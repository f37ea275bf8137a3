"""Servers and clients of other dialects that use a node's handlers and topics."""
