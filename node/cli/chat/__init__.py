"""`parley chat`: a room on one node, and the people in it."""
