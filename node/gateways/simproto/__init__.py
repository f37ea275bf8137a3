"""SimProto: the gateway for its clients, and its own client."""
