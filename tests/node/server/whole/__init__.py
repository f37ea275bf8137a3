"""A whole federation of the real code, on a simulated loop, with faults that a seed draws."""
