"""The event relay: one server that forwards messages between clients identified by UUIDs."""
