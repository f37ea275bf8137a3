"""Who else is on the local network: multicast DNS, by `zeroconf` (the extra `discovery`).

What is found is a proposal: a node id, and addresses at which that node says that it is. Nobody
vouches for it but the handshake, in which whoever answers has to be that node.
"""
