"""A second implementation of the dialects: SimProto, named events and the event relay.

It is written from the documents alone with struct, and doesn't import lbm, crypto or node.
`simproto`, `named` and `relay` encode and decode bytes; `*_raw` are blocking clients over a socket,
for tests without project code on the other side.
"""
