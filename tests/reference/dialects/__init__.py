"""A second reading of the dialects' documents: SimProto, named events, the event relay.

Written from the documents alone with struct: it imports nothing of lbm, crypto or
node. `simproto`, `named` and `relay` build and read bytes; `*_raw` are blocking
clients over a socket, for tests that use no project code on the other side.
"""
