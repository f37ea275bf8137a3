"""Consuming: the loop, the handlers' workers, and what becomes of what they fail."""
