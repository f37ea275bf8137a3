"""The event relay: the gateway, the client, and the bridge between both."""
