"""The event relay: messages between clients that are known by a UUID, over one server."""
