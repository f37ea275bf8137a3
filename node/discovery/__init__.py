"""Discovery of nodes on the local network by multicast DNS, with `zeroconf` (extra `discovery`).

Announcements are unverified: the handshake proves that an address has the announced node id.
"""
