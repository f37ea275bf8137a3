"""Protocol cores of the older dialects that a node supports: SimProto, named events, event
relay.
"""
