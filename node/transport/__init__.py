"""Sockets, memory streams, timers, and the driver that runs a protocol core."""
