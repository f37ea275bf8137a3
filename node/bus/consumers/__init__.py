"""Consumers of a bus: fetching, handlers, acknowledgements."""
