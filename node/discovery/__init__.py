"""Discovery of nodes on the local network by multicast DNS, with `zeroconf` (extra `discovery`).

Announcements are unverified: the handshake proves that an address belongs to the announced node ID.
"""
