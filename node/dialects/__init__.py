"""Cores of the older protocols that a node also supports: SimProto, named events, the event
relay."""
