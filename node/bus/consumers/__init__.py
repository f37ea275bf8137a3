"""The consumers of a bus: loops, the workers of handlers, and what becomes of their events."""
