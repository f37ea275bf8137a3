"""Links: a peer that is kept reachable, over as many sessions as it takes (section 18)."""
