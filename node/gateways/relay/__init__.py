"""The event relay: the server, the client, and the bridge to a topic."""
