"""The I/O shell: sockets, memory pairs, timers, and the driver that serves a core."""
