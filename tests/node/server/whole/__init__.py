"""A whole federation of real nodes, on a simulated event loop, with random faults from a seed."""
