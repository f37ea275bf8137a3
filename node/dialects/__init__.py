"""The older protocols that a node speaks as well: SimProto, named events, the event relay."""
